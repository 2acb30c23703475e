"""What the results of a run amount to, in a word: its method, found or not, ruined or not.

Nothing here imports more than the standard library.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.report.formats import MISSING, number

__all__ = [
    "RUINS",
    "has_density",
    "leaves_gaps",
    "method_name",
    "poses_known",
    "ruined",
    "saturated_limit",
    "verdict",
]

_SATURATED_SHARE = 0.05  # of runs that do not say their own limit

# What a training can be ruined into (`experiments.running.ruins`), and what to do.
RUINS = {
    "blown open": "nearly every transform counts as alike, and views are classified half as "
    "well as originals; lower alpha, or let the classifier learn longer before (burn-in).",
    "collapsed": "no image may be moved by a pixel at its rim. Right where nothing may be moved; "
    "else raise alpha.",
    "trivial": "two views of an image are told from all others every time, so that nothing more is "
    "learned by it; let views differ more: raise alpha, or the band of the entropy.",
    "guessing": "right no oftener than by chance, so that no view costs anything; lower its "
    "learning rate, or set config.optimizer.classifier.clip_norm.",
}


def poses_known(results: Mapping[str, Any]) -> bool:
    """Say whether a run's true half-range is known, as for the sprites."""
    return number(results, "true_half_range_degrees") is not None


def has_density(results: Mapping[str, Any]) -> bool:
    """Say whether a run learned or was given a density; without one there is no entropy."""
    return results.get("method") not in ("identity", "none")


def method_name(results: Mapping[str, Any]) -> str:
    """Name a run's method in tables: "none" where there is no density."""
    return str(results.get("method") or MISSING) if has_density(results) else "none"


def verdict(seeds: Sequence[Mapping[str, Any]]) -> str:
    """Say in one word or two whether an invariance was found, in how many of the runs."""
    said = [bool(r["invariance_found"]) for r in seeds if "invariance_found" in r]
    if not said:
        return MISSING
    if len(set(said)) == 1:
        return "found" if said[0] else "no invariance found"
    return f"found in {sum(said)} of {len(said)}"


def ruined(seeds: Sequence[Mapping[str, Any]]) -> str:
    """Name the ruins that densities of the runs ended in, and in how many where not in all."""
    ends = [r.get("ruin") for r in seeds]
    return ", ".join(
        ruin + (f" in {ends.count(ruin)} of {len(ends)}" if ends.count(ruin) < len(ends) else "")
        for ruin in RUINS
        if ruin in ends
    )


def saturated_limit(results: Mapping[str, Any]) -> float:
    """Return the share of samples on the edge of the box above which a run is alarmed."""
    limit = number(results, "saturated_limit")
    return _SATURATED_SHARE if limit is None else limit


def leaves_gaps(results: Mapping[str, Any]) -> bool:
    """Whether the classes leave poses empty, so that there is no one truth; old runs do not say."""
    return bool(results.get("gaps_between_classes", False))
