"""Where the time of a train step goes on this device, part by part: ours alone.

    python -m benchmarks.parts [--quick]

The paper's step for CIFAR-10 (experiments/cifar10.py: 256 images, 20 views of each), with the
classifier in float32 and in bfloat16, and Mario-Iggy's with the paper's flow. Of each: seconds from
nothing to the end of its first step (compiling); milliseconds of a step that is waited for, and of
one of many that are not; and of those waited for, how they divide among embedding, density, warp,
classifier and optimizer, as JAX's own trace has it. Beside them the rates of operations and of
bytes by the model of `benchmarks.cost`. Needs no PyTorch.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks import cost
from benchmarks.random_pictures import random_pictures
from benchmarks.stored import RESULTS, store
from experiments import cifar10, mario_iggy
from experiments.running.profiling import Profile
from experiments.running.run_folder import RunFolder
from experiments.setup import defaults
from experiments.setup.assembly import assemble

__all__ = ["parts", "section"]

_SHAPE, _CLASSES, _IMAGES = (32, 32, 3), 10, 1_024
_TRACED = 5


def parts(name: str, config: defaults.Config, *, chained: int) -> Iterator[dict[str, Any]]:
    """Measure the step of an experiment on which the density learns, on random pictures.

    Args:
        name: for the table.
        config: of the experiment.
        chained: steps that follow each other without a wait.

    Yields:
        "work", "first_seconds", "chained_ms", and of the chained steps "tflop_per_second" and
        "gb_per_second"; then the same with what the trace adds, should it end well: "ms", and
        "parts_ms" (part to milliseconds).
    """
    started = time.perf_counter()
    config.objective.burn_in_epochs = 0
    number = max(_IMAGES, config.train.batch_size)
    made = assemble(config, random_pictures(number, _SHAPE, _CLASSES))
    state, step = made.init_state(), made.make_step(resident=True)
    images, labels = jax.device_put((made.data.train.images, made.targets))
    indices = np.arange(config.train.batch_size, dtype=np.int32)
    state = jax.block_until_ready(step(state, images, labels, indices))
    first = time.perf_counter() - started
    began = time.perf_counter()
    for _ in range(chained):
        state = step(state, images, labels, indices)
    jax.block_until_ready(state)
    seconds = (time.perf_counter() - began) / chained
    paper, batch = cost.of_step(config, _SHAPE, _CLASSES), config.train.batch_size
    found = {
        "work": f"{name}, {batch} x {config.objective.copies}, {config.classifier.dtype}",
        "first_seconds": first,
        "chained_ms": 1e3 * seconds,
        "tflop_per_second": batch * paper["flops_per_image"] / seconds / 1e12,
        "gb_per_second": batch * paper["bytes_per_image"] / seconds / 1e9,
    }
    yield found
    with tempfile.TemporaryDirectory() as place:
        folder = RunFolder(place)
        with Profile(range(1, 1 + _TRACED), folder) as traced:
            for number in range(1 + _TRACED):
                state = traced.call(number, step, state, images, labels, indices)
        profile: Any = folder.read_json("profile.json")
    yield found | {
        "ms": 1e3 * profile["seconds_per_step"],
        "parts_ms": {k: 1e3 * v for k, v in profile["parts_seconds_per_step"].items()},
    }


def _cifar10(dtype: str) -> defaults.Config:
    config = cifar10.get_config()
    config.classifier.dtype = dtype
    return config


def section(content: dict[str, Any]) -> str:
    """Return what was found as Markdown."""
    names = list(dict.fromkeys(part for row in content["rows"] for part in row.get("parts_ms", {})))
    head = ("step", "first, s", "ms", "chained, ms", *names, "TFLOP/s", "GB/s")
    lines = [
        (
            row["work"],
            f"{row['first_seconds']:.1f}",
            f"{row['ms']:.3g}" if "ms" in row else "-",
            f"{row['chained_ms']:.3g}",
            *(f"{row.get('parts_ms', {}).get(part, 0.0):.3g}" for part in names),
            f"{row['tflop_per_second']:.3g}",
            f"{row['gb_per_second']:.3g}",
        )
        for row in content["rows"]
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *lines))


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parts", description=__doc__)
    parser.add_argument("--repeats", type=int, default=50, help="steps that are not waited for")
    parser.add_argument("--quick", action="store_true", help="one small step, to see that it runs")
    parser.add_argument("--out", type=Path, default=RESULTS / "parts.json")
    given = parser.parse_args(arguments)
    cases = [("mario_iggy:paper", mario_iggy.get_config("paper"))]
    if given.quick:
        cases[0][1].train.batch_size = 8
    else:
        cases = [*(("cifar10", _cifar10(dtype)) for dtype in ("bfloat16", "float32")), *cases]
    rows: dict[str, dict[str, Any]] = {}
    for case in cases:
        for row in parts(*case, chained=2 if given.quick else given.repeats):
            rows[row["work"]] = row
            store(given.out, {"rows": [*rows.values()]})
    print(section({"rows": [*rows.values()]}))


if __name__ == "__main__":
    main(sys.argv[1:])
