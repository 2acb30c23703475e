"""Tables of kept runs, a row for every method of one experiment."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from experiments.report.formats import MISSING, markdown_line, number, spread
from experiments.report.kept import Kept, kept_where
from experiments.report.verdicts import has_density

__all__ = ["METHOD_TABLES", "MethodTable", "has_method_table"]


class _Column(NamedTuple):
    """A column: its head, a figure of results.json, a factor, decimals.

    `of_density`: nothing to say where there is no density. `gain`: the figure is a logarithm, and
    what it multiplies by is shown. `minus`: a second figure of the same run that is taken off.
    """

    head: str
    key: str
    factor: float = 1.0
    digits: int = 1
    of_density: bool = False
    gain: bool = False
    minus: str = ""

    def cell(self, runs: Kept) -> str:
        results = runs.results
        if self.of_density and not has_density(results[0]):
            return MISSING
        if self.minus:
            results = [_difference(each, self.key, self.minus) for each in results]
        if not self.gain:
            return spread(results, self.key, self.factor, self.digits)
        factors = [_exponential(each, self.key) for each in results]
        return f"× {spread(factors, self.key, 1.0, self.digits)}"


def _difference(results: Mapping[str, Any], key: str, minus: str) -> dict[str, float]:
    value, off = number(results, key), number(results, minus)
    return {} if value is None or off is None else {key: value - off}


def _exponential(results: Mapping[str, Any], key: str) -> dict[str, float]:
    value = number(results, key)
    return {} if value is None else {key: math.exp(value)}


_percent = partial(_Column, factor=100.0)
_learned = partial(_Column, of_density=True)
_averaged = partial(_Column, of_density=True, factor=100.0)
_MINUTES = _Column("minutes", "seconds", 1 / 60)


@dataclass(frozen=True)
class MethodTable:
    """The table of one experiment's kept runs, of names EXPERIMENT_METHOD.

    Attributes:
        experiment: whose name the runs' begin with.
        columns: behind the method, and how many seeds.
    """

    experiment: str
    columns: tuple[_Column, ...]

    def holds(self, runs: Kept) -> bool:
        """Say whether runs are of this experiment, by their name."""
        return re.fullmatch(rf"{self.experiment}_[a-z0-9_]+", runs.name) is not None

    def __call__(self, root: Path) -> str:
        """Make the table of the runs below a folder, normally `docs/results`.

        Returns:
            Markdown, without a final line break; empty if there are no such runs.

        Raises:
            ValueError: if the seeds of one name differ in more than their seed.
        """
        heads = ("method", "seeds", *(column.head for column in self.columns))
        lines = [markdown_line(heads), "|---|" + "---:|" * (len(heads) - 1)]
        found = kept_where(root, self.holds)
        for runs in found:
            method = runs.name.removeprefix(f"{self.experiment}_").replace("_", " ")
            cells = [column.cell(runs) for column in self.columns]
            lines.append(markdown_line([method, str(len(runs.results)), *cells]))
        return "\n".join(lines) if found else ""


METHOD_TABLES = {
    "lamps": MethodTable(
        "lamps",
        (
            _averaged("averaged accuracy (%)", "test_accuracy_averaged"),
            _percent("plain accuracy (%)", "test_accuracy"),
            *(_learned(name, f"half_range_{name}", gain=True, digits=2)
              for name in ("brightness", "warmth", "tint")),
            _MINUTES,
        ),
    ),
    "scenes": MethodTable(
        "scenes",
        (
            _learned("half-range (°)", "half_range_rotation", digits=0),
            _averaged("mean IoU, averaged (%)", "test_mean_iou_averaged"),
            _percent("mean IoU, plain (%)", "test_mean_iou"),
            _averaged("pixels, averaged (%)", "test_accuracy_averaged"),
            _percent("pixels, plain (%)", "test_accuracy"),
            _learned("equivariance error, 32 views", "equivariance_error_32", digits=3),
            _Column("plain", "equivariance_error", digits=3),
            _MINUTES,
        ),
    ),
    "frozen": MethodTable(
        "frozen",
        (
            _percent("image as it is (%)", "test_accuracy"),
            *(_averaged(f"{count - 1} views more win", f"test_accuracy_views_{count}",
                        minus="test_accuracy") for count in (5, 10, 50)),
            _averaged("10 views alone win", "test_accuracy_averaged", minus="test_accuracy"),
            _learned("entropy (nats)", "entropy"),
            _MINUTES,
        ),
    ),
    "contrast": MethodTable(
        "contrast",
        (
            _percent("linear probe (%)", "test_accuracy"),
            _averaged("averaged over views (%)", "test_accuracy_averaged"),
            _percent("partners found (%)", "train_pairs_found"),
            _learned("entropy (nats)", "entropy"),
            _learned("width (sides)", "half_range_width", digits=2),
            _learned("brightness", "half_range_brightness", digits=2),
            _learned("hue (°)", "half_range_hue", digits=0),
            _MINUTES,
        ),
    ),
    "molecules": MethodTable(
        "molecules",
        (
            _learned("error, averaged", "test_error_averaged", digits=3),
            _Column("error, as it is", "test_error", digits=3),
            _learned("turned, 32 views", "equivariance_error_32", digits=3),
            _Column("turned, as it is", "equivariance_error", digits=3),
            _learned("turn (°)", "half_range_rotation_x", digits=0),
            _learned("shift", "half_range_translation_x", digits=2),
            _learned("scale", "half_range_scale", digits=2),
            _learned("shear", "half_range_shear_xy", digits=2),
            _MINUTES,
        ),
    ),
}  # fmt: skip


def has_method_table(runs: Kept) -> bool:
    """Say whether runs are rows of one of these tables."""
    return any(table.holds(runs) for table in METHOD_TABLES.values())
