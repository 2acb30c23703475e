"""One sitting at an accelerator: limits, laws, speed, and training with the rest of the time.

    python -m benchmarks.card --minutes 9 --out DIR [--data PREPARED_SETS] [--config.FIELD=...]
    python -m benchmarks.card --minutes 9 --resume DIR     # what was cut goes on
    python -m benchmarks.card --requirements               # packages that a bare machine lacks

Works offline. The stages follow each other, each a process of its own with its share of the time,
and each leaves what it found at once: DIR/STAGE.json and DIR/card.md are whole after every stage,
so that a cut loses one. What cannot run says why: benchmarks beside PyTorch where it is missing,
the training where its set is. `benchmarks.page` reads the JSON files of a folder.

Stages: limits (copy, product, every way of warping), laws (the fast tests, on the device, failures
by name), parts (where a step's time goes), warp, step, flow, predict (beside PyTorch), train
(--config, by its own recipe in bfloat16 and with the fields given; stopped as by Ctrl-C when the
time is up, and resumed by --resume), plain (the same without a density).
"""

import argparse
import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import limits, parts, timing
from experiments.report.tables import summary

__all__ = ["STAGES", "Sitting", "Stage", "main", "page", "requirements"]

ROOT = Path(__file__).parents[1]
_LAWS = (
    "distributions", "transforms", "warps", "bijections", "couplings", "crops", "shifting",
    "objectives", "inference", "metrics", "certifying", "precision",
)  # fmt: skip
_CONFIG = "experiments/cifar10.py"
_PROCESSES = 8  # of the laws: most of their time is compiling, on the host
_GRACE = 20.0  # seconds to write a checkpoint in
_LEAST = 2.0  # seconds; a stage that would have less is left for the next sitting


@dataclasses.dataclass(frozen=True)
class Sitting:
    """What all stages share.

    Attributes:
        out: folder of what is found.
        data: folder of the prepared sets; empty: where they usually are.
        config: of the training.
        fields: of it, as flags.
        quick: as little as possible, to see that it runs.
        backend, device: where JAX computes, and what that is called.
    """

    out: Path
    data: str
    config: str
    fields: tuple[str, ...]
    quick: bool
    backend: str
    device: str


@dataclasses.dataclass(frozen=True)
class Stage:
    """One process.

    Attributes:
        name: of DIR/NAME.json.
        share: of all the time, at most; what is left of it the later stages have.
        command: of a sitting, what is run.
        found: of a sitting and what was printed, what is kept; None if that wrote its own JSON.
        shown: of what is kept, Markdown.
        lacking: why it cannot run here; empty if it can.
        trains: leaves a checkpoint when it is told to stop.
    """

    name: str
    share: float
    command: Callable[[Sitting], list[str]]
    found: Callable[[Sitting, str], dict[str, Any]] | None
    shown: Callable[[dict[str, Any]], str]
    lacking: Callable[[Sitting], str] = lambda _: ""
    trains: bool = False


def _module(name: str, *more: str) -> list[str]:
    return [sys.executable, "-m", name, *more]


def _beside_torch(name: str, share: float, *libraries: str) -> Stage:
    def command(sitting: Sitting) -> list[str]:
        quick = ["--quick"] if sitting.quick else ["--repeats=10"]
        out = f"--out={sitting.out / name}.json"
        return _module(f"benchmarks.{name}", *quick, "--allocator=keep", out)

    def lacking(_: Sitting) -> str:
        missing = [each for each in ("torch", *libraries) if not importlib.util.find_spec(each)]
        return f"not installed: {', '.join(missing)}" if missing else ""

    return Stage(name, share, command, None, lambda c: timing.table(c["rows"]), lacking)


def _alone(name: str, share: float, shown: Callable[[dict[str, Any]], str]) -> Stage:
    def command(sitting: Sitting) -> list[str]:
        quick = ["--quick"] if sitting.quick else []
        return _module(f"benchmarks.{name}", *quick, f"--out={sitting.out / name}.json")

    return Stage(name, share, command, None, shown)


def _laws(sitting: Sitting) -> list[str]:
    names = ("certifying",) if sitting.quick else _LAWS
    tests = [f"tests/test_{name}.py" for name in names]
    several = importlib.util.find_spec("xdist") and not sitting.quick
    spread = ["-n", str(_PROCESSES)] if several else []
    # pytest-benchmark, where it is, warns of xdist, and our tests take warnings for errors.
    quiet = ["-p", "no:benchmark"]
    return _module("pytest", "-v", "--tb=line", "-m", "not slow", *quiet, *spread, *tests)


def _laws_found(_: Sitting, said: str) -> dict[str, Any]:
    """Read pytest's lines of single tests: they are there whenever it is cut."""
    ends = re.findall(r"(PASSED|FAILED|ERROR|SKIPPED)\s+(tests/\S+)", said)  # of xdist
    ends += [
        (e, n) for n, e in re.findall(r"^(tests/\S+) (PASSED|FAILED|ERROR|SKIPPED)", said, re.M)
    ]
    failed = sorted({name for end, name in ends if end in ("FAILED", "ERROR")})
    passed = len({name for end, name in ends if end == "PASSED"} - {*failed})
    return {"passed": passed, "failed": failed}


def _laws_shown(content: dict[str, Any]) -> str:
    failed = [f"- {name}" for name in content["failed"]]
    return "\n".join([f"{content['passed']} passed, {len(failed)} failed", *failed])


def _training(name: str, *fields: str) -> Stage:
    """A run in DIR/NAME, with whatever time there is."""

    def command(sitting: Sitting) -> list[str]:
        folder = [f"--config.data.dir={sitting.data}"] if sitting.data else []
        return _module(
            "experiments.run", f"--config={sitting.config}", "--config.classifier.dtype=bfloat16",
            f"--workdir={sitting.out / name}", *folder, *sitting.fields, *fields,
        )  # fmt: skip

    def found(sitting: Sitting, said: str) -> dict[str, Any]:
        metrics, results = (sitting.out / name / each for each in ("metrics.jsonl", "results.json"))
        lines = metrics.read_text(encoding="utf-8").splitlines() if metrics.is_file() else []
        return {
            "config": " ".join((sitting.config, *sitting.fields, *fields)),
            "last": json.loads(lines[-1]) if lines else {},
            "results": json.loads(results.read_text(encoding="utf-8")) if results.is_file() else {},
            "said": said.strip().splitlines()[-1:],
        }

    return Stage(name, 1.0, command, found, _trained, trains=True)


def _trained(content: dict[str, Any]) -> str:
    last, results = content["last"], content["results"]
    if results:
        times = f"first step after {results['seconds_to_first_step']:.0f} s, finished in "
        return f"{content['config']}, {times}{results['seconds']:.0f} s.\n\n" + summary(results)
    if not last:
        return " ".join(content["said"])
    figures = ", ".join(f"{k} {v:.3g}" for k, v in last.items() if isinstance(v, int | float))
    return f"{content['config']}, stopped: {figures}. It goes on with --resume."


STAGES = (
    _alone("limits", 0.08, limits.section),
    Stage("laws", 0.11, _laws, _laws_found, _laws_shown,
          lambda _: "" if importlib.util.find_spec("pytest") else "pytest is not installed"),
    _alone("parts", 0.11, parts.section),
    _beside_torch("warp", 0.08),
    _beside_torch("step", 0.16),
    _beside_torch("flow", 0.08, "normflows", "zuko", "flowjax"),
    _beside_torch("predict", 0.08),
    _training("train"),
    _training("plain", "--config.distribution.name=identity"),
)  # fmt: skip


def _run(stage: Stage, sitting: Sitting, seconds: float) -> dict[str, Any]:
    """Run a stage for so long at most; return how it ended, and what it found."""
    why = stage.lacking(sitting)
    if why:
        return {"end": f"left out: {why}", "seconds": 0.0}
    file = sitting.out / f"{stage.name}.json"
    file.unlink(missing_ok=True)
    started = time.monotonic()
    where = {"TEST_PLATFORM": "cuda" if sitting.backend == "gpu" else sitting.backend}
    log = sitting.out / f"{stage.name}.log"
    with log.open("w", encoding="utf-8") as written:
        child = subprocess.Popen(
            stage.command(sitting), cwd=ROOT, stdout=written, stderr=subprocess.STDOUT,
            env=os.environ | timing.ALLOCATORS["keep"] | where,
        )  # fmt: skip
        try:
            code = child.wait(max(seconds - _GRACE * stage.trains, 1.0))
            end = "finished" if code == 0 else f"ended with {code}"
        except subprocess.TimeoutExpired:
            end = "cut"
            child.send_signal(signal.SIGINT)
            try:
                child.wait(_GRACE)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
    said = log.read_text(encoding="utf-8", errors="replace")
    if stage.found:
        # Not by `stored.store`: it asks JAX for the device, and whoever has asked keeps most of
        # its memory from the stages that follow.
        text = json.dumps(stage.found(sitting, said), indent=2, allow_nan=False)
        file.write_text(text + "\n", encoding="utf-8")
    if not file.is_file():
        end += f"; {' '.join(said.strip().splitlines()[-1:])[:200]}"
    return {"end": end, "seconds": time.monotonic() - started}


def _device() -> tuple[str, str]:
    """Return where JAX computes; asked in a process of its own, which gives the memory back."""
    code = "import jax; print(jax.default_backend(), jax.devices()[0].device_kind, sep='\\t')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    backend, _, device = done.stdout.strip().splitlines()[-1].partition("\t")
    return backend, device


def page(sitting: Sitting, ends: dict[str, dict[str, Any]]) -> str:
    """Return what all stages so far found, as Markdown."""
    versions = [
        f"{name} {importlib.metadata.version(name)}"
        for name in ("jax", "jaxlib", "torch")
        if importlib.util.find_spec(name)
    ]
    parts = [f"# {sitting.device}", ", ".join(versions) + "."]
    for stage in STAGES:
        if stage.name not in ends:
            continue
        end = ends[stage.name]
        parts.append(f"## {stage.name}: {end['end']}, {end['seconds']:.0f} s")
        file = sitting.out / f"{stage.name}.json"
        if file.is_file():
            parts.append(stage.shown(json.loads(file.read_text(encoding="utf-8"))))
    return "\n\n".join(parts) + "\n"


def requirements() -> list[str]:
    """Return the packages beyond JAX, Flax, Optax, Orbax and PyTorch that a sitting wants."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    there = ("jax", "flax", "optax", "orbax-checkpoint", "torch")
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["test"], *extras["bench"]]
    return [line for line in wanted if re.split(r"[<>=;\[ ]", line)[0] not in there]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.card", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--minutes", type=float, default=9.0, help="for all stages")
    parser.add_argument("--out", type=Path, help="folder of what is found, new or empty")
    parser.add_argument("--resume", type=Path, help="folder of a sitting that was cut")
    parser.add_argument("--data", default="", help="folder of the prepared sets")
    parser.add_argument("--config", default=_CONFIG, help="of the training")
    parser.add_argument("--quick", action="store_true", help="to see that it runs")
    parser.add_argument("--requirements", action="store_true", help="print packages, and end")
    given, fields = parser.parse_known_args(arguments)
    strange = [each for each in fields if not re.match(r"--config\.\w.*=", each)]
    if strange:
        parser.error(f"{strange[0]} is unknown; of the training, write --config.FIELD=VALUE.")
    if given.requirements:
        print("\n".join(requirements()))
        return
    if bool(given.out) == bool(given.resume):
        parser.error("give --out DIR for a new sitting, or --resume DIR for one that was cut.")
    out: Path = (given.out or given.resume).absolute()
    if given.out and out.exists() and any(out.iterdir()):
        parser.error(f"{out} is not empty; give a new folder, or --resume it.")
    record = out / "ends.json"
    if given.resume and not record.is_file():
        parser.error(f"{out} holds no sitting; begin one with --out.")
    out.mkdir(parents=True, exist_ok=True)
    training = out / "training.json"  # goes on as it began
    if given.resume:
        began = json.loads(training.read_text(encoding="utf-8"))
        if fields or given.config not in (_CONFIG, began["config"]):
            parser.error(f"{out} trains {' '.join([began['config'], *began['fields']])}; it goes "
                         "on without --config and its fields.")  # fmt: skip
    else:
        began = {"config": given.config, "fields": fields}
        training.write_text(json.dumps(began, indent=2) + "\n", encoding="utf-8")
    of_training = began["config"], tuple(began["fields"])
    sitting = Sitting(out, given.data, *of_training, given.quick, *_device())
    ends: dict[str, dict[str, Any]] = json.loads(record.read_text()) if given.resume else {}
    started, total = time.monotonic(), 60.0 * given.minutes
    for stage in STAGES:
        left = total - (time.monotonic() - started)
        if ends.get(stage.name, {}).get("end", "").startswith("finished") or left < _LEAST:
            continue
        ends[stage.name] = _run(stage, sitting, min(stage.share * total, left))
        record.write_text(json.dumps(ends, indent=2) + "\n", encoding="utf-8")
        (out / "card.md").write_text(page(sitting, ends), encoding="utf-8")
        print(f"{stage.name}: {ends[stage.name]['end']}", flush=True)
    print(f"page: {out / 'card.md'}")


if __name__ == "__main__":
    main(sys.argv[1:])
