"""Textures under unseen lamps: what every method made of colours, one row each."""

import re
from pathlib import Path

from experiments.report.formats import MISSING, markdown_line, spread
from experiments.report.kept import Kept, read_kept
from experiments.report.tables import has_density, method_name

__all__ = ["lamps_table", "of_lamps"]

# Name of a kept run: lamps_METHOD, of experiments/lamps.py.
_NAME = re.compile(r"lamps_[a-z]+")
_DIGITS = {
    "brightness": 2, "contrast": 2, "saturation": 2, "hue": 0, "warmth": 2, "tint": 2,
}  # fmt: skip


def of_lamps(runs: Kept) -> bool:
    """Say whether runs are of `experiments/lamps.py`, by their name."""
    return _NAME.fullmatch(runs.name) is not None


def lamps_table(root: Path) -> str:
    """Make the table: accuracy under unseen lamps, learned half-ranges, minutes.

    Args:
        root: the folder of `NAME/SEED/{results,config}.json`, normally `docs/results`.

    Returns:
        Markdown, without a final line break; empty if there are no such runs.

    Raises:
        ValueError: if the seeds of one name differ in more than their seed.
    """
    found = [runs for runs in read_kept(root) if of_lamps(runs)]
    if not found:
        return ""
    heads = ["method", "seeds", "averaged accuracy (%)", "plain accuracy (%)", *_DIGITS, "minutes"]
    rows = []
    for runs in found:
        runs.refuse_mixture()
        plain = spread(runs.results, "test_accuracy", 100.0, 1)
        cells = [method_name(runs.results[0]), str(len(runs.results)), MISSING, plain]
        cells += [MISSING] * len(_DIGITS)
        if has_density(runs.results[0]):
            cells[2] = spread(runs.results, "test_accuracy_averaged", 100.0, 1)
            cells[4:] = [
                spread(runs.results, f"half_range_{name}", 1.0, digits) + "°" * (name == "hue")
                for name, digits in _DIGITS.items()
            ]
        rows.append([*cells, spread(runs.results, "seconds", 1 / 60, 1)])
    rule = "|---|" + "---:|" * (len(heads) - 1)
    return "\n".join([markdown_line(heads), rule, *map(markdown_line, rows)])
