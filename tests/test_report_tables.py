"""The tables of the documents, and what publishing refuses."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from finished_run import GOOD, IMAGES
from kept_runs import MNIST, write_results

from experiments import publish
from experiments.report import image_tables, papers, sprite_tables
from experiments.report.compare import compare
from experiments.report.headline import headline_table
from experiments.report.page import write_report
from experiments.running.command_line import UsageError
from experiments.setup import build

PAGE = "docs/results.md"


def test_results_table_has_mean_and_deviation(tmp_path: Path) -> None:
    for seed, half_range, share in ((0, 86.0, 0.01), (1, 88.0, 0.02), (2, 90.0, 0.03)):
        write_results(
            tmp_path, "flow", seed, half_range_degrees=half_range, true_half_range_degrees=90.0,
            outside_share=share, test_accuracy=1.0, seconds=120.0,
        )  # fmt: skip
    write_results(
        tmp_path, "augerino|x", 0, true_half_range_degrees=45, test_accuracy=0.975,
        kolmogorov_distance=0.1234,
    )  # fmt: skip
    header, rule, augerino, flow = sprite_tables.results_table(tmp_path).split("\n")
    assert header == (
        "| run | seeds | half-range (°) | true (°) | reached (%) | outside (%) | other class (%) | "
        "Kolmogorov | Wasserstein (°) | test accuracy (%) | averaged accuracy (%) | minutes | "
        "command |"
    )
    assert rule.count("|") == header.count("|")
    # Deviations with n - 1: of 86, 88, 90 it is 2; of 1, 2, 3 it is 1.
    assert flow == (
        "| flow | 3 | 88.0 ± 2.0 | 90.0 | – | 2.0 ± 1.0 | – | – | – | 100.0 ± 0.0 | – | "
        "2.0 ± 0.0 | – |"
    )
    assert augerino == "| augerino\\|x | 1 | – | 45.0 | – | – | – | 0.123 | – | 97.5 | – | – | – |"


def test_results_table_says_how_many_seeds_have_a_figure(tmp_path: Path) -> None:
    write_results(tmp_path, "flow", 0, test_accuracy=0.9, outside_share=math.nan)
    write_results(tmp_path, "flow", 1, true_half_range_degrees=90.0)
    line = sprite_tables.results_table(tmp_path).split("\n")[2]
    assert line == (
        "| flow | 2 | – | 90.0 (1 of 2) | – | not finite | – | – | – | 90.0 (1 of 2) | – | – | – |"
    )


def test_a_run_that_was_continued_has_no_minutes(tmp_path: Path) -> None:
    facts = {"true_half_range_degrees": 90.0, "seconds": 120.0}
    write_results(tmp_path, "flow", 0, resumed_at_step=0, **facts)
    write_results(tmp_path, "flow", 1, resumed_at_step=7, **facts)
    assert "| 2.0 (1 of 2) |" in sprite_tables.results_table(tmp_path)


def test_results_table_refuses_nothing_and_nonsense(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no NAME/SEED/results\.json; copy"):
        sprite_tables.results_table(tmp_path)
    write_results(tmp_path, "flow", 0)
    (tmp_path / "flow" / "0" / "results.json").write_text("{")
    with pytest.raises(ValueError, match=r"results\.json is not JSON"):
        sprite_tables.results_table(tmp_path)


def test_sprites_have_three_tables(tmp_path: Path) -> None:
    command = "python -m experiments.run --config=experiments/rotation_discovery.py"
    for name, alpha, half in (("flow", 0.1, 40.0), ("flow_alpha0.01", 0.01, 20.0)):
        for seed, distance in ((0, 0.25), (1, 0.75)):
            config = {
                "controller": {"value": alpha}, "transform": {"entries": "bd"},
                "command": f"{command} --config.controller.value={alpha} --config.seed={seed}",
            }  # fmt: skip
            write_results(
                tmp_path, name, seed, config, true_half_range_degrees=45.0,
                half_range_degrees=half, rotation_distance=distance,
            )  # fmt: skip
    write_results(tmp_path, "plain", 0, true_half_range_degrees=90.0)
    write_results(tmp_path, "three", 0, true_half_range_degrees=30.0, valley_ratio=0.125)
    assert _rows(sprite_tables.results_table(tmp_path)) == ["plain"]
    assert _rows(sprite_tables.modes_table(tmp_path)) == ["three"]
    table = sprite_tables.discovery_table(tmp_path)
    assert _rows(table) == ["flow_alpha0.01", "flow"]  # alphas of a curve are in order
    assert f"| 2 | 20.0 ± 0.0 | 0.500 ± 0.354 | – | – | – | – | – | `{command} " in table
    assert sprite_tables.rotation_distances(tmp_path) == {
        "2 free entries": {"flow": [(20.0, 0.5), (40.0, 0.5)]}
    }


def _rows(table: str) -> list[str]:
    return [line.split(" |")[0].removeprefix("| ") for line in table.split("\n")[2:]]


RUN = "python -m experiments.run --config=experiments/mnist.py:cpu"


def test_images_table_has_rule_note_and_command(tmp_path: Path) -> None:
    for seed, accuracy in ((0, 0.98), (1, 0.99)):
        config = MNIST | {"seed": seed, "command": f"{RUN} --config.seed={seed} --workdir r{seed}"}
        averaged = {"test_accuracy_averaged": accuracy, "seconds": 90.0}
        write_results(tmp_path, "mnist", seed, config, **IMAGES | averaged)
        none = {"method": "identity", "entropy": None, "paper": "", "seconds": 60.0}
        config["command"] = f"{RUN} --config.seed {seed} --config.distribution.name=identity"
        write_results(tmp_path, "x_control", seed, config, **IMAGES | none)
    note = {"data_note": "re-encoded as JPEG: not the official CIFAR-10"}
    write_results(tmp_path, "cifar", 0, {"data": {"name": "cifar10"}}, **IMAGES | note)
    write_results(tmp_path, "sprites", 0, true_half_range_degrees=90.0)
    header, rule, cifar, control, mnist, _, below = image_tables.images_table(tmp_path).split("\n")
    assert header == (
        "| run | method | data | seeds | paper (%) | averaged accuracy (%) | "
        "plain accuracy (%) | entropy (nats) | rotation (°) | minutes | command |"
    )
    assert rule.count("|") == header.count("|")
    assert cifar == (
        "| cifar | flow | cifar10 [1] | 1 | "
        "99.2 ± 0.1 (Table 1) | 98.73 (plain, probabilities) | 98.42 | 1.25 | 24.56 | – | – |"
    )
    assert control == (
        "| x_control | none | mnist | 2 | – | – | 98.42 ± 0.00 | – | – | 1.0 ± 0.0 | "
        f"`{RUN} --config.distribution.name=identity` |"
    )
    assert mnist == (
        "| mnist | flow | mnist | 2 | 99.2 ± 0.1 (Table 1) | "
        "98.50 ± 0.71 (plain, probabilities) | 98.42 ± 0.00 | 1.25 ± 0.00 | 24.56 ± 0.00 | "
        "1.5 ± 0.0 | "
        f"`{RUN}` |"
    )
    assert below == "[1] re-encoded as JPEG: not the official CIFAR-10."
    assert [
        line.split(" |")[0] for line in sprite_tables.results_table(tmp_path).split("\n")[2:]
    ] == ["| sprites"]


def test_a_table_without_runs_is_empty(tmp_path: Path) -> None:
    write_results(tmp_path / "images", "mnist", 0, MNIST, **IMAGES)
    assert sprite_tables.results_table(tmp_path / "images") == ""
    write_results(tmp_path / "sprites", "flow", 0, true_half_range_degrees=90.0)
    assert image_tables.images_table(tmp_path / "sprites") == ""


@pytest.mark.parametrize(
    ("config", "results", "word"),
    [
        ({"train": {"epochs": 8}}, {}, "train.epochs"),
        ({}, {"evaluation_rule": "code"}, "results: evaluation_rule"),
    ],
)
def test_images_table_refuses_a_mean_over_different_experiments(
    tmp_path: Path, config: dict[str, Any], results: dict[str, Any], word: str
) -> None:
    write_results(tmp_path, "mnist", 0, MNIST | {"seed": 0}, **IMAGES)
    write_results(tmp_path, "mnist", 1, MNIST | {"seed": 1} | config, **IMAGES | results)
    with pytest.raises(ValueError, match=f"the runs of mnist differ in {word}; publish runs that"):
        image_tables.images_table(tmp_path)


def test_a_field_that_came_between_two_seeds_is_no_difference(tmp_path: Path) -> None:
    """By the same command it has its default; by another it may be what sets them apart."""
    older, younger = MNIST | {"command": RUN}, MNIST | {"classifier": {"dtype": "float32"}}
    for root, field in (("same", ""), ("other", " --config.classifier.dtype=float32")):
        write_results(tmp_path / root, "mnist", 0, older | {"seed": 0}, **IMAGES)
        second = younger | {"seed": 1, "command": f"{RUN} --config.seed=1{field}"}
        write_results(tmp_path / root, "mnist", 1, second, **IMAGES)
    assert "| mnist | flow | mnist | 2 |" in image_tables.images_table(tmp_path / "same")
    with pytest.raises(ValueError, match=r"differ in classifier\.dtype"):
        image_tables.images_table(tmp_path / "other")


def test_publish_writes_both_tables_and_asks_for_their_markers(tmp_path: Path) -> None:
    for seed in (0, 1):
        for name, results in (("mnist", IMAGES), ("sprites", GOOD)):
            config = MNIST | {"seed": seed}
            write_results(tmp_path / "runs", name, seed, config, **results | {"seed": seed})
            (tmp_path / "runs" / name / str(seed) / "environment.json").write_text("{}")
    results = tmp_path / "results"
    publish.publish("sprites", [tmp_path / "runs/sprites/0", tmp_path / "runs/sprites/1"], results)
    places = "<!-- results:begin -->\n<!-- results:end -->\n"
    alone = publish.with_tables(places, PAGE, results)
    assert "| sprites | 2 |" in alone
    publish.publish("mnist", [tmp_path / "runs/mnist/0", tmp_path / "runs/mnist/1"], results)
    with pytest.raises(ValueError, match="0 '<!-- images:begin -->'"):
        publish.with_tables(places, PAGE, results)
    both = publish.with_tables(
        places + "<!-- images:begin -->\nold\n<!-- images:end -->\n", PAGE, results
    )
    assert both.startswith(alone)
    assert "| mnist | flow | mnist | 2 |" in both
    assert "old" not in both


def test_publish_refuses_what_would_be_lost(tmp_path: Path) -> None:
    for folder, seed in (("a", 0), ("b", 0), ("c", 1)):
        write_results(tmp_path / "runs", "x", seed, {}, **GOOD | {"seed": seed})
        (tmp_path / "runs" / "x" / str(seed)).rename(tmp_path / folder)
        (tmp_path / folder / "environment.json").write_text("{}")
    results = tmp_path / "results"
    runs = [tmp_path / name for name in "abc"]
    for name, given, text in (
        ("x", runs, "a and .*b have both seed 0; give one run per seed"),
        ("../x", runs[1:], "is no name of a row"),
        ("x", [], "no runs to publish"),
        ("x", [tmp_path], "has no config.json; give the folder of a finished run"),
    ):
        with pytest.raises(UsageError, match=text):
            publish.publish(name, given, results)
    assert not results.exists()
    (tmp_path / "a" / "card.json").write_text("{}")
    publish.publish("x", [runs[0]], results)
    assert (results / "x" / "0" / "card.json").is_file()
    publish.publish("x", [runs[1]], results)  # of which no card was made
    assert not (results / "x" / "0" / "card.json").exists()
    (tmp_path / "c" / "results.json").write_text("{}")
    with pytest.raises(UsageError, match="c/results.json names no seed"):
        publish.publish("x", [runs[2]], results)


def test_table_goes_between_its_markers() -> None:
    text = "a\n<!-- results:begin -->\nold\n<!-- results:end -->\nb\n"
    once = image_tables.replace_between_markers(text, "| new |\n", "results")
    assert once == "a\n<!-- results:begin -->\n| new |\n<!-- results:end -->\nb\n"
    assert image_tables.replace_between_markers(once, "| new |", "results") == once


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
        image_tables.replace_between_markers(text, "table", "results")


def test_turned_and_aligned_tables(tmp_path: Path) -> None:
    assert image_tables.turned_table(tmp_path) == image_tables.aligned_table(tmp_path) == ""
    way = {"upright_accuracy": 0.7, "c8_accuracy": 0.35, "divergence": [1.0, None, 2.0]}
    gate = {
        "upright_accuracy": 0.69,
        "c8_accuracy": 0.5,
        "clean_change": 0.01,
        "max_clean_loss": 0.02,
    }
    deviations = {"deviation_turned": 0.2, "deviation_aligned": 0.1}
    rows = [{"class": "0", "spread_after_degrees": 8.0} | deviations]
    place = tmp_path / "poses" / "0"
    place.mkdir(parents=True)
    found = {
        "ways": {"plain": way, "averaged": way},
        "gates": {"averaged": gate},
        "turn_degrees": 10.0,
        "class_sizes": [30, 20, 20],
    }
    (place / "robustness.json").write_text(json.dumps(found))
    for name, alike in (("mnist", False), ("x", True)):
        aligned = {"classes": rows, "alike": alike, "degrees": 45.0}
        (place / f"alignment_{name}.json").write_text(json.dumps(aligned))
        by = "45°" if alike else "±45°"
        expected = [f"| poses | 1 | {by} | deviation per pixel | 0.200 → 0.100 |"]
        if not alike:  # what is left of one and the same turn says nothing
            expected.insert(0, f"| poses | 1 | {by} | turns left (°) | 8.0 |")
        assert image_tables.aligned_table(tmp_path).split("\n")[2:] == expected
        (place / f"alignment_{name}.json").unlink()
    plain, averaged = image_tables.turned_table(tmp_path).split("\n")[2:]
    assert plain == "| poses | 1 | plain | 70.0 | 35.0 | – | – | – | – | ±10° | 1.500 | – |"
    gated = "69.0 | 50.0 | 1.0 | 2.0"
    assert averaged == f"| poses | 1 | averaged | 70.0 | 35.0 | {gated} | ±10° | 1.500 | – |"
    # The smallest third of a long tail: here the last class.
    (place / "robustness.json").write_text(json.dumps(found | {"class_sizes": [30, 20, 10]}))
    assert image_tables.turned_table(tmp_path).endswith("| ±10° | 1.500 | 2.000 |")


@pytest.mark.parametrize(
    ("method", "figure"),
    [("flow", "65.4 (flow, Table 1)"), ("fixed", "64.5 (random crop, Table 1)"),
     ("identity", "55.1 (baseline, Table 1)"), ("gaussian", "")],
)  # fmt: skip
def test_a_method_has_its_own_figure_of_the_paper(method: str, figure: str, tmp_path: Path) -> None:
    """Also where the run was left without one, if its config is that of the paper's table."""
    config = {"data": {"name": "tiny_imagenet"}, "transform": {"name": "crop"}}
    shown = f"| tiny_imagenet | 1 | {figure or '–'} |"
    for name, paper in (("stated", "65.4 (flow, Table 1)"), ("empty", "")):
        write_results(
            tmp_path / name, "x", 0, config, **IMAGES | {"method": method, "paper": paper}
        )
        assert shown in image_tables.images_table(tmp_path / name)
        (tmp_path / name / "x" / "0" / "metrics.jsonl").write_text("")
        page = write_report(tmp_path / name / "x" / "0").read_text()
        assert [text for text in re.findall(r"paper \(%\): ([^<]*)<", page)] == [figure] * bool(
            figure
        )
        (member,) = compare([tmp_path / name / "x" / "0"]).members
        assert member.results["paper"] == figure
    config["transform"]["name"] = "affine"
    write_results(tmp_path / "other", "x", 0, config, **IMAGES | {"method": method, "paper": ""})
    assert "| tiny_imagenet | 1 | – |" in image_tables.images_table(tmp_path / "other")


def test_a_figure_of_a_paper_stands_in_one_table() -> None:
    found = [getattr(papers, name) for name in papers.__all__ if name.isupper()]
    texts = [text for figures in found for text in figures.values()]
    assert len(set(texts)) == len(texts)
    for figures in found:
        assert set(figures) <= set(build.DISTRIBUTIONS)
        for method, figure in figures.items():
            for stated in figures.values():
                assert papers.paper_figure({"method": method, "paper": stated}, {}) == figure


def test_headline_has_a_line_for_what_was_run(tmp_path: Path) -> None:
    write_results(tmp_path, "other", 0, test_accuracy=1.0)
    assert headline_table(tmp_path) == ""
    for seed, found in enumerate((89.0, 91.0)):
        write_results(tmp_path, "mario_iggy", seed, half_range_degrees=found)
    _, _, row = headline_table(tmp_path).split("\n")
    assert row.endswith("half-range found | 90.0 ± 1.4° | 90° | 2 |")
