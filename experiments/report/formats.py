"""Numbers, settings and lines of tables as the reports and the documents write them.

Nothing here imports more than the standard library.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "ARC_SHARE",
    "MISSING",
    "arcs_in_words",
    "as_degrees",
    "as_nats",
    "as_percent",
    "averaged_by",
    "fixed",
    "markdown_line",
    "mean_and_deviation",
    "number",
    "setting",
    "spread",
]

MISSING = "–"
ARC_SHARE = "arc_share_"  # before the name of a class, in metrics.jsonl and results.json
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


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """Return mean and sample standard deviation (n - 1), which one value does not have."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


def spread(seeds: Sequence[Mapping[str, Any]], key: str, factor: float, digits: int) -> str:
    """Write mean ± standard deviation of one figure over the seeds that have it."""
    values = [value * factor for seed in seeds if (value := number(seed, key)) is not None]
    if not values:
        return MISSING
    if not all(math.isfinite(value) for value in values):
        return "not finite"
    mean, deviation = mean_and_deviation(values)
    text = fixed(mean, digits)
    # The truth is given, not measured: a spread of exactly zero there would only be noise to read.
    if deviation is not None and not (key.startswith("true_") and len(set(values)) == 1):
        text += f" ± {fixed(deviation, digits)}"
    return text if len(values) == len(seeds) else f"{text} ({len(values)} of {len(seeds)})"


def arcs_in_words(seeds: Sequence[Mapping[str, Any]]) -> str:
    """Write how much of the circle every class is turned by: "0: 0.97; 6: 0.57"."""
    keys = [key for key in seeds[0] if key.startswith(ARC_SHARE)]
    words = (f"{key.removeprefix(ARC_SHARE)}: {spread(seeds, key, 1.0, 2)}" for key in keys)
    return "; ".join(words) or MISSING


def setting(name: str, value: Any) -> str:
    """Write a field of a config and its value: ("data.modes", 3) -> "data.modes=3"."""
    if isinstance(value, list | tuple):
        text = f"({','.join(setting('', entry)[1:] for entry in value)})"
    elif isinstance(value, float) and float(f"{value:g}") == value:
        text = f"{value:g}"
    else:
        text = str(value) or "''"
    return f"{name}={text}"


def markdown_line(cells: Sequence[str]) -> str:
    """Write one line of a table in markdown."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
