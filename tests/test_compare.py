"""Runs side by side: what belongs together, what is counted, and what is said of the rest."""

import copy
import itertools
import json
import math
import random
import re
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from matplotlib.axes import Axes

from experiments import report
from flowjax_inv.report import compare_figures, compare_page, formats
from flowjax_inv.report.compare import compare
from flowjax_inv.report.compare_table import (
    cells,
    figures_behind,
    heads,
    legend,
    markdown,
    matrix,
)
from flowjax_inv.report.evaluation import MissingArrayError

CONFIG: dict[str, Any] = {
    "command": "python -m x",
    "seed": 0,
    "paper": "",
    "data": {"name": "mario_iggy", "half_range_degrees": 90.0},
    "transform": {"warp": "auto"},
    "distribution": {"name": "flow", "regularizer": "paper"},
    "controller": {"value": 0.3},
    "optimizer": {"classifier": {"rate": 0.1}, "distribution": {"rate": 0.1}},
}
RESULTS: dict[str, Any] = {
    "method": "flow",
    "test_accuracy": 0.98,
    "test_accuracy_averaged": 0.99,
    "true_half_range_degrees": 90.0,
    "half_range_degrees": 88.0,
    "outside_share": 0.01,
    "kolmogorov_distance": 0.05,
    "entropy": 0.5,
    "entropy_floor": -3.0,
    "evaluation_samples": 20,
    "evaluation_rule": "plain",
    "evaluation_average": "probs",
    "seconds": 60.0,
}


def make_run(
    folder: Path, changes: dict[str, Any] | None = None, *, metrics: bool = True, **results: Any
) -> Path:
    """Write the folder of a finished run; `changes` are config fields by their dotted names."""
    folder.mkdir(parents=True)
    config = copy.deepcopy(CONFIG)
    for field, value in (changes or {}).items():
        *sections, name = field.split(".")
        section = config
        for part in sections:
            section = section.setdefault(part, {})
        section[name] = value
    found = RESULTS | {"method": config["distribution"]["name"], "seed": config["seed"]} | results
    if found["method"] == "identity":
        found = {k: v for k, v in found.items() if "half" not in k and k != "entropy"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "results.json").write_text(json.dumps(found))
    if metrics:
        lines = [{"step": i, "epoch": i / 4, "loss": 1.0, "entropy": 0.2, "alpha": 0.3,
                  "train_accuracy": 0.5} for i in range(1, 9)]  # fmt: skip
        (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return folder


def make_evaluation(half_range: float = 80.0) -> dict[str, np.ndarray]:
    return {
        "class_names": np.array(["up", "down"]),
        "pose_degrees": np.array([[-60.0, 0.0, 60.0], [120.0, 180.0, -120.0]]),
        "half_range_degrees": np.full((2, 3), half_range),
        "centres_degrees": np.array([[0.0], [180.0]]),
        "arc_half_range_degrees": np.array(90.0),
        "images": np.zeros((2, 3, 6, 6, 3), np.uint8),
        "view_index": np.array([1]),
        "views": np.full((2, 1, 3, 6, 6, 3), 77, np.uint8),
    }


def shape(folders: list[Path], **options: Any) -> dict[str, dict[str, list[str]]]:
    """Return experiments, their rows, and the runs of each: what belongs together."""
    found = compare(folders, **options)
    return {
        e.name: {row.name: [m.name for m in row.members] for row in e.rows}
        for e in found.experiments
    }


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


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
    page = report.compare_runs([good, bad], tmp_path / "out")
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
    page = report.compare_runs(folders, tmp_path / "out")
    said = capsys.readouterr().out
    assert f"| {word} in 1 of 2 |" in said
    assert f"- bad: {word.capitalize()}" in said
    assert "Alarm in bad, counted all the same." in page.read_text()
    json.loads((tmp_path / "out" / "comparison.json").read_text(), parse_constant=pytest.fail)


# --- what is written, and where


def test_nothing_is_written_into_the_folders_of_runs(tmp_path: Path) -> None:
    folders = [make_run(tmp_path / "runs" / f"run{i}", {"seed": i}) for i in range(2)]
    np.savez(folders[0] / "evaluation.npz", **cast(Any, make_evaluation()))
    before = contents(tmp_path / "runs")
    report.compare_runs(folders, tmp_path / "out")
    assert contents(tmp_path / "runs") == before
    assert set(contents(tmp_path / "out")) == {"report.html", "table.md", "comparison.json"}


def test_the_page_needs_nothing_but_itself(tmp_path: Path) -> None:
    folders = [
        make_run(tmp_path / "runs" / "flow"),
        make_run(tmp_path / "runs" / "other", {"distribution.name": "<script>alert(1)</script>$x"}),
        make_run(tmp_path / "runs" / "none", {"distribution.name": "identity"}),
    ]
    for folder in folders[:2]:
        np.savez(folder / "evaluation.npz", **cast(Any, make_evaluation()))
    text = report.compare_runs(folders, tmp_path / "out").read_text()
    sources = re.findall(r'src="([^"]*)"', text)
    assert len(sources) == 4, "half-ranges, curves, and views of the two that have a density"
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    for word in ("<script", "http:", "https:", "file:", "<link", str(tmp_path)):
        assert word not in text
    assert "python -m x" in text


def test_the_page_has_densities_and_arcs_side_by_side(tmp_path: Path) -> None:
    folders = []
    for method in ("flow", "augerino"):
        run = make_run(tmp_path / method, {"distribution.name": method}, arc_share_6=0.5)
        rotations = {"rotation_degrees": np.zeros((2, 3, 20))}
        np.savez(run / "evaluation.npz", **cast(Any, make_evaluation() | rotations))
        (run / "metrics.jsonl").write_text('{"step": 1, "epoch": 1, "arc_share_6": 0.5}\n')
        folders.append(run)
    text = report.compare_runs(folders, tmp_path / "out").read_text()
    titles = re.findall(r"<h3>(.*?)</h3>", text)
    assert titles == [
        "Does the density know where the input points?", "How the runs went",
        "How far each class may be turned, as training went on", "Where images are turned to",
        "What the classifiers get to see",
    ]  # fmt: skip
    assert text.count("<img ") == 3 + 2 * 2
    assert "Not drawn" not in text


def test_runs_without_arrays_and_metrics_still_have_their_table(tmp_path: Path) -> None:
    text = report.compare_runs(
        [make_run(tmp_path / "a", metrics=False)], tmp_path / "o"
    ).read_text()
    assert "Not drawn: no run here kept its metrics.jsonl." in text
    assert "Not drawn: no run here kept an evaluation.npz." in text
    assert "99.00" in text


def test_the_same_runs_make_the_same_files(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    for out in ("one", "two"):
        compare_page.write_comparison(compare([run]), tmp_path / out)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_comparisons_and_records_of_sweeps_may_be_among_the_runs(tmp_path: Path) -> None:
    run, out, record = make_run(tmp_path / "run"), tmp_path / "comparison", tmp_path / "sweep.json"
    record.write_text("{}")
    report.compare_runs([run], out)
    first = contents(out)
    report.compare_runs([run, out, record], out)
    assert contents(out) == first


def test_the_command_refuses_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run")
    for out in (run, run / "figures" / "deep"):
        with pytest.raises(SystemExit) as left:
            report.main([str(run), "--out", str(out)])
        assert left.value.code == 2
        error = capsys.readouterr().err
        assert error.startswith("error: --out=")
        assert "lies in the run" in error
        assert len(error.splitlines()) == 1
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit) as left:
        report.main([str(tmp_path / "empty"), "--out", str(tmp_path / "out")])
    assert left.value.code == 2
    error = capsys.readouterr().err
    assert "none of 1 folders holds a finished run (empty: is no run folder" in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "out").exists()
    assert report.main([str(run), "--out", str(tmp_path / "out")]) == 0


# --- figures


def test_half_ranges_have_a_panel_per_method_on_the_same_axes() -> None:
    methods = {"flow": [make_evaluation(80.0)] * 2, "wide": [make_evaluation(150.0)], "none": []}
    figure = compare_figures.half_ranges_of_methods(methods)
    flow, wide, none = cast("list[Axes]", figure.axes)
    assert [panel.get_title() for panel in (flow, wide, none)] == ["flow", "wide", "none"]
    assert flow.get_ylim() == wide.get_ylim() == none.get_ylim()
    assert flow.get_ylim()[0] == 0
    assert flow.get_ylim()[1] > 150
    lines = [line for line in flow.lines if len(np.asarray(line.get_xdata())) == 3]
    assert len(lines) == 4, "two classes of two seeds"
    for line in lines:
        np.testing.assert_allclose(np.asarray(line.get_xdata()), [-60, 0, 60])
        np.testing.assert_allclose(np.asarray(line.get_ydata()), 80)
    assert [text.get_text() for text in none.texts] == ["no poses measured"]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels.count("truth: 90.0°") == 1


def test_curves_have_two_panels_per_method_and_a_line_per_seed() -> None:
    metrics = [{"epoch": i, "entropy": -i, "alpha": 1, "train_accuracy": 0.5} for i in range(5)]
    metrics[-1]["test_accuracy"] = 0.8
    run = ({"method": "flow", "log_volume": 2.0, "entropy_floor": -6.0}, metrics)
    methods = {"none": [({"method": "identity"}, metrics)], "flow": [run, run], "bare": [({}, [])]}
    figure = compare_figures.curves_of_methods(methods)
    none, flow, bare, *accuracies = cast("list[Axes]", figure.axes)
    assert [text.get_text() for text in none.texts] == ["no density"]
    assert [text.get_text() for text in bare.texts] == ["metrics not kept"]
    curves = [line for line in flow.lines if line.get_label() == "entropy"]
    assert len(curves) == 2
    np.testing.assert_allclose(np.asarray(curves[0].get_ydata()), [0, -1, -2, -3, -4])
    assert flow.get_ylim()[0] < -6 < 2 < flow.get_ylim()[1]
    assert len({panel.get_ylim() for panel in accuracies}) == 1
    assert accuracies[1].lines[1].get_ydata() == [80]


def test_arcs_have_a_panel_per_method_and_a_line_per_class_and_seed() -> None:
    metrics = [{"epoch": i, "arc_share_6": 0.5, "arc_share_9": 0.1 * i} for i in range(3)]
    methods = {"flow": [({}, metrics)] * 2, "none": [({}, [{"epoch": 1}])]}
    figure = compare_figures.arc_shares_of_methods(methods)
    flow, none = cast("list[Axes]", figure.axes)
    drawn = [line for line in flow.lines if str(line.get_label()) in ("6", "9")]
    assert len(drawn) == 4
    np.testing.assert_allclose(np.asarray(drawn[1].get_ydata()), [0.0, 0.1, 0.2])
    assert flow.get_ylim() == none.get_ylim()
    assert [text.get_text() for text in none.texts] == ["no arcs logged"]
    with pytest.raises(MissingArrayError, match="no run here logged arcs"):
        compare_figures.arc_shares_of_methods({"none": methods["none"]})


def test_settings_are_written_shortly() -> None:
    written = [
        formats.setting("f", value) for value in (90.0, 0.1, 1 / 3, 3, True, "a", "", (1, 2.5))
    ]
    assert written == [
        "f=90", "f=0.1", "f=0.3333333333333333", "f=3", "f=True", "f=a", "f=''", "f=(1,2.5)",
    ]  # fmt: skip
