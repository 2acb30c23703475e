"""The table of sets of which some classes are turned: does each class get its own range?"""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.report.formats import ARC_SHARE, MISSING, markdown_line, spread
from experiments.report.kept import Kept, kept_where
from experiments.report.verdicts import has_density, method_name
from flowjax_inv.data.subsets import labels_of

__all__ = ["half_turned_table", "ranges", "turned_classes"]

_HEADS = (
    "run", "method", "data", "seeds", "turned classes: half-range (°), truth 180",
    "upright classes: truth 0", "averaged accuracy (%)", "plain accuracy (%)", "minutes", "command",
)  # fmt: skip


def turned_classes(runs: Kept) -> str:
    """Return which classes were turned, as the config says it; empty where all or none were."""
    return str((runs.configs[0].get("data") or {}).get("rotated_classes") or "")


def half_turned_table(root: Path) -> str:
    """Make the table, one row per NAME; ranges are 180 degrees times the share of the circle.

    Args:
        root: the folder of `NAME/SEED/{results,config}.json`, normally `docs/results`.

    Returns:
        Markdown, without a final line break; empty if there are no such runs.

    Raises:
        ValueError: if the seeds of one name differ in more than their seed.
    """
    kept = kept_where(root, lambda runs: bool(turned_classes(runs)))
    lines = [markdown_line(_HEADS), "|---|---|---|" + "---:|" * 6 + "---|"]
    for runs in sorted(kept, key=lambda runs: (str(runs.configs[0]["data"]["name"]), runs.name)):
        first, seeds = runs.results[0], ranges(runs)
        none = not has_density(first)
        cells = [
            runs.name,
            method_name(first),
            str(runs.configs[0]["data"]["name"]),
            str(len(runs.results)),
            *(MISSING if none else spread(seeds, which, 1.0, 0) for which in ("turned", "upright")),
            MISSING if none else spread(runs.results, "test_accuracy_averaged", 100.0, 2),
            spread(runs.results, "test_accuracy", 100.0, 2),
            spread(runs.results, "seconds", 1 / 60, 1),
            f"`{runs.command}`" if runs.command else MISSING,
        ]
        lines.append(markdown_line(cells))
    return "\n".join(lines) if kept else ""


def ranges(runs: Kept) -> list[dict[str, float]]:
    """Return the mean learned half-range of "turned" and of "upright" classes, in degrees, by run.

    Nothing of a method that has none.
    """
    return [_ranges(each, turned_classes(runs)) for each in runs.results]


def _ranges(results: Mapping[str, Any], classes: str) -> dict[str, float]:
    names: Sequence[str] = results["class_names"]
    turned = labels_of(classes, names)
    shares = {
        which: [
            results[ARC_SHARE + name]
            for label, name in enumerate(names)
            if (label in turned) == (which == "turned") and ARC_SHARE + name in results
        ]
        for which in ("turned", "upright")
    }
    return {which: 180.0 * statistics.fmean(found) for which, found in shares.items() if found}
