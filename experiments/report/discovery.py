"""Figures of rotation discovery: sampled entries beside the turns, and how far methods are off.

Arrays and numbers in, matplotlib Figures out; no file is touched.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.report.colours import CYCLE, GREY, MARKERS, RED
from experiments.report.evaluation import Arrays, MissingArrayError, plain, require, turned

__all__ = ["distance_against_half_range", "sampled_entries"]

_FAR = 0.6  # distance from which on a sample has the last colour; random entries: 0.27


def sampled_entries(evaluation: Arrays, rows: int = 4, points: int = 600) -> Figure:
    """Draw entries b and d of every sample, coloured by its distance to the nearest rotation.

    Turns alone are the line d = -b; with six free entries samples on it may still be scaled or
    stretched, which the colour shows.

    Args:
        evaluation: `class_names` (C,), `pose_degrees` (C, P), `view_index` (V,), `entry_names` (d,)
            with b and d among them, `entries` (C, V, S, d), `entry_distance` (C, V, S).
        rows: most classes drawn.
        points: most samples drawn per panel.

    Returns:
        Figure with one panel per class and shown pose, entries on both axes.

    Raises:
        MissingArrayError: if an array is not there, or has another rank, or b or d is not free.
    """
    names, poses, index, free, entries, distance = require(
        evaluation,
        "class_names",
        "pose_degrees",
        "view_index",
        "entry_names",
        "entries",
        "entry_distance",
    )
    found = [str(name) for name in free]
    if not {"b", "d"} <= set(found):
        raise MissingArrayError(f"entry_names are {', '.join(found)}; want b and d among them")
    b, d = (entries[..., found.index(name)] for name in "bd")
    limit = 1.05 * max(float(np.abs(b).max()), float(np.abs(d).max()), 0.1)
    lines, columns = min(rows, len(names)), entries.shape[1]
    figure = Figure(figsize=(2.3 * columns + 1.2, 2.5 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    drawn: Any = None
    for i in range(lines):
        for j in range(columns):
            panel = cast(Axes, panels[i, j])
            panel.plot([-limit, limit], [limit, -limit], color=RED, linewidth=1.0, label="turns")
            kept = slice(None, None, max(1, -(-b.shape[2] // points)))
            drawn = panel.scatter(
                b[i, j, kept],
                d[i, j, kept],
                c=distance[i, j, kept],
                vmin=0.0,
                vmax=_FAR,
                s=5,
                linewidth=0,
                cmap="viridis",
            )
            panel.plot(0, 0, "+", color=GREY, markersize=9)
            panel.set(xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal")
            pose = turned(poses[i, index[j]])
            panel.set_title(f"{plain(names[i])}, {pose}" if j == 0 else pose, fontsize=8.5)
    figure.supxlabel("entry b (0: as it is; left turns are negative)", fontsize=10)
    figure.supylabel("entry d", fontsize=10)
    figure.colorbar(drawn, ax=panels, shrink=0.7, label="relative distance to the nearest rotation")
    return figure


def distance_against_half_range(
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]],
) -> Figure:
    """Draw the distance to the nearest rotation against the learned half-range, per method.

    Args:
        panels: titles to names of methods to (half-range in degrees, median distance) of their
            runs.

    Returns:
        Figure, one panel beside the other: lower is better at any half-range; runs of a method are
        joined in its order.

    Raises:
        MissingArrayError: if no run has both figures.
    """
    if not any(runs for methods in panels.values() for runs in methods.values()):
        raise MissingArrayError("no run here measured its distance to rotations")
    figure = Figure(
        figsize=(8 if len(panels) == 1 else 5.5 * len(panels), 4.8), layout="constrained"
    )
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    names = list(dict.fromkeys(name for methods in panels.values() for name in methods))
    for panel, (title, methods) in zip(axes, panels.items(), strict=True):
        for name, runs in methods.items():
            i = names.index(name)  # a method has one colour in all panels
            x, y = np.array(sorted(runs)).T if runs else (np.zeros(0), np.zeros(0))
            style: dict[str, Any] = {"color": CYCLE[i % 8], "marker": MARKERS[i % 8]}
            panel.plot(x, y, label=plain(name), linewidth=1.3, markersize=5, **style)
        panel.set(
            title=title,
            xlabel="learned half-range of turns (degrees)",
            xlim=(0, None),
            ylim=(0, None),
        )
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
        if methods:
            panel.legend(frameon=False)
    axes[0].set_ylabel("relative distance to the nearest rotation (median)")
    return figure
