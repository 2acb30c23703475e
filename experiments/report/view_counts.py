"""Accuracy against the number of views that are averaged, method by method."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from experiments.report.colours import CYCLE, MARKERS
from experiments.report.formats import number

__all__ = ["accuracies_by_views", "accuracy_against_views"]

_KEY = "test_accuracy_views_"


def accuracies_by_views(results: Mapping[str, Any]) -> dict[int, float]:
    """Return number of views -> accuracy (%), 1 being the image as it is; {} if not measured."""
    counts = sorted(int(key[len(_KEY) :]) for key in results if key.startswith(_KEY))
    named = {1: "test_accuracy"} | {count: f"{_KEY}{count}" for count in counts}
    found = {count: number(results, key) for count, key in named.items()}
    return {c: 100.0 * value for c, value in found.items() if value is not None} if counts else {}


def accuracy_against_views(curves: Mapping[str, Mapping[int, float]]) -> Figure:
    """Draw accuracy over the number of views.

    Args:
        curves: of each run, see `accuracies_by_views`; a run alone may be named "".
    """
    figure = Figure(figsize=(6.2, 3.6), layout="constrained")
    panel: Any = figure.subplots()
    every = sorted({count for curve in curves.values() for count in curve})
    for index, (name, curve) in enumerate(curves.items()):
        panel.plot(
            list(curve), list(curve.values()), color=CYCLE[index % len(CYCLE)],
            marker=MARKERS[index % len(MARKERS)], label=name,
        )  # fmt: skip
    panel.set_xscale("log")
    panel.set_xticks(every, ["as it is", *(str(count) for count in every[1:])])
    panel.minorticks_off()
    panel.set(xlabel="views, the first being the image as it is", ylabel="test accuracy (%)")
    if any(curves):
        panel.legend(frameon=False)
    panel.grid(alpha=0.2)
    panel.spines[["top", "right"]].set_visible(False)
    return figure
