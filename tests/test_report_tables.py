"""The report in numbers: alarms, headline, and the results table of the README."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from flowjax_inv.report import tables

ALARM_WORDS = ("Not finite", "Collapse", "Saturation", "Runaway")
GOOD = {
    "half_range_degrees": 88.14,
    "half_range_raw_degrees": 86.4,
    "true_half_range_degrees": 90.0,
    "outside_share": 0.0213,
    "kolmogorov_distance": 0.046,
    "test_accuracy": 0.9983,
    "test_accuracy_averaged": 0.985,
    "entropy": -0.004,
    "log_volume": math.log(2),
    "entropy_floor": -1.5,
    "seconds": 251.0,
    "seed": 3,
    "steps": 6000,
    "method": "flow",
    "collapsed": False,
    "saturated": False,
    "saturated_share": 0.0012,
}


def make_metrics(count: int = 50) -> list[dict[str, Any]]:
    line = {"loss": 1.0, "cross_entropy": 1.1, "entropy": 0.4, "alpha": 0.25, "new_key": "x"}
    return [{"step": 10 * i, "epoch": i / 10} | line for i in range(count)]


# --- alarms and headline


def test_no_alarm_for_a_good_run() -> None:
    assert tables.alarms(GOOD, make_metrics()) == []
    assert tables.alarms({}, []) == []


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
    (alarm,) = tables.alarms(GOOD | change, make_metrics())
    assert alarm.startswith(word)
    assert alarm.startswith(ALARM_WORDS)


@pytest.mark.parametrize("value", [math.nan, math.inf, None])
def test_alarm_names_the_first_step_that_is_not_finite(value: float | None) -> None:
    metrics = make_metrics()
    metrics[30]["loss"] = metrics[40]["loss"] = value
    (alarm,) = tables.alarms(GOOD, metrics)
    assert alarm.startswith("Not finite: loss from step 300 on")


def test_alarms_look_at_the_last_step_when_results_are_silent() -> None:
    metrics = make_metrics()
    metrics[-1] |= {"saturated_share": 0.4, "entropy": -3.0}
    alarms = tables.alarms({"entropy_floor": -1.0}, metrics)
    assert [alarm.split(":")[0] for alarm in alarms] == ["Collapse", "Saturation"]


def test_identity_has_no_entropy_and_no_alarm() -> None:
    metrics = [line | {"entropy": -math.inf} for line in make_metrics()]
    results = {"method": "identity", "entropy": -math.inf, "entropy_floor": -1.0}
    assert tables.alarms(results, metrics) == []


def test_headline_marks_aims_only_where_the_truth_is_known() -> None:
    marks = {row.name: row.passed for row in tables.headline(GOOD)}
    assert list(marks.values()) == [None, None, True, True, True, False, None, True]
    unknown = {"test_accuracy": 0.7, "entropy": 0.1}
    assert [(row.value, row.target, row.passed) for row in tables.headline(unknown)] == [
        ("70.0 %", "", None),
        ("0.10 nats", "", None),
    ]
    assert tables.headline({}) == []


def test_numbers_have_their_decimals_and_no_negative_zero() -> None:
    assert tables.as_percent(0.02134) == "2.1 %"
    assert tables.as_degrees(-1.86) == "−1.9°"
    assert tables.as_nats(-0.004) == "0.00 nats"


# --- the table of the README


def write_results(root: Path, name: str, seed: int, **results: Any) -> None:
    folder = root / name / str(seed)
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(json.dumps(results))


def test_results_table_has_mean_and_deviation(tmp_path: Path) -> None:
    for seed, half_range, share in ((0, 86.0, 0.01), (1, 88.0, 0.02), (2, 90.0, 0.03)):
        write_results(
            tmp_path, "flow", seed, half_range_degrees=half_range, true_half_range_degrees=90.0,
            outside_share=share, test_accuracy=1.0, seconds=120.0,
        )  # fmt: skip
    write_results(tmp_path, "augerino|x", 0, test_accuracy=0.975, kolmogorov_distance=0.1234)
    header, rule, augerino, flow = tables.results_table(tmp_path).split("\n")
    assert header == (
        "| run | seeds | half-range (°) | true (°) | outside (%) | Kolmogorov | "
        "test accuracy (%) | averaged accuracy (%) | minutes |"
    )
    assert rule.count("|") == header.count("|")
    # Deviations with n - 1: of 86, 88, 90 it is 2; of 1, 2, 3 it is 1.
    assert flow == "| flow | 3 | 88.0 ± 2.0 | 90.0 | 2.0 ± 1.0 | – | 100.0 ± 0.0 | – | 2.0 ± 0.0 |"
    assert augerino == "| augerino\\|x | 1 | – | – | – | 0.123 | 97.5 | – | – |"


def test_results_table_says_how_many_seeds_have_a_figure(tmp_path: Path) -> None:
    write_results(tmp_path, "flow", 0, test_accuracy=0.9, outside_share=math.nan)
    write_results(tmp_path, "flow", 1)
    line = tables.results_table(tmp_path).split("\n")[2]
    assert line == "| flow | 2 | – | – | not finite | – | 90.0 (1 of 2) | – | – |"


def test_results_table_refuses_nothing_and_nonsense(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no NAME/SEED/results\.json; copy"):
        tables.results_table(tmp_path)
    write_results(tmp_path, "flow", 0)
    (tmp_path / "flow" / "0" / "results.json").write_text("{")
    with pytest.raises(ValueError, match=r"results\.json is not JSON"):
        tables.results_table(tmp_path)


def test_table_goes_between_its_markers() -> None:
    text = "a\n<!-- results:begin -->\nold\n<!-- results:end -->\nb\n"
    once = tables.replace_between_markers(text, "| new |\n", "results")
    assert once == "a\n<!-- results:begin -->\n| new |\n<!-- results:end -->\nb\n"
    assert tables.replace_between_markers(once, "| new |", "results") == once


@pytest.mark.parametrize(
    "text",
    [
        "no markers",
        "<!-- results:begin --> only",
        "<!-- results:end --> <!-- results:begin -->",
        "<!-- results:begin --><!-- results:begin --><!-- results:end -->",
        "<!-- other:begin --><!-- other:end -->",
    ],
)
def test_missing_markers_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"'<!-- results:begin -->' and .* it needs one line of"):
        tables.replace_between_markers(text, "table", "results")
