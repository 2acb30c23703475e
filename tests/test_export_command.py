"""The command that exports a run."""

import json
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from smoke_runs import smoke

from experiments.export import export_run, main
from experiments.measuring import evaluate
from experiments.run import train_and_evaluate
from flowjax_inv import export


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, undrawn: None) -> Path:
    config = smoke(evaluation__rules=("code", "plain"), evaluation__average="logits")
    workdir = tmp_path_factory.mktemp("runs") / "tiny"
    train_and_evaluate(config, workdir, command="python -m experiments.run --config=X")
    return workdir


@pytest.mark.slow
def test_a_run_becomes_a_predictor(run: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    def absent(*arguments: Any, **fields: Any) -> None:
        raise AssertionError("the data set is not needed")

    monkeypatch.setattr("experiments.setup.data_sets.data_set", absent)
    out = tmp_path / "out"
    assert main([f"--workdir={run}", f"--out={out}", "--num_samples=3"]) == 0
    said = capsys.readouterr().out
    assert f"exported to {out}" in said
    assert f"python experiments/run_exported.py {out} IMAGES.npy" in said
    program = export.load(out)
    results = json.loads((run / "results.json").read_text())
    assert program.card["class_names"] == results["class_names"]
    assert program.card["average"] == {"over": "logits", "num_samples": 3} | evaluate.RULES["code"]
    assert (
        sum(w.size for n, w in program.weights.items() if n.startswith("classifier.params"))
        == (results["parameters_classifier"])
    )
    images = np.zeros((2, *results["image_shape"]), np.uint8)
    probabilities = program(images, jax.random.key(0))["probabilities"]
    np.testing.assert_allclose(np.sum(probabilities, -1), 1, atol=1e-5)
    for path in out.iterdir():
        assert str(run).encode() not in path.read_bytes()
    straight = tmp_path / "aligner"
    assert main([f"--workdir={run}", f"--out={straight}", "--num_samples=5", "--aligner"]) == 0
    assert export.load(straight).card["outputs"].keys() == {"theta", "images", "converged"}
    capsys.readouterr()
    assert main([f"--workdir={run}", f"--out={out}"]) == 2
    assert capsys.readouterr().err == (
        f"error: {out} is there already; name a new folder, or remove that one.\n"
    )


def edited(run: Path, tmp_path: Path, name: str, **fields: Any) -> Path:
    """A run folder without checkpoints, its files changed; a field that is None is dropped."""
    target = tmp_path / "run"
    target.mkdir()
    for file in ("config.json", "results.json"):
        content = json.loads((run / file).read_text())
        if file == name:
            content = {k: v for k, v in (content | fields).items() if v is not None}
        (target / file).write_text(json.dumps(content))
    return target


@pytest.mark.slow
def test_runs_that_cannot_be_exported_say_why(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(ValueError, match="absent has no config.json; give the folder of a finish"):
        export_run(tmp_path / "absent", out)
    assert not (tmp_path / "absent").exists()
    for number, (name, fields, text) in enumerate(
        [
            ("results.json", {"class_names": None}, "no results.json with class_names; let the ru"),
            ("results.json", {"image_shape": None}, "has no results.json with image_shape"),
            (
                "config.json",
                {"sed": 1},
                'not of this version .*"sed" does not exist.*; take the ver',
            ),
            ("config.json", {"seed": "x"}, "not of this version .*field 'seed'"),
            (
                "config.json",
                {"objective": {"loss": "squared_error"}},
                "does not end in one probability per class; export a run with",
            ),
            (
                "config.json",
                {"objective": {"maps": True}},
                "does not end in one probability per class; .*, maps=False and",
            ),
            (
                "config.json",
                {"classifier": {"name": "outside", "function": "a:b"}},
                r"before a classifier of your own \(a:b\), which is not exported; .*--aligner",
            ),
            ("config.json", {}, "has no checkpoints, so no weights"),
        ]
    ):
        (tmp_path / str(number)).mkdir()
        workdir = edited(run, tmp_path / str(number), name, **fields)
        with pytest.raises((ValueError, FileNotFoundError), match=text) as caught:
            export_run(workdir, out)
        assert "\n" not in str(caught.value)
    assert not out.exists()


def test_help_and_missing_arguments(capsys) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--workdir=x"])
    assert left.value.code == 2
    assert re.search("error: .*--out", capsys.readouterr().err)
