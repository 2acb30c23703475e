"""The figures of many runs as texts: columns, cells, a markdown table, and what lies behind it."""

import math
import re
from collections.abc import Sequence
from typing import Any

from experiments.report.compare import Comparison, Experiment, Row
from experiments.report.formats import (
    ARC_SHARE,
    MISSING,
    arcs_in_words,
    fixed,
    markdown_line,
    mean_and_deviation,
    number,
    spread,
)
from experiments.report.verdicts import has_density, verdict

__all__ = ["COLUMNS", "cells", "figures_behind", "heads", "legend", "markdown", "matrix"]

COLUMNS = (  # head, name in results.json, factor, decimals, only where poses are known (None: only
    # where a run has the figure)
    ("averaged accuracy (%)", "test_accuracy_averaged", 100.0, 2, False),
    ("plain accuracy (%)", "test_accuracy", 100.0, 2, False),
    ("averaged error (°)", "test_error_degrees_averaged", 1.0, 2, None),
    ("plain error (°)", "test_error_degrees", 1.0, 2, None),
    ("averaged error", "test_error_averaged", 1.0, 3, None),
    ("plain error", "test_error", 1.0, 3, None),
    ("half-range (°)", "half_range_degrees", 1.0, 1, True),
    ("true (°)", "true_half_range_degrees", 1.0, 1, True),
    ("outside (%)", "outside_share", 100.0, 1, True),
    ("other class (%)", "other_class_share", 100.0, 1, True),
    ("reached (%)", "covered_share", 100.0, 0, True),
    ("Kolmogorov", "kolmogorov_distance", 1.0, 3, True),
    ("Wasserstein (°)", "wasserstein_degrees", 1.0, 1, True),
    ("mass of a mode, off by", "mode_share_error", 1.0, 3, None),
    ("mass of a mode, worst", "mode_share_error_worst", 1.0, 3, None),
    ("outside, worst (%)", "outside_share_worst", 100.0, 1, None),
    ("valley : peak", "valley_ratio", 1.0, 3, None),
    ("valley : peak, worst", "valley_ratio_worst", 1.0, 3, None),
    ("rotation distance", "rotation_distance", 1.0, 3, None),
    ("rotation half-range (°)", "half_range_rotation", 1.0, 2, None),
    ("entropy (nats)", "entropy", 1.0, 2, False),
    ("views", "evaluation_samples", 1.0, 0, False),
    ("minutes", "seconds", 1 / 60, 1, False),
)
_OF_DENSITY = (
    "test_accuracy_averaged", "test_error_degrees_averaged", "test_error_averaged", "entropy",
)  # fmt: skip
_SUMMARIES = {  # what a run's figures are of what was measured in it
    "Medians over test images": (
        "half_range_degrees", "outside_share", "other_class_share", "covered_share",
        "kolmogorov_distance", "wasserstein_degrees", "mode_share_error", "valley_ratio",
    ),
    "Median over samples": ("rotation_distance",),
    "Means over test images": ("half_range_rotation", "entropy"),
}  # fmt: skip


def heads(experiments: Sequence[Experiment]) -> list[str]:
    """Return the heads of the figures' columns: those of poses only where they are known."""
    known = any(experiment.poses_known for experiment in experiments)
    everything = [results for e in experiments for row in e.rows for results in row.results]
    shown = [
        head
        for head, key, _, _, poses in COLUMNS
        if (any(number(results, key) is not None for results in everything) if poses is None
            else known or not poses)
    ]  # fmt: skip
    shown += ["verdict"] * any("invariance_found" in results for results in everything)
    shown += ["arcs"] * any(key.startswith(ARC_SHARE) for results in everything for key in results)
    papers = any(results.get("paper") for results in everything)
    found = any(m.alarms for e in experiments for row in e.rows for m in row.members)
    return ["seeds", *["paper (%)"] * papers, *shown, *["alarms"] * found]


def cells(row: Row, shown: Sequence[str]) -> list[str]:
    """Write the figures of a row: mean ± sample standard deviation over its seeds.

    Args:
        row: one method on one experiment.
        shown: heads of the columns, as from `heads`.

    Returns:
        One text per head; a dash where there is no such figure.
    """
    written = {
        "seeds": str(len(row.members)),
        "paper (%)": " / ".join(
            dict.fromkeys(str(r["paper"]) for r in row.results if r.get("paper"))
        )
        or MISSING,
        "alarms": _alarms_in_short(row) or MISSING,
    }
    density = has_density(row.results[0])
    for head, key, factor, digits, _ in COLUMNS:
        written[head] = spread(row.results, key, factor, digits)
        if key in _OF_DENSITY and not density:
            written[head] = MISSING
    written["verdict"] = verdict(row.results)
    written["arcs"] = arcs_in_words(row.results)
    written["views"] = _counts(row, "evaluation_samples")
    return [written[head] for head in shown]


def markdown(comparison: Comparison) -> str:
    """Write the table, what its figures are, and the runs with alarms or left out."""
    shown = heads(comparison.experiments)
    left = {"paper (%)", "arcs", "alarms"}
    lines = [
        markdown_line(["experiment", "method", *shown]),
        "|---|---|" + "".join("---|" if head in left else "---:|" for head in shown),
    ]
    for experiment in comparison.experiments:
        lines += [
            markdown_line([experiment.name, row.name, *cells(row, shown)])
            for row in experiment.rows
        ]
    lines += ["", legend(comparison)]
    notes = {(e.name, e.note): f"- {e.name}: {e.note}" for e in comparison.experiments if e.note}
    alarmed = [f"- {m.name}: {alarm}" for m in comparison.members for alarm in m.alarms]
    dropped = [f"- {name}: {reason}" for name, reason in comparison.left_out]
    for title, said in (
        ("About the data:", list(notes.values())),
        ("Alarms (these runs are counted above):", alarmed),
        ("Left out:", dropped),
    ):
        lines += ["", title, "", *said] if said else []
    return "\n".join(lines) + "\n"


def legend(comparison: Comparison) -> str:
    """Say what the figures of the table are."""
    words = "Mean ± sample standard deviation over seeds."
    words += " Averaged: over sampled views; plain: the image as it is."
    shown = heads(comparison.experiments)
    for summary, keys in _SUMMARIES.items():
        named = [h.partition(" (")[0] for h, key, *_ in COLUMNS if key in keys and h in shown]
        if named:
            words += f" {summary}: {'; '.join(named)}."
    if "arcs" in shown:
        words += " Arcs: share of the circle that a class's images are turned by, their mean."
    if not all(has_density(member.results) for member in comparison.members):
        words += " Method none: no density, the control."
    return words


def matrix(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Write accuracies as methods x experiments: averaged, in brackets that of plain images.

    Of regressions the mean errors instead, in degrees.

    Returns:
        Names of the experiments, and one line per method: its name, then a text per experiment.
    """
    names = dict.fromkeys(row.name for e in comparison.experiments for row in e.rows)
    lines = []
    for name in names:
        line = [name]
        for experiment in comparison.experiments:
            text = MISSING
            for row in experiment.rows:
                if row.name == name:
                    text = _scores(row)
            line.append(text)
        lines.append(line)
    return [experiment.name for experiment in comparison.experiments], lines


def _scores(row: Row) -> str:
    """Write averaged and, in brackets, plain accuracy; the errors of a regression with °."""
    averaged, plain = cells(row, ["averaged accuracy (%)", "plain accuracy (%)"])
    if plain == MISSING:
        errors = cells(row, ["averaged error (°)", "plain error (°)"])
        averaged, plain = (text if text == MISSING else f"{text}°" for text in errors)
    if plain == MISSING:
        return MISSING
    return f"({plain})" if averaged == MISSING else f"{averaged} ({plain})"


def figures_behind(comparison: Comparison) -> dict[str, Any]:
    """Return the figures behind the table as plain values, in the units of results.json."""
    return {
        "experiments": [
            {
                "name": experiment.name,
                "fields": dict(experiment.fields),
                "note": experiment.note,
                "rows": [_behind(row) for row in experiment.rows],
            }
            for experiment in comparison.experiments
        ],
        "left_out": [{"run": name, "reason": reason} for name, reason in comparison.left_out],
    }


def _behind(row: Row) -> dict[str, Any]:
    figures = {}
    arcs = [key for key in row.results[0] if key.startswith(ARC_SHARE)]
    for key in [*(key for _, key, *_ in COLUMNS), *arcs]:
        values = [number(results, key) for results in row.results]
        # JSON has no infinity: what is not finite is not there.
        kept = [v for v in values if v is not None and math.isfinite(v)]
        if kept:
            mean, deviation = mean_and_deviation(kept)
            values = [v if v in kept else None for v in values]
            figures[key] = {"values": values, "mean": mean, "deviation": deviation}
    return {
        "method": row.results[0].get("method"),
        "name": row.name,
        "fields": dict(row.fields),
        "runs": [member.name for member in row.members],
        "seeds": [member.seed for member in row.members],
        "commits": [(member.environment or {}).get("git_commit") for member in row.members],
        "alarms": {member.name: member.alarms for member in row.members if member.alarms},
        "figures": figures,
    }


def _counts(row: Row, key: str) -> str:
    values = sorted({value for r in row.results if (value := number(r, key)) is not None})
    return ", ".join(fixed(value, 0) for value in values) or MISSING


def _alarms_in_short(row: Row) -> str:
    """Write which alarms fired in how many runs: "collapse in 1 of 3"."""
    kinds = [
        kind
        for member in row.members
        for kind in dict.fromkeys(re.split(r"[:.]", alarm)[0].lower() for alarm in member.alarms)
    ]
    return ", ".join(
        f"{kind} in {kinds.count(kind)} of {len(row.members)}" for kind in dict.fromkeys(kinds)
    )
