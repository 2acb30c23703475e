"""What a field of a config is, and how fields are found and named."""

import dataclasses
import difflib
import math
from collections.abc import Iterator
from typing import Any

import ml_collections

__all__ = ["Field", "did_you_mean", "flatten"]


@dataclasses.dataclass(frozen=True)
class Field:
    """A field's default, what it is, and what is allowed.

    Attributes:
        value: default; its type is the field's type. A tuple may be given with any length.
        about: one line: meaning and unit.
        low, high: closed bounds of a number (of each entry of a tuple).
        above: open lower bound.
        choices: allowed strings.
    """

    value: Any
    about: str
    low: float | None = None
    high: float | None = None
    above: float | None = None
    choices: tuple[str, ...] = ()

    def allowed(self) -> str:
        """Say the range in words."""
        if self.choices:
            return ", ".join(self.choices)
        if self.above is not None:
            return f"above {self.above:.12g}" + (f", at most {self.high:.12g}" if self.high else "")
        low = "-inf" if self.low is None else f"{self.low:.12g}"
        high = "inf" if self.high is None else f"{self.high:.12g}"
        return f"{low} .. {high}"

    @property
    def numeric(self) -> bool:
        """Whether it, or each of its entries, is a number."""
        sample = self.value[0] if isinstance(self.value, tuple) and self.value else self.value
        bounds = (self.low, self.high, self.above)
        return isinstance(sample, int | float) or any(bound is not None for bound in bounds)

    def holds(self, value: Any) -> bool:
        """Return whether a value (or every entry of a tuple) is allowed."""
        if isinstance(value, tuple):
            return all(self.holds(entry) for entry in value)
        if isinstance(value, str):
            return not self.numeric and (not self.choices or value in self.choices)
        if isinstance(value, bool):
            return True
        return (
            math.isfinite(value)
            and (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
            and (self.above is None or value > self.above)
        )


def flatten(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield ("section.name", leaf) of a nested dict or ConfigDict."""
    for name, value in tree.items():
        if isinstance(value, dict | ml_collections.ConfigDict):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def did_you_mean(word: str, known: list[str]) -> str:
    """Return '; did you mean X?' for the known name nearest to `word`, or what is allowed."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else f"; allowed: {', '.join(known)}."
