"""Mean-shift in pictures: where turned figures end, step by step, and what they look like then."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.report.evaluation import Arrays, plain, require

__all__ = ["pairs", "prototypes", "straightened"]

_GAP = 2  # pixels between pictures


def straightened(evaluation: Arrays) -> Figure:
    """Draw the pose of every figure over the steps of mean-shift, and some before and after.

    Args:
        evaluation: `class_names` (C,), `straightened_degrees` (K + 1, C, P), `straightened`
            (C, Q, H, W, 3) uint8, `images` (C, P, H, W, 3) uint8, `view_index` (Q,).

    Returns:
        Figure: a column per class; above, one line per figure; below, the pictures `view_index`
        as they came and, under them, straightened.

    Raises:
        MissingArrayError: if an array is not there or has another rank.
    """
    names, track, after, images, index = require(
        evaluation, "class_names", "straightened_degrees", "straightened", "images", "view_index"
    )
    steps, classes, _ = track.shape
    figure = Figure(figsize=(2.9 * classes, 4.4), layout="constrained")
    panels = np.atleast_2d(figure.subplots(2, classes, squeeze=False, height_ratios=(2.2, 1)))
    for c in range(classes):
        above, below = panels[:, c]
        # One line is one figure: what passes the seam goes on, not to the other edge.
        above.plot(np.unwrap(track[:, c], period=360.0, axis=0), color="#1f77b4", lw=0.7, alpha=0.5)
        above.set_title(plain(names[c]), fontsize=10)
        above.set_xlim(0, steps - 1)
        above.set_xlabel("step")
        above.grid(alpha=0.3)
        if c == 0:
            above.set_ylabel("where the picture points (degrees)")
        below.imshow(_strip(images[c, index], after[c]), interpolation="nearest")
        below.axis("off")
    panels[1, 0].set_title("before (above), after (below)", fontsize=9, loc="left")
    return figure


def _strip(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Lay pictures (Q, H, W, 3) side by side, those after below those before."""
    rows = [
        np.concatenate(
            [np.pad(p, ((0, _GAP), (0, _GAP), (0, 0)), constant_values=255) for p in row], 1
        )
        for row in (before, after)
    ]
    return np.concatenate(rows)


def pairs(evaluation: Arrays, columns: int = 12) -> Figure:
    """Draw images as they came and, below them, straightened.

    Args:
        evaluation: `class_names` (C,), `shown_images` (Q, H, W, 1 or 3) uint8, `shown_labels` (Q,),
            `shown_straightened`, as the images, and `shown_moves` (Q, d), in the units of
            `coordinate_units` (d,), of the coordinates `coordinate_names` (d,).
        columns: images shown at most.

    Returns:
        Figure: a column per image, above it its class, below it by how much it was turned.

    Raises:
        MissingArrayError: if an array is not there or has another rank.
    """
    names, before, labels, after, moves, coordinates = require(
        evaluation, "class_names", "shown_images", "shown_labels", "shown_straightened",
        "shown_moves", "coordinate_names",
    )  # fmt: skip
    order = np.argsort(labels, kind="stable")[:columns]
    figure = Figure(figsize=(1.15 * len(order) + 0.6, 3.2), layout="constrained")
    panels = figure.subplots(2, len(order), squeeze=False)
    turns = [i for i, name in enumerate(coordinates) if str(name) == "rotation"]
    for column, q in enumerate(order):
        for row, image in enumerate((before[q], after[q])):
            panel = panels[row, column]
            panel.imshow(image.squeeze(), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            panel.set(xticks=[], yticks=[])
        panels[0, column].set_title(plain(names[labels[q]]), fontsize=9)
        if turns:
            panels[1, column].set_xlabel(f"{moves[q, turns[0]]:+.0f}°", fontsize=9)
    panels[0, 0].set_ylabel("as it came", fontsize=9)
    panels[1, 0].set_ylabel("straightened", fontsize=9)
    return figure


def prototypes(
    names: Sequence[str], means: np.ndarray, rows: Sequence[Mapping[str, Any]]
) -> Figure:
    """Draw the mean image of every class: turned, aligned, and unturned below each other.

    Args:
        names: of the C classes.
        means: (C, 3, H, W, channels) in [0, 1].
        rows: per class, `spread_after_degrees`, and `deviation_` turned, aligned, unturned.
    """
    figure = Figure(figsize=(1.1 * len(names) + 0.9, 4.2), layout="constrained")
    panels = figure.subplots(3, len(names), squeeze=False)
    for c, (name, row) in enumerate(zip(names, rows, strict=True)):
        for line, kind in enumerate(("turned", "aligned", "unturned")):
            panel = panels[line, c]
            panel.imshow(means[c, line].squeeze(), cmap="gray", vmin=0, vmax=1)
            panel.set(xticks=[], yticks=[])
            panel.set_xlabel(f"{row[f'deviation_{kind}']:.3f}", fontsize=8)
            if c == 0:
                panel.set_ylabel(kind)
        panels[0, c].set_title(f"{plain(name)}\n±{row['spread_after_degrees']:.0f}°", fontsize=9)
    figure.suptitle(
        "mean image; below it the deviation per pixel; above, the spread of turns left", fontsize=9
    )
    return figure
