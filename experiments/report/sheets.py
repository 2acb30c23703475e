"""Pictures beside pictures: the input of the density, then views sampled from it."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from experiments.report.colours import RED
from experiments.report.evaluation import Arrays, plain, require, turned

__all__ = ["view_sheet"]


def view_sheet(evaluation: Arrays, rows: int = 12, columns: int = 10) -> Figure:
    """Lay sampled views of some images beside the images themselves.

    Args:
        evaluation: `class_names` (C,) and either `shown_images` (Q, H, W, 1 or 3) uint8,
            `shown_labels` (Q,), `shown_views` (Q, V, H, W, 1 or 3) uint8; or, where poses are
            known, `pose_degrees` (C, P), `images` (C, P, H, W, 3) uint8 and `views`
            (C, Q, V, H, W, 3) uint8 of the images `view_index` (Q,).
        rows: images shown at most, spread over all.
        columns: views shown at most per image.

    Returns:
        Figure: in every row the framed input, then its views; one channel is drawn grey.

    Raises:
        MissingArrayError: if an array is not there or has another rank.
    """
    if "shown_images" in evaluation:
        names, inputs, labels, views = require(
            evaluation, "class_names", "shown_images", "shown_labels", "shown_views"
        )
        words = [plain(names[label]) for label in labels]
    else:
        names, poses, images, views, index = require(
            evaluation, "class_names", "pose_degrees", "images", "views", "view_index"
        )
        labels = np.repeat(np.arange(len(views)), views.shape[1])
        inputs = images[: len(views), index].reshape(-1, *images.shape[2:])
        shown = poses[: len(views), index].reshape(-1)
        words = [
            f"{plain(names[label])}\n{turned(pose)}"
            for label, pose in zip(labels, shown, strict=True)
        ]
        views = views.reshape(-1, *views.shape[2:])
    # Pictures of one class stand together, in whatever order they came.
    order = np.argsort(labels, kind="stable")
    kept = order[
        np.unique(np.linspace(0, len(order) - 1, min(rows, len(order))).round().astype(int))
    ]
    return _sheet(inputs[kept], views[kept, :columns], labels[kept], [words[k] for k in kept])


def _sheet(
    inputs: np.ndarray, views: np.ndarray, labels: np.ndarray, words: Sequence[str]
) -> Figure:
    """Draw inputs (R, H, W, C) and views (R, V, H, W, C), classes a little apart."""
    count, (height, width) = views.shape[1], views.shape[2:4]
    gap = max(2, width // 8)
    start = width + 2 * gap  # the first view stands a little apart from the input
    groups = np.cumsum(np.diff(labels, prepend=labels[:1]) != 0)
    tops = [row * (height + gap) + int(group) * gap for row, group in enumerate(groups)]
    shape = (tops[-1] + height, start + count * (width + gap // 2) - gap // 2, 3)
    sheet = np.full(shape, 255, np.uint8)
    for row, y in enumerate(tops):
        sheet[y : y + height, :width] = inputs[row]  # one channel fills all three: grey
        for v in range(count):
            x = start + v * (width + gap // 2)
            sheet[y : y + height, x : x + width] = views[row, v]

    unit = 0.72 / width  # inches per pixel
    longest = max(len(line) for label in words for line in label.split("\n"))
    margin, head = 0.25 + 0.085 * longest, 0.5
    size = (margin + sheet.shape[1] * unit + 0.1, head + sheet.shape[0] * unit + 0.1)
    figure = Figure(figsize=size)
    panel = figure.add_axes(
        (margin / size[0], 0.1 / size[1], 1 - (margin + 0.1) / size[0], 1 - (head + 0.1) / size[1])
    )
    panel.imshow(sheet, interpolation="nearest", aspect="auto")
    panel.axis("off")
    for y, label in zip(tops, words, strict=True):
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
