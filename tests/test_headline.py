"""The report's alarms and headline: what fires when, with which aims, units and decimals."""

import math
from typing import Any

import pytest
from finished_run import GOOD, IMAGES

from experiments.report import formats, tables
from experiments.report.alarms import alarms
from flowjax_inv.transforms import Affine, Crop, Decoupled

ALARM_WORDS = ("Not finite", "Collapse", "Saturation", "Runaway")


def make_metrics(count: int = 50) -> list[dict[str, Any]]:
    line = {"loss": 1.0, "cross_entropy": 1.1, "entropy": 0.4, "alpha": 0.25, "new_key": "x"}
    return [{"step": 10 * i, "epoch": i / 10} | line for i in range(count)]


def test_no_alarm_for_a_good_run() -> None:
    assert alarms(GOOD, make_metrics()) == []
    assert alarms({}, []) == []


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"entropy": -1.51}, "Collapse: its entropy is −1.51 nats, below its floor of −1.50 nats"),
        ({"collapsed": True}, "Collapse"),
        ({"saturated_share": 0.051}, "Saturation: 5.1 %"),
        ({"saturated": True}, "Saturation"),
        ({"outside_share": 0.101}, "Runaway: 10.1 %"),
        ({"kolmogorov_distance": math.nan}, "Not finite: kolmogorov_distance in the results"),
    ],
)
def test_alarms_fire_alone(change: dict[str, Any], word: str) -> None:
    (alarm,) = alarms(GOOD | change, make_metrics())
    assert alarm.startswith(word)
    assert alarm.startswith(ALARM_WORDS)


@pytest.mark.parametrize("value", [math.nan, math.inf, None])
def test_alarm_names_the_first_step_that_is_not_finite(value: float | None) -> None:
    metrics = make_metrics()
    metrics[30]["loss"] = metrics[40]["loss"] = value
    (alarm,) = alarms(GOOD, metrics)
    assert alarm.startswith("Not finite: loss from step 300 on")


def test_alarms_look_at_the_last_step_when_results_are_silent() -> None:
    metrics = make_metrics()
    metrics[-1] |= {"saturated_share": 0.4, "entropy": -3.0}
    found = alarms({"entropy_floor": -1.0}, metrics)
    assert [alarm.split(":")[0] for alarm in found] == ["Collapse", "Saturation"]


@pytest.mark.parametrize(("limit", "alarmed"), [(0.1, False), (0.07, True), (None, True)])
def test_saturation_counts_from_the_runs_own_limit(limit: float | None, *, alarmed: bool) -> None:
    results = GOOD | {"saturated_share": 0.08, "saturated_limit": limit}
    shown = "5.0 %" if limit is None else formats.as_percent(limit)
    row = next(row for row in tables.headline(results) if "edge" in row.name)
    assert (row.target, row.passed) == (f"at most {shown}", not alarmed)
    assert [f"(alarm above {shown})" in alarm for alarm in alarms(results, [])] == (
        [True] * alarmed
    )


def test_identity_has_no_entropy_and_no_alarm() -> None:
    metrics = [line | {"entropy": -math.inf} for line in make_metrics()]
    results = {"method": "identity", "entropy": -math.inf, "entropy_floor": -1.0}
    assert alarms(results, metrics) == []


def test_headline_marks_aims_only_where_the_truth_is_known() -> None:
    marks = {row.name: row.passed for row in tables.headline(GOOD)}
    assert list(marks.values()) == [None, None, True, True, True, False, None, True]
    unknown = {"test_accuracy": 0.7, "entropy": 0.1}
    assert [(row.value, row.target, row.passed) for row in tables.headline(unknown)] == [
        ("70.00 %", "", None),
        ("0.10 nats", "", None),
    ]
    assert tables.headline({}) == []


def test_headline_of_images_has_rules_paper_and_units() -> None:
    assert [(row.name, row.value, row.target) for row in tables.headline(IMAGES)] == [
        ("Test accuracy, image as it is", "98.42 %", ""),
        (
            "Test accuracy, averaged over 20 sampled views (plain, probabilities)",
            "98.73 %",
            "paper (%): 99.2 ± 0.1 (Table 1)",
        ),
        (
            "Test accuracy, averaged over 20 sampled views of norm below 1 and the image "
            "(code, logits)",
            "98.81 %",
            "",
        ),
        ("Entropy of the density", "1.25 nats", "floor −3.00 nats, maximum 4.16 nats"),
        ("Mean learned half-range, rotation", "24.6°", ""),
        ("Mean learned half-range, translation x", "0.100 (half-widths)", ""),
        ("Mean learned half-range, scale", "0.234 (log-scale)", ""),
        ("Samples on the edge of the box", "1.0 %", "at most 5.0 %"),
    ]
    marks = [row.passed for row in tables.headline(IMAGES)]
    assert marks == [None] * 7 + [True], "the aims of the sprites are not for these"


def test_headline_without_a_density_is_its_accuracy() -> None:
    results = IMAGES | {"method": "identity", "saturated_share": 0.0, "evaluation_samples": 1}
    (row,) = tables.headline(results)
    assert (row.value, row.target) == ("98.42 %", "paper (%): 99.2 ± 0.1 (Table 1)")


@pytest.mark.parametrize(
    "transform",
    [Affine("affine"), Affine("affine", basis="scales"), Decoupled(tuple("abcdef")), Crop()],
    ids=["augerino", "scales", "entries", "crop"],
)
def test_units_are_those_of_the_transforms(transform: Any) -> None:
    assert tuple(tables.UNITS[name] for name in transform.names) == transform.units


def test_where_classes_leave_gaps_only_the_other_class_counts() -> None:
    """At ±45° nobody says what lies between 45° and 135°: reaching there is no fault."""
    wide = GOOD | {"outside_share": 0.42, "other_class_share": 0.004, "covered_share": 1.0}
    gaps = {"gaps_between_classes": True}
    assert ALARM_WORDS[3] in alarms(wide, [])[0]
    assert alarms(wide | gaps, []) == []
    assert ALARM_WORDS[3] in alarms(wide | gaps | {"other_class_share": 0.2}, [])[0]
    names = [row.name for row in tables.headline(wide | gaps)]
    assert "Samples that turn into the other class" in names
    assert "Share of the class's arc that is reached" in names
    assert not any("Kolmogorov" in name for name in names)


def test_a_runs_own_units_go_first() -> None:
    results = IMAGES | {"half_range_centre_x": 0.5, "half_range_width": 0.1}
    own = {"coordinates": ["centre_x", "width"], "units": ["half-widths", "picture widths"]}
    for given, unit in (({}, "room left"), (own, "half-widths")):
        values = [row.value for row in tables.headline(results | given)]
        assert f"0.500 ({unit})" in values
        assert "0.100 (picture widths)" in values


def test_numbers_have_their_decimals_and_no_negative_zero() -> None:
    assert formats.as_percent(0.02134) == "2.1 %"
    assert formats.as_degrees(-1.86) == "−1.9°"
    assert formats.as_nats(-0.004) == "0.00 nats"
