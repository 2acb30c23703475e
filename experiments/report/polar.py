"""The learned density of resulting poses on the circle, beside the truth.

Angles are degrees, counter-clockwise as seen is positive; 0 is at the top, so that up is up.
"""

from typing import Any, cast

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.projections.polar import PolarAxes

from experiments.report.colours import BLACK, BLUE, GREY, RED, SAND
from experiments.report.evaluation import Arrays, arcs, plain, require, turned, wrap

__all__ = ["polar_densities"]

MAX_CLASSES = 8
# Radius of a panel, in units of the true height: higher peaks are cut, and say so.
MAX_RADIUS = 3.0
PANEL, GAP, MARGIN = 2.45, 0.12, 0.5  # inches
NARROW = 4  # columns below which words stand in more lines


def polar_densities(evaluation: Arrays, columns: int = 5) -> Figure:
    """Draw where the learned rotations turn images of every class, beside the truth.

    A panel shows the histogram of pose + rotation for one image. The radius, not the area, is the
    density, in units of the true height 1 / (2 M h) per degree (M arcs of half-width h each), so
    the truth is a wedge of radius 1 in every panel. Without known arcs the unit is 1 / 360.

    Args:
        evaluation: `class_names` (C,), `pose_degrees` (C, P), `rotation_degrees` (C, P, S); also
            used when there: `centres_degrees` (C, M), `arc_half_range_degrees`, `images`.
            Poses that are all zero, and no arcs, are of images as they are: nobody knows them.
        columns: poses per class, spread over the poses that there are.

    Returns:
        Figure with one row per class (the first eight) and one column per pose.

    Raises:
        MissingArrayError: if an array is not there or has another rank.
    """
    names, poses, rotations = require(evaluation, "class_names", "pose_degrees", "rotation_degrees")
    truth = arcs(evaluation)
    posed = truth is not None or bool(poses.any())
    images = require(evaluation, "images")[0] if "images" in evaluation else None
    rows, columns = min(len(names), MAX_CLASSES), min(columns, poses.shape[1])
    # Poses count from the middle of the arc that they lie in, or from upright where none is known.
    middles = np.zeros(rows) if truth is None else _arcs_of(poses[:rows], truth[0][:rows])
    chosen = np.array([_spread_over(poses[i], float(middles[i]), columns) for i in range(rows)])
    edges = _edges(rotations.shape[-1])
    unit = 1 / 360 if truth is None else 1 / (truth[0].shape[1] * 2 * truth[1])
    densities = np.array(
        [[_density(poses[i, k] + rotations[i, k], edges) for k in chosen[i]] for i in range(rows)]
    )
    radii = densities / unit
    limit = float(np.clip(1.05 * radii.max(initial=0), 1.35, MAX_RADIUS))

    narrow = columns < NARROW
    head = 1.4 if narrow else 0.75
    width, height = PANEL * columns + MARGIN + 0.1, (PANEL + GAP) * rows + head
    figure = Figure(figsize=(width, height))
    for i, j in np.ndindex(rows, columns):
        x, y = MARGIN + PANEL * (j + 0.19), height - head - (PANEL + GAP) * (i + 0.88)
        box = (x / width, y / height, 0.68 * PANEL / width, 0.68 * (PANEL + GAP) / height)
        panel = cast(PolarAxes, figure.add_axes(box, projection="polar"))
        _prepare(panel, limit)
        _histogram(panel, edges, radii[i, j], limit)
        if truth is not None:
            for centre in truth[0][i]:
                _wedge(panel, float(centre), truth[1])
        k = chosen[i, j]
        _tick(panel, float(poses[i, k]), limit)
        words = turned(poses[i, k]) if posed else "as it is"
        panel.set_title(f"input {words}", fontsize=9.5, pad=13)
        if images is not None:
            inset = panel.inset_axes((-0.28, -0.17, 0.34, 0.34))
            inset.imshow(images[i, k], cmap="gray", interpolation="nearest")
            inset.set(xticks=[], yticks=[])
        if j == 0:
            style: dict[str, Any] = {"va": "center", "fontsize": 12, "fontweight": "bold"}
            figure.text(0.14 / width, box[1] + box[3] / 2, plain(names[i]), rotation=90, **style)
    _explain(figure, truth_known=truth is not None, posed=posed, narrow=narrow)
    return figure


def _arcs_of(poses: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Return, of every class, the centre (C,) that most of its poses (C, P) are nearest to."""
    nearest = np.abs(wrap(poses[:, :, None] - centres[:, None])).argmin(-1)
    most = [np.bincount(row, minlength=centres.shape[1]).argmax() for row in nearest]
    return centres[np.arange(len(centres)), most]


def _spread_over(poses: np.ndarray, centre: float, count: int) -> list[int]:
    """Choose `count` different poses, evenly spread, those that point left first.

    Middles of equal parts: at the very end of an arc the picture belongs to two classes.
    """
    offsets = wrap(poses - centre)
    chosen: list[int] = []
    for part in range(count):
        target = offsets.min() + (part + 0.5) / count * np.ptp(offsets)
        distance = np.abs(offsets - target)
        distance[chosen] = np.inf
        chosen.append(int(distance.argmin()))
    # A pose that points left goes to the left, in the lower half of the circle too.
    side = -1.0 if np.cos(np.radians(centre)) >= 0 else 1.0
    return sorted(chosen, key=lambda k: side * offsets[k])


def _edges(samples: int) -> np.ndarray:
    """Choose bins that meet the ends of arcs of 15, 30, 45, 60 and 90 degrees.

    The more samples, the narrower a bin may be before its noise hides the shape.
    """
    width = 5.0 if samples >= 4000 else 7.5 if samples >= 600 else 15.0
    return np.arange(-180.0, 180.0 + width / 2, width)


def _density(degrees: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Count angles per bin, as a density per degree that integrates to one."""
    finite = degrees[np.isfinite(degrees)]
    counts, _ = np.histogram(wrap(finite), edges)
    return counts / max(len(finite), 1) / np.diff(edges)


def _prepare(panel: PolarAxes, limit: float) -> None:
    """Set 0 at the top, counter-clockwise positive, four labelled directions."""
    panel.set_theta_zero_location("N")
    panel.set_theta_direction(1)
    panel.set_rlim(0, limit)
    panel.set_rgrids([1.0], labels=[""])
    panel.set_thetagrids([0, 90, 180, 270], labels=["0°", "90°\nleft", "180°", "90°\nright"])
    panel.tick_params(labelsize=7.5, pad=0, colors=GREY)
    panel.grid(alpha=0.35)
    panel.spines["polar"].set_alpha(0.3)


def _histogram(panel: PolarAxes, edges: np.ndarray, radii: np.ndarray, limit: float) -> None:
    """Fill the bins up to their radius; say so where a peak is cut."""
    middles, widths = np.radians((edges[1:] + edges[:-1]) / 2), np.radians(np.diff(edges))
    heights = np.minimum(radii, limit)
    panel.bar(middles, heights, width=widths, color=BLUE, alpha=0.6, linewidth=0, zorder=2)
    if radii.max(initial=0) > limit:
        words = f"peak {radii.max():.1f},\ncut at {limit:.1f}"
        panel.text(1.02, -0.1, words, transform=panel.transAxes, ha="center", fontsize=8.5)


def _wedge(panel: PolarAxes, centre: float, half_range: float) -> None:
    """Outline the true arc of a class at radius 1."""
    arc = np.radians(centre + np.linspace(-half_range, half_range, 181))
    panel.fill_between(arc, 0, 1, color=SAND, zorder=1, linewidth=0)
    outline, radius = arc, np.ones_like(arc)
    if half_range < 180:  # a full circle has no straight sides
        outline = np.concatenate([arc[:1], arc, arc[-1:]])
        radius = np.concatenate([[0.0], radius, [0.0]])
    panel.plot(outline, radius, color=RED, linewidth=1.8, zorder=4)


def _tick(panel: PolarAxes, pose: float, limit: float) -> None:
    """Mark the pose of the input at the rim."""
    angle, radius = np.radians([pose, pose]), [0.86 * limit, limit]
    panel.plot(angle, radius, color=BLACK, linewidth=3.5, zorder=5, solid_capstyle="butt")


def _explain(figure: Figure, *, truth_known: bool, posed: bool, narrow: bool) -> None:
    handles: list[Any] = [
        Patch(color=BLUE, alpha=0.6, label="learned: pose after a sampled rotation")
    ]
    if truth_known:
        label = "truth: uniform until the class ends"
        handles.append(Patch(facecolor=SAND, edgecolor=RED, linewidth=1.8, label=label))
    label = "pose of the input (small picture)"
    handles.append(Line2D([], [], color=BLACK, linewidth=3.5, label=label))
    columns = 1 if narrow else 3
    figure.legend(handles=handles, loc="upper center", ncols=columns, frameon=False, fontsize=10.5)
    words = ("\n" if narrow else " ").join(
        (
            f"0° = {'upright' if posed else 'as the input is'}, at the top; "
            "left = counter-clockwise.",
            "Distance from the centre is the density (not the area).",
        )
    )
    y = 1 - (1.0 if narrow else 0.5) / figure.get_figheight()
    figure.text(0.5, y, words, ha="center", va="center", fontsize=9.5, color=GREY)
