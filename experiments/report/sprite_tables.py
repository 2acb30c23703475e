"""The tables of sprites, whose true half-range is known, in markdown, from kept runs.

Three, since three things are asked: are turns of the right range found (`results_table`), are
modes told apart (`modes_table`), are free entries of a matrix tied to turns (`discovery_table`)?
"""

import os.path
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from experiments.report.formats import MISSING, markdown_line, spread
from experiments.report.kept import Kept, read_kept
from experiments.report.verdicts import verdict

__all__ = ["discovery_table", "modes_table", "results_table", "rotation_distances"]

_T = TypeVar("_T")
_Columns = tuple[tuple[str, str, float, int], ...]  # head, name in results.json, factor, decimals

_END: _Columns = (
    ("test accuracy (%)", "test_accuracy", 100.0, 1),
    ("averaged accuracy (%)", "test_accuracy_averaged", 100.0, 1),
    ("minutes", "seconds", 1 / 60, 1),
)
_RANGES: _Columns = (
    ("half-range (°)", "half_range_degrees", 1.0, 1),
    ("true (°)", "true_half_range_degrees", 1.0, 1),
    ("reached (%)", "covered_share", 100.0, 0),
    ("outside (%)", "outside_share", 100.0, 1),
    ("other class (%)", "other_class_share", 100.0, 1),
    ("Kolmogorov", "kolmogorov_distance", 1.0, 3),
    ("Wasserstein (°)", "wasserstein_degrees", 1.0, 1),
    ("mean-shift (°)", "straightened_std_degrees", 1.0, 1),
    *_END,
)
_MODES: _Columns = (
    ("Wasserstein (°)", "wasserstein_degrees", 1.0, 1),
    ("mass of a mode, off by", "mode_share_error", 1.0, 3),
    ("worst", "mode_share_error_worst", 1.0, 3),
    ("outside (%)", "outside_share", 100.0, 1),
    ("worst", "outside_share_worst", 100.0, 1),
    ("valley : peak", "valley_ratio", 1.0, 3),
    ("worst", "valley_ratio_worst", 1.0, 3),
    *_END,
)
_DISTANCES: _Columns = (
    ("half-range (°)", "half_range_degrees", 1.0, 1),
    ("distance", "rotation_distance", 1.0, 3),
    ("9 of 10 below", "rotation_distance_90", 1.0, 3),
    ("Wasserstein (°)", "wasserstein_degrees", 1.0, 1),
    *_END,
)
_ONLY_WHERE_THERE = ("straightened_std_degrees",)  # no column where no run has it


def results_table(root: Path) -> str:
    """Make the table of learned ranges, one row per NAME: runs that neither other table has.

    Args:
        root: the folder of `NAME/SEED/{results,config}.json`, normally `docs/results`.

    Returns:
        Markdown, without a final line break; empty if there are only other runs.

    Raises:
        ValueError: if there is no results.json at all, or a file is not a JSON object.
    """
    return _table(_of(root, _has_ranges), _RANGES)


def modes_table(root: Path) -> str:
    """Make the table of densities with several modes, medians over poses and worst pose.

    Args, Returns, Raises: as of `results_table`.
    """
    return _table(_of(root, _has_modes), _MODES)


def discovery_table(root: Path) -> str:
    """Make the table of distances to the nearest rotation, every method at several alphas.

    Args, Returns, Raises: as of `results_table`.
    """
    kept = sorted(_of(root, _has_distances), key=_by_curve)
    return _table(kept, _DISTANCES, alpha=True)


def rotation_distances(root: Path) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Return the curves in `discovery_table`: half-range and distance over alpha.

    NAME_alphaA is the point of NAME's curve at another alpha.

    Args:
        root: as of `results_table`.

    Returns:
        Titles ("2 free entries") to NAMEs, without what all begin with, to (half-range in degrees,
        distance), means over seeds.
    """
    curves: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for runs in sorted(_of(root, _has_distances), key=_by_curve):
        half, distance = (
            statistics.fmean(seed[key] for seed in runs.results)
            for key in ("half_range_degrees", "rotation_distance")
        )
        entries = len(runs.configs[0]["transform"]["entries"])
        curve = curves.setdefault(f"{entries} free entries", {})
        curve.setdefault(_curve(runs), []).append((half, distance))
    return {title: _without_common_words(curve) for title, curve in curves.items()}


def _without_common_words(named: dict[str, _T]) -> dict[str, _T]:
    """Leave out the words all names begin with: discovery_2_flow -> flow."""
    start = os.path.commonprefix(list(named)).rfind("_") + 1
    return {name[start:]: value for name, value in named.items()}


def _has_distances(runs: Kept) -> bool:
    return runs.have("rotation_distance")


def _has_modes(runs: Kept) -> bool:
    return runs.have("valley_ratio")


def _has_ranges(runs: Kept) -> bool:
    known = runs.have("true_half_range_degrees")
    return known and not _has_distances(runs) and not _has_modes(runs)


def _curve(runs: Kept) -> str:
    return runs.name.partition("_alpha")[0]


def _alpha(runs: Kept) -> float:
    return float(runs.configs[0]["controller"]["value"])


def _by_curve(runs: Kept) -> tuple[str, float]:
    return _curve(runs), _alpha(runs)


def _of(root: Path, wanted: Callable[[Kept], bool]) -> list[Kept]:
    return [runs for runs in read_kept(root) if wanted(runs)]


def _table(kept: list[Kept], columns: _Columns, *, alpha: bool = False) -> str:
    """Make a table of one row per NAME."""
    if not kept:
        return ""
    columns = tuple(
        column
        for column in columns
        if column[1] not in _ONLY_WHERE_THERE or any(runs.have(column[1]) for runs in kept)
    )
    judged = any(runs.have("invariance_found") for runs in kept)
    numeric = [*["alpha"] * alpha, "seeds", *(head for head, *_ in columns)]
    heads = ["run", *numeric, *["turns"] * judged, "command"]
    rule = "|---|" + "---:|" * len(numeric) + "---|" * (1 + judged)
    lines = [markdown_line(heads), rule]
    for runs in kept:
        cells = [runs.name, *[f"{_alpha(runs):g}" if alpha else ""] * alpha, str(len(runs.results))]
        cells += [spread(runs.results, key, factor, digits) for _, key, factor, digits in columns]
        cells += [verdict(runs.results)] * judged
        lines.append(markdown_line([*cells, f"`{runs.command}`" if runs.command else MISSING]))
    return "\n".join(lines)
