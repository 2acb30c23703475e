"""Runs side by side: what is written, and where; what is drawn."""

import re
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from compared_runs import contents, make_evaluation, make_run
from matplotlib.axes import Axes

from experiments.report import compare_figures, compare_page, formats
from experiments.report.__main__ import main
from experiments.report.compare import compare
from experiments.report.comparing import compare_runs
from experiments.report.evaluation import MissingArrayError

# --- what is written, and where


def test_nothing_is_written_into_the_folders_of_runs(tmp_path: Path) -> None:
    folders = [make_run(tmp_path / "runs" / f"run{i}", {"seed": i}) for i in range(2)]
    np.savez(folders[0] / "evaluation.npz", **cast(Any, make_evaluation()))
    before = contents(tmp_path / "runs")
    compare_runs(folders, tmp_path / "out")
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
    text = compare_runs(folders, tmp_path / "out").read_text()
    sources = re.findall(r'src="([^"]*)"', text)
    assert len(sources) == 4, "half-ranges, curves, and views of the two that have a density"
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    for word in ("<script", "http:", "https:", "file:", "<link", str(tmp_path)):
        assert word not in text
    assert "python -m x" in text


@pytest.mark.slow
def test_the_page_has_densities_and_arcs_side_by_side(tmp_path: Path) -> None:
    folders = []
    for method in ("flow", "augerino"):
        run = make_run(tmp_path / method, {"distribution.name": method}, arc_share_6=0.5)
        rotations = {"rotation_degrees": np.zeros((2, 3, 20))}
        np.savez(run / "evaluation.npz", **cast(Any, make_evaluation() | rotations))
        (run / "metrics.jsonl").write_text('{"step": 1, "epoch": 1, "arc_share_6": 0.5}\n')
        folders.append(run)
    text = compare_runs(folders, tmp_path / "out").read_text()
    titles = re.findall(r"<h3>(.*?)</h3>", text)
    assert titles == [
        "Does the density know where the input points?", "How the runs went",
        "How far each class may be turned, as training went on", "Where images are turned to",
        "What the classifiers get to see",
    ]  # fmt: skip
    assert text.count("<img ") == 3 + 2 * 2
    assert "Not drawn" not in text


def test_runs_without_arrays_and_metrics_still_have_their_table(tmp_path: Path) -> None:
    text = compare_runs([make_run(tmp_path / "a", metrics=False)], tmp_path / "o").read_text()
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
    compare_runs([run], out)
    first = contents(out)
    compare_runs([run, out, record], out)
    assert contents(out) == first


def test_the_command_refuses_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run")
    for out in (run, run / "figures" / "deep"):
        with pytest.raises(SystemExit) as left:
            main([str(run), "--out", str(out)])
        assert left.value.code == 2
        error = capsys.readouterr().err
        assert error.startswith("error: --out=")
        assert "lies in the run" in error
        assert len(error.splitlines()) == 1
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit) as left:
        main([str(tmp_path / "empty"), "--out", str(tmp_path / "out")])
    assert left.value.code == 2
    error = capsys.readouterr().err
    assert "none of 1 folders holds a finished run (empty: is no run folder" in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "out").exists()
    assert main([str(run), "--out", str(tmp_path / "out")]) == 0


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
