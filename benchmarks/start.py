"""How long until something happens: imports, and the first training step of a command.

    python -m benchmarks.start

Every figure is of a process of its own, medians over `--repeats`. "cold": with an empty cache of
compiled programs; "warm": with what the run before it left there.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.stored import RESULTS, store

_IMPORT = """
import time
started = time.perf_counter()
import jax
jax_alone = time.perf_counter()
from flowjax_inv.inference import mean_shift
print(jax_alone - started, time.perf_counter() - jax_alone)
"""


def import_seconds() -> tuple[float, float]:
    """Return the seconds of `import jax`, and of mean_shift's import after it."""
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT], check=True, capture_output=True, text=True
    )
    jax_alone, ours = map(float, done.stdout.split())
    return jax_alone, ours


def first_step_seconds(config: str, cache: str) -> float:
    """Return the seconds from a command to the end of its first step, as metrics.jsonl shows it."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_COMPILATION")}
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        process = subprocess.Popen(
            [
                sys.executable, "-m", "experiments.run", f"--config={config}",
                f"--workdir={folder}/run", "--config.train.log_every=1",
            ],
            env=environment | {"XDG_CACHE_HOME": cache},
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        metrics = Path(folder, "run", "metrics.jsonl")
        # A line is written when the next step has begun: at most one step late.
        while not (metrics.exists() and metrics.stat().st_size):
            if process.poll() is not None:
                raise RuntimeError(f"{config} ended before its first step")
            time.sleep(0.01)
        seconds = time.perf_counter() - started
        process.kill()
        process.wait()
    return seconds


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.start", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--config", default="experiments/mario_iggy.py")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS / "start.json")
    given = parser.parse_args(arguments)
    seconds: dict[str, list[float]] = {}

    def add(name: str, value: float) -> None:
        seconds.setdefault(name, []).append(value)

    for _ in range(given.repeats):
        jax_alone, ours = import_seconds()
        add("import jax", jax_alone)
        add("then import mean_shift", ours)
        with tempfile.TemporaryDirectory() as cache:
            add("first step, cold", first_step_seconds(given.config, cache))
            add("first step, warm", first_step_seconds(given.config, cache))
    rows = [{"what": k, "seconds": statistics.median(v), "all": v} for k, v in seconds.items()]
    for row in rows:
        print(f"{row['what']:24} {row['seconds']:6.2f} s")
    store(given.out, {"config": given.config, "rows": rows})


if __name__ == "__main__":
    main(sys.argv[1:])
