"""Figures of one run: arrays and dictionaries in, matplotlib Figures out; no file is touched.

Angles are degrees, counter-clockwise as seen is positive, 0 is upright; "left" in a label means
counter-clockwise. In the polar figures 0 is at the top, so that up is up.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator

from experiments.report.by_class import entropies, ranges
from experiments.report.colours import (
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
from experiments.report.evaluation import (
    Arrays,
    MissingArrayError,
    arcs,
    offset,
    plain,
    require,
    wrap,
)
from experiments.report.formats import ARC_SHARE
from experiments.report.polar import polar_densities
from experiments.report.sheets import view_sheet
from experiments.report.verdicts import has_density

__all__ = [
    "MissingArrayError",
    "arc_shares",
    "draw_arc_shares",
    "draw_curve",
    "draw_half_ranges",
    "entropies",
    "half_ranges",
    "learning_curves",
    "logged",
    "polar_densities",
    "ranges",
    "scored",
    "translations",
    "view_sheet",
]

MAX_CLASSES = 8


class _Scored(NamedTuple):
    """How what a run is scored by is called in its figures.

    Attributes:
        name: of the score, after train_ and test_.
        loss: key of the loss among the metrics.
        words, unit: of the loss.
        title, score_unit, scale: of the score.
    """

    name: str
    loss: str
    words: str
    unit: str
    title: str
    score_unit: str
    scale: float = 1.0


_BY_LABELS = _Scored("accuracy", "cross_entropy", "cross-entropy", "nats", "Accuracy", "%", 100.0)
_OFF, _DEVIATIONS = "Mean absolute error", "standard deviations"
_OTHERS = (
    _Scored("error_degrees", "squared_error", "squared error", "squared degrees", _OFF, "degrees"),
    _Scored("error", "absolute_error", "absolute error", _DEVIATIONS, _OFF, _DEVIATIONS),
    _Scored(
        "pairs_found", "contrast", "contrast", "nats", "Views whose partner is nearest", "%", 100.0
    ),
)


def learning_curves(metrics: Sequence[Mapping[str, Any]], results: Mapping[str, Any]) -> Figure:
    """Draw losses, entropy, accuracies and alpha over epochs; without a density, two of these.

    Where the evidence teaches the density, it stands in place of alpha.

    Of a regression: squared and absolute errors instead of cross-entropies and accuracies.

    Faint lines are the logged values, strong ones their running mean over a fortieth of the run.
    Missing or non-finite values leave gaps.

    Args:
        metrics: one mapping per logged step with `epoch` and the flat names of `metrics.jsonl`.
        results: `log_volume` and `entropy_floor` (nats), drawn as dashed lines when there;
            `method` says whether there is a density.

    Returns:
        Figure with four panels that share the axis of epochs, or losses and accuracies only.
    """
    density = has_density(results)
    lines = 2 if density else 1
    figure = Figure(figsize=(11, 3.2 * lines), layout="constrained")
    panels = cast("list[Axes]", list(figure.subplots(lines, 2, sharex=True).flat))
    epochs = logged(metrics, "epoch")

    def draw(panel: Axes, key: str, label: str, colour: str, scale: float = 1.0) -> None:
        values = scale * logged(metrics, key)
        kept = np.isfinite(values) & np.isfinite(epochs)
        if kept.sum() >= 60:
            panel.plot(epochs[kept], values[kept], color=colour, alpha=0.25, linewidth=0.8)
        draw_curve(panel, epochs, values, label=label, color=colour)

    loss, score = panels[0], panels[lines]
    said = _scored(metrics)
    key, words, name, scale = said.loss, said.words, said.name, said.scale
    if density:
        label = f"loss = {words} − alpha × bonus"
        if results.get("pose_likelihood"):
            label = "loss; after burn-in −log g of the pose"
        if "evidence" in results:
            label = f"loss = {words} − log prior of the weights, per image"
        draw(loss, "loss", label, GREY)
        draw(loss, key, f"{words} of sampled views", BLUE)
        draw(loss, f"{key}_original", f"{words} of images as they are", ORANGE)
    else:
        # Views are the images: the loss may count each twice.
        draw(loss, key, words, BLUE)
    loss.set(title="Losses", ylabel=said.unit)

    trained = "training, sampled views" if density else "training"
    draw(score, f"train_{name}", trained, BLUE, scale)
    draw(score, f"test_{name}", "test, images as they are", RED, scale)
    score.set(title=said.title, ylabel=said.score_unit)
    if said.score_unit != "%":
        score.set_ylim(bottom=0)
    elif score.lines:
        score.set_ylim(top=101)

    if density:
        entropy, alpha = panels[1], panels[3]
        draw(entropy, "entropy", "entropy of the learned density", GREEN)
        for key, label, colour in (
            ("log_volume", "maximum: uniform over the whole box", BLACK),
            ("entropy_floor", "floor: below it the density has collapsed", RED),
        ):
            level = results.get(key)
            if entropy.lines and isinstance(level, int | float) and np.isfinite(level):
                line = {"color": colour, "linestyle": "--", "linewidth": 1.3}
                entropy.axhline(float(level), label=label, **line)
        entropy.set(title="Entropy: how wide the density is", ylabel="nats, in the unit box")
        if "evidence" in results:
            # It is 0 until it is first measured.
            known = [line for line in metrics if line.get("evidence")]
            at, values = logged(known, "epoch"), logged(known, "evidence")
            draw_curve(alpha, at, values, label="log marginal likelihood", color=PURPLE)
            alpha.set(title="Evidence: what the density climbs", ylabel="nats per image")
        else:
            draw(alpha, "alpha", "alpha", PURPLE)
            alpha.set(title="Alpha: weight of the entropy in the loss", ylabel="alpha (no unit)")
            if alpha.lines:
                # Room above: a constant alpha would lie on the frame.
                alpha.set_ylim(0, 1.15 * alpha.dataLim.ymax or 1.0)

    for panel in panels:
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
        if panel.lines:
            # White: level lines do not count when matplotlib looks for the emptiest corner.
            panel.legend(fontsize=8.5, framealpha=0.85, edgecolor="none")
        else:
            panel.text(0.5, 0.5, "not logged in this run", ha="center", transform=panel.transAxes)
    for panel in panels[-2:]:
        panel.set_xlabel("epochs")
    return figure


def arc_shares(metrics: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw how much of the circle each class is turned by, over epochs, one line per class.

    Args:
        metrics: one mapping per logged step with `epoch` and, at the ends of epochs,
            `arc_share_CLASS`.

    Returns:
        Figure with one panel; 1 is the whole circle.

    Raises:
        MissingArrayError: if no arc was logged.
    """
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    panel = figure.subplots()
    draw_arc_shares(panel, metrics)
    if not panel.lines:
        raise MissingArrayError(f"metrics.jsonl has no {ARC_SHARE}CLASS")
    panel.set(xlabel="epochs", ylabel="share of the circle")
    panel.grid(alpha=0.25)
    panel.spines[["top", "right"]].set_visible(False)
    figure.legend(frameon=False, ncols=8, loc="outside upper center")
    return figure


def draw_arc_shares(
    panel: Axes, metrics: Sequence[Mapping[str, Any]], *, markersize: float = 4.5
) -> None:
    """Draw a line per class, if arcs were logged, into a panel; see `arc_shares`."""
    keys = list(dict.fromkeys(k for line in metrics for k in line if k.startswith(ARC_SHARE)))
    epochs = logged(metrics, "epoch")
    for i, key in enumerate(keys):
        values = logged(metrics, key)
        kept = np.isfinite(values) & np.isfinite(epochs)
        panel.plot(
            epochs[kept],
            values[kept],
            label=plain(key.removeprefix(ARC_SHARE)),
            color=CYCLE[i % 8],
            marker=MARKERS[i % 8],
            markersize=markersize,
            linewidth=1.3,
        )
    for level in (0.5, 1.0) if keys else ():
        panel.axhline(level, color=BLACK, linestyle="--", linewidth=1.0)
    panel.set_ylim(0, 1.05)


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
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    panel = figure.subplots()
    draw_half_ranges(panel, evaluation)
    panel.set_ylim(0, 1.15 * max(panel.dataLim.ymax, 1.0))
    figure.legend(frameon=False, ncols=3, loc="outside upper center")
    return figure


def draw_half_ranges(panel: Axes, evaluation: Arrays, **style: Any) -> None:
    """Draw a line per class, and the truth where it is known, into a panel; see `half_ranges`."""
    names, poses, learned = require(evaluation, "class_names", "pose_degrees", "half_range_degrees")
    truth = arcs(evaluation)
    joined = truth is None or truth[0].shape[1] == 1
    for i in range(len(names)):
        x = wrap(poses[i]) if truth is None else offset(poses[i], truth[0][i])
        order = np.argsort(x)
        usual = {
            "color": CYCLE[i % 8],
            "marker": MARKERS[i % 8],
            "markersize": 4.5,
            "linewidth": 1.3,
        }
        panel.plot(
            x[order],
            learned[i][order],
            linestyle="-" if joined else "none",
            label=plain(names[i]),
            **usual | style,
        )
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
    label = "pose of the input"
    if truth is not None:
        middle = "the middle of its class" if joined else "the middle of the nearest arc"
        label = f"turn of the input from {middle}"
    panel.set(xlabel=f"{label} (degrees, left is positive)", ylabel="learned half-range (degrees)")
    panel.xaxis.set_major_locator(MultipleLocator(30))
    panel.grid(alpha=0.25)
    panel.spines[["top", "right"]].set_visible(False)


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


def logged(metrics: Sequence[Mapping[str, Any]], key: str) -> np.ndarray:
    """Return the logged values of a name; not a number where nothing was measured."""
    values = _column(metrics, key)
    if key.endswith("_original"):
        values[values == 0] = np.nan  # an objective without the originals logs 0
    if key == "entropy":  # burn-in, where nothing is sampled, logs 0 for it and for alpha
        values[(values == 0) & (_column(metrics, "alpha") == 0)] = np.nan
    return values


def scored(metrics: Sequence[Mapping[str, Any]]) -> tuple[str, float]:
    """Say what a run's steps are scored by, after train_ and test_, and its factor in figures."""
    said = _scored(metrics)
    return said.name, said.scale


def _scored(metrics: Sequence[Mapping[str, Any]]) -> _Scored:
    there = {key for line in metrics for key in line}
    return next((said for said in _OTHERS if said.loss in there), _BY_LABELS)


def draw_curve(panel: Axes, epochs: np.ndarray, values: np.ndarray, **style: Any) -> None:
    """Draw values over epochs, many of them as their running mean; gaps are left out."""
    kept = np.isfinite(values) & np.isfinite(epochs)
    if not kept.any():
        return
    # Test accuracy is logged at few steps: a line through the kept points only.
    if kept.sum() >= 60:
        x, y = _running_mean(epochs[kept], values[kept], int(kept.sum()) // 40)
        panel.plot(x, y, **{"linewidth": 1.8, **style})
    else:
        panel.plot(epochs[kept], values[kept], **{"marker": "o", "markersize": 3, **style})


def _column(metrics: Sequence[Mapping[str, Any]], key: str) -> np.ndarray:
    values = (line.get(key) for line in metrics)
    return np.array([v if isinstance(v, int | float) else np.nan for v in values], dtype=float)


def _running_mean(x: np.ndarray, y: np.ndarray, window: int) -> tuple[np.ndarray, np.ndarray]:
    """Average over windows that are wholly inside the run, at the middle of their epochs."""
    weights = np.full(max(window, 1), 1 / max(window, 1))
    return np.convolve(x, weights, "valid"), np.convolve(y, weights, "valid")
