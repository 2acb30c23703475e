"""Labels of pixels: maps beside maps, and how far they are from moving with the image."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from experiments.report.colours import BLACK, BLUE, CYCLE, GREY, RED
from experiments.report.evaluation import Arrays, plain, require
from experiments.report.formats import number

__all__ = ["equivariance", "errors_by_views", "label_maps"]


def label_maps(evaluation: Arrays) -> Figure:
    """Lay labels and predictions below some test images.

    Args:
        evaluation: `class_names` (C,), `map_images` (M, H, W, 1 or 3) uint8, and `map_labels`,
            `map_plain`, `map_averaged` (M, H, W) int.

    Returns:
        Figure of four rows, a colour a class, the first one black.

    Raises:
        MissingArrayError: if an array is not there or has another rank.
    """
    names, images, *maps = require(
        evaluation, "class_names", "map_images", "map_labels", "map_plain", "map_averaged"
    )
    colours = [BLACK, *CYCLE[:6], GREY]
    palette = np.array([to_rgb(colours[k % len(colours)]) for k in range(len(names))])
    rows = [np.broadcast_to(images, (*images.shape[:3], 3)), *(palette[each] for each in maps)]
    words = ("image", "labels", "one view,\nthe image", "averaged\nover views")
    figure = Figure(figsize=(1.1 + 1.05 * len(images), 4.7), layout="constrained")
    panels = np.atleast_2d(figure.subplots(len(rows), len(images), squeeze=False))
    for row, pictures in enumerate(rows):
        for panel, picture in zip(panels[row], pictures, strict=True):
            panel.imshow(picture, interpolation="nearest")
            panel.set(xticks=[], yticks=[])
        panels[row, 0].set_ylabel(words[row])
    figure.legend(
        handles=[
            Patch(color=colour, label=plain(name))
            for colour, name in zip(palette, names, strict=True)
        ],
        loc="outside lower center",
        ncols=len(names),
        frameon=False,
    )
    return figure


def errors_by_views(results: Mapping[str, Any]) -> dict[int, float]:
    """Return number of views -> equivariance error, as far as it was measured."""
    prefix = "equivariance_error_"
    counts = sorted(int(key[len(prefix) :]) for key in results if key.startswith(prefix))
    found = {count: number(results, f"{prefix}{count}") for count in counts}
    return {count: error for count, error in found.items() if error is not None}


def equivariance(results: Mapping[str, Any]) -> Figure:
    """Draw the equivariance error against the number of views.

    Args:
        results: `equivariance_error`, of the network alone, and `equivariance_error_K` of K views.
    """
    errors = errors_by_views(results)
    figure = Figure(figsize=(6.2, 3.6), layout="constrained")
    panel: Any = figure.subplots()
    panel.plot(list(errors), list(errors.values()), "o-", color=BLUE, label="averaged over views")
    alone = number(results, "equivariance_error")
    if alone is not None:
        panel.axhline(alone, color=RED, linestyle="--", label="the network alone")
    panel.set_xscale("log", base=2)
    panel.set_xticks(list(errors), [str(count) for count in errors])
    panel.set(xlabel="views", ylabel="of the turned image,\nagainst the turned one", ylim=0)
    panel.legend(frameon=False)
    panel.grid(alpha=0.2)
    panel.spines[["top", "right"]].set_visible(False)
    return figure
