"""A run and its folder: what it leaves, what it refuses, what it learns."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from smoke_runs import ROOT, run, smoke, train_until_the_eighth

from experiments.measuring.measures import Measures
from experiments.run import train_and_evaluate
from experiments.running.command_line import portable
from experiments.setup import defaults


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    workdir = tmp_path_factory.mktemp("runs") / "one"
    train_and_evaluate(smoke(), workdir, command="python -m experiments.run --config=X")
    return workdir


@pytest.mark.slow
def test_a_run_leaves_its_folder(finished: Path) -> None:
    present = {path.name for path in finished.iterdir()}
    assert present == {
        "config.json", "environment.json", "metrics.jsonl", "results.json", "evaluation.npz",
        "report.html", "figures", "checkpoints",
    }  # fmt: skip
    results = json.loads((finished / "results.json").read_text())
    for name in ("half_range_degrees", "half_range_raw_degrees", "outside_share",
                 "kolmogorov_distance", "test_accuracy", "test_accuracy_averaged", "seconds",
                 "seed", "entropy", "collapsed", "saturated", "class_names", "image_shape",
                 "evaluation_rule"):  # fmt: skip
        assert name in results
    lines = [json.loads(x) for x in (finished / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [4, 8, 12, 16]
    assert "test_accuracy" in lines[1]
    assert "test_accuracy" not in lines[0]
    figures = {path.name for path in (finished / "figures").iterdir()}
    assert {"density.png", "curves.png", "views.png", "half_range.png"} <= figures


@pytest.mark.slow
def test_nothing_in_the_folder_names_the_machine(finished: Path) -> None:
    for name in ("config.json", "environment.json", "metrics.jsonl", "results.json"):
        text = (finished / name).read_text()
        assert str(finished) not in text
        assert str(Path.home()) not in text
        assert str(ROOT) not in text


@pytest.mark.slow
def test_a_finished_run_says_so_and_is_left_alone(finished: Path, capsys) -> None:
    before = (finished / "results.json").read_text()
    train_and_evaluate(smoke(), finished)
    assert "already finished" in capsys.readouterr().out
    assert (finished / "results.json").read_text() == before


@pytest.mark.slow
def test_another_config_is_refused_and_named(finished: Path) -> None:
    with pytest.raises(ValueError, match=r"seed: 0 there, 5 here\); take that config or an empty"):
        train_and_evaluate(smoke(seed=5), finished)


@pytest.mark.slow
def test_a_run_is_a_function_of_its_seed(finished: Path, tmp_path: Path, monkeypatch) -> None:
    train_until_the_eighth(smoke(), tmp_path / "again", monkeypatch)
    train_until_the_eighth(smoke(seed=1), tmp_path / "other", monkeypatch)
    first, again, other = (
        (folder / "metrics.jsonl").read_text().splitlines()[:2]
        for folder in (finished, tmp_path / "again", tmp_path / "other")
    )
    assert len(again) == 2
    assert again == first
    assert other != first


# What only the modules know of each other, of the images, or of the evaluation at the end.
REFUSED = [
    ({"distribution__name": "fixed", "distribution__box_low": (0.5,),
      "distribution__box_high": (0.5,)}, "want -1 <= low < high <= 1"),
    ({"distribution__name": "augerino", "distribution__start_half_range": (1.0,)},
     "start_half_range=.*below 1"),
    ({"classifier__batch_norm": True, "objective__copies": 4, "objective__copies_per_chunk": 2},
     "copies_per_chunk is 2 and SimpleConv has batch norm"),
    ({"evaluation__rules": ("code",), "evaluation__num_samples": 400},
     "num_samples is 400 with the rule code"),
    ({"distribution__base": "mixture", "distribution__gumbel": "score",
      "objective__average": "logits"}, 'average is "logits"; Flow has no gradient'),
    ({"data__mean": (0.1, 0.2), "data__std": (1.0, 1.0)}, "for images of 3 channels; give one"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("fields", "text"), REFUSED, ids=[text[:20] for _, text in REFUSED])
def test_what_is_refused_leaves_an_empty_folder(fields: dict, text: str, tmp_path: Path) -> None:
    """So that the same command, mended, finds nothing of another config there."""
    with pytest.raises(ValueError, match=text) as caught:
        train_and_evaluate(smoke(**fields), tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "run").glob("*"))


@pytest.mark.slow
def test_a_loss_that_is_not_finite_stops_the_run_and_says_where(tmp_path: Path) -> None:
    config = smoke(optimizer__classifier__learning_rate=1e30)
    with pytest.raises(FloatingPointError, match="steps before step .*lower a learning rate"):
        train_and_evaluate(config, tmp_path / "nan")


@pytest.mark.slow
def test_results_that_are_not_finite_are_named(finished: Path, tmp_path: Path, monkeypatch) -> None:
    """As after a last update that diverged: the losses before it say nothing."""
    broken = tmp_path / "run"
    shutil.copytree(finished, broken)
    (broken / "results.json").unlink()
    monkeypatch.setattr(Measures, "of_run", lambda *_: ({"entropy": float("nan")}, {}))
    with pytest.raises(FloatingPointError, match=r"entropy of the finished run are not finite; lo"):
        train_and_evaluate(smoke(), broken)
    assert not (broken / "results.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (["--config.train.epochs=0"], "error: config.train.epochs is 0"),
        (["--config.data.sprites=absent.npz"], "error: sprites file absent.npz cannot be read"),
        (["--config.train.epohcs=3"], "error: config has no field train.epohcs; did you mean"),
        (["extra"], "error: unexpected argument extra"),
        (["--config.train.epochs=1.5"], "config.train.epochs"),
    ],
)
def test_wrong_commands_end_in_one_line(overrides, text, tmp_path: Path) -> None:
    done = run(tmp_path / "x", *overrides)
    assert done.returncode != 0
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "x" / "results.json").exists()


def test_a_stored_command_names_no_place() -> None:
    line = ["--config=a.py", "--workdir", "a place", "--config.seed=1", "--config.data.dir=d",
            "--config.num_devices", "2", "--workdir=y"]  # fmt: skip
    assert portable(line) == ["--config=a.py", "--config.seed=1"]


@pytest.mark.slow
def test_missing_config_lists_the_available_ones() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "experiments.run"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: --config is missing; available: experiments/cifar10.py")


@pytest.mark.slow
def test_sprites_are_learned_to_their_true_range(tmp_path: Path) -> None:
    """Rotation alone, a quarter of the budget, at full optimisation: within 15 degrees of 90."""
    environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    overrides = (
        "--config.transform.subgroup=rotation", "--config.train.epochs=2",
        "--config.data.train_size=6000", "--config.data.test_size=200",
        "--config.evaluation.poses=4", "--config.evaluation.straighten_steps=0",
        "--config.evaluation.num_samples=3",
    )  # fmt: skip
    line = [sys.executable, "-m", "experiments.run", "--config=experiments/mario_iggy.py",
            f"--workdir={tmp_path / 'short'}", *overrides]  # fmt: skip
    done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "short" / "results.json").read_text())
    assert results["half_range_degrees"] == pytest.approx(90, abs=15)
    assert results["outside_share"] < 0.1
    assert results["test_accuracy"] > 0.97


def test_defaults_are_the_papers() -> None:
    """What a reader of the paper would look for first."""
    config = defaults.get_config()
    assert config.distribution.layers == 12
    assert config.distribution.width == 64
    assert config.distribution.base == "mixture"
    assert config.data.half_range_degrees == 90
    assert (config.data.train_size, config.data.test_size) == (12_000, 600)
