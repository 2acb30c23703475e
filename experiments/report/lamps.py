"""Textures under unseen lamps: what light every method thinks alike, one row each."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.report.formats import MISSING, markdown_line, spread
from experiments.report.kept import Kept, kept_where
from experiments.report.tables import has_density, method_name

__all__ = ["lamps_table", "of_lamps"]

# Name of a kept run: lamps_METHOD, of experiments/lamps.py.
_NAME = re.compile(r"lamps_[a-z]+")
_GAINS = ("red", "green", "blue")


def of_lamps(runs: Kept) -> bool:
    """Say whether runs are of `experiments/lamps.py`, by their name."""
    return _NAME.fullmatch(runs.name) is not None


def lamps_table(root: Path) -> str:
    """Make the table: accuracy under unseen lamps, learned gains, minutes.

    Args:
        root: the folder of `NAME/SEED/{results,config}.json`, normally `docs/results`.

    Returns:
        Markdown, without a final line break; empty if there are no such runs.

    Raises:
        ValueError: if the seeds of one name differ in more than their seed.
    """
    found = kept_where(root, of_lamps)
    if not found:
        return ""
    heads = ["method", "seeds", "averaged accuracy (%)", "plain accuracy (%)", *_GAINS, "minutes"]
    rows = []
    for runs in found:
        plain = spread(runs.results, "test_accuracy", 100.0, 1)
        cells = [method_name(runs.results[0]), str(len(runs.results)), MISSING, plain]
        cells += [MISSING] * len(_GAINS)
        if has_density(runs.results[0]):
            cells[2] = spread(runs.results, "test_accuracy_averaged", 100.0, 1)
            cells[4:] = [
                f"× {spread([_factor(r, name) for r in runs.results], name, 1.0, 2)}"
                for name in _GAINS
            ]
        rows.append([*cells, spread(runs.results, "seconds", 1 / 60, 1)])
    rule = "|---|" + "---:|" * (len(heads) - 1)
    return "\n".join([markdown_line(heads), rule, *map(markdown_line, rows)])


def _factor(results: Mapping[str, Any], name: str) -> dict[str, float]:
    """Return by how much a gain is learned to grow or shrink."""
    learned = results.get(f"half_range_{name}")
    return {} if learned is None else {name: math.exp(learned)}
