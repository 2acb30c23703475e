"""Runs side by side: what belongs together, what is counted, and what is said of the rest."""

import itertools
import json
import math
import random
import re
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from compared_runs import make_run, shape

from experiments.report.compare import compare
from experiments.report.compare_table import (
    cells,
    figures_behind,
    heads,
    legend,
    markdown,
    matrix,
)
from experiments.report.comparing import compare_runs

# --- what belongs together


def test_seeds_share_a_row_and_methods_an_experiment(tmp_path: Path) -> None:
    folders = [
        make_run(tmp_path / f"{method}{seed}", {"seed": seed, "distribution.name": method})
        for method in ("flow", "identity", "augerino")
        for seed in (1, 0)
    ]
    assert shape(folders) == {
        "mario_iggy": {
            "none": ["identity0", "identity1"],
            "augerino": ["augerino0", "augerino1"],
            "flow": ["flow0", "flow1"],
        }
    }


@pytest.mark.parametrize(
    "field",
    ["distribution.regularizer", "controller.value", "objective.copies", "embedding.width",
     "optimizer.distribution.rate"],
)  # fmt: skip
def test_a_field_of_the_method_makes_a_row_named_by_it(tmp_path: Path, field: str) -> None:
    folders = [make_run(tmp_path / f"run{i}", {field: value}) for i, value in enumerate((2, 1))]
    assert shape(folders) == {
        "mario_iggy": {f"flow, {field}=1": ["run1"], f"flow, {field}=2": ["run0"]}
    }


@pytest.mark.parametrize(
    "field",
    ["data.half_range_degrees", "train.epochs", "classifier.width", "optimizer.classifier.rate",
     "evaluation.num_samples"],
)  # fmt: skip
def test_any_other_field_makes_an_experiment_named_by_it(tmp_path: Path, field: str) -> None:
    folders = [make_run(tmp_path / f"run{i}", {field: value}) for i, value in enumerate((45, 9.5))]
    assert shape(folders) == {
        f"mario_iggy, {field}=9.5": {"flow": ["run1"]},
        f"mario_iggy, {field}=45": {"flow": ["run0"]},
    }


@pytest.mark.parametrize("field", ["command", "paper", "transform.warp", "train.log_every"])
def test_words_and_means_do_not_tell_runs_apart(tmp_path: Path, field: str) -> None:
    folders = [
        make_run(tmp_path / f"run{seed}", {"seed": seed, field: f"other {seed}"}) for seed in (0, 1)
    ]
    assert shape(folders) == {"mario_iggy": {"flow": ["run0", "run1"]}}


def test_other_data_and_unofficial_contents_are_other_experiments(tmp_path: Path) -> None:
    folders = [
        make_run(tmp_path / "m"),
        make_run(tmp_path / "c", {"data.name": "cifar10", "train.epochs": 3}),
        make_run(tmp_path / "d", {"data.name": "cifar10", "train.epochs": 3}, data_note="a copy"),
    ]
    found = compare(folders)
    assert [e.name for e in found.experiments] == [
        "cifar10, data_note=a copy", "cifar10, data_note=not there", "mario_iggy",
    ]  # fmt: skip
    assert found.experiments[0].note == "a copy"


def test_a_field_that_an_earlier_version_lacks_has_its_default(tmp_path: Path) -> None:
    new = {"data": {"turn": 0.0, "mean": (0.0, 0.5)}, "distribution": {"bonus": "paper"}}
    folders = [
        make_run(tmp_path / "old"),
        make_run(tmp_path / "new", {"seed": 1, "data.turn": 0, "data.mean": [0.0, 0.5],
                                    "distribution.bonus": "paper"}),
    ]  # fmt: skip
    assert shape(folders, defaults=new) == {"mario_iggy": {"flow": ["old", "new"]}}
    assert len(shape(folders)) == 2


def test_rows_of_one_name_are_alike_in_all_experiments(tmp_path: Path) -> None:
    """Where two alphas were tried, the third experiment says which of them it has."""
    tried = [(45, 0.1), (45, 0.3), (90, 0.3)]
    folders = [
        make_run(tmp_path / f"run{i}", {"data.half_range_degrees": r, "controller.value": alpha})
        for i, (r, alpha) in enumerate(tried)
    ]
    names, lines = matrix(compare(folders))
    assert names == [f"mario_iggy, data.half_range_degrees={r}" for r in (45, 90)]
    assert lines == [
        ["flow, controller.value=0.1", "99.00 (98.00)", "–"],
        ["flow, controller.value=0.3", "99.00 (98.00)", "99.00 (98.00)"],
    ]


def test_many_differences_are_cut_in_the_name_and_whole_in_the_fields(tmp_path: Path) -> None:
    fields = [f"data.f{i}" for i in range(6)]
    folders = [make_run(tmp_path / f"run{v}", dict.fromkeys(fields, v)) for v in (1, 2)]
    first = compare(folders).experiments[0]
    assert first.name == (
        "mario_iggy, data.f0=1, data.f1=1, data.f2=1, data.f3=1, and 2 more fields"
    )
    assert first.fields == dict.fromkeys(fields, 1)
    # Where four do not tell them apart, the name goes on until it does.
    last = [make_run(tmp_path / f"x{v}", dict.fromkeys(fields, 1) | {"data.f5": v}) for v in (3, 4)]
    names = [e.name for e in compare(folders + last).experiments]
    assert len(set(names)) == 4


def test_the_order_of_the_folders_does_not_matter(tmp_path: Path) -> None:
    folders = [
        make_run(tmp_path / f"run{i}", {"seed": i % 3, "distribution.name": method}, seconds=i + 1)
        for i, method in enumerate(("flow", "flow", "identity", "flow", "augerino", "flow"))
    ]
    (tmp_path / "empty").mkdir()
    folders.append(tmp_path / "empty")
    expected = markdown(compare(folders))
    for seed in range(5):
        random.Random(seed).shuffle(folders)
        assert markdown(compare([*folders, folders[0]])) == expected


# --- what the figures are


def test_cells_are_mean_and_sample_deviation(tmp_path: Path) -> None:
    accuracies, seconds = [0.9, 0.95, 0.97], [60.0, 90.0, 150.0]
    folders = [
        make_run(tmp_path / f"run{i}", {"seed": i}, test_accuracy=a, seconds=s)
        for i, (a, s) in enumerate(zip(accuracies, seconds, strict=True))
    ]
    found = compare(folders)
    (row,) = found.experiments[0].rows
    written = dict(zip(heads(found.experiments), cells(row, heads(found.experiments)), strict=True))

    def spread(values: list[float], digits: int) -> str:
        return f"{np.mean(values):.{digits}f} ± {np.std(values, ddof=1):.{digits}f}"

    assert written["plain accuracy (%)"] == spread([100 * a for a in accuracies], 2)
    assert written["minutes"] == spread([s / 60 for s in seconds], 1)
    assert written["true (°)"] == "90.0"
    assert (written["seeds"], written["views"]) == ("3", "20")
    behind = figures_behind(found)["experiments"][0]["rows"][0]
    assert behind["seeds"] == [0, 1, 2]
    assert behind["figures"]["test_accuracy"]["values"] == accuracies
    assert behind["figures"]["test_accuracy"]["mean"] == pytest.approx(np.mean(accuracies))
    deviation = behind["figures"]["test_accuracy"]["deviation"]
    assert deviation == pytest.approx(np.std(accuracies, ddof=1))


def test_one_seed_has_no_spread_and_a_missing_figure_is_a_dash(tmp_path: Path) -> None:
    found = compare([make_run(tmp_path / "run", kolmogorov_distance=None)])
    text = markdown(found)
    assert "±" not in text.splitlines()[2]
    assert cells(found.experiments[0].rows[0], ["Kolmogorov"]) == ["–"]


def test_without_a_density_nothing_is_averaged(tmp_path: Path) -> None:
    found = compare([make_run(tmp_path / "run", {"distribution.name": "identity"})])
    (row,) = found.experiments[0].rows
    assert row.name == "none"
    assert cells(row, ["averaged accuracy (%)", "plain accuracy (%)"]) == ["–", "98.00"]
    assert "Method none: no density" in markdown(found)


def test_poses_have_columns_only_where_they_are_known(tmp_path: Path) -> None:
    none = dict.fromkeys(("true_half_range_degrees", "half_range_degrees", "outside_share"))
    images = make_run(tmp_path / "c", {"data.name": "cifar10"}, **none)
    assert "Kolmogorov" not in markdown(compare([images]))
    assert "Kolmogorov" in markdown(compare([images, make_run(tmp_path / "m")]))


def test_a_regression_has_errors_in_the_matrix(tmp_path: Path) -> None:
    errors: dict[str, Any] = {"test_error_degrees": 2.0, "test_error_degrees_averaged": 1.5}
    none: dict[str, Any] = dict.fromkeys(("test_accuracy", "test_accuracy_averaged"))
    folders = [
        make_run(tmp_path / "faces", {"data.name": "olivetti"}, **none, **errors),
        make_run(tmp_path / "control", {"data.name": "olivetti", "distribution.name": "identity"},
                 **none, **errors),
        make_run(tmp_path / "figures"),
        make_run(tmp_path / "unlabelled", {"data.name": "z"}, **none),
    ]  # fmt: skip
    assert matrix(compare(folders)) == (
        ["mario_iggy", "olivetti", "z"],
        [["flow", "99.00 (98.00)", "1.50° (2.00°)", "–"], ["none", "–", "(2.00°)", "–"]],
    )


def test_modes_and_arcs_have_columns_only_where_a_run_has_them(tmp_path: Path) -> None:
    modes: dict[str, Any] = {
        "mode_share_error": 0.0123, "mode_share_error_worst": 0.1, "outside_share_worst": 0.2,
        "valley_ratio": 0.002, "valley_ratio_worst": 0.5,
    }  # fmt: skip
    arcs: list[dict[str, Any]] = [{"arc_share_6": six, "arc_share_9": 0.25} for six in (0.5, 0.6)]
    plain = make_run(tmp_path / "plain")
    three = make_run(tmp_path / "three", {"data.modes": 3}, **modes)
    turned = [make_run(tmp_path / f"t{i}", {"data.name": "mnist", "seed": i}, **arc)
              for i, arc in enumerate(arcs)]  # fmt: skip
    bare = heads(compare([plain]).experiments)
    assert not {"arcs", "valley : peak"} & set(bare)
    found = compare([plain, three, *turned])
    shown = heads(found.experiments)
    by_name = {e.name: dict(zip(shown, cells(e.rows[0], shown), strict=True))
               for e in found.experiments}  # fmt: skip
    of_modes = by_name["mario_iggy, data.modes=3"]
    assert [of_modes[head] for head in shown if "mass" in head or "worst" in head] == [
        "0.012", "0.100", "20.0", "0.500",
    ]  # fmt: skip
    assert (of_modes["valley : peak"], of_modes["arcs"]) == ("0.002", "–")
    assert by_name["mnist"]["arcs"] == "6: 0.55 ± 0.07; 9: 0.25 ± 0.00"
    assert "| 6: 0.55 ± 0.07; 9: 0.25 ± 0.00 |" in markdown(found)
    behind = figures_behind(found)["experiments"]
    assert behind[2]["rows"][0]["figures"]["arc_share_6"]["values"] == [0.5, 0.6]
    assert behind[0]["rows"][0]["figures"]["valley_ratio"]["values"] == [0.002]


def test_the_legend_says_what_is_a_median_of_what_is_shown(tmp_path: Path) -> None:
    more: dict[str, Any] = dict.fromkeys(
        ("wasserstein_degrees", "other_class_share", "covered_share"), 0.5
    )
    words = legend(compare([make_run(tmp_path / "run", rotation_distance=0.1, **more)]))
    medians = "half-range; outside; other class; reached; Kolmogorov; Wasserstein"
    assert f"Medians over test images: {medians}. Median over samples: rotation distance." in words
    assert "Means over test images: entropy." in words


def test_a_seed_is_counted_once(tmp_path: Path) -> None:
    """The run that has more to show stays; the other is named."""
    bare = make_run(tmp_path / "a", metrics=False)
    whole = make_run(tmp_path / "b")
    for folders in ([bare, whole], [whole, bare]):
        found = compare(folders)
        assert [member.name for member in found.members] == ["b"]
        assert found.left_out == [
            ("a", "repeats b: same experiment, method and seed; counted once")
        ]


# --- what is wrong is said, the rest goes on


def _unfinished(folder: Path) -> None:
    (folder / "results.json").unlink()


def _not_finite(folder: Path) -> None:
    (folder / "results.json").unlink()
    (folder / "metrics.jsonl").write_text('{"step": 3, "loss": null}\n')


BROKEN = {
    "empty": (lambda f: [p.unlink() for p in f.iterdir()], "is no run folder, it has no config"),
    "unfinished": (_unfinished, "unfinished at step 8, it has no results.json; the same command"),
    "not finite": (_not_finite, "unfinished at step 3.*Not finite: loss from step 3 on"),
    "config": (lambda f: (f / "config.json").write_text("{"), "bad/config.json is not JSON"),
    "results": (lambda f: (f / "results.json").write_text("[1]"), "results.json holds a list"),
    "metrics": (lambda f: (f / "metrics.jsonl").write_text("{]\n"), "line 1 is not JSON"),
    "binary": (lambda f: (f / "results.json").write_bytes(b"\xff\xfe"), "is not JSON"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_folder_that_cannot_be_counted_is_named_with_its_reason(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = make_run(tmp_path / "good"), make_run(tmp_path / "bad", {"seed": 1})
    damage, text = BROKEN[case]
    cast(Any, damage)(bad)
    page = compare_runs([good, bad], tmp_path / "out")
    ((name, reason),) = compare([good, bad]).left_out
    assert name == "bad"
    assert re.search(text, reason)
    assert "\n" not in reason
    assert str(tmp_path) not in reason
    assert reason in capsys.readouterr().out
    written = page.read_text()
    assert "Left out (1)" in written
    assert (tmp_path / "out" / "table.md").read_text().count("| mario_iggy | flow | 1 |") == 1


def test_files_and_folders_of_runs_are_no_runs(tmp_path: Path) -> None:
    make_run(tmp_path / "sweep" / "one")
    (tmp_path / "log.txt").write_text("")
    left = dict(compare([tmp_path / "sweep", tmp_path / "log.txt", tmp_path / "gone"]).left_out)
    assert left == {
        "gone": "is no folder; give folders of runs",
        "log.txt": "is no folder; give folders of runs",
        "sweep": "is no run folder, but its folders are: give them",
    }


def test_names_are_as_long_as_they_must_be(tmp_path: Path) -> None:
    folders = [make_run(tmp_path / a / b, {"seed": i})
               for i, (a, b) in enumerate(itertools.product("xy", "01"))]  # fmt: skip
    folders.append(make_run(tmp_path / "z" / "alone", {"seed": 9}))
    assert {m.name for m in compare(folders).members} == {"x/0", "x/1", "y/0", "y/1", "alone"}


@pytest.mark.parametrize(
    ("change", "word"),
    [({"entropy": -4.0}, "collapse"), ({"saturated": True}, "saturation"),
     ({"outside_share": 0.5}, "runaway"), ({"outside_share": math.nan}, "not finite")],
)  # fmt: skip
def test_alarms_are_counted_and_shown(
    change: dict[str, Any], word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [make_run(tmp_path / "good"), make_run(tmp_path / "bad", {"seed": 1}, **change)]
    page = compare_runs(folders, tmp_path / "out")
    said = capsys.readouterr().out
    assert f"| {word} in 1 of 2 |" in said
    assert f"- bad: {word.capitalize()}" in said
    assert "Alarm in bad, counted all the same." in page.read_text()
    json.loads((tmp_path / "out" / "comparison.json").read_text(), parse_constant=pytest.fail)
