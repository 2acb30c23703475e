"""One self-contained page per run: reads the run folder, draws, writes `report.html`.

The page needs nothing but itself: pictures are embedded, there are no scripts and no links.
"""

import base64
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from flowjax_inv.report import tables

__all__ = ["IncompleteRunError", "Run", "read_run", "write_report"]

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
    """

    name: str
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    metrics: list[dict[str, Any]]
    results: Mapping[str, Any]
    evaluation: Mapping[str, np.ndarray] | None
    evaluation_note: str


@dataclass(frozen=True)
class Section:
    """A figure with its words; `missing` says in one line why there is no picture."""

    title: str
    caption: str
    source: str = ""
    missing: str = ""


def read_run(workdir: Path | str) -> Run:
    """Read a run folder: config, environment, metrics, results and, if there, the evaluation.

    A last line of `metrics.jsonl` without its line break is an interrupted write and is dropped.

    Args:
        workdir: the folder of a finished run.

    Returns:
        Its contents; `environment.json` and `evaluation.npz` may be missing.

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
    environment = folder / "environment.json"
    evaluation, note = _read_evaluation(folder / "evaluation.npz")
    return Run(
        name=folder.resolve().name,
        config=_read_object(folder / "config.json"),
        environment=_read_object(environment) if environment.is_file() else {},
        metrics=_read_metrics(folder / "metrics.jsonl"),
        results=_read_object(folder / "results.json"),
        evaluation=evaluation,
        evaluation_note=note,
    )


def write_report(workdir: Path | str, *, defaults: Mapping[str, Any] | None = None) -> Path:
    """Draw the figures of a run and write `report.html` and `figures/*.png` into its folder.

    Every file is written beside its place and then renamed, so an interrupted call leaves the old
    report whole.

    Args:
        workdir: the folder of a finished run.
        defaults: nested config to compare with; fields that differ are then listed first.

    Returns:
        Path of `report.html`.

    Raises:
        IncompleteRunError: if the folder, config, metrics or results are missing.
        ValueError: if a JSON file cannot be read.
    """
    folder = Path(workdir)
    run = read_run(folder)
    config = _flat(run.config)
    usual = _flat(defaults) if defaults is not None else {}
    source = resources.files("flowjax_inv.report").joinpath("page.html.j2")
    # The template's own name ends in .j2, which jinja2 does not escape unless told to.
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    page = environment.from_string(source.read_text(encoding="utf-8")).render(
        name=run.name,
        sentence=_sentence(run),
        alarms=tables.alarms(run.results, run.metrics),
        rows=tables.headline(run.results),
        facts=_facts(run),
        sections=list(_sections(run, folder / "figures")),
        command=run.config.get("command", ""),
        config=config,
        changed={
            key: (usual.get(key, "not there"), value)
            for key, value in config.items()
            if defaults is not None and usual.get(key, "not there") != value
        },
        compared=defaults is not None,
        environment=_flat(run.environment),
    )
    return _write(folder / "report.html", page.encode("utf-8"))


def _sections(run: Run, folder: Path) -> Iterator[Section]:
    """Draw one figure after the other; one that cannot be drawn says why instead."""
    from flowjax_inv.report import figures  # matplotlib takes half a second to import

    folder.mkdir(exist_ok=True)
    evaluation: Mapping[str, np.ndarray] = run.evaluation or {}
    plots: list[tuple[str, str, str, Callable[[], Any]]] = [
        (
            "density",
            "The learned density beside the truth",
            "Each circle takes one test image (small picture) and turns it by rotations sampled "
            "from the density that was learned for it; blue shows where the picture then points. "
            "A right density fills the outlined wedge and stops at its edges, wherever the "
            "input itself points.",
            lambda: figures.polar_densities(evaluation),
        ),
        (
            "half_range",
            "Does the density know where the input points?",
            "Half the width of the learned arc, image by image. If the same arc is found from "
            "every pose, the lines lie flat on the dashed one.",
            lambda: figures.half_ranges(evaluation),
        ),
        (
            "views",
            "What the classifier gets to see",
            "Left, framed, the input; beside it, views sampled from its learned density. Every "
            "view should still be of the class that the row names.",
            lambda: figures.view_sheet(evaluation),
        ),
        (
            "translation",
            "Where the picture is moved",
            "Each dot is one sampled translation, drawn as the movement of the content; the "
            "middle means that it stays where it is.",
            lambda: figures.translations(evaluation),
        ),
        (
            "curves",
            "How the run went",
            "The entropy should settle between its two dashed lines while the accuracies stay "
            "high. Faint lines are the values as logged, strong ones "
            "their running mean.",
            lambda: figures.learning_curves(run.metrics, run.results),
        ),
    ]
    for name, title, caption, draw in plots:
        path = folder / f"{name}.png"
        if name == "translation" and name not in evaluation:
            path.unlink(missing_ok=True)
            continue
        if name != "curves" and run.evaluation is None:
            path.unlink(missing_ok=True)
            yield Section(title, caption, missing=f"Not drawn: {run.evaluation_note}.")
            continue
        try:
            figure = draw()
        except figures.MissingArrayError as error:
            # A picture of an earlier report would contradict this one.
            path.unlink(missing_ok=True)
            yield Section(title, caption, missing=f"Not drawn: {error}.")
            continue
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=120, metadata={"Software": None})
        _write(path, buffer.getvalue())
        source = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
        yield Section(title, caption, source=source)


def _sentence(run: Run) -> str:
    """Say in one sentence what the run is."""
    method = str(run.results.get("method") or "unknown")
    data = run.config.get("data")
    data = data.get("name") if isinstance(data, Mapping) else data or run.config.get("dataset")
    where = f" on {data}" if isinstance(data, str) and data else ""
    if method in ("identity", "none"):
        return f"A classifier was trained{where} without any invariance (method “{method}”)."
    return (
        f"A classifier was trained{where} together with a density over transformations that is "
        f"predicted for every image (method “{method}”): as wide as it can be without "
        "changing the image's class."
    )


def _facts(run: Run) -> list[tuple[str, str]]:
    """List what the run cost and how large it was, as far as it is known."""
    results = run.results
    facts = [
        (label, f"{results[key]:,}" if isinstance(results[key], int) else str(results[key]))
        for key, label in (
            ("seed", "Seed"),
            ("steps", "Steps"),
            ("parameters_classifier", "Parameters of the classifier"),
            ("parameters_distribution", "Parameters of the density"),
        )
        if results.get(key) is not None
    ]
    if isinstance(results.get("seconds"), int | float):
        facts.append(("Time", f"{results['seconds'] / 60:.1f} minutes"))
    if isinstance(results.get("seconds_to_first_step"), int | float):
        facts.append(("First step after", f"{results['seconds_to_first_step']:.1f} seconds"))
    return facts


def _flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested names: {"a": {"b": 1}} -> {"a.b": 1}."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _read_object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}); run again, or restore the file") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds a {type(content).__name__}; it should be one JSON object")
    return content


def _read_metrics(path: Path) -> list[dict[str, Any]]:
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


def _read_evaluation(path: Path) -> tuple[dict[str, np.ndarray] | None, str]:
    if not path.is_file():
        return None, "this run folder has no evaluation.npz, so no learned density to show"
    try:
        # Opened here: numpy does not close a file that turns out to be no archive.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return dict(arrays), ""
    except (ValueError, OSError, EOFError, zipfile.BadZipFile):
        return None, "evaluation.npz cannot be read; evaluate the run again"


def _write(path: Path, content: bytes) -> Path:
    """Write beside the place, then rename."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)  # mkstemp allows nobody else to read
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path
