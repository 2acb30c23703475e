"""Time calls in turns, compare medians, write what was found: shared by the benchmarks."""

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.stored import RESULTS
from experiments.running.run_folder import environment

__all__ = [
    "ALLOCATORS",
    "OURS",
    "compare",
    "difference",
    "main",
    "measure",
    "table",
]

QUICK = 3  # rounds
OURS = "flowjax_inv"  # its name among the calls that are compared
_PAUSE_SECONDS, _WARM_SECONDS = 0.005, 0.015  # before a timed call: nothing, then untimed calls

# How the C library hands out large blocks; it reads this once, when a process starts. "system":
# as it is, every large temporary is mapped afresh, page by page. "keep": freed memory is kept.
ALLOCATORS: dict[str, dict[str, str]] = {
    "system": {},
    "keep": {
        "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
        "MALLOC_TRIM_THRESHOLD_": str(4 << 30),
        "MALLOC_TOP_PAD_": str(256 << 20),
        "MALLOC_ARENA_MAX": "1",
    },
}

Row = dict[str, Any]
Call = Callable[[], object]


def measure(calls: Mapping[str, Call], *, repeats: int) -> dict[str, list[float]]:
    """Time calls in turns: `repeats` rounds, every call timed once, another one first each time.

    Args:
        calls: name -> function; it must return only when its result is there.
        repeats: rounds.

    Returns:
        name -> seconds, one entry per round.
    """
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for call in calls.values():  # compilation, and memory that is asked for once
        call()
    for turn in range(repeats):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            # As in a loop of its own: the threads of the library before, which wait for work by
            # spinning, get time to fall asleep, and the cache time to fill.
            time.sleep(_PAUSE_SECONDS)
            start = time.perf_counter()
            while True:
                calls[name]()
                if time.perf_counter() - start > _WARM_SECONDS:
                    break
            start = time.perf_counter()
            calls[name]()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def compare(seconds: Mapping[str, Sequence[float]]) -> Row:
    """Return the ratio, theirs over ours, of the medians; theirs is the fastest of the others.

    The quartiles of the ratio are those of the ratios of single rounds.
    """

    def milliseconds(name: str) -> dict[str, float]:
        low, middle, high = _quartiles(seconds[name])
        return {"median": middle * 1e3, "low": low * 1e3, "high": high * 1e3}

    others = [name for name in seconds if name != OURS]
    best = min(others, key=lambda name: statistics.median(seconds[name]))
    rounds = [b / a for a, b in zip(seconds[OURS], seconds[best], strict=True)]
    low, _, high = _quartiles(rounds)
    ours, theirs = milliseconds(OURS), milliseconds(best)
    return {
        "ratio": theirs["median"] / ours["median"],
        "ratio_quartiles": [low, high],
        "ours_ms": ours,
        "theirs": best,
        "theirs_ms": theirs,
        "slower_ms": {name: milliseconds(name) for name in others if name != best},
    }


def difference(ours: Any, theirs: Any, tolerance: float, what: str) -> float:
    """Return max |ours - theirs| / max |theirs|, and refuse to time what is not the same.

    Raises:
        ValueError: if it is above the tolerance.
    """
    a, b = (np.asarray(x.cpu() if hasattr(x, "cpu") else x) for x in (ours, theirs))
    largest = float(np.max(np.abs(a - b)) / max(float(np.max(np.abs(b))), 1e-30))
    if a.shape != b.shape or not largest <= tolerance:
        raise ValueError(
            f"{what}: the two sides differ by {largest:.1e} of the largest value, shapes "
            f"{a.shape} and {b.shape}; allowed {tolerance:.0e}. They must compute the same."
        )
    return largest


def table(rows: Sequence[Row]) -> str:
    """Return rows as a Markdown table, ratio first."""
    head = ("ratio", "quartiles", "work", "ours ms", "theirs ms", "theirs", "allocator", "differ")
    lines = [
        (
            f"{row['ratio']:.2f}",
            "{:.2f}-{:.2f}".format(*row["ratio_quartiles"]),
            row["work"],
            "{median:.2f} ({low:.2f}-{high:.2f})".format(**row["ours_ms"]),
            "{median:.2f} ({low:.2f}-{high:.2f})".format(**row["theirs_ms"]),
            row["theirs"],
            row["allocator"],
            f"{row['difference']:.0e}",
        )
        for row in rows
    ]
    widths = [max(len(line[i]) for line in (head, *lines)) for i in range(len(head))]
    rule = tuple("-" * width for width in widths)
    return "\n".join(
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) + " |"
        for line in (head, rule, *lines)
    )


def main(
    name: str,
    make_rows: Callable[[int], Iterable[Row]],
    settings: Mapping[str, Any],
    arguments: Sequence[str],
    *,
    about: str,
    packages: Sequence[str] = (),
    allocators: str = "system",
) -> None:
    """Run a benchmark from the command line: print its table, write its JSON.

    Args:
        name: of the module, and of results/NAME.json.
        make_rows: number of repeats -> rows: `compare`, with "work" and "difference" beside. The
            JSON is written after every row: what is cut keeps those it has.
        settings: what is computed: sizes and configuration, for the JSON.
        arguments: of the command line.
        about: what --help says.
        packages: whose versions are written, beside those of our environment and torch.
        allocators: where --allocator is not given: one of `ALLOCATORS`, or "both".
    """
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=about)
    parser.add_argument("--repeats", type=int, default=40, help="rounds of timed calls")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} rounds, to see that it runs")
    parser.add_argument(
        "--allocator",
        choices=[*ALLOCATORS, "both"],
        default=allocators,
        help="of both sides: the system's, one that keeps freed memory, or one after the other",
    )
    parser.add_argument("--out", type=Path, default=RESULTS / f"{name}.json")
    given = parser.parse_args(arguments)
    repeats = QUICK if given.quick else given.repeats
    if repeats < 2:
        parser.error(f"--repeats is {repeats}; quartiles want 2 or more.")
    if not _reached(jax.default_backend()):  # theirs would stay on the CPU
        parser.error(
            f"JAX computes on {jax.default_backend()}, where PyTorch as it is installed does not; "
            "set JAX_PLATFORMS=cpu to compare both on the CPU."
        )

    wanted = list(ALLOCATORS) if given.allocator == "both" else [given.allocator]
    given.out.parent.mkdir(parents=True, exist_ok=True)
    content: dict[str, Any] = {"rows": []}
    if len(wanted) > 1 or any(os.environ.get(k) != v for k, v in ALLOCATORS[wanted[0]].items()):
        content = _in_fresh_processes(name, wanted, repeats)
        _write(given.out, content)
    else:
        about_it = {
            "benchmark": name,
            "settings": {**settings, "repeats": repeats},
            "environment": _environment(packages),
        }
        for row in make_rows(repeats):
            content = about_it | {"rows": [*content["rows"], row | {"allocator": wanted[0]}]}
            _write(given.out, content)
    print(table(content["rows"]))
    print(f"ratio: time of theirs / time of ours, more is better; written: {given.out}")


def _write(out: Path, content: Mapping[str, Any]) -> None:
    out.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _reached(backend: str) -> bool:
    """Return whether PyTorch computes where JAX does."""
    if backend != "gpu":
        return backend == "cpu"
    import torch  # see `_environment`

    return torch.cuda.is_available()


def _quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def _in_fresh_processes(name: str, allocators: Sequence[str], repeats: int) -> dict[str, Any]:
    """Run a benchmark once per allocator, each in a process of its own, and join the rows."""
    parts = []
    every = {key for setting in ALLOCATORS.values() for key in setting}
    clean = {key: value for key, value in os.environ.items() if key not in every}
    with tempfile.TemporaryDirectory() as folder:
        for allocator in allocators:
            out = Path(folder, f"{allocator}.json")
            command = [sys.executable, "-m", f"benchmarks.{name}", f"--allocator={allocator}"]
            subprocess.run(
                [*command, f"--repeats={repeats}", f"--out={out}"],
                env={**clean, **ALLOCATORS[allocator]},
                stdout=subprocess.DEVNULL,
                check=True,
            )
            parts.append(json.loads(out.read_text(encoding="utf-8")))
    return parts[0] | {"rows": [row for part in parts for row in part["rows"]]}


def _environment(packages: Sequence[str]) -> dict[str, Any]:
    """Return what both sides ran on."""
    import torch  # the benchmarks' own dependency: this module is tested without it

    return {
        **environment(),
        "processor": _processor(),
        **{package: importlib.metadata.version(package) for package in ("torch", *packages)},
        "torch_threads": torch.get_num_threads(),
        # XLA has no count to ask for: its pool has one thread per processor it may use.
        "xla_threads": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
    }


def _processor() -> str:
    """Return the processor's model: platform.processor() is empty on Linux."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
