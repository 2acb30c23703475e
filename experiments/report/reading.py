"""Reads the folder of a run: what it holds, and one line for whatever is missing or broken."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = [
    "IncompleteRunError",
    "Run",
    "as_stored",
    "flat",
    "read_evaluation",
    "read_metrics",
    "read_object",
    "read_results",
    "read_run",
]

NEEDED = ("config.json", "metrics.jsonl", "results.json")


class IncompleteRunError(FileNotFoundError):
    """A run folder lacks a file that no report can do without."""


@dataclass(frozen=True)
class Run:
    """What a run folder holds.

    Attributes:
        name: last part of the folder's path; the rest of the path is nobody's business.
        config: nested names to values.
        environment: flat names to values; empty when the file is not there.
        metrics: one mapping per logged step.
        results: flat names to numbers.
        evaluation: arrays of `evaluation.npz`; None when it is not there or cannot be read.
        evaluation_note: one line that says why there is no evaluation, else empty.
        profile: how long the parts of a step took; empty when no steps were traced.
    """

    name: str
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    metrics: list[dict[str, Any]]
    results: Mapping[str, Any]
    evaluation: Mapping[str, np.ndarray] | None
    evaluation_note: str
    profile: Mapping[str, Any]


def read_run(workdir: Path | str) -> Run:
    """Read a run folder: config, environment, metrics, results and, if there, the evaluation.

    A last line of `metrics.jsonl` without its line break is an interrupted write and is dropped.

    Args:
        workdir: the folder of a finished run.

    Returns:
        Its contents; `environment.json`, `evaluation.npz` and `profile.json` may be missing.

    Raises:
        IncompleteRunError: if the folder, config, metrics or results are missing.
        ValueError: if a JSON file cannot be read.
    """
    folder = Path(workdir)
    missing = [name for name in NEEDED if not (folder / name).is_file()]
    if missing:
        raise IncompleteRunError(
            f"{folder} has no {', '.join(missing)}; a report needs {', '.join(NEEDED)}: "
            "let the run finish, or give the folder of another run"
        )
    environment, profile = folder / "environment.json", folder / "profile.json"
    evaluation, note = read_evaluation(folder / "evaluation.npz")
    return Run(
        name=folder.resolve().name,
        config=read_object(folder / "config.json"),
        environment=read_object(environment) if environment.is_file() else {},
        metrics=read_metrics(folder / "metrics.jsonl"),
        results=read_results(folder / "results.json"),
        evaluation=evaluation,
        evaluation_note=note,
        profile=read_object(profile) if profile.is_file() else {},
    )


def flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested names: {"a": {"b": 1}} -> {"a.b": 1}."""
    found: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def read_object(path: Path) -> dict[str, Any]:
    """Read one JSON object.

    Raises:
        ValueError: if the file holds something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}); run again, or copy it again") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds a {type(content).__name__}; it should be one JSON object")
    return content


def read_results(path: Path) -> dict[str, Any]:
    """Read a `results.json`; of a continued run without its seconds, which are of the last part.

    Raises:
        ValueError: if the file holds something else than a JSON object.
    """
    results = read_object(path)
    if results.get("resumed_at_step"):
        for name in ("seconds", "seconds_training"):
            results.pop(name, None)
    return results


def as_stored(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config as a run folder gives it back: tuples are lists there."""
    return json.loads(json.dumps(config))


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read the logged steps; a last line without its line break is dropped.

    Raises:
        ValueError: if a line is not a JSON object.
    """
    lines = path.read_text(encoding="utf-8").split("\n")
    lines = lines[:-1]  # what follows the last line break: nothing, or an interrupted write
    metrics = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            metrics.append(json.loads(line))
        except ValueError as error:
            raise ValueError(
                f"{path}, line {number} is not JSON ({error}); remove that line or run again"
            ) from None
        if not isinstance(metrics[-1], dict):
            raise ValueError(f"{path}, line {number} is {line[:40]}; it should be a JSON object")
    return metrics


def read_evaluation(path: Path) -> tuple[dict[str, np.ndarray] | None, str]:
    """Read the arrays of an `evaluation.npz`; else None, and one line that says why."""
    if not path.is_file():
        return None, "this run folder has no evaluation.npz, so no learned density to show"
    try:
        # Opened here: numpy does not close a file that turns out to be no archive.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return dict(arrays), ""
    except Exception:  # of damaged bytes NumPy, zipfile and zlib raise nearly every kind
        return None, "evaluation.npz cannot be read; evaluate the run again"
