"""What every method found where each image was moved once: one table, a row per way of moving."""

import math
import re
from pathlib import Path

from experiments.report.formats import MISSING, markdown_line, spread
from experiments.report.kept import Kept, read_kept
from experiments.report.verdicts import has_density

__all__ = ["moved_table", "of_moved"]

# Name of a kept run: lila_MOVED_METHOD_SIZE, of experiments/lila.py.
_NAME = re.compile(r"lila_(?P<moved>\w+)_(?P<method>[a-z]+)_(?P<size>\d+)")
_METHODS = ("none", "fixed", "augerino", "instaaug", "gaussian", "flow", "weights", "lila")
# Way of moving: what it is, the coordinate whose half-range is shown, its unit, and the truth.
_MOVED = {
    "regular": ("not moved", "rotation", "°", 0.0),
    "half_rotated": ("turned", "rotation", "°", 90.0),
    "rotated": ("turned", "rotation", "°", 180.0),
    "translated": ("shifted", "translation_x", "", 8 / 14),
    "scaled": ("scaled", "scale", "", math.log(2.0)),
}


def of_moved(runs: Kept) -> bool:
    """Say whether runs are of `experiments/lila.py`, by their name."""
    return _NAME.fullmatch(runs.name) is not None


def moved_table(root: Path) -> str:
    """Make the table: learned half-range, averaged accuracy, minutes.

    Args:
        root: the folder of `NAME/SEED/{results,config}.json`, normally `docs/results`.

    Returns:
        Markdown, without a final line break; empty if there are no such runs.

    Raises:
        ValueError: if the seeds of one name differ in more than their seed.
    """
    found: dict[tuple[str, int], dict[str, Kept]] = {}
    for runs in read_kept(root):
        name = _NAME.fullmatch(runs.name)
        if name:
            runs.refuse_mixture()
            found.setdefault((name["moved"], int(name["size"])), {})[name["method"]] = runs
    if not found:
        return ""
    there = [method for method in _METHODS if any(method in row for row in found.values())]
    lines = [
        markdown_line(["images", "truth", "number", "seeds", *there]),
        "|---|" + "---:|" * (3 + len(there)),
    ]
    for moved, (what, coordinate, unit, truth) in _MOVED.items():
        for size in sorted(size for key, size in found if key == moved):
            row = found[moved, size]
            seeds = {len(runs.results) for runs in row.values()}
            cells = [
                _cell(row[method], coordinate, unit) if method in row else MISSING
                for method in there
            ]
            head = (what, f"{truth:.3g}{unit}", f"{size:,}", "-".join(map(str, sorted(seeds))))
            lines.append(markdown_line([*head, *cells]))
    return "\n".join(lines)


def _cell(runs: Kept, coordinate: str, unit: str) -> str:
    density = has_density(runs.results[0])
    digits = 0 if unit else 2
    learned = f"{spread(runs.results, f'half_range_{coordinate}', 1.0, digits)}{unit}"
    which = "test_accuracy_averaged" if density else "test_accuracy"
    accuracy = spread(runs.results, which, 100.0, 1)
    minutes = spread(runs.results, "seconds", 1 / 60, 0)
    return f"{learned if density else MISSING}, {accuracy} %, {minutes} min"
