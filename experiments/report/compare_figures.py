"""Figures of a comparison: one panel per method, the same axes in all of them.

Arrays and dictionaries in, matplotlib Figures out; no file is touched.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.report.colours import BLACK, BLUE, GREEN, RED
from experiments.report.evaluation import Arrays, MissingArrayError
from experiments.report.figures import (
    draw_arc_shares,
    draw_curve,
    draw_half_ranges,
    logged,
    scored,
)
from experiments.report.verdicts import has_density

__all__ = ["arc_shares_of_methods", "curves_of_methods", "half_ranges_of_methods"]

Logs = tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]  # results, metrics


def half_ranges_of_methods(methods: Mapping[str, Sequence[Arrays]]) -> Figure:
    """Draw the learned half-range against the pose of the input, one panel per method.

    Args:
        methods: names to the evaluations of their seeds, as for `figures.half_ranges`; none for a
            method without a density.

    Returns:
        Figure: a thin line per class and seed, the truth dashed.

    Raises:
        MissingArrayError: if no method has these arrays, or one of them has another rank.
    """
    if not any(methods.values()):
        raise MissingArrayError("no run here kept an evaluation.npz")
    figure, ((*panels,),) = _panels(methods, 1, 3.6)
    high = 1.0
    for panel, seeds in zip(panels, methods.values(), strict=True):
        for evaluation in seeds:
            draw_half_ranges(panel, evaluation, markersize=2, linewidth=1.0, alpha=0.8)
        if seeds:
            high = max(high, panel.dataLim.ymax)
        else:
            _say(panel, "no poses measured")
    words = {panel.get_xlabel() for panel in panels if panel.get_xlabel()}
    for panel in panels:
        panel.set(ylim=(0, 1.1 * high), xlabel="", ylabel="")
    figure.supxlabel(" / ".join(sorted(words)).replace(" (", "\n("), fontsize=10)
    figure.supylabel("learned half-range (degrees)", fontsize=10)
    _share_words(figure, panels)
    return figure


def curves_of_methods(methods: Mapping[str, Sequence[Logs]]) -> Figure:
    """Draw entropy and accuracies over epochs, one pair of panels per method, a line per seed.

    Args:
        methods: names to the results and logged steps of their seeds; no steps where none were
            kept.

    Returns:
        Figure: entropy above, with its bounds dashed, accuracies below.

    Raises:
        MissingArrayError: if no method has logged steps.
    """
    if not any(metrics for seeds in methods.values() for _, metrics in seeds):
        raise MissingArrayError("no run here kept its metrics.jsonl")
    figure, (entropies, accuracies) = _panels(methods, 2, 2.6)
    for entropy, accuracy, seeds in zip(entropies, accuracies, methods.values(), strict=True):
        for results, metrics in seeds:
            epochs = logged(metrics, "epoch")
            name, scale = scored(metrics)
            what = "accuracy" if name == "accuracy" else "error"
            if has_density(results):
                _entropy(entropy, results, metrics, epochs)
            for key, label, style in (
                (
                    f"train_{name}",
                    f"training {what}, sampled views",
                    {"color": BLUE, "marker": ""},
                ),
                (f"test_{name}", f"test {what}, images as they are", {"color": RED}),
            ):
                values = scale * logged(metrics, key)
                draw_curve(accuracy, epochs, values, label=label, linewidth=1.2, **style)
        if not any(metrics for _, metrics in seeds):
            _say(entropy, "metrics not kept")
            _say(accuracy, "metrics not kept")
        elif not has_density(seeds[0][0]):
            _say(entropy, "no density")
    # All methods of an experiment have one loss.
    errors = any(scored(m)[0] != "accuracy" for seeds in methods.values() for _, m in seeds)
    for first in range(0, len(methods), _columns(len(methods))):
        entropies[first].set_ylabel("entropy (nats, in the unit box)")
        accuracies[first].set_ylabel("error (degrees)" if errors else "accuracy (%)")
    for panel in accuracies:
        panel.set_xlabel("epochs")
    for line in (entropies, accuracies):
        drawn = [panel.dataLim for panel in line if panel.lines]
        if drawn:
            low, high = min(b.ymin for b in drawn), max(b.ymax for b in drawn)
            room = 0.06 * (high - low) or 1.0
            for panel in line:
                panel.set_ylim(low - room, high + room)
    _share_words(figure, [*entropies, *accuracies])
    return figure


def arc_shares_of_methods(methods: Mapping[str, Sequence[Logs]]) -> Figure:
    """Draw how much of the circle each class is turned by, over epochs, one panel per method.

    Args:
        methods: as for `curves_of_methods`.

    Returns:
        Figure: a line per class and seed; 1 is the whole circle.

    Raises:
        MissingArrayError: if no method has logged arcs.
    """
    figure, (panels,) = _panels(methods, 1, 3.6)
    for panel, seeds in zip(panels, methods.values(), strict=True):
        for _, metrics in seeds:
            draw_arc_shares(panel, metrics, markersize=2)
        if not panel.lines:
            _say(panel, "no arcs logged")
    if not any(panel.lines for panel in panels):
        raise MissingArrayError("no run here logged arcs in a metrics.jsonl")
    figure.supxlabel("epochs", fontsize=10)
    figure.supylabel("share of the circle", fontsize=10)
    _share_words(figure, panels)
    return figure


def _entropy(
    panel: Axes,
    results: Mapping[str, Any],
    metrics: Sequence[Mapping[str, Any]],
    epochs: np.ndarray,
) -> None:
    style: dict[str, Any] = {"color": GREEN, "marker": "", "linewidth": 1.2}
    draw_curve(panel, epochs, logged(metrics, "entropy"), label="entropy", **style)
    for key, label, colour in (
        ("log_volume", "its maximum: uniform over the box", BLACK),
        ("entropy_floor", "its floor: below it, collapsed", RED),
    ):
        level = results.get(key)
        if panel.lines and isinstance(level, int | float) and np.isfinite(level):
            panel.axhline(float(level), label=label, color=colour, linestyle="--", linewidth=1.3)


def _columns(methods: int) -> int:
    return 2 if methods == 4 else min(methods, 3)


def _panels(
    methods: Mapping[str, Any], lines: int, height: float
) -> tuple[Figure, list[list[Axes]]]:
    """Make `lines` panels per method, one below the other, methods side by side.

    Returns:
        The figure, and per line the panels in the order of the methods.
    """
    columns = _columns(len(methods))
    blocks = -(-len(methods) // columns)
    width = max(6.5, 3.7 * columns)
    figure = Figure(figsize=(width, blocks * lines * height + 0.6), layout="constrained")
    grid = figure.subplots(blocks * lines, columns, sharex=True, squeeze=False)
    found = [
        [cast(Axes, grid[lines * (i // columns) + line, i % columns]) for i in range(len(methods))]
        for line in range(lines)
    ]
    for i in range(len(methods), blocks * columns):
        for line in range(lines):
            grid[lines * (i // columns) + line, i % columns].set_visible(False)
    for panel, name in zip(found[0], methods, strict=True):
        panel.set_title(name.replace("$", r"\$").replace(", ", "\n"), fontsize=10)
    for panel in (panel for line in found for panel in line):
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
    for panel in found[-1]:
        panel.tick_params(labelbottom=True)  # shared axes are labelled in the last line alone
    return figure, found


def _say(panel: Axes, words: str) -> None:
    panel.text(0.5, 0.5, words, ha="center", transform=panel.transAxes)


def _share_words(figure: Figure, panels: Sequence[Axes]) -> None:
    """Explain the lines once for all panels, and the axes at the outer ones."""
    labels = {}
    for panel in panels:
        handles, words = panel.get_legend_handles_labels()
        labels |= {word: handle for handle, word in zip(handles, words, strict=True)}
    columns = 2 if figure.get_figwidth() < 10 else 3
    style: dict[str, Any] = {"frameon": False, "ncols": columns, "fontsize": 9}
    figure.legend(labels.values(), labels.keys(), loc="outside upper center", **style)
