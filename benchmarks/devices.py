"""What it costs to spread one step over simulated devices: the same batch on 1, 2, 4 and 8.

    python -m benchmarks.devices [--quick]

All devices are threads of this machine and share its cores. Above one: the price of dividing
(smaller pieces of work, sums over devices). Below one: XLA leaves cores idle within a single
program, and several programs side by side fill them. Each number of devices runs in a process of
its own, several times in turns. Ours alone.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

import numpy as np

from benchmarks.stored import RESULTS, store
from benchmarks.timing import ALLOCATORS

COUNTS = (1, 2, 4, 8)
STEPS = 12
FLAG = "--xla_force_host_platform_device_count"


def measure(name: str, parallel: str) -> float:
    """Return the median seconds of a step on all devices of this process."""
    import jax

    from benchmarks.random_pictures import random_pictures
    from experiments import mario_iggy, mnist
    from experiments.setup.assembly import assemble

    config = {"mario_iggy": mario_iggy, "mnist": mnist}[name].get_config(
        "paper" if name == "mario_iggy" else "cpu"
    )
    config.parallel = parallel
    size, classes = ((32, 32, 3), 2) if name == "mario_iggy" else ((28, 28, 1), 10)
    # On several devices convolutions are plain ones; so on one, that the devices alone differ.
    config.classifier.conv = config.embedding.conv = "lax"
    config.transform.warp = "gather"
    batch = config.train.batch_size
    parts = assemble(config, random_pictures(batch, size, classes))
    train = parts.data.train
    images, labels = parts.place.replicate((train.images, train.labels))
    state, step = parts.init_state(), parts.make_step(resident=True)
    index, seconds = np.arange(batch), []
    for _ in range(STEPS):
        started = time.perf_counter()
        state = jax.block_until_ready(step(state, images, labels, index))
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[2:])


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3, help="processes per number of devices")
    parser.add_argument("--quick", action="store_true", help="one process each")
    parser.add_argument("--out", default=str(RESULTS / "devices.json"))
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.one:
        print(json.dumps(measure(*given.one)))
        return
    rows, repeats = [], 1 if given.quick else given.repeats
    print("step        devices   jit            pmap")
    for name in ("mario_iggy", "mnist"):
        seconds: dict[tuple[int, str], list[float]] = {}
        for _ in range(repeats):
            for count in COUNTS:
                for parallel in ("jit", "pmap"):
                    line = [sys.executable, "-m", "benchmarks.devices", "--one", name, parallel]
                    flags = {"XLA_FLAGS": f"{FLAG}={count}"}
                    done = subprocess.run(
                        line,
                        check=True,
                        capture_output=True,
                        text=True,
                        env=os.environ | ALLOCATORS["keep"] | flags,
                    )
                    last = json.loads(done.stdout.splitlines()[-1])
                    seconds.setdefault((count, parallel), []).append(last)
        for count in COUNTS:
            row = {"step": name, "devices": count}
            for parallel in ("jit", "pmap"):
                median = statistics.median(seconds[count, parallel])
                row[f"{parallel}_ms"] = 1e3 * median
                row[f"{parallel}_over_one"] = median / statistics.median(seconds[1, "jit"])
            rows.append(row)
            print(
                f"{name:12}{count:5}   {row['jit_ms']:6.1f} ms {row['jit_over_one']:4.2f}  "
                f"{row['pmap_ms']:6.1f} ms {row['pmap_over_one']:4.2f}",
                flush=True,
            )
    store(given.out, {"benchmark": "devices", "repeats": repeats, "rows": rows})


if __name__ == "__main__":
    main(sys.argv[1:])
