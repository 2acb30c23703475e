"""Numbers as the report and the README write them; nothing here imports more than `typing`."""

from collections.abc import Mapping
from typing import Any

__all__ = ["as_degrees", "as_nats", "as_percent", "averaged_by", "fixed", "number"]

_AVERAGES = {"probs": "probabilities", "logits": "logits"}


def fixed(value: float, digits: int) -> str:
    """Write a number with fixed decimals, a true minus sign and no negative zero."""
    text = f"{value:.{digits}f}"
    if text.startswith("-"):
        text = text[1:] if float(text) == 0 else "−" + text[1:]
    return text


def as_percent(share: float, digits: int = 1) -> str:
    """Write a share in [0, 1] as a percentage, by default with one decimal: 0.0213 -> "2.1 %"."""
    return f"{fixed(100 * share, digits)} %"


def as_degrees(angle: float) -> str:
    """Write an angle in degrees with one decimal: 88.21 -> "88.2°"."""
    return f"{fixed(angle, 1)}°"


def as_nats(entropy: float) -> str:
    """Write an entropy in nats with two decimals: -0.021 -> "−0.02 nats"."""
    return f"{fixed(entropy, 2)} nats"


def averaged_by(rule: Any, average: Any) -> str:
    """Write how views were chosen and averaged: ("plain", "probs") -> "plain, probabilities"."""
    return f"{rule}, {_AVERAGES.get(average, average)}"


def number(
    results: Mapping[str, Any], key: str, fallback: Mapping[str, Any] | None = None
) -> float | None:
    """Look a number up, first in one place, then in the other; None if neither has one."""
    for source in (results, fallback or {}):
        value = source.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return None
