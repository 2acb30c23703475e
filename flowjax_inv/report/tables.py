"""Numbers in words: the headline of a run, its alarms, and the results table of the README.

Nothing here draws or imports more than the standard library; the figures are in `figures.py`.
"""

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "Row",
    "alarms",
    "as_degrees",
    "as_nats",
    "as_percent",
    "headline",
    "replace_between_markers",
    "results_table",
    "summary",
]

# Aims for the synthetic sprites, where the truth is known; other data sets have no such aims.
MAX_OUTSIDE_SHARE = 0.03
MAX_KOLMOGOROV_DISTANCE = 0.10
MIN_ACCURACY = 0.99
# Alarms, for every run.
RUNAWAY_OUTSIDE_SHARE = 0.10
SATURATED_SHARE = 0.05

# Keys of a logged step that every method writes as a number: null there means not finite.
_ALWAYS_LOGGED = ("loss", "cross_entropy", "train_accuracy")
_MISSING = "–"


@dataclass(frozen=True)
class Row:
    """One line of the headline table.

    Attributes:
        name: what was measured, in plain words.
        value: the figure with its unit.
        target: truth or aim with its unit, empty when there is none.
        passed: whether the aim is met; None when there is no aim to meet.
    """

    name: str
    value: str
    target: str = ""
    passed: bool | None = None


def as_percent(share: float) -> str:
    """Write a share in [0, 1] as a percentage with one decimal: 0.0213 -> "2.1 %"."""
    return f"{_fixed(100 * share, 1)} %"


def as_degrees(angle: float) -> str:
    """Write an angle in degrees with one decimal: 88.21 -> "88.2°"."""
    return f"{_fixed(angle, 1)}°"


def as_nats(entropy: float) -> str:
    """Write an entropy in nats with two decimals: -0.021 -> "−0.02 nats"."""
    return f"{_fixed(entropy, 2)} nats"


def headline(results: Mapping[str, Any]) -> list[Row]:
    """List the headline figures of a run, each with its truth or aim.

    Aims (outside <= 3 %, Kolmogorov distance <= 0.10, accuracies >= 99 %) belong to the synthetic
    sprites: they are shown only when `true_half_range_degrees` is known. The learned half-range
    has a truth but no aim, so it carries its error instead of a mark.

    Args:
        results: flat names to numbers, as in `results.json`; any may be missing or None.

    Returns:
        One `Row` per figure that is there, in a fixed order.
    """
    rows: list[Row] = []
    truth = _number(results, "true_half_range_degrees")
    known = truth is not None

    half_range = _number(results, "half_range_degrees")
    if half_range is not None:
        target = ""
        if truth is not None:
            error = half_range - truth
            sign = "+" if error > 0 else ""
            target = f"truth {as_degrees(truth)} (off by {sign}{as_degrees(error)})"
        rows.append(Row("Learned half-range of the rotations", as_degrees(half_range), target))
    raw = _number(results, "half_range_raw_degrees")
    if raw is not None:
        rows.append(Row("… before correcting for the cut-off tails", as_degrees(raw)))

    outside = _number(results, "outside_share")
    if outside is not None:
        target, passed = _at_most(outside, MAX_OUTSIDE_SHARE, as_percent, known=known)
        rows.append(Row("Samples that leave the class", as_percent(outside), target, passed))
    distance = _number(results, "kolmogorov_distance")
    if distance is not None:
        target, passed = _at_most(
            distance, MAX_KOLMOGOROV_DISTANCE, lambda d: f"{d:.2f}", known=known
        )
        rows.append(
            Row("Kolmogorov distance to the true density", _fixed(distance, 3), target, passed)
        )
    for key, name in (
        ("test_accuracy", "Test accuracy, image as it is"),
        ("test_accuracy_averaged", "Test accuracy, averaged over sampled views"),
    ):
        accuracy = _number(results, key)
        if accuracy is not None:
            target = f"at least {as_percent(MIN_ACCURACY)}" if known else ""
            passed = accuracy >= MIN_ACCURACY if known else None
            rows.append(Row(name, as_percent(accuracy), target, passed))

    entropy = _number(results, "entropy")
    if entropy is not None:
        bounds = []
        floor, maximum = _number(results, "entropy_floor"), _number(results, "log_volume")
        if floor is not None:
            bounds.append(f"floor {as_nats(floor)}")
        if maximum is not None:
            bounds.append(f"maximum {as_nats(maximum)}")
        rows.append(Row("Entropy of the density", as_nats(entropy), ", ".join(bounds)))
    saturated = _number(results, "saturated_share")
    if saturated is not None:
        target, passed = _at_most(saturated, SATURATED_SHARE, as_percent, known=True)
        rows.append(Row("Samples on the edge of the box", as_percent(saturated), target, passed))
    return rows


def summary(results: Mapping[str, Any]) -> str:
    """Write the headline as aligned lines of plain text, for the end of a run.

    Args:
        results: as for `headline`.

    Returns:
        One line per figure: name, value, aim, and whether it is met.
    """
    rows = headline(results)
    marks = {True: "met", False: "MISSED", None: ""}
    names, values = (
        max((len(cell) for cell in column), default=0)
        for column in ([row.name for row in rows], [row.value for row in rows])
    )
    return "\n".join(
        f"  {row.name:<{names}}  {row.value:>{values}}  {row.target}  {marks[row.passed]}".rstrip()
        for row in rows
    )


def alarms(results: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say in plain sentences what went wrong in a run: collapse, saturation, NaN, runaway.

    Entropy and saturated share are taken from `results`, else from the last logged step.

    Args:
        results: flat names to numbers, as in `results.json`.
        metrics: one mapping per logged step, as in `metrics.jsonl`.

    Returns:
        One sentence per alarm; empty for a healthy run.
    """
    # Without a density there is no entropy: minus infinity is then the right figure.
    if results.get("method") in ("identity", "none"):
        results = {key: value for key, value in results.items() if key != "entropy"}
        metrics = [{k: v for k, v in line.items() if k != "entropy"} for line in metrics]
    found: list[str] = []
    last = metrics[-1] if metrics else {}

    broken = _not_finite(results, metrics)
    if broken:
        found.append(f"Not finite: {broken}. Figures after that point mean nothing.")

    entropy, floor = _number(results, "entropy", last), _number(results, "entropy_floor", last)
    below = entropy is not None and floor is not None and entropy < floor
    if below or results.get("collapsed"):
        figures = f": its entropy is {as_nats(entropy)}" if entropy is not None else ""
        if entropy is not None and floor is not None:
            figures += f", {'below' if below else 'with'} its floor of {as_nats(floor)}"
        found.append(
            f"Collapse{figures}. The density has shrunk towards a single transformation, and it "
            "seldom comes back: start wider or raise alpha from the first step."
        )

    share = _number(results, "saturated_share", last)
    if results.get("saturated") or (share is not None and share > SATURATED_SHARE):
        figure = as_percent(share) if share is not None else "Many"
        found.append(
            f"Saturation: {figure} of the sampled coordinates lie on the edge of the box "
            f"(alarm above {as_percent(SATURATED_SHARE)}). The density wants more than the box "
            "allows: widen the transform's half-range or lower alpha."
        )

    outside = _number(results, "outside_share")
    if outside is not None and outside > RUNAWAY_OUTSIDE_SHARE:
        found.append(
            f"Runaway: {as_percent(outside)} of the sampled rotations leave their class "
            f"(alarm above {as_percent(RUNAWAY_OUTSIDE_SHARE)}). The density reaches beyond "
            "the truth: lower alpha or train the classifier longer."
        )
    return found


def results_table(root: Path) -> str:
    """Make the results table of the README, in markdown, from the runs kept below a folder.

    Reads `root/NAME/SEED/results.json`; one row per NAME with mean ± sample standard deviation
    (n - 1) over its seeds, no spread for one seed. A figure that only some seeds have says how
    many, a figure that none has is a dash.

    Args:
        root: the folder, normally `docs/results`.

    Returns:
        Markdown, without a final line break.

    Raises:
        ValueError: if there is no such file, or one of them is not a JSON object.
    """
    runs: dict[str, list[Mapping[str, Any]]] = {}
    for path in sorted(root.glob("*/*/results.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is not JSON ({error}); copy it again from its run") from None
        if not isinstance(content, dict):
            raise ValueError(
                f"{path} holds a {type(content).__name__}; a results.json is one JSON object"
            )
        runs.setdefault(path.parent.parent.name, []).append(content)
    if not runs:
        raise ValueError(
            f"{root} holds no NAME/SEED/results.json; copy the results.json of finished runs there"
        )
    columns: tuple[tuple[str, str, float, int], ...] = (
        ("half-range (°)", "half_range_degrees", 1.0, 1),
        ("true (°)", "true_half_range_degrees", 1.0, 1),
        ("outside (%)", "outside_share", 100.0, 1),
        ("Kolmogorov", "kolmogorov_distance", 1.0, 3),
        ("test accuracy (%)", "test_accuracy", 100.0, 1),
        ("averaged accuracy (%)", "test_accuracy_averaged", 100.0, 1),
        ("minutes", "seconds", 1 / 60, 1),
    )
    heads = ["run", "seeds", *(column[0] for column in columns)]
    lines = [_markdown(heads), "|---|" + "---:|" * (len(heads) - 1)]
    for name, seeds in sorted(runs.items()):
        cells = [name, str(len(seeds))]
        cells += [_spread(seeds, key, factor, digits) for _, key, factor, digits in columns]
        lines.append(_markdown(cells))
    return "\n".join(lines)


def replace_between_markers(text: str, table: str, name: str = "results") -> str:
    """Put a table between the two comment lines that mark its place in a page of markdown.

    Args:
        text: the page, with `<!-- NAME:begin -->` and later `<!-- NAME:end -->`, once each.
        table: what shall stand between them.
        name: the NAME of the markers.

    Returns:
        The page with everything between the markers replaced; the markers stay.

    Raises:
        ValueError: if a marker is missing, comes twice, or the end comes before the beginning.
    """
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    counts = text.count(begin), text.count(end)
    if counts != (1, 1) or text.index(begin) > text.index(end):
        raise ValueError(
            f"the text has {counts[0]} '{begin}' and {counts[1]} '{end}'; it needs one line of "
            "each, in this order: add them where the table belongs"
        )
    head, rest = text.split(begin)
    return f"{head}{begin}\n{table.strip()}\n{end}{rest.split(end)[1]}"


def _fixed(value: float, digits: int) -> str:
    """Write a number with fixed decimals, a true minus sign and no negative zero."""
    text = f"{value:.{digits}f}"
    if text.startswith("-"):
        text = text[1:] if float(text) == 0 else "−" + text[1:]
    return text


def _number(
    results: Mapping[str, Any], key: str, fallback: Mapping[str, Any] | None = None
) -> float | None:
    """Look a number up, first in one place, then in the other; None if neither has one."""
    for source in (results, fallback or {}):
        value = source.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return None


def _at_most(
    value: float, limit: float, write: Callable[[float], str], *, known: bool
) -> tuple[str, bool | None]:
    """State an upper aim and whether it is met; nothing where no aim applies."""
    return (f"at most {write(limit)}", value <= limit) if known else ("", None)


def _not_finite(results: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]) -> str:
    """Name the first logged step with a non-finite number, or the results that are not finite."""
    for line in metrics:
        names = [key for key, value in line.items() if _is_not_finite(value)]
        names += [key for key in _ALWAYS_LOGGED if key in line and line[key] is None]
        if names:
            return f"{', '.join(names)} from step {line.get('step', 'unknown')} on"
    names = [key for key, value in results.items() if _is_not_finite(value)]
    return f"{', '.join(names)} in the results" if names else ""


def _is_not_finite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _spread(seeds: Sequence[Mapping[str, Any]], key: str, factor: float, digits: int) -> str:
    """Write mean ± standard deviation of one figure over the seeds that have it."""
    values = [value * factor for seed in seeds if (value := _number(seed, key)) is not None]
    if not values:
        return _MISSING
    if not all(math.isfinite(value) for value in values):
        return "not finite"
    text = _fixed(statistics.fmean(values), digits)
    # The truth is given, not measured: a spread of exactly zero there would only be noise to read.
    if len(values) > 1 and not (key.startswith("true_") and len(set(values)) == 1):
        text += f" ± {_fixed(statistics.stdev(values), digits)}"
    return text if len(values) == len(seeds) else f"{text} ({len(values)} of {len(seeds)})"


def _markdown(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
