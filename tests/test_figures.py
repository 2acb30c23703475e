"""Figures of a known truth: up is up, left is left, and the heights are those of the density."""

import math
from typing import Any, cast

import numpy as np
import pytest
from finished_run import GOOD, HALF_RANGE, make_evaluation, make_metrics
from matplotlib.axes import Axes
from matplotlib.projections.polar import PolarAxes

from experiments.report import figures
from experiments.report.evaluation import wrap


def panels_of(figure: Any) -> list[PolarAxes]:
    return [axes for axes in figure.axes if isinstance(axes, PolarAxes)]


def test_polar_zero_is_up_and_left_is_counter_clockwise() -> None:
    figure = figures.polar_densities(make_evaluation())
    panels = panels_of(figure)
    assert len(panels) == 2 * 5
    for panel in panels:
        assert panel.get_theta_offset() == pytest.approx(math.pi / 2)
        assert panel.get_theta_direction() == 1
    figure.canvas.draw()
    middle, up, left = (
        panels[0].transData.transform(at) for at in ((0, 0), (0, 1), (math.pi / 2, 1))
    )
    assert up[1] > middle[1] + 10
    assert up[0] == pytest.approx(middle[0], abs=1e-6)
    assert left[0] < middle[0] - 10
    titles = [panel.get_title() for panel in panels]
    assert titles[:3] == ["input turned 80° left", "input turned 40° left", "input upright"]
    assert titles[5:8] == ["input turned 100° left", "input turned 140° left", "input upside down"]


def test_polar_density_of_the_truth_is_the_truth() -> None:
    figure = figures.polar_densities(make_evaluation())
    for number, panel in enumerate(panels_of(figure)):
        centre = 0.0 if number < 5 else 180.0
        for bar in cast(Any, panel).patches:
            degrees = math.degrees(bar.get_x() + bar.get_width() / 2)
            inside = abs(float(wrap(np.array(degrees - centre)))) < HALF_RANGE
            assert bar.get_height() == pytest.approx(1.0 if inside else 0.0)


def test_polar_peaks_are_cut_and_say_so() -> None:
    evaluation = make_evaluation()
    evaluation["rotation_degrees"] = np.zeros((2, 5, 100))
    for panel in panels_of(figures.polar_densities(evaluation)):
        # All mass in one bin of 15 degrees: 180 / 15 = 12 times the true height.
        assert [text.get_text() for text in panel.texts] == ["peak 12.0,\ncut at 3.0"]


def test_polar_without_known_truth_or_images() -> None:
    evaluation = make_evaluation()
    for key in ("centres_degrees", "arc_half_range_degrees", "images"):
        del evaluation[key]
    figure = figures.polar_densities(evaluation, columns=3)
    assert len(panels_of(figure)) == 6
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert not any("truth" in text for text in legend)


def test_polar_of_images_as_they_are_calls_none_upright() -> None:
    """Rotated digits are not; what nobody knows is where the picture itself points."""
    evaluation = make_evaluation()
    for key in ("centres_degrees", "arc_half_range_degrees"):
        del evaluation[key]
    evaluation["pose_degrees"] = np.zeros((2, 5))
    figure = figures.polar_densities(evaluation)
    assert {panel.get_title() for panel in panels_of(figure)} == {"input as it is"}
    assert not any("upright" in text.get_text() for text in figure.texts)


def test_half_ranges_are_over_the_distance_from_the_middle_of_the_class() -> None:
    figure = figures.half_ranges(make_evaluation())
    (panel,) = cast("list[Axes]", figure.axes)
    up, down, truth = panel.lines[:3]
    for line in (up, down):
        np.testing.assert_allclose(np.asarray(line.get_xdata()), [-80, -40, 0, 40, 80])
        np.testing.assert_allclose(np.asarray(line.get_ydata()), [80, 85, 90, 85, 80])
    np.testing.assert_allclose(np.asarray(truth.get_ydata()), HALF_RANGE)
    assert truth.get_linestyle() == "--"
    assert panel.get_ylim()[0] == 0


def test_view_sheet_shows_input_then_views() -> None:
    evaluation = make_evaluation()
    figure = figures.view_sheet(evaluation)
    (panel,) = cast("list[Axes]", figure.axes)
    sheet = np.asarray(panel.images[0].get_array())
    np.testing.assert_array_equal(sheet[:6, :8], evaluation["images"][0, 1])
    np.testing.assert_array_equal(sheet[-6:, :8], evaluation["images"][1, 3])
    assert (sheet == 77).all(axis=-1).sum() >= 2 * 2 * 3 * 6 * 8
    labels = [text.get_text() for text in panel.texts]
    assert labels[0] == "sprite, up\nturned 40° right"
    assert labels[3] == "sprite, down\nturned 140° right"


def test_translations_show_the_movement_of_the_content() -> None:
    # theta = +0.2 half-widths right and down in input coordinates: the content moves left and up.
    figure = figures.translations(make_evaluation(translation=True))
    for panel in cast("list[Axes]", figure.axes):
        moves = np.asarray(panel.collections[0].get_offsets())
        np.testing.assert_allclose(moves, np.broadcast_to([-10.0, 10.0], moves.shape))
        low, high = panel.get_ylim()
        assert low < high


def test_learning_curves_draw_bounds_and_bear_gaps() -> None:
    metrics = make_metrics()
    metrics[5]["loss"] = float("nan")
    metrics[6]["loss"] = None
    del metrics[7]["loss"]
    figure = figures.learning_curves(metrics, GOOD)
    losses, entropy, accuracy, alpha = cast("list[Axes]", figure.axes)
    assert len(np.asarray(losses.lines[0].get_xdata())) == len(metrics) - 3
    levels = [line.get_ydata() for line in entropy.lines if line.get_linestyle() == "--"]
    np.testing.assert_allclose(np.asarray(levels)[:, 0], [math.log(2), -1.5])
    assert len(np.asarray(accuracy.lines[-1].get_xdata())) == 4
    assert alpha.get_xlabel() == "epochs"
    for line in metrics[4::4]:
        line["evidence"] = -1.0
    metrics[0]["evidence"] = 0.0  # not yet measured
    evidence = figures.learning_curves(metrics, {**GOOD, "evidence": -1.0}).axes[3]
    assert evidence.get_ylabel() == "nats per image"
    np.testing.assert_array_equal(evidence.lines[0].get_ydata(), -1.0)
    empty = figures.learning_curves([], {})
    texts = [axes.texts[0].get_text() for axes in cast("list[Axes]", empty.axes)]
    assert texts == ["not logged in this run"] * 4
