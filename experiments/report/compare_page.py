"""One self-contained page, one table and the figures behind them, for many runs."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.report.compare import Comparison, Experiment, Member, Row
from experiments.report.compare_table import cells, figures_behind, heads, legend, markdown, matrix
from experiments.report.formats import ARC_SHARE, MISSING, averaged_by, number
from experiments.report.reading import read_evaluation
from experiments.report.rendering import Section, as_png, inlined, render, write
from experiments.report.verdicts import has_density, method_name

__all__ = ["write_comparison"]

_OF_POSES = (
    "class_names",
    "pose_degrees",
    "half_range_degrees",
    "centres_degrees",
    "arc_half_range_degrees",
)
_SIDES = {  # title and caption of what has one picture per method
    "densities": (
        "Where images are turned to",
        "Each circle takes one test image (small picture) and turns it by rotations sampled from "
        "its learned density, of one seed per method; blue shows where the picture then points, "
        "an outline where its class ends.",
    ),
    "views": (
        "What the classifiers get to see",
        "Left, framed, the input; beside it, views sampled from its learned density, of one seed "
        "per method.",
    ),
}


@dataclass(frozen=True)
class _Side:
    """One picture per method, of the first of its seeds that has an evaluation."""

    title: str
    caption: str
    pictures: list[Section]


@dataclass(frozen=True)
class _Part:
    """What the page says of one experiment; `how` says which views were averaged."""

    name: str
    note: str
    how: str
    heads: list[str]
    lines: list[list[str]]
    sections: list[Section]
    sides: list[_Side]


def write_comparison(comparison: Comparison, out: Path | str) -> Path:
    """Write `report.html`, `table.md` and `comparison.json`, each whole or not at all.

    Args:
        comparison: of at least one run.
        out: folder, made if absent.

    Returns:
        Path of `report.html`.
    """
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    page = render(
        "comparison.html.j2",
        members=comparison.members,
        alarmed=any(member.alarms for member in comparison.members),
        sentence=_sentence(comparison),
        legend=legend(comparison),
        left_out=comparison.left_out,
        matrix=matrix(comparison),
        parts=[_part(experiment) for experiment in comparison.experiments],
        differing=[
            (experiment.name, field, value)
            for experiment in comparison.experiments
            for field, value in experiment.fields.items()
        ],
        runs=[_provenance(member) for member in comparison.members],
    )
    content = json.dumps(figures_behind(comparison), indent=2, allow_nan=False) + "\n"
    write(folder / "table.md", markdown(comparison).encode("utf-8"))
    write(folder / "comparison.json", content.encode("utf-8"))
    return write(folder / "report.html", page.encode("utf-8"))


def _sentence(comparison: Comparison) -> str:
    def count(number: int, word: str) -> str:
        return f"{number} {word}{'' if number == 1 else 's'}"

    methods = {row.name for experiment in comparison.experiments for row in experiment.rows}
    return (
        f"{count(len(comparison.members), 'run')} of {count(len(methods), 'method')} on "
        f"{count(len(comparison.experiments), 'experiment')}. An experiment is everything that "
        "the methods share: data, transform, classifier, budget, evaluation."
    )


def _part(experiment: Experiment) -> _Part:
    shown = heads([experiment])
    evaluations, sides = _evaluations(experiment)
    return _Part(
        name=experiment.name,
        note=experiment.note,
        how=_how(experiment),
        heads=["method", *shown],
        lines=[[row.name, *cells(row, shown)] for row in experiment.rows],
        sections=list(_sections(experiment, evaluations)),
        sides=sides,
    )


def _sections(
    experiment: Experiment, evaluations: Mapping[str, list[dict[str, np.ndarray]]]
) -> Iterator[Section]:
    """Draw one figure after the other; one that cannot be drawn says why instead."""
    from experiments.report import compare_figures as figures  # matplotlib is slow to import
    from experiments.report import discovery
    from experiments.report.range_curve import range_curve, ranges_over_steps
    from experiments.report.view_counts import accuracies_by_views, accuracy_against_views

    logs = {row.name: [(m.results, m.metrics) for m in row.members] for row in experiment.rows}
    plots = [
        (
            "How the runs went",
            "The same axes for all methods, one line per seed (running means). The entropy should "
            "settle between its dashed bounds while the accuracies stay high.",
            lambda: figures.curves_of_methods(logs),
        )
    ]
    if experiment.poses_known:
        plots.insert(
            0,
            (
                "Does the density know where the input points?",
                "Half the width of the learned arc, image by image, one line per class and seed. "
                "Right is flat on the dashed line, from every pose.",
                lambda: figures.half_ranges_of_methods(evaluations),
            ),
        )
    curves = {
        f"{row.name}, seed {m.seed}": range_curve(m.config, m.results, m.metrics)
        for row in experiment.rows
        for m in row.members
    }
    known = {name: curve for name, curve in curves.items() if curve is not None}
    if known:
        plots.append(
            (
                "How far the range of all images reached",
                "Half the width of the one interval of turns, step by step, of densities that are "
                "the same for all images. Dashed: what images were turned by.",
                lambda: ranges_over_steps(known),
            )
        )
    by_views = {
        f"{row.name}, seed {m.seed}": accuracies_by_views(m.results)
        for row in experiment.rows
        for m in row.members
    }
    counted = {name: curve for name, curve in by_views.items() if curve}
    if counted:
        plots.append(
            (
                "What more views are worth",
                "Accuracy averaged over views, the first being the image as it is.",
                lambda: accuracy_against_views(counted),
            )
        )
    distances = _distances(experiment)
    if distances:
        plots.insert(
            0,
            (
                "How far from turns, at what range?",
                "Every dot is a run: how far its samples are from the nearest rotation, beside the "
                "range of turns it learned. A wider density is further off; lower is better.",
                lambda: discovery.distance_against_half_range({"": distances}),
            ),
        )
    if any(key.startswith(ARC_SHARE) for seeds in logs.values() for r, _ in seeds for key in r):
        plots.append(
            (
                "How far each class may be turned, as training went on",
                "The share of the circle that the images of a class are turned by, one line per "
                "class and seed. Dashed: half of the circle, and all of it.",
                lambda: figures.arc_shares_of_methods(logs),
            )
        )
    for title, caption, draw in plots:
        try:
            yield Section(title, caption, source=inlined(as_png(draw())))
        except figures.MissingArrayError as error:
            yield Section(title, caption, missing=f"Not drawn: {error}.")


def _distances(experiment: Experiment) -> dict[str, list[tuple[float, float]]]:
    """Take half-range and distance to rotations of every run that has both, method by method."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in experiment.rows:
        for results in row.results:
            half, distance = (
                number(results, key) for key in ("half_range_degrees", "rotation_distance")
            )
            if half is not None and distance is not None:
                found.setdefault(method_name(results), []).append((half, distance))
    return found


def _evaluations(
    experiment: Experiment,
) -> tuple[dict[str, list[dict[str, np.ndarray]]], list[_Side]]:
    """Read what the figure of half-ranges needs, and draw what stands side by side.

    One file after the other: together the evaluations of many runs would not fit into memory.
    """
    kept: dict[str, list[dict[str, np.ndarray]]] = {}
    sides: dict[str, list[Section]] = {name: [] for name in _SIDES}
    for row in experiment.rows:
        kept[row.name], pictures = [], {}
        for member in row.members if has_density(row.results[0]) else []:
            evaluation, _ = read_evaluation(member.path / "evaluation.npz")
            if evaluation is not None:
                kept[row.name].append({k: evaluation[k] for k in _OF_POSES if k in evaluation})
                pictures = pictures or _pictures(row, member, evaluation)
        for name, picture in pictures.items():
            sides[name].append(picture)
    return kept, [_Side(*_SIDES[name], drawn) for name, drawn in sides.items() if drawn]


def _pictures(row: Row, member: Member, evaluation: Mapping[str, np.ndarray]) -> dict[str, Section]:
    """Draw a method's part of `_SIDES`; circles only where rotations were sampled."""
    from experiments.report import figures

    title = row.name if member.seed is None else f"{row.name}, seed {member.seed}"
    draws = {"views": lambda: figures.view_sheet(evaluation, rows=6, columns=6)}
    if "rotation_degrees" in evaluation:
        draws["densities"] = lambda: figures.polar_densities(evaluation, columns=3)
    pictures = {}
    for name, draw in draws.items():
        try:
            pictures[name] = Section(title, "", source=inlined(as_png(draw())))
        except figures.MissingArrayError as error:
            pictures[name] = Section(title, "", missing=f"Not drawn: {error}.")
    return pictures


def _how(experiment: Experiment) -> str:
    """Say which views were averaged, where a density was averaged over."""
    said = {
        averaged_by(results["evaluation_rule"], results.get("evaluation_average"))
        for row in experiment.rows
        for results in row.results
        if has_density(results) and results.get("evaluation_rule")
    }
    return f"Averaged accuracy: {' / '.join(sorted(said))}." if said else ""


def _provenance(member: Member) -> list[Any]:
    environment: Mapping[str, Any] = member.environment or {}
    commit = str(environment.get("git_commit") or MISSING)[:10]
    return [
        member.name,
        MISSING if member.seed is None else member.seed,
        f"{commit}, changed" if environment.get("git_dirty") else commit,
        environment.get("device") or MISSING,
        member.config.get("command") or MISSING,
    ]
