"""Where crops are cut: the boxes of sampled views, drawn on their images."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from experiments.report.colours import BLUE
from experiments.report.evaluation import Arrays, plain, require

__all__ = ["crop_boxes"]

_COLUMNS = 6


def crop_boxes(evaluation: Arrays, most: int = 12) -> Figure:
    """Draw, on some images, the frames of crops sampled from their densities.

    Args:
        evaluation: `class_names` (C,), `shown_images` (Q, H, W, 1 or 3) uint8, `shown_labels` (Q,)
            and `shown_boxes` (Q, V, 4): centre x and y, half width and height, the picture being
            [-1, 1] in both.
        most: images shown, the first ones.

    Raises:
        MissingArrayError: if an array is not there or has another rank.
    """
    names, images, labels, boxes = require(
        evaluation, "class_names", "shown_images", "shown_labels", "shown_boxes"
    )
    images, boxes = images[:most], boxes[:most]
    rows = -(-len(images) // _COLUMNS)
    columns = min(len(images), _COLUMNS)
    figure = Figure(figsize=(1.9 * columns, 2.1 * rows), layout="constrained")
    panels: Any = figure.subplots(rows, columns, squeeze=False)
    for panel in panels.flat:
        panel.axis("off")
    for panel, image, label, frames in zip(panels.flat, images, labels, boxes, strict=False):
        grey = image.shape[-1] == 1
        panel.imshow(
            image[..., 0] if grey else image, cmap="gray" if grey else None, vmin=0, vmax=255,
            extent=(-1, 1, 1, -1), interpolation="nearest",
        )  # fmt: skip
        for x, y, width, height in np.asarray(frames, float):
            panel.add_patch(
                Rectangle(
                    (x - width, y - height), 2 * width, 2 * height, fill=False, edgecolor=BLUE,
                    linewidth=1.0, alpha=0.8,
                )
            )  # fmt: skip
        panel.set(xlim=(-1.3, 1.3), ylim=(1.3, -1.3))
        panel.set_title(plain(names[label]), fontsize=9)
    return figure
