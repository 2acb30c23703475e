"""The report of runs on images whose pose nobody knows: its figures and its page."""

import json
import math
import re
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from matplotlib.axes import Axes

from experiments.report import figures, page
from experiments.report.by_class import MAX_NAMED

RESULTS: dict[str, Any] = {
    "method": "flow",
    "test_accuracy": 0.98,
    "test_accuracy_averaged": 0.99,
    "evaluation_rule": "plain",
    "evaluation_average": "probs",
    "evaluation_samples": 20,
    "entropy": 0.5,
    "entropy_floor": -3.0,
    "log_volume": 2 * math.log(2),
    "saturated_share": 0.01,
    "half_range_rotation": 20.0,
    "parameters_distribution": 7,
}


def make_evaluation(*, classes: int = 3, channels: int = 1) -> dict[str, np.ndarray]:
    """Five images per class: rotations of 10, 20 .. 50 degrees plus the label, shifts of 0.9."""
    labels = np.repeat(np.arange(classes), 5)
    rotation = np.tile([10.0, 20.0, 30.0, 40.0, 50.0], classes) + labels
    images = np.arange(classes * 6 * 8 * channels).reshape(classes, 6, 8, channels)
    return {
        "class_names": np.array([f"class {i}" for i in range(classes)]),
        "coordinate_names": np.array(["rotation", "translation_x"]),
        "coordinate_units": np.array(["degrees", "half-widths"]),
        "coordinate_half_ranges": np.array([180.0, 1.0], np.float32),
        "image_labels": labels,
        "image_entropy": rotation / 100,
        "image_ranges": np.stack([rotation, np.full(len(labels), 0.9)], axis=1),
        "shown_images": images.astype(np.uint8),
        "shown_labels": np.arange(classes),
        "shown_views": np.full((classes, 4, 6, 8, channels), 77, np.uint8),
    }


def write_run(
    folder: Path, evaluation: dict[str, np.ndarray] | None = None, **results: Any
) -> Path:
    folder.mkdir()
    config = {"data": {"name": "cifar10"}, "command": "python -m x"}
    (folder / "config.json").write_text(json.dumps(config))
    lines = [{"step": i, "epoch": i / 10, "loss": 1.0, "train_accuracy": 0.5} for i in range(9)]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (folder / "results.json").write_text(json.dumps(RESULTS | results))
    if evaluation is not None:
        np.savez(folder / "evaluation.npz", **cast(Any, evaluation))
    return folder


def words_of(path: Path) -> str:
    """Visible words of a page, one blank between them."""
    text = re.sub(r"<style>.*?</style>", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", text).split())


# --- figures


def test_ranges_show_medians_quartiles_and_the_box() -> None:
    rotation, shift = cast("list[Axes]", figures.ranges(make_evaluation()).axes)
    bars, dots = rotation.lines[:6:2], rotation.lines[1:6:2]
    for label, (bar, dot) in enumerate(zip(bars, dots, strict=True)):
        np.testing.assert_allclose(np.asarray(bar.get_xdata()), [20 + label, 40 + label])
        np.testing.assert_allclose(np.asarray(dot.get_xdata()), [30 + label])
        np.testing.assert_allclose(np.asarray(dot.get_ydata()), [label])
    assert [text.get_text() for text in rotation.get_yticklabels()] == [
        "class 0", "class 1", "class 2",
    ]  # fmt: skip
    assert rotation.get_ylim()[0] > rotation.get_ylim()[1], "the first class is on top"
    assert rotation.get_xlabel() == "half-range (degrees)"
    assert shift.get_xlabel() == "half-range (half-widths)"
    # 180 degrees are far from all that was learned; 1 is not.
    assert "± 180 degrees, beyond the axis" in rotation.get_title()
    assert rotation.get_xlim()[1] < 180
    assert "± 1 half-widths, dashed" in shift.get_title()
    (edge,) = [line for line in shift.lines if line.get_linestyle() == "--"]
    np.testing.assert_allclose(np.asarray(edge.get_xdata()), 1.0)


def test_coordinates_of_one_unit_share_an_axis() -> None:
    evaluation = make_evaluation()
    evaluation["coordinate_units"] = np.array(["half-widths", "half-heights"])
    evaluation["coordinate_half_ranges"] = np.ones(2)
    evaluation["image_ranges"] = np.tile([0.1, 0.9], (15, 1))
    wide, high = cast("list[Axes]", figures.ranges(evaluation).axes)
    assert wide.get_xlim() == high.get_xlim()


def test_a_class_without_measured_images_stays_empty() -> None:
    evaluation = make_evaluation()
    evaluation["image_labels"][evaluation["image_labels"] == 1] = 0
    evaluation["image_entropy"][0] = np.nan
    (panel,) = cast("list[Axes]", figures.entropies(evaluation, {}).axes)
    rows = {float(np.asarray(line.get_ydata())[0]) for line in panel.lines}
    assert rows == {0.0, 2.0}
    assert len(panel.get_yticklabels()) == 3


def test_many_classes_are_drawn_together() -> None:
    evaluation = make_evaluation(classes=MAX_NAMED + 1)
    panels = figures.ranges(evaluation).axes + figures.entropies(evaluation, RESULTS).axes
    for panel in cast("list[Axes]", panels):
        heights = [cast(Any, patch).get_height() for patch in panel.patches]
        assert sum(heights) == 5 * (MAX_NAMED + 1)
        assert not any("class" in text.get_text() for text in panel.get_yticklabels())


def test_entropies_lie_between_floor_and_maximum() -> None:
    figure = figures.entropies(make_evaluation(), RESULTS)
    (panel,) = cast("list[Axes]", figure.axes)
    levels = [line.get_xdata() for line in panel.lines if line.get_linestyle() == "--"]
    np.testing.assert_allclose(np.asarray(levels)[:, 0], [-3.0, 2 * math.log(2)])
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert words[0].endswith("(−3.00)")
    dots = [line for line in panel.lines if line.get_marker() == "o"]
    np.testing.assert_allclose(np.asarray(dots[2].get_xdata()), [0.32])


@pytest.mark.parametrize("channels", [1, 3])
def test_view_sheet_of_shown_images(channels: int) -> None:
    evaluation = make_evaluation(channels=channels)
    evaluation["shown_labels"] = np.array([2, 0, 0])
    (panel,) = cast("list[Axes]", figures.view_sheet(evaluation, columns=3).axes)
    sheet = np.asarray(panel.images[0].get_array())
    expected = np.broadcast_to(evaluation["shown_images"], (3, 6, 8, 3))
    # Grey pictures have three equal channels; classes stand together, in their order.
    np.testing.assert_array_equal(sheet[:6, :8], expected[1])
    np.testing.assert_array_equal(sheet[-6:, :8], expected[0])
    views = (sheet[:, 8:] == 77).all(axis=-1).sum()
    assert views == 3 * 3 * 6 * 8
    labels = [text.get_text() for text in panel.texts]
    assert labels[:4] == ["class 0", "class 0", "class 2", "input"]
    (row,) = cast("list[Axes]", figures.view_sheet(evaluation, rows=1).axes)
    assert np.asarray(row.images[0].get_array()).shape[0] == 6


def test_learning_curves_without_a_density_are_cross_entropy_and_accuracy() -> None:
    line = {"loss": 2.0, "cross_entropy": 1.0, "alpha": 0.0, "train_accuracy": 0.5}
    metrics = [{"epoch": i} | line for i in range(5)]
    losses, accuracy = figures.learning_curves(metrics, {"method": "identity"}).axes
    assert [axes.get_title() for axes in (losses, accuracy)] == ["Losses", "Accuracy"]
    ((cross_entropy,), (training,)) = losses.lines, accuracy.lines
    np.testing.assert_allclose(np.asarray(cross_entropy.get_ydata()), 1.0)
    np.testing.assert_allclose(np.asarray(training.get_ydata()), 50.0)


@pytest.mark.parametrize("loss", ["cross_entropy", "squared_error"])
def test_learning_curves_leave_out_originals_that_do_not_count(loss: str) -> None:
    metrics = [{"epoch": i, loss: 1.0, f"{loss}_original": 0.0} for i in range(5)]
    metrics[0][f"{loss}_original"] = 2.0  # a burn-in
    losses = figures.learning_curves(metrics, RESULTS).axes[0]
    assert [len(np.asarray(line.get_xdata())) for line in losses.lines] == [5, 1]


def test_learning_curves_have_no_entropy_in_the_burn_in() -> None:
    metrics: list[dict[str, float]] = [
        {"epoch": i, "entropy": -1.0, "alpha": 0.1} for i in range(5)
    ]
    metrics[0] |= {"entropy": 0.0, "alpha": 0.0}
    metrics[4]["entropy"] = 0.0  # measured: alpha is not 0
    entropy = figures.learning_curves(metrics, RESULTS).axes[1].lines[0]
    np.testing.assert_array_equal(np.asarray(entropy.get_xdata()), [1, 2, 3, 4])


# --- the page


def test_page_of_images(tmp_path: Path) -> None:
    note, paper = "re-encoded as JPEG: not the official CIFAR-10", "86.8 ± 0.4 (Table 1)"
    folder = write_run(tmp_path / "run", make_evaluation(), data_note=note, paper=paper)
    (folder / "figures").mkdir()
    (folder / "figures" / "density.png").write_bytes(b"of an earlier report")
    words = words_of(page.write_report(folder))
    names = {path.stem for path in (folder / "figures").iterdir()}
    assert names == {"views", "ranges", "entropies", "curves"}
    assert f"About the data: {note}. No alarms: the density neither collapsed nor stuck" in words
    assert f"(plain, probabilities) 99.00 % paper (%): {paper}" in words
    assert "Mean learned half-range, rotation 20.0°" in words
    assert "1 half-width moves the picture by half its width." in words
    assert "log-scale" not in words, "no such coordinate here"
    for absent in ("Not drawn", "Truth", "at least", "missed"):
        assert absent not in words


def test_page_without_a_density_misses_nothing(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", method="identity", parameters_distribution=0)
    words = words_of(page.write_report(folder))
    assert [path.name for path in (folder / "figures").iterdir()] == ["curves.png"]
    assert "without any invariance" in words
    assert "No alarms: all numbers are finite." in words
    for absent in ("Not drawn", "About the data", "density", "ntropy should", "averaged"):
        assert absent not in words


@pytest.mark.slow
def test_page_says_which_arrays_are_missing(tmp_path: Path) -> None:
    evaluation = make_evaluation()
    del evaluation["image_ranges"]
    words = words_of(page.write_report(write_run(tmp_path / "run", evaluation)))
    assert words.count("Not drawn: evaluation.npz has no image_ranges.") == 1
    words = words_of(page.write_report(write_run(tmp_path / "none")))
    assert words.count("this run folder has no evaluation.npz") == 3


def map_evaluation() -> dict[str, np.ndarray]:
    maps = np.arange(2 * 6 * 8).reshape(2, 6, 8) % 3
    return {
        "class_names": np.array(["ground", "class_1", "class_2"]),
        "map_images": np.zeros((2, 6, 8, 3), np.uint8),
        "map_labels": maps, "map_plain": 0 * maps, "map_averaged": maps,
    }  # fmt: skip


def test_maps_are_drawn_with_and_without_a_density(tmp_path: Path) -> None:
    measured = {"test_mean_iou": 0.5, "equivariance_error": 0.125}
    views = {f"equivariance_error_{k}": 0.1 / k for k in (1, 2, 32)}
    density = page.write_report(
        write_run(
            tmp_path / "flow", make_evaluation() | map_evaluation(), **measured, **views,
            test_mean_iou_averaged=0.625,
        )
    ).read_text()  # fmt: skip
    for words in ("Test accuracy of pixels, image as it is", "62.50 %", "32 views", "0.003"):
        assert words in density
    folder = tmp_path / "flow" / "figures"
    assert {"label_maps.png", "equivariance.png", "views.png"} <= {p.name for p in folder.iterdir()}
    write_run(tmp_path / "none", map_evaluation(), **measured, method="identity")
    none = page.write_report(tmp_path / "none").read_text()
    assert "Not drawn" not in density + none
    names = {path.name for path in (tmp_path / "none" / "figures").iterdir()}
    assert names == {"label_maps.png", "curves.png"}
    assert "averaged over" not in re.sub(r"<h2>.*?</p>", "", none, flags=re.DOTALL)
