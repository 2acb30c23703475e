"""Figures of one run: arrays and dictionaries in, matplotlib Figures out; no file is touched.

Angles are degrees, counter-clockwise as seen is positive, 0 is upright; "left" in a label means
counter-clockwise. In the polar figures 0 is at the top, so that up is up.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MultipleLocator

from flowjax_inv.report.colours import (
    BLACK,
    BLUE,
    CYCLE,
    GREEN,
    GREY,
    MARKERS,
    ORANGE,
    PURPLE,
    RED,
)
from flowjax_inv.report.evaluation import (
    Arrays,
    MissingArrayError,
    arcs,
    offset,
    plain,
    require,
    turned,
    wrap,
)
from flowjax_inv.report.polar import polar_densities

__all__ = [
    "MissingArrayError",
    "half_ranges",
    "learning_curves",
    "polar_densities",
    "translations",
    "view_sheet",
]

MAX_CLASSES = 8


def learning_curves(metrics: Sequence[Mapping[str, Any]], results: Mapping[str, Any]) -> Figure:
    """Draw losses, entropy, accuracies and alpha over epochs.

    Faint lines are the logged values, strong ones their running mean over a fortieth of the run.
    Missing or non-finite values leave gaps.

    Args:
        metrics: one mapping per logged step with `epoch` and the flat names of `metrics.jsonl`.
        results: `log_volume` and `entropy_floor` (nats), drawn as dashed lines when there.

    Returns:
        Figure with four panels that share the axis of epochs.
    """
    figure = Figure(figsize=(11, 6.4), layout="constrained")
    panels = cast("list[Axes]", list(figure.subplots(2, 2, sharex=True).flat))
    epochs = _column(metrics, "epoch")

    def draw(panel: Axes, key: str, label: str, colour: str, scale: float = 1.0) -> None:
        values = scale * _column(metrics, key)
        kept = np.isfinite(values) & np.isfinite(epochs)
        if not kept.any():
            return
        many = kept.sum() >= 60
        # Test accuracy is logged at few steps: a line through the kept points only.
        if many:
            panel.plot(epochs[kept], values[kept], color=colour, alpha=0.25, linewidth=0.8)
            x, y = _running_mean(epochs[kept], values[kept], int(kept.sum()) // 40)
            panel.plot(x, y, color=colour, label=label, linewidth=1.8)
        else:
            panel.plot(epochs[kept], values[kept], "o-", color=colour, label=label, markersize=3)

    loss, entropy, accuracy, alpha = panels
    draw(loss, "loss", "loss = cross-entropy − alpha × entropy", GREY)
    draw(loss, "cross_entropy", "cross-entropy of sampled views", BLUE)
    draw(loss, "cross_entropy_original", "cross-entropy of images as they are", ORANGE)
    loss.set(title="Losses", ylabel="nats")

    draw(entropy, "entropy", "entropy of the learned density", GREEN)
    for key, label, colour in (
        ("log_volume", "maximum: uniform over the whole box", BLACK),
        ("entropy_floor", "floor: below it the density has collapsed", RED),
    ):
        level = results.get(key)
        if entropy.lines and isinstance(level, int | float) and np.isfinite(level):
            entropy.axhline(float(level), color=colour, linestyle="--", linewidth=1.3, label=label)
    entropy.set(title="Entropy: how wide the density is", ylabel="nats, in the unit box")

    draw(accuracy, "train_accuracy", "training, sampled views", BLUE, 100.0)
    draw(accuracy, "test_accuracy", "test, images as they are", RED, 100.0)
    accuracy.set(title="Accuracy", ylabel="%")
    if accuracy.lines:
        accuracy.set_ylim(top=101)

    draw(alpha, "alpha", "alpha", PURPLE)
    alpha.set(title="Alpha: weight of the entropy in the loss", ylabel="alpha (no unit)")
    if alpha.lines:
        alpha.set_ylim(bottom=0)

    for panel in panels:
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
        if panel.lines:
            panel.legend(frameon=False, fontsize=8.5)
        else:
            panel.text(0.5, 0.5, "not logged in this run", ha="center", transform=panel.transAxes)
    for panel in panels[2:]:
        panel.set_xlabel("epochs")
    return figure


def half_ranges(evaluation: Arrays) -> Figure:
    """Draw the learned half-range against the pose of the input, one line per class.

    The axis is the pose measured from the middle of the nearest true arc of the class, so that
    classes that lie elsewhere on the circle can be compared; without known arcs, the pose itself.

    Args:
        evaluation: `class_names` (C,), `pose_degrees` (C, P), `half_range_degrees` (C, P); also
            used when there: `centres_degrees` (C, M), `arc_half_range_degrees`.

    Returns:
        Figure with one panel, degrees on both axes, the half-range from 0.

    Raises:
        MissingArrayError: if an array is not there or has another rank.
    """
    names, poses, learned = require(evaluation, "class_names", "pose_degrees", "half_range_degrees")
    truth = arcs(evaluation)
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    panel = figure.subplots()
    joined = truth is None or truth[0].shape[1] == 1
    for i in range(len(names)):
        x = wrap(poses[i]) if truth is None else offset(poses[i], truth[0][i])
        order = np.argsort(x)
        panel.plot(
            x[order],
            learned[i][order],
            linestyle="-" if joined else "none",
            color=CYCLE[i % 8],
            marker=MARKERS[i % 8],
            markersize=4.5,
            linewidth=1.3,
            label=plain(names[i]),
        )
    panel.xaxis.set_major_locator(MultipleLocator(30))
    high = float(np.nanmax(learned, initial=1.0))
    label = "pose of the input (degrees, left is positive)"
    if truth is not None:
        panel.axhline(
            truth[1], color=BLACK, linestyle="--", linewidth=1.5, label=f"truth: {truth[1]:.1f}°"
        )
        for end in (-truth[1], truth[1]):
            panel.axvline(
                end,
                color=GREY,
                linestyle=":",
                linewidth=1.2,
                label="the class ends" if end < 0 else None,
            )
        high = max(high, truth[1])
        middle = "the middle of its class" if joined else "the middle of the nearest arc"
        label = f"turn of the input from {middle} (degrees, left is positive)"
    panel.set(xlabel=label, ylabel="learned half-range (degrees)", ylim=(0, 1.15 * high))
    panel.grid(alpha=0.25)
    panel.spines[["top", "right"]].set_visible(False)
    figure.legend(frameon=False, ncols=3, loc="outside upper center")
    return figure


def view_sheet(evaluation: Arrays, rows: int = 12, columns: int = 10) -> Figure:
    """Lay sampled views of some images beside the images themselves.

    Args:
        evaluation: `class_names` (C,), `pose_degrees` (C, P), `images` (C, P, H, W, 3) uint8,
            `views` (C, Q, V, H, W, 3) uint8 of the images `view_index` (Q,).
        rows: images shown at most, spread over all.
        columns: views shown at most per image.

    Returns:
        Figure: in every row the framed input, then its views.

    Raises:
        MissingArrayError: if an array is not there or has another rank.
    """
    names, poses, images, views, index = require(
        evaluation, "class_names", "pose_degrees", "images", "views", "view_index"
    )
    pairs = [(i, q) for i in range(views.shape[0]) for q in range(views.shape[1])]
    kept = np.unique(np.linspace(0, len(pairs) - 1, min(rows, len(pairs))).round().astype(int))
    pairs = [pairs[k] for k in kept]
    columns = min(columns, views.shape[2])
    height, width = views.shape[3:5]
    gap = max(2, width // 8)
    start = width + 2 * gap  # the first view stands a little apart from the input
    # Rows of one class stand together, classes apart.
    tops = [row * (height + gap) + i * gap for row, (i, _) in enumerate(pairs)]
    shape = (tops[-1] + height, start + columns * (width + gap // 2) - gap // 2, 3)
    sheet = np.full(shape, 255, np.uint8)
    for y, (i, q) in zip(tops, pairs, strict=True):
        sheet[y : y + height, :width] = images[i, index[q]]
        for v in range(columns):
            x = start + v * (width + gap // 2)
            sheet[y : y + height, x : x + width] = views[i, q, v]

    unit = 0.72 / width  # inches per pixel
    labels = [f"{plain(names[i])}\n{turned(poses[i, index[q]])}" for i, q in pairs]
    longest = max(len(line) for label in labels for line in label.split("\n"))
    margin, head = 0.25 + 0.085 * longest, 0.5
    size = (margin + sheet.shape[1] * unit + 0.1, head + sheet.shape[0] * unit + 0.1)
    figure = Figure(figsize=size)
    panel = figure.add_axes(
        (margin / size[0], 0.1 / size[1], 1 - (margin + 0.1) / size[0], 1 - (head + 0.1) / size[1])
    )
    panel.imshow(sheet, interpolation="nearest", aspect="auto")
    panel.axis("off")
    for y, label in zip(tops, labels, strict=True):
        panel.add_patch(
            Rectangle(
                (-1, y - 1),
                width + 1,
                height + 1,
                fill=False,
                edgecolor=RED,
                linewidth=2.5,
                clip_on=False,
            )
        )
        panel.text(-gap, y + height / 2, label, ha="right", va="center", fontsize=9.5)
    above = -gap
    panel.text(width / 2, above, "input", ha="center", va="bottom", color=RED, fontweight="bold")
    panel.text(
        start, above, "views sampled from the learned density", va="bottom", fontweight="bold"
    )
    return figure


def translations(evaluation: Arrays, points: int = 1500) -> Figure:
    """Draw how far the sampled translations move the picture, one panel per class.

    The transform maps output to input positions, so a positive translation moves the content left
    and up; drawn is the content's movement, right and up, in percent of the picture's width.

    Args:
        evaluation: `class_names` (C,), `translation` (C, P, S, 2) in half-widths, x right, y down.
        points: most samples drawn per class, evenly taken from all.

    Returns:
        Figure with one panel per class (the first eight), same scale on all axes.

    Raises:
        MissingArrayError: if an array is not there or has another rank.
    """
    names, theta = require(evaluation, "class_names", "translation")
    count = min(len(names), MAX_CLASSES)
    # Content moves by -theta, so by (-x, +y) in (right, up); two half-widths are the width.
    moves = 50.0 * theta[:count].reshape(count, -1, 2) * np.array([-1.0, 1.0])
    limit = 1.1 * max(float(np.nanmax(np.abs(moves), initial=0.0)), 1.0)
    columns = min(count, 4)
    lines = -(-count // columns)
    figure = Figure(figsize=(2.9 * columns + 0.6, 3.0 * lines + 0.5), layout="constrained")
    panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    for i, panel in enumerate(cast("list[Axes]", list(panels.flat))):
        if i >= count:
            panel.set_visible(False)
            continue
        kept = moves[i][:: max(1, -(-len(moves[i]) // points))]
        panel.axhline(0, color=GREY, linewidth=0.8)
        panel.axvline(0, color=GREY, linewidth=0.8)
        panel.scatter(kept[:, 0], kept[:, 1], s=7, color=BLUE, alpha=0.3, linewidth=0)
        panel.set(title=plain(names[i]), aspect="equal", xlim=(-limit, limit), ylim=(-limit, limit))
        panel.grid(alpha=0.2)
    figure.supxlabel("content moved right (% of the picture's width)", fontsize=10)
    figure.supylabel("content moved up (%)", fontsize=10)
    return figure


def _column(metrics: Sequence[Mapping[str, Any]], key: str) -> np.ndarray:
    values = (line.get(key) for line in metrics)
    return np.array([v if isinstance(v, int | float) else np.nan for v in values], dtype=float)


def _running_mean(x: np.ndarray, y: np.ndarray, window: int) -> tuple[np.ndarray, np.ndarray]:
    """Average over windows that are wholly inside the run, at the middle of their epochs."""
    weights = np.full(max(window, 1), 1 / max(window, 1))
    return np.convolve(x, weights, "valid"), np.convolve(y, weights, "valid")
