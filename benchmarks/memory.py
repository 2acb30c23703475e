"""Memory of a train step, all copies at once and in chunks: what XLA plans, and what was used.

    python -m benchmarks.memory
    python -m benchmarks.memory --config=experiments/cifar10.py --copies=20 --chunks=0,5,1

Temporaries are the compiled step's own figure; the peak is that of a process which makes two steps
(each row runs in a process of its own), and holds Python and JAX as well. Pictures are random.
"""

import argparse
import importlib
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence

import numpy as np

from benchmarks.stored import RESULTS, store


def measure(config_file: str, copies: int, chunk: int) -> dict[str, float]:
    """Make two steps in this process; memory in MiB."""
    import jax

    from benchmarks.random_pictures import random_pictures
    from experiments.setup.assembly import assemble

    module = importlib.import_module(config_file.removesuffix(".py").replace("/", "."))
    config = module.get_config("")
    config.objective.copies, config.objective.copies_per_chunk = copies, chunk
    size, channels = (28, 1) if "mnist" in config.data.name else (32, 3)
    batch = config.train.batch_size
    parts = assemble(config, random_pictures(batch, (size, size, channels), classes=10))
    images, labels = parts.data.train.images, parts.data.train.labels
    state, step, index = parts.init_state(), parts.make_step(resident=True), np.arange(batch)
    compiled = step.lower(state, images, labels, index).compile()
    seconds = []
    for _ in range(2):
        started = time.perf_counter()
        state = jax.block_until_ready(step(state, images, labels, index))
        seconds.append(time.perf_counter() - started)
    return {
        "copies": copies,
        "copies_per_chunk": chunk,
        "batch": batch,
        "temporaries_mib": compiled.memory_analysis().temp_size_in_bytes / 2**20,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,
        "seconds_per_step": seconds[-1],
    }


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="experiments/mnist.py")
    parser.add_argument("--copies", type=int, default=20)
    parser.add_argument("--chunks", default="0,10,5,1", help="copies per chunk; 0: all at once")
    parser.add_argument("--out", default=str(RESULTS / "memory.json"))
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.one is not None:
        print(json.dumps(measure(given.config, given.copies, given.one)))
        return
    rows = []
    print(f"{given.config}, {given.copies} copies\nchunk  temporaries    peak  step")
    for chunk in given.chunks.split(","):
        line = [sys.executable, "-m", "benchmarks.memory", *arguments, f"--one={chunk}"]
        done = subprocess.run(line, check=True, capture_output=True, text=True)
        row = json.loads(done.stdout.splitlines()[-1])
        rows.append(row)
        print(
            f"{chunk:>5}  {row['temporaries_mib']:7.0f} MiB  {row['peak_mib']:5.0f} MiB  "
            f"{row['seconds_per_step']:.2f} s",
            flush=True,
        )
    store(given.out, {"config": given.config, "rows": rows})


if __name__ == "__main__":
    main(sys.argv[1:])
