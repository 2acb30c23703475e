"""How far the one range of all images reached, step by step."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from experiments.report.colours import CYCLE, GREY
from experiments.report.figures import logged
from experiments.report.formats import number

__all__ = ["RangeCurve", "range_curve", "ranges_over_steps"]


class RangeCurve(NamedTuple):
    """The learned half-range of turns of one run.

    Attributes:
        steps: of the training.
        degrees: half-range at each of them.
        truth: by how much images were turned, degrees; None where nobody knows.
    """

    steps: np.ndarray
    degrees: np.ndarray
    truth: float | None


def range_curve(
    config: Mapping[str, Any], results: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]
) -> RangeCurve | None:
    """Read the range of a run whose density is one interval of turns, the same for all images.

    Its entropy is log(2 r), r the half-range as a share of half a turn. None for other runs.

    Args:
        config: flat names to values.
        results: flat names to numbers.
        metrics: one mapping per logged step.
    """
    one = config.get("distribution.name") == "augerino" and not config.get("transform.half_range")
    if not one or list(results.get("coordinates", ())) != ["rotation"]:
        return None
    steps, entropy = (np.asarray(logged(metrics, key), float) for key in ("step", "entropy"))
    kept = np.isfinite(steps) & np.isfinite(entropy)
    if not kept.any():
        return None
    truth = number(results, "true_half_range_degrees") or number(config, "data.rotated_degrees")
    return RangeCurve(steps[kept], 90.0 * np.exp(entropy[kept]), truth or None)


def ranges_over_steps(curves: Mapping[str, RangeCurve]) -> Figure:
    """Draw learned half-ranges over the steps, a line a run; dashed what images were turned by.

    Args:
        curves: by the words of the legend.
    """
    figure = Figure(figsize=(7.0, 3.8), layout="constrained")
    panel: Any = figure.subplots()
    for colour, (name, curve) in zip(itertools.cycle(CYCLE), curves.items(), strict=False):
        panel.plot(curve.steps, curve.degrees, color=colour, label=name)
    for truth in sorted({curve.truth for curve in curves.values() if curve.truth is not None}):
        panel.axhline(truth, color=GREY, linestyle="--", linewidth=1.0)
    top = max(math.ceil(curve.degrees.max() / 45.0) for curve in curves.values())
    panel.set(xlabel="step", ylabel="half-range (°)", ylim=(0, 45.0 * max(top, 1) + 4.0))
    panel.set_yticks(np.arange(0.0, 45.0 * max(top, 1) + 1.0, 45.0))
    if len(curves) > 1:
        panel.legend(frameon=False, fontsize=9)
    panel.grid(alpha=0.2)
    panel.spines[["top", "right"]].set_visible(False)
    return figure
