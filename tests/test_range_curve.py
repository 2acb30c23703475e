"""How far the one range of all images reached."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compared_runs import make_run
from matplotlib.axes import Axes

from experiments.report.compare import compare
from experiments.report.compare_page import write_comparison
from experiments.report.range_curve import range_curve, ranges_over_steps

CONFIG = {"distribution.name": "augerino", "data.rotated_degrees": 90.0}
RESULTS: dict[str, Any] = {"coordinates": ["rotation"]}
LINES = [
    {"step": 10, "entropy": 0.0, "alpha": 0.0},  # burn-in
    {"step": 20, "entropy": math.log(0.5), "alpha": 0.1},
    {"step": 30, "entropy": math.log(2.0), "alpha": 0.1},
]


def test_an_interval_has_the_entropy_of_its_width() -> None:
    curve = range_curve(CONFIG, RESULTS, LINES)
    assert curve is not None
    np.testing.assert_array_equal(curve.steps, [20, 30])
    np.testing.assert_allclose(curve.degrees, [45.0, 180.0])  # a quarter of the circle, and all
    assert curve.truth == 90.0
    other = range_curve(CONFIG, RESULTS | {"true_half_range_degrees": 45.0}, LINES)
    assert other is not None
    assert other.truth == 45.0


@pytest.mark.parametrize(
    ("config", "results"),
    [
        ({"distribution.name": "flow"}, {}),
        ({"transform.half_range": [90.0]}, {}),
        ({}, {"coordinates": ["rotation", "scale"]}),
        ({}, {"coordinates": ["scale"]}),
    ],
)
def test_other_runs_have_no_such_range(config: dict[str, Any], results: dict[str, Any]) -> None:
    assert range_curve(CONFIG | config, RESULTS | results, LINES) is None
    assert range_curve(CONFIG, RESULTS, LINES[:1]) is None


def test_lines_and_truth_are_drawn() -> None:
    curve = range_curve(CONFIG, RESULTS, LINES)
    assert curve is not None
    panel = ranges_over_steps({"from 5 degrees": curve, "from 90": curve}).axes[0]
    assert isinstance(panel, Axes)
    assert len(panel.lines) == 3
    assert panel.get_ylim()[1] > 180.0
    legend = panel.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["from 5 degrees", "from 90"]


def test_a_comparison_lays_runs_from_other_starts_beside_each_other(tmp_path: Path) -> None:
    for start in (0.1, 0.5):
        changes = {"distribution.name": "augerino", "distribution.start_half_range": [start]}
        make_run(tmp_path / str(start), changes, method="augerino", coordinates=["rotation"])
    comparison = compare([tmp_path / "0.1", tmp_path / "0.5"])
    page = write_comparison(comparison, tmp_path / "out").read_text()
    assert "How far the range of all images reached" in page
