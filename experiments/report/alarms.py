"""What went wrong in a run, in plain sentences.

Nothing here imports more than the standard library.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.report.formats import as_nats, as_percent, number
from experiments.report.verdicts import RUINS, has_density, leaves_gaps, saturated_limit

__all__ = ["alarms"]

RUNAWAY_OUTSIDE_SHARE = 0.10
# Keys of a logged step that every method writes as a number: null there means not finite.
_ALWAYS_LOGGED = ("loss", "cross_entropy", "train_accuracy")


def alarms(results: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say in plain sentences what went wrong in a run: ruins, saturation, NaN, runaway.

    Entropy and saturated share are taken from `results`, else from the last logged step.

    Args:
        results: flat names to numbers, as in `results.json`.
        metrics: one mapping per logged step, as in `metrics.jsonl`.

    Returns:
        One sentence per alarm; empty for a healthy run.
    """
    # Without a density there is no entropy: minus infinity is then the right figure.
    if not has_density(results):
        results = {key: value for key, value in results.items() if key != "entropy"}
        metrics = [{k: v for k, v in line.items() if k != "entropy"} for line in metrics]
    found: list[str] = []
    last = metrics[-1] if metrics else {}

    broken = _not_finite(results, metrics)
    if broken:
        found.append(f"Not finite: {broken}. Figures after that point mean nothing.")

    entropy, floor = number(results, "entropy", last), number(results, "entropy_floor", last)
    below = entropy is not None and floor is not None and entropy < floor
    if below or results.get("collapsed"):
        figures = f": its entropy is {as_nats(entropy)}" if entropy is not None else ""
        if entropy is not None and floor is not None:
            figures += f", {'below' if below else 'with'} its floor of {as_nats(floor)}"
        found.append(
            f"Collapse{figures}. The density has shrunk towards a single transformation, and it "
            "seldom comes back: start wider or raise alpha from the first step."
        )

    ruin = results.get("ruin")
    if ruin:
        found.append(
            f"{str(ruin).capitalize()}: since epoch {results.get('ruin_since_epoch', 0):g} "
            + RUINS.get(str(ruin), "")
        )

    share, limit = number(results, "saturated_share", last), saturated_limit(results)
    if results.get("saturated") or (share is not None and share > limit):
        figure = as_percent(share) if share is not None else "Many"
        found.append(
            f"Saturation: {figure} of the sampled coordinates lie on the edge of the box "
            f"(alarm above {as_percent(limit)}). The density wants more than the box "
            "allows: widen the transform's half-range or lower alpha."
        )

    # Between the arcs of two classes nothing says where one ends: only the other class counts.
    outside = number(results, "other_class_share" if leaves_gaps(results) else "outside_share")
    if outside is not None and outside > RUNAWAY_OUTSIDE_SHARE:
        found.append(
            f"Runaway: {as_percent(outside)} of the sampled rotations leave their class "
            f"(alarm above {as_percent(RUNAWAY_OUTSIDE_SHARE)}). The density reaches beyond "
            "the truth: lower alpha or train the classifier longer."
        )
    return found


def _not_finite(results: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]) -> str:
    """Name the first logged step with a non-finite number, or the results that are not finite."""
    for line in metrics:
        names = [key for key, value in line.items() if _is_not_finite(value)]
        names += [key for key in _ALWAYS_LOGGED if key in line and line[key] is None]
        if names:
            return f"{', '.join(names)} from step {line.get('step', 'unknown')} on"
    names = [key for key, value in results.items() if _is_not_finite(value)]
    return f"{', '.join(names)} in the results" if names else ""


def _is_not_finite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
