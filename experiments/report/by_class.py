"""What was learned for images whose pose nobody knows: spreads over test images, class by class.

A dot is the median of a class, a bar its quartiles. Above `MAX_NAMED` classes names no longer fit:
then the distribution over all images is drawn instead.
"""

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.report.colours import BLACK, BLUE, GREEN, RED
from experiments.report.evaluation import Arrays, plain, require

__all__ = ["MAX_NAMED", "entropies", "ranges"]

MAX_NAMED = 20


def ranges(evaluation: Arrays) -> Figure:
    """Draw the learned half-range of every coordinate, beside the box's.

    Args:
        evaluation: `class_names` (C,), `coordinate_names` (d,), `coordinate_units` (d,),
            `coordinate_half_ranges` (d,) and `image_ranges` (M, d) in these units, `image_labels`
            (M,).

    Returns:
        Figure with one panel per coordinate; axes begin at 0. Where the box is much wider than
        all that was learned, it lies beyond the axis and its half-range is written instead.

    Raises:
        MissingArrayError: if an array is not there or has another rank.
    """
    names, coordinates, units, box, learned, labels = require(
        evaluation,
        "class_names",
        "coordinate_names",
        "coordinate_units",
        "coordinate_half_ranges",
        "image_ranges",
        "image_labels",
    )
    columns = 2 if len(coordinates) == 4 else min(len(coordinates), 3)
    lines = -(-len(coordinates) // columns)
    figure = Figure(figsize=(10.5, lines * _height(len(names)) + 0.4), layout="constrained")
    panels = figure.subplots(lines, columns, sharey="row", squeeze=False)
    highs: dict[tuple[float, str], float] = {}
    for i, panel in enumerate(cast("list[Axes]", list(panels.flat))):
        if i >= len(coordinates):
            panel.set_visible(False)
            continue
        high = _draw(panel, learned[:, i], labels, names, BLUE)
        alike = _alike(box[i], units[i])
        highs[alike] = max(high, highs.get(alike, 0.0))
        if len(names) > MAX_NAMED and i % columns == 0:
            panel.set_ylabel("images")
    for i, panel in enumerate(cast("list[Axes]", list(panels.flat))[: len(coordinates)]):
        edge, unit = float(box[i]), str(units[i])
        high = highs[_alike(edge, unit)]
        inside = high > 0.3 * edge
        panel.set_xlim(0, 1.1 * max(edge, high) if inside else 1.2 * max(high, 1e-6))
        if inside:
            panel.axvline(edge, color=BLACK, linestyle="--", linewidth=1.4)
        where = "dashed" if inside else "beyond the axis"
        title = f"{str(coordinates[i]).replace('_', ' ')}\n"
        panel.set_title(f"{title}box: ± {edge:.4g} {unit}, {where}", fontsize=9.5)
        panel.set_xlabel(f"half-range ({unit})")
    _explain(figure, len(names))
    return figure


def entropies(evaluation: Arrays, results: Mapping[str, Any]) -> Figure:
    """Draw the entropy of the learned densities, between its floor and its maximum.

    Args:
        evaluation: `class_names` (C,), `image_entropy` (M,) in nats, `image_labels` (M,).
        results: `log_volume` and `entropy_floor` (nats), drawn as dashed lines when there.

    Returns:
        Figure with one panel.

    Raises:
        MissingArrayError: if an array is not there or has another rank.
    """
    names, entropy, labels = require(evaluation, "class_names", "image_entropy", "image_labels")
    figure = Figure(figsize=(9, _height(len(names)) + 0.8), layout="constrained")
    panel = figure.subplots()
    _draw(panel, entropy, labels, names, GREEN)
    for key, words, colour in (
        ("entropy_floor", "floor: below it the density has collapsed", RED),
        ("log_volume", "maximum: uniform over the whole box", BLACK),
    ):
        level = results.get(key)
        if isinstance(level, int | float) and np.isfinite(level):
            label = f"{words} ({level:.2f})".replace("-", "−")
            panel.axvline(float(level), color=colour, linestyle="--", linewidth=1.4, label=label)
    panel.set_xlabel("entropy (nats, in the unit box)")
    if len(names) > MAX_NAMED:
        panel.set_ylabel("images")
    _explain(figure, len(names))
    return figure


def _alike(edge: float, unit: str) -> tuple[float, str]:
    """Name the coordinates that share one axis: half-widths and half-heights are compared."""
    return float(edge), str(unit).replace("heights", "widths")


def _height(classes: int) -> float:
    """Return the inches of a row of panels."""
    return 2.7 if classes > MAX_NAMED else 1.1 + 0.24 * max(classes, 3)


def _draw(
    panel: Axes, values: np.ndarray, labels: np.ndarray, names: np.ndarray, colour: str
) -> float:
    """Draw one number per image; return the largest that is drawn."""
    finite = np.isfinite(values)
    values, labels = values[finite], labels[finite]
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(axis="x", alpha=0.25)
    if len(names) > MAX_NAMED:
        panel.hist(values, bins=40, color=colour, alpha=0.6)
        if len(values):
            panel.axvline(float(np.median(values)), color=colour, linewidth=2)
        return float(values.max(initial=0.0))
    high = 0.0
    for number in range(len(names)):
        found = values[labels == number]
        if len(found):
            low, middle, top = np.percentile(found, [25, 50, 75])
            bar = {"color": colour, "alpha": 0.45, "linewidth": 5, "solid_capstyle": "butt"}
            panel.plot([low, top], [number, number], **bar)
            panel.plot(middle, number, "o", color=colour, markersize=5.5)
            high = max(high, float(top))
    panel.set_yticks(range(len(names)), [plain(name) for name in names], fontsize=9)
    panel.set_ylim(len(names) - 0.4, -0.6)  # the first class on top
    return high


def _explain(figure: Figure, classes: int) -> None:
    """Say what dots, bars and lines are; figure-wide, so that nothing is hidden."""
    words = "dot: median of the class's test images; bar: their quartiles"
    if classes > MAX_NAMED:
        words = f"test images of all {classes} classes together; strong line: their median"
    figure.suptitle(words, fontsize=10)
    if any(axes.get_legend_handles_labels()[0] for axes in figure.axes):
        figure.legend(frameon=False, ncols=2, loc="outside lower center", fontsize=9)
