"""Rotation discovery, regressions and verdicts in the report: figures and tables."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from finished_run import GOOD, make_evaluation, write_run

from experiments.report import (
    discovery,
    figures,
    image_tables,
    label_curves,
    page,
    tables,
    verdicts,
)
from experiments.report.compare import compare
from experiments.report.compare_page import write_comparison
from experiments.report.compare_table import heads
from experiments.report.evaluation import MissingArrayError

FOUND = GOOD | {"rotation_distance": 0.0783, "least_turn_degrees": 3.58, "invariance_found": True}
REGRESSION: dict[str, Any] = {
    "test_error_degrees": 1.25,
    "test_error_degrees_averaged": 1.5,
    "half_range_rotation": 0.21,
    "entropy": -3.0,
    "least_turn_degrees": 2.5,
    "invariance_found": False,
    "method": "augerino",
    "seed": 0,
    "coordinates": ["rotation"],
    "units": ["degrees"],
}


def with_entries() -> dict[str, np.ndarray]:
    """Samples on the line of turns, as far away as their number says."""
    turn = np.linspace(-0.5, 0.5, 40) + np.zeros((2, 2, 1))
    entries = np.stack([-turn, turn], axis=-1)
    return make_evaluation() | {
        "entry_names": np.array(["b", "d"]),
        "entries": entries,
        "entry_distance": np.linspace(0.0, 0.4, 40) + np.zeros((2, 2, 1)),
    }


def test_entries_are_drawn_beside_the_turns_and_coloured_by_distance() -> None:
    figure = discovery.sampled_entries(with_entries())
    panels = [axes for axes in figure.axes if axes.get_title()]
    assert [panel.get_title() for panel in panels[:2]] == [
        "sprite, up, turned 40° right",
        "turned 40° left",
    ]
    (dots,) = panels[0].collections
    points = np.asarray(dots.get_offsets())
    np.testing.assert_allclose(points[:, 0], -points[:, 1])
    np.testing.assert_allclose(np.asarray(dots.get_array()), np.linspace(0, 0.4, 40))
    line = panels[0].get_lines()[0]
    np.testing.assert_allclose(np.asarray(line.get_xdata()), -np.asarray(line.get_ydata()))


def test_entries_without_the_rotations_among_them_are_not_drawn() -> None:
    evaluation = with_entries() | {"entry_names": np.array(["a", "e"])}
    with pytest.raises(MissingArrayError, match="entry_names are a, e; want b and d among them"):
        discovery.sampled_entries(evaluation)


def test_distances_are_joined_by_method_in_the_order_of_ranges() -> None:
    figure = discovery.distance_against_half_range(
        {"two": {"flow": [(40.0, 0.1), (20.0, 0.05)], "fixed": [(37.0, 0.38)]}, "six": {}}
    )
    lines = figure.axes[0].get_lines()
    assert [line.get_label() for line in lines] == ["flow", "fixed"]
    np.testing.assert_allclose(np.asarray(lines[0].get_xydata()), [[20.0, 0.05], [40.0, 0.1]])
    assert [panel.get_title() for panel in figure.axes] == ["two", "six"]
    with pytest.raises(MissingArrayError, match="no run here measured"):
        discovery.distance_against_half_range({"": {"flow": []}})


@pytest.mark.slow
def test_a_run_of_discovery_has_its_picture_and_its_rows(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", evaluation=with_entries(), results=FOUND)
    text = page.write_report(run).read_text(encoding="utf-8")
    assert "Are free entries tied into turns?" in text
    assert (run / "figures" / "entries.png").stat().st_size > 10_000
    rows = {row.name: (row.value, row.target) for row in tables.headline(FOUND)}
    assert rows["Distance of samples to the nearest rotation, relative (median)"][0] == "0.078"
    assert rows["Verdict on turns"] == ("found", "counts above ± 3.6°, a pixel at the rim")


def test_runs_of_discovery_side_by_side(tmp_path: Path) -> None:
    folders = [
        write_run(
            tmp_path / name,
            results=FOUND | {"method": name, "invariance_found": name == "flow"},
            config={"data": {"name": "mario_iggy"}, "distribution": {"name": name}},
        )
        for name in ("flow", "augerino")
    ]
    comparison = compare(folders)
    shown = heads(comparison.experiments)
    assert "rotation distance" in shown
    assert "verdict" in shown
    assert "plain error (°)" not in shown
    out = write_comparison(comparison, tmp_path / "out")
    text = (out if out.is_file() else out / "index.html").read_text(encoding="utf-8")
    assert "How far from turns, at what range?" in text
    assert "no invariance found" in text


@pytest.mark.parametrize(
    ("said", "words"),
    [([], "–"), ([True, True], "found"), ([False], "no invariance found"),
     ([True, False, True], "found in 2 of 3")],
)  # fmt: skip
def test_verdicts_in_words(said: list[bool], words: str) -> None:
    assert verdicts.verdict([{"invariance_found": found} for found in said]) == words
    assert verdicts.verdict([{}]) == "–"


def test_a_regression_shows_errors_and_no_accuracies(tmp_path: Path) -> None:
    rows = {row.name: row.value for row in tables.headline(REGRESSION)}
    assert rows["Mean absolute test error, image as it is"] == "1.25°"
    assert rows["Verdict on turns"] == "no invariance found"
    assert not any("accuracy" in name for name in rows)
    lines = [
        {"epoch": i, "loss": 9.0, "squared_error": 9.0, "train_error_degrees": 2.0, "entropy": -1.0}
        | {"test_error_degrees": 3.0}
        for i in range(3)
    ]
    panels = figures.learning_curves(lines, REGRESSION).axes
    assert panels[0].get_ylabel() == "squared degrees"
    assert panels[2].get_ylabel() == "degrees"
    assert [line.get_label() for line in panels[2].get_lines()] == [
        "training, sampled views",
        "test, images as they are",
    ]
    place = tmp_path / "olivetti" / "0"
    place.mkdir(parents=True)
    (place / "results.json").write_text(json.dumps(REGRESSION))
    (place / "config.json").write_text(json.dumps({"data": {"name": "olivetti"}}))
    table = image_tables.images_table(tmp_path)
    assert "| 1.50° off | 1.25° off | −3.00 | 0.21 | – |" in table
    assert "arcs" not in table
    (place / "results.json").write_text(json.dumps(REGRESSION | {"arc_share_6": 0.567}))
    assert "| 0.21 | 6: 0.57 | – |" in image_tables.images_table(tmp_path)


def test_accuracy_against_labels_has_a_panel_a_set_and_a_band_a_method() -> None:
    panels = {
        "mnist": {"none": {312: [90.0], 1250: [95.0]}, "flow": {312: [93.0, 94.0], 1250: [97.0]}},
        "fashion_mnist": {"flow": {312: [70.0, 71.0]}},
    }
    figure = label_curves.accuracy_against_labels(panels)
    left, right = figure.axes
    assert [line.get_label() for line in left.lines] == ["none", "flow"]
    np.testing.assert_allclose(np.asarray(left.lines[1].get_ydata()), [93.5, 97.0])
    assert [text.get_text() for text in left.get_xticklabels()] == ["312", "1,250"]
    assert left.lines[1].get_color() == right.lines[0].get_color()
    assert len(left.collections) == 2
