"""Sweeps: every combination once, all checked before one is trained, a failure is one line."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from experiments import mario_iggy
from experiments import run as experiment
from experiments import sweep as sweeps
from experiments.running.command_line import UsageError
from experiments.running.run_folder import RunFolder
from experiments.setup import defaults
from experiments.sweep import combinations, parse_grid, sweep

ROOT = Path(__file__).parents[1]


def smoke() -> defaults.Config:
    return mario_iggy.get_config("smoke")


class Trainer:
    """Stands for `train_and_evaluate`: writes a finished folder, or fails as it is told."""

    def __init__(self) -> None:
        self.fails: Mapping[str, BaseException] = {}
        self.done: list[str] = []
        self.commands: list[str] = []

    def __call__(self, config: defaults.Config, workdir: Path, *, command: str) -> dict[str, Any]:
        name = Path(workdir).name
        self.done.append(name)
        self.commands.append(command)
        folder = RunFolder(workdir)
        folder.write_json("config.json", {"command": command, **defaults.without_places(config)})
        if name in self.fails:
            raise self.fails[name]
        results = {"method": config.distribution.name, "seed": config.seed, "test_accuracy": 0.5}
        folder.write_json("results.json", results)
        return results


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> Trainer:
    found = Trainer()
    monkeypatch.setattr(experiment, "train_and_evaluate", found)
    return found


def told(workdir: Path) -> dict[str, Any]:
    return json.loads((workdir / "sweep.json").read_text())["runs"]


# --- the grid


def test_values_have_the_type_of_their_field() -> None:
    text = (
        "seed=0, 2;controller.value=1,1e-3;train.shuffle=true,False;distribution.name=flow;"
        "classifier.hidden=(64,32),(8,);transform.half_range=(90,0.5);data.mean=(0.1,0.2),(0,);"
        "evaluation.rules=plain,(code,plain);data.classes=(0-4,7),3"
    )
    grid = parse_grid(text, smoke())
    assert grid == {
        "seed": [0, 2],
        "controller.value": [1.0, 0.001],
        "train.shuffle": [True, False],
        "distribution.name": ["flow"],
        "classifier.hidden": [(64, 32), (8,)],
        "transform.half_range": [(90.0, 0.5)],
        "data.mean": [(0.1, 0.2), (0.0,)],
        "evaluation.rules": [("plain",), ("code", "plain")],
        "data.classes": ["0-4,7", "3"],
    }
    assert [type(value) for value in grid["controller.value"]] == [float, float]
    assert [type(value) for value in grid["classifier.hidden"][0]] == [int, int]


BAD_GRIDS = {
    "": r"--grid is empty; write --grid \"seed=0,1,2;",
    " ; ": "--grid is empty",
    "sed=1": "config has no field sed; did you mean seed?",
    "distribution=flow": "no field distribution; did you mean distribution.name?",
    "zzz=1": "no field zzz; the fields are listed in experiments/setup/defaults.py",
    "seed": "--grid has no value for seed; write",
    "seed=": "--grid has no value for seed; write",
    "seed=0;seed=1": "--grid has seed twice; list all of its values in one place",
    "seed=0,1,0": "--grid has seed=0 twice; list it once",
    "controller.value=0.3,0.30": "--grid has controller.value=0.3 twice",
    "seed=x": "--grid has seed=x; allowed is a whole number: write seed=1,2",
    "seed=0,": "--grid has seed=; allowed is a whole number",
    "seed=1.5": "--grid has seed=1.5; allowed is a whole number",
    "controller.value=high": "allowed is a number: write controller.value=0.1,1e-3",
    "train.shuffle=perhaps": "allowed is true or false",
    "classifier.hidden=(64,x)": "has classifier.hidden=x; allowed is a whole number",
    "classifier.hidden=(64,32": r"parenthesis without its other half in .*; close it",
    "seed=0)": "parenthesis without its other half",
    "data.dir=here": r"says where a run happens, not what it is; .*--config.data.dir=",
}


@pytest.mark.parametrize("text", BAD_GRIDS)
def test_bad_grids_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(UsageError, match=BAD_GRIDS[text]) as caught:
        parse_grid(text, smoke())
    assert "\n" not in str(caught.value)


# --- the combinations


def test_combinations_are_the_product_and_say_their_values() -> None:
    config = smoke()
    before = config.to_dict()
    grid = parse_grid(
        "seed=0,1;distribution.name=flow,identity;data.mean=(0.1,0.2,0.3),(0,)", config
    )
    made = combinations(config, grid | {"data.std": [(1.0,)]} | {"data.mean": [(0.5,)]})
    assert [run.name for run in made] == [
        f"seed={seed},distribution.name={name},data.mean=(0.5),data.std=(1)"
        for seed in (0, 1)
        for name in ("flow", "identity")
    ]
    assert [(run.config.seed, run.config.distribution.name) for run in made] == [
        (0, "flow"), (0, "identity"), (1, "flow"), (1, "identity"),
    ]  # fmt: skip
    assert config.to_dict() == before
    assert made[1].overrides == (
        "--config.seed=0", "--config.distribution.name=identity", "--config.data.mean=(0.5,)",
        "--config.data.std=(1.0,)",
    )  # fmt: skip


BAD_COMBINATIONS = {
    "distribution.name=flow,flwo": "distribution.name=flwo: config.distribution.name is 'flwo' .*"
    "did you mean flow",
    "seed=0,-1": "seed=-1: config.seed is -1",
    "train.epochs=1,0": "train.epochs=0: config.train.epochs is 0",
    "objective.burn_in_epochs=0,2": "burn_in_epochs=2: .*leave at least one epoch",
    "num_devices=1": "says where a run happens",
    "data.mean=(0.1,0.2)": "want as many positive std as means",
    "paper=a b,a_b": "would be that of two combinations",
    f"paper={'x' * 300}": "would be that of more than 255 bytes",
}


@pytest.mark.parametrize("text", BAD_COMBINATIONS)
def test_what_cannot_run_is_refused_before_anything_is_trained(text: str) -> None:
    with pytest.raises(UsageError, match=BAD_COMBINATIONS[text]) as caught:
        combinations(smoke(), parse_grid(text, smoke()))
    assert "\n" not in str(caught.value)


def test_folder_names_stay_below_the_sweep() -> None:
    (run,) = combinations(smoke(), {"data.sprites": ["../../sprites.npz"]})
    assert run.name == "data.sprites=.._.._sprites.npz"


def test_a_field_beside_the_grid_is_not_in_it() -> None:
    for line in (["--config.seed=3"], ["--config.seed", "3"], ["--noconfig.seed"]):
        with pytest.raises(UsageError, match=r"seed is in --grid and in --.*seed.*; leave one of"):
            sweeps._refuse_overlap(line, {"seed": [0]})
    sweeps._refuse_overlap(["--config.data.seed=3"], {"seed": [0]})


# --- the sweep


@pytest.mark.slow
def test_every_run_is_trained_once_by_its_own_command(tmp_path: Path, trainer: Trainer) -> None:
    runs = combinations(smoke(), parse_grid("seed=0,1;data.mean=(0.5,)", smoke()))
    ended = sweep(runs, tmp_path, command=["python", "-m", "experiments.run", "--config=x.py"])
    assert trainer.done == ["seed=0,data.mean=(0.5)", "seed=1,data.mean=(0.5)"]
    assert trainer.commands[1] == (
        "python -m experiments.run --config=x.py --config.seed=1 '--config.data.mean=(0.5,)'"
    )
    assert ended == told(tmp_path) == dict.fromkeys(trainer.done, {"status": "finished"})


@pytest.mark.slow
def test_one_failure_is_told_and_the_rest_goes_on(
    tmp_path: Path, trainer: Trainer, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer.fails = {
        "seed=0": FloatingPointError("the loss is nan;\nlower it"),
        "seed=1": RuntimeError("out of memory"),
    }
    runs = combinations(smoke(), parse_grid("seed=0,1,2", smoke()))
    ended = sweep(runs, tmp_path)
    assert [end["status"] for end in ended.values()] == ["failed", "failed", "finished"]
    assert capsys.readouterr().err.splitlines() == [
        "failed: seed=0: the loss is nan; lower it",
        "failed: seed=1: RuntimeError: out of memory",
    ]
    assert told(tmp_path)["seed=0"] == {"status": "failed", "reason": "the loss is nan; lower it"}
    assert "Traceback" in told(tmp_path)["seed=1"]["traceback"], "nobody expected this one"


@pytest.mark.slow
def test_a_stopped_sweep_goes_on_and_skips_what_is_finished(
    tmp_path: Path, trainer: Trainer, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = combinations(smoke(), parse_grid("seed=0,1,2", smoke()))
    trainer.fails = {"seed=1": KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        sweep(runs, tmp_path)
    assert [told(tmp_path)[f"seed={i}"]["status"] for i in range(3)] == [
        "finished", "stopped", "waiting",
    ]  # fmt: skip
    trainer.fails, trainer.done = {}, []
    capsys.readouterr()
    sweep(runs, tmp_path)
    assert trainer.done == ["seed=1", "seed=2"]
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["1 of 3: seed=0", "already finished, skipped"]
    assert {end["status"] for end in told(tmp_path).values()} == {"finished"}


def test_another_config_in_a_folder_is_not_skipped_but_told(
    tmp_path: Path, trainer: Trainer
) -> None:
    sweep(combinations(smoke(), {"seed": [0]}), tmp_path)
    other = smoke()
    other.train.epochs = 1
    ended = sweep(combinations(other, {"seed": [0]}), tmp_path)
    assert ended["seed=0"]["status"] == "failed"
    assert (
        "holds a run of another config (train.epochs: 2 there, 1 here)" in ended["seed=0"]["reason"]
    )
    assert trainer.done == ["seed=0"]


def test_a_second_grid_keeps_what_is_told_of_the_first(tmp_path: Path, trainer: Trainer) -> None:
    for seed in (0, 1):
        ended = sweep(combinations(smoke(), {"seed": [seed]}), tmp_path)
        assert list(ended) == [f"seed={seed}"]
    assert set(told(tmp_path)) == {"seed=0", "seed=1"}
    (tmp_path / "sweep.json").write_text('{"runs": []}')
    with pytest.raises(ValueError, match="sweep.json is damaged; remove it, finished runs are"):
        sweep(combinations(smoke(), {"seed": [0]}), tmp_path)
    (tmp_path / "sweep.json").write_text("{")
    with pytest.raises(ValueError, match="sweep.json is damaged .*; take an empty folder"):
        sweep(combinations(smoke(), {"seed": [0]}), tmp_path)


def command(*arguments: str) -> subprocess.CompletedProcess:
    line = [sys.executable, "-m", "experiments.sweep", "--config=experiments/mario_iggy.py:smoke"]
    return subprocess.run([*line, *arguments], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.slow
def test_a_wrong_command_ends_in_one_line_and_writes_nothing(tmp_path: Path) -> None:
    for arguments, text in (
        (["--grid", "seed=0", "--config.seed=1"], "error: seed is in --grid and in --config.seed"),
        (
            ["--grid", "seed=0", "--config.sed=1"],
            "error: config has no field sed; did you mean seed",
        ),
    ):
        done = command(f"--workdir={tmp_path / 'sweep'}", *arguments)
        assert done.returncode == 2
        assert done.stderr.startswith(text)
        assert len(done.stderr.splitlines()) == 1
        assert not (tmp_path / "sweep").exists()


@pytest.mark.slow
def test_a_sweep_trains_compares_and_says_what_failed(tmp_path: Path) -> None:
    """One good run, one whose loss is not finite; the good one's command repeats it alone."""
    rates = "optimizer.classifier.learning_rate=0.001,1e30"
    done = command(f"--workdir={tmp_path}", "--grid", f"distribution.name=identity;{rates}",
                   "--config.train.epochs=1", "--config.num_devices=1")  # fmt: skip
    assert done.returncode == 1, done.stderr
    good, bad = (
        f"distribution.name=identity,optimizer.classifier.learning_rate={rate}"
        for rate in ("0.001", "1e+30")
    )
    assert f"failed: {bad}: the loss is nan" in done.stderr
    assert "1 of 2 runs finished" in done.stdout
    assert "| mario_iggy | none | 1 |" in done.stdout
    assert (tmp_path / "comparison" / "report.html").stat().st_size > 10_000
    assert told(tmp_path)[good] == {"status": "finished"}
    stored = json.loads((tmp_path / good / "config.json").read_text())
    assert stored["command"] == (
        "python -m experiments.run --config=experiments/mario_iggy.py:smoke "
        "--config.train.epochs=1 --config.distribution.name=identity "
        "--config.optimizer.classifier.learning_rate=0.001"
    )
    again = stored["command"].split()[1:]
    repeated = subprocess.run(
        [sys.executable, *again, f"--workdir={tmp_path / good}"], cwd=ROOT, capture_output=True,
        text=True,
    )  # fmt: skip
    assert "already finished" in repeated.stdout, repeated.stderr
