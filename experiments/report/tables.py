"""Numbers in words: the headline of a run.

Nothing here draws or imports more than the standard library; the figures are in `figures.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from experiments.report.formats import (
    MISSING,
    as_degrees,
    as_nats,
    as_percent,
    averaged_by,
    fixed,
    number,
)
from experiments.report.verdicts import (
    has_density,
    leaves_gaps,
    poses_known,
    saturated_limit,
    verdict,
)

__all__ = ["UNITS", "Row", "headline", "summary"]

# Aims for the synthetic sprites, where the truth is known; other data sets have no such aims.
MAX_OUTSIDE_SHARE = 0.03
MAX_KOLMOGOROV_DISTANCE = 0.10
MAX_STRAIGHTENED_DEGREES = 2.0
MIN_ACCURACY = 0.99
# Units of the coordinates, as `transforms/` has them; a test compares. Importing that module
# would bring JAX, and results.json holds names only.
UNITS = {
    "rotation": "degrees",
    "translation_x": "half-widths",
    "translation_y": "half-heights",
    **dict.fromkeys(("scale", "stretch", "shear", "scale_x", "scale_y"), "log-scale"),
    **dict.fromkeys("abcdef", "algebra"),
    "centre_x": "room left",
    "centre_y": "room left",
    "width": "picture widths",
    "height": "picture heights",
}


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


def headline(results: Mapping[str, Any]) -> list[Row]:
    """List the headline figures of a run, each with its truth, aim or the paper's figure.

    Aims (outside <= 3 %, Kolmogorov distance <= 0.10, accuracies >= 99 %) belong to the synthetic
    sprites: they are shown only when `true_half_range_degrees` is known. The learned half-range
    has a truth but no aim, so it carries its error instead of a mark.

    Args:
        results: flat names to numbers, as in `results.json`; any may be missing or None.

    Returns:
        One `Row` per figure that is there, in a fixed order.
    """
    known = poses_known(results)
    rows = _pose_rows(results) if known else _accuracy_rows(results)
    if not known and not has_density(results):
        return rows

    entropy = number(results, "entropy")
    if entropy is not None:
        bounds = []
        floor, maximum = number(results, "entropy_floor"), number(results, "log_volume")
        if floor is not None:
            bounds.append(f"floor {as_nats(floor)}")
        if maximum is not None:
            bounds.append(f"maximum {as_nats(maximum)}")
        rows.append(Row("Entropy of the density", as_nats(entropy), ", ".join(bounds)))
    gap, allowed = number(results, "gap"), number(results, "gap_allowed")
    if gap is not None and allowed is not None and has_density(results):
        name = "Views are classified worse than images held out, by"
        rows.append(Row(name, as_nats(gap), f"allowed {as_nats(allowed)}"))
    evidence, precision = number(results, "evidence"), number(results, "prior_precision")
    if evidence is not None and precision is not None:
        name = "Evidence by Laplace's approximation, per image"
        rows.append(Row(name, f"{fixed(evidence, 3)} nats", f"prior precision {precision:.3g}"))
    bound = number(results, "bound")
    if bound is not None:
        rows.append(Row("Bound on the marginal likelihood, per image", f"{fixed(bound, 3)} nats"))
    if not known:
        rows += _half_range_rows(results) + _verdict_rows(results)
    saturated = number(results, "saturated_share")
    if saturated is not None:
        target, passed = _at_most(saturated, saturated_limit(results), as_percent)
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


def _pose_rows(results: Mapping[str, Any]) -> list[Row]:
    """List what is known against the truth, for the sprites."""
    rows: list[Row] = []
    half_range = number(results, "half_range_degrees")
    truth = number(results, "true_half_range_degrees")
    if half_range is not None and truth is not None:
        error = half_range - truth
        sign = "+" if error > 0 else ""
        target = f"truth {as_degrees(truth)} (off by {sign}{as_degrees(error)})"
        rows.append(Row("Learned half-range of the rotations", as_degrees(half_range), target))
    raw = number(results, "half_range_raw_degrees")
    if raw is not None:
        rows.append(Row("… before correcting for the cut-off tails", as_degrees(raw)))

    gaps = leaves_gaps(results)
    outside = number(results, "other_class_share" if gaps else "outside_share")
    if outside is not None:
        target, passed = _at_most(outside, MAX_OUTSIDE_SHARE, as_percent)
        what = "Samples that turn into the other class" if gaps else "Samples that leave the class"
        rows.append(Row(what, as_percent(outside), target, passed))
    covered = number(results, "covered_share")
    if gaps and covered is not None:
        rows.append(Row("Share of the class's arc that is reached", as_percent(covered)))
    distance = number(results, "kolmogorov_distance")
    if distance is not None and not gaps:
        target, passed = _at_most(distance, MAX_KOLMOGOROV_DISTANCE, lambda d: f"{d:.2f}")
        rows.append(
            Row("Kolmogorov distance to the true density", fixed(distance, 3), target, passed)
        )
    distance = number(results, "rotation_distance")
    if distance is not None:
        name = "Distance of samples to the nearest rotation, relative (median)"
        rows.append(Row(name, fixed(distance, 3)))
    spread = number(results, "straightened_std_degrees")
    if spread is not None:
        target, passed = _at_most(spread, MAX_STRAIGHTENED_DEGREES, as_degrees)
        name = "Spread of a class's figures after mean-shift (circular deviation)"
        rows.append(Row(name, as_degrees(spread), target, passed))
    rows += _verdict_rows(results)
    for key, name in (
        ("test_accuracy", "Test accuracy, image as it is"),
        ("test_accuracy_averaged", "Test accuracy, averaged over sampled views"),
    ):
        accuracy = number(results, key)
        if accuracy is not None:
            target = f"at least {as_percent(MIN_ACCURACY)}"
            rows.append(Row(name, as_percent(accuracy), target, accuracy >= MIN_ACCURACY))
    return rows


def _accuracy_rows(results: Mapping[str, Any]) -> list[Row]:
    """List the accuracies on images whose pose nobody knows, the paper's figure beside its own.

    Without a density all views are the image itself: its accuracy is then the only one.
    """
    paper = f"paper (%): {results['paper']}" if results.get("paper") else ""
    rows: list[Row] = []
    for key, name in (
        ("test_error_degrees", "Mean absolute test error, image as it is"),
        ("test_error_degrees_averaged", "Mean absolute test error, averaged over sampled views"),
    ):
        error = number(results, key)
        if error is not None:
            rows.append(Row(name, f"{fixed(error, 2)}°"))
    rows += _value_rows(results)
    plain, maps = number(results, "test_accuracy"), number(results, "test_mean_iou")
    of = " of a linear probe" if "probe" in results else "" if maps is None else " of pixels"
    scored = f"Test accuracy{of}"
    if plain is not None:
        target = "" if has_density(results) else paper
        rows.append(Row(f"{scored}, image as it is", as_percent(plain, 2), target))
    if maps is not None:
        rows += _map_rows(results)
    if not has_density(results):
        return rows

    def add(key: str, rule: Any, average: Any, target: str = "") -> None:
        accuracy = number(results, key)
        if accuracy is None:
            return
        count = results.get("evaluation_samples")
        views = "sampled views" if count is None else f"{count} sampled views"
        if rule == "code":
            views += " of norm below 1 and the image"
        how = f" ({averaged_by(rule, average)})" if rule else ""
        name = f"{scored}, averaged over {views}{how}"
        rows.append(Row(name, as_percent(accuracy, 2), target))

    headline = (results.get("evaluation_rule"), results.get("evaluation_average"))
    add("test_accuracy_averaged", *headline, paper)
    for rule in ("plain", "code"):
        for average in ("probs", "logits"):
            if (rule, average) != headline:
                add(f"test_accuracy_{rule}_{average}", rule, average)
    return rows


def _value_rows(results: Mapping[str, Any]) -> list[Row]:
    """List how far values of points are off, and whether they turn as they should."""
    named = [("test_error", "Mean absolute test error, as it is")]
    if has_density(results):
        named.append(("test_error_averaged", "Mean absolute test error, averaged over views"))
    if "test_error" in results:
        named.append(("equivariance_error", "What turning changes, network alone"))
        named.append(("equivariance_error_32", "What turning changes, 32 views"))
    figures = [(name, number(results, key)) for key, name in named]
    unit = "standard deviations"
    return [Row(name, f"{fixed(value, 3)} {unit}") for name, value in figures if value is not None]


def _map_rows(results: Mapping[str, Any]) -> list[Row]:
    """List what labels of pixels are measured by, beside how many are right."""
    named = [("test_mean_iou", "Mean intersection over union, image as it is", 100.0, " %")]
    error = "Map of a turned image against the turned map, "
    named.append(("equivariance_error", f"{error}network alone", 1.0, ""))
    if has_density(results):
        named.insert(1, ("test_mean_iou_averaged", "… averaged over sampled views", 100.0, " %"))
        named.append(("equivariance_error_32", f"{error}32 views", 1.0, ""))
    figures = [(name, number(results, key), factor, unit) for key, name, factor, unit in named]
    return [
        Row(name, f"{fixed(factor * value, 2 if unit else 3)}{unit}")
        for name, value, factor, unit in figures
        if value is not None
    ]


def _verdict_rows(results: Mapping[str, Any]) -> list[Row]:
    """Say whether turns are an invariance here, and from which range on they count as one."""
    said, least = verdict([results]), number(results, "least_turn_degrees")
    if said == MISSING or least is None:
        return []
    return [
        Row("Verdict on turns", said, f"counts above ± {as_degrees(least)}, a pixel at the rim")
    ]


def _half_range_rows(results: Mapping[str, Any]) -> list[Row]:
    """List the learned half-range of every coordinate, a mean over test images."""
    rows = []
    # A transform's own word goes first: centres of crops may be counted in two ways.
    own = dict(zip(results.get("coordinates", ()), results.get("units", ()), strict=True))
    for name, unit in (UNITS | own).items():
        value = number(results, f"half_range_{name}")
        if value is not None:
            text = as_degrees(value) if unit == "degrees" else f"{fixed(value, 3)} ({unit})"
            rows.append(Row(f"Mean learned half-range, {name.replace('_', ' ')}", text))
    return rows


def _at_most(value: float, limit: float, write: Callable[[float], str]) -> tuple[str, bool]:
    """State an upper aim and whether it is met."""
    return f"at most {write(limit)}", value <= limit
