"""The tables that put methods side by side, on real images and on drawn ones."""

import math
from pathlib import Path

import pytest
from finished_run import IMAGES
from kept_runs import MNIST, write_results

from experiments.report.evidence import evidence_table
from experiments.report.few_labels import accuracies, few_labels_table
from experiments.report.half_turned import half_turned_table
from experiments.report.image_tables import images_table
from experiments.report.method_tables import METHOD_TABLES
from experiments.report.moved import moved_table


def test_half_turned_table_has_the_range_of_both_halves(tmp_path: Path) -> None:
    turned = {"data": {"name": "mnist", "rotated_classes": "0-1"}}
    shares = {"arc_share_0": 0.9, "arc_share_1": 1.0, "arc_share_2": 0.2, "arc_share_3": 0.1}
    names = {"class_names": list("0123"), "method": "flow", "test_accuracy": 0.95}
    write_results(
        tmp_path, "half", 0, turned, **names, **shares, test_accuracy_averaged=0.975, seconds=60
    )
    write_results(tmp_path, "half_none", 0, turned, **names | {"method": "identity"})
    write_results(tmp_path, "mnist", 0, MNIST, **IMAGES)
    _, _, row, none = half_turned_table(tmp_path).split("\n")
    assert row.startswith("| half | flow | mnist | 1 | 171 | 27 | 97.50 | 95.00 | 1.0 |")
    assert none.startswith("| half_none | none | mnist | 1 | – | – | – | 95.00 |")
    assert "half" not in images_table(tmp_path)


def test_evidence_table_has_the_range_beside_the_truth(tmp_path: Path) -> None:
    config = {
        "data": {"name": "mnist", "rotated_degrees": 90.0}, "distribution": {"name": "augerino"},
        "classifier": {"name": "shallow", "activation": "cos", "point": False},
    }  # fmt: skip
    found = IMAGES | {
        "method": "augerino", "half_range_rotation": 88.0, "test_accuracy_averaged": 0.9,
        "bound": -0.45, "seconds": 60,
    }  # fmt: skip
    write_results(tmp_path, "half", 0, config, **found)
    write_results(tmp_path, "mnist", 0, MNIST, **IMAGES)
    *_, row = evidence_table(tmp_path).split("\n")
    assert row.startswith(
        "| half | mnist | random Fourier | learned | 1 | 88.0 | 90 | 90.00 | −0.450 | 1.0 |"
    )
    assert "half" not in images_table(tmp_path)


def test_few_labels_table_is_by_set_size_and_method(tmp_path: Path) -> None:
    for seed, accuracy in enumerate((0.80, 0.82)):
        found = IMAGES | {"test_accuracy": 0.5, "test_accuracy_averaged": accuracy}
        write_results(tmp_path, "few_labels_fashion_mnist_flow_1250", seed, MNIST, **found)
    none = IMAGES | {"method": "identity", "test_accuracy": 0.79}
    write_results(tmp_path, "few_labels_fashion_mnist_none_1250", 0, MNIST, **none)
    write_results(tmp_path, "few_labels_fashion_mnist_none_312", 0, MNIST, **none)
    heads, _, small, row = few_labels_table(tmp_path).split("\n")
    assert heads.startswith("| data | images | seeds | none | crop | fixed | augerino |")
    assert small == "| fashion_mnist | 312 | 1 | **79.00** | – | – | – | – | – | – | – | – |"
    assert row == (
        "| fashion_mnist | 1,250 | 2 | 79.00 (1) | – | – | – | – | – | **81.00 ± 1.41** | – | – |"
    )
    curves = accuracies(tmp_path)["fashion_mnist"]
    assert list(curves) == ["none", "flow"]
    assert curves["none"] == {312: [79.0], 1250: [79.0]}
    assert curves["flow"][1250] == pytest.approx([80.0, 82.0])
    write_results(tmp_path, "mnist", 0, MNIST, **IMAGES)
    assert "few_labels" not in images_table(tmp_path)


def test_moved_table_has_what_every_method_found(tmp_path: Path) -> None:
    for seed, turn in enumerate((170.0, 174.0)):
        found = IMAGES | {"half_range_rotation": turn, "test_accuracy_averaged": 0.85}
        write_results(tmp_path, "lila_rotated_lila_1250", seed, MNIST, **found, seconds=300)
    none = IMAGES | {"method": "identity", "test_accuracy": 0.79, "seconds": 60}
    write_results(tmp_path, "lila_rotated_none_1250", 0, MNIST, **none)
    shift = IMAGES | {"half_range_translation_x": 0.5, "test_accuracy_averaged": 0.9, "seconds": 60}
    write_results(tmp_path, "lila_translated_lila_5000", 0, MNIST, **shift)
    heads, _, turned, shifted = moved_table(tmp_path).split("\n")
    assert heads == "| images | truth | number | seeds | none | lila |"
    assert turned == (
        "| turned | 180° | 1,250 | 1-2 | –, 79.0 %, 1 min | 172 ± 3°, 85.0 ± 0.0 %, 5 ± 0 min |"
    )
    assert shifted == "| shifted | 0.571 | 5,000 | 1 | – | 0.50, 90.0 %, 1 min |"
    write_results(tmp_path, "mnist", 0, MNIST, **IMAGES)
    assert "lila" not in images_table(tmp_path)


def test_lamps_table_has_a_row_for_every_method(tmp_path: Path) -> None:
    write_results(tmp_path, "mnist", 0, MNIST, **IMAGES)
    assert METHOD_TABLES["lamps"](tmp_path) == ""
    write_results(tmp_path, "lamps_none", 0, method="identity", test_accuracy=0.4, seconds=60)
    for seed, gain in ((0, 1.4), (1, 1.6)):
        write_results(
            tmp_path, "lamps_flow", seed, method="flow", test_accuracy=0.8, seconds=120,
            test_accuracy_averaged=0.9, entropy=-1.0, half_range_warmth=math.log(gain),
            half_range_tint=0.0,
        )  # fmt: skip
    _, _, flow, none = METHOD_TABLES["lamps"](tmp_path).split("\n")
    assert flow == (
        "| flow | 2 | 90.0 ± 0.0 | 80.0 ± 0.0 | × – | × 1.50 ± 0.14 | × 1.00 ± 0.00 | 2.0 ± 0.0 |"
    )
    assert none == "| none | 1 | – | 40.0 | – | – | – | 1.0 |"
    assert "lamps" not in images_table(tmp_path)


def test_scenes_table_has_a_row_for_every_method(tmp_path: Path) -> None:
    write_results(tmp_path, "mnist", 0, MNIST, **IMAGES)
    assert METHOD_TABLES["scenes"](tmp_path) == ""
    plain = {"test_accuracy": 0.8, "test_mean_iou": 0.5, "equivariance_error": 0.1, "seconds": 60}
    write_results(tmp_path, "scenes_none", 0, method="identity", **plain)
    averaged = {"test_accuracy_averaged": 0.9, "test_mean_iou_averaged": 0.6}
    write_results(
        tmp_path, "scenes_flow", 0, method="flow", entropy=-1.0, half_range_rotation=170.0,
        equivariance_error_32=0.02, **plain, **averaged,
    )  # fmt: skip
    _, _, flow, none = METHOD_TABLES["scenes"](tmp_path).split("\n")
    assert flow == "| flow | 1 | 170 | 60.0 | 50.0 | 90.0 | 80.0 | 0.020 | 0.100 | 1.0 |"
    assert none == "| none | 1 | – | – | 50.0 | – | 80.0 | – | 0.100 | 1.0 |"
    assert "scenes" not in images_table(tmp_path)


def test_frozen_table_has_what_views_win_seed_by_seed(tmp_path: Path) -> None:
    for seed, plain in enumerate((0.60, 0.64)):  # as they are, seeds differ by more than by views
        write_results(
            tmp_path, "frozen_cifar10_flow", seed, method="flow", entropy=1.0, seconds=60,
            test_accuracy=plain, test_accuracy_averaged=plain - 0.01,
            test_accuracy_views_5=plain + 0.02, test_accuracy_views_10=plain + 0.03,
        )  # fmt: skip
    *_, row = METHOD_TABLES["frozen"](tmp_path).split("\n")
    assert row == (
        "| cifar10 flow | 2 | 62.0 ± 2.8 | 2.0 ± 0.0 | 3.0 ± 0.0 | – | −1.0 ± 0.0 | 1.0 ± 0.0 | "
        "1.0 ± 0.0 |"
    )
