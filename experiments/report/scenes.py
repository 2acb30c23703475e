"""Labels of pixels in turned scenes, one row a method."""

import re
from pathlib import Path

from experiments.report.formats import MISSING, markdown_line, spread
from experiments.report.kept import Kept, kept_where
from experiments.report.tables import has_density, method_name

__all__ = ["of_scenes", "scenes_table"]

# Name of a kept run: scenes_METHOD, of experiments/scenes.py.
_NAME = re.compile(r"scenes_[a-z]+")
_HEADS = (
    "method", "seeds", "half-range (°)", "mean IoU, averaged (%)", "mean IoU, plain (%)",
    "pixels, averaged (%)", "pixels, plain (%)", "equivariance error, 32 views", "plain", "minutes",
)  # fmt: skip


def of_scenes(runs: Kept) -> bool:
    """Say whether runs are of `experiments/scenes.py`, by their name."""
    return _NAME.fullmatch(runs.name) is not None


def scenes_table(root: Path) -> str:
    """Make the table: learned turns, mean intersection over union, right pixels, and errors.

    Args:
        root: the folder of `NAME/SEED/{results,config}.json`, normally `docs/results`.

    Returns:
        Markdown, without a final line break; empty if there are no such runs.

    Raises:
        ValueError: if the seeds of one name differ in more than their seed.
    """
    lines = [markdown_line(_HEADS), "|---|" + "---:|" * (len(_HEADS) - 1)]
    found = kept_where(root, of_scenes)
    for runs in found:
        results = runs.results
        learned = [
            ("half_range_rotation", 1.0, 0),
            ("test_mean_iou_averaged", 100.0, 1),
            ("test_mean_iou", 100.0, 1),
            ("test_accuracy_averaged", 100.0, 1),
            ("test_accuracy", 100.0, 1),
            ("equivariance_error_32", 1.0, 3),
            ("equivariance_error", 1.0, 3),
            ("seconds", 1 / 60, 1),
        ]
        cells = [
            MISSING
            if "averaged" in key and not has_density(results[0])
            else spread(results, key, factor, digits)
            for key, factor, digits in learned
        ]
        lines.append(markdown_line([method_name(results[0]), str(len(results)), *cells]))
    return "\n".join(lines) if found else ""
