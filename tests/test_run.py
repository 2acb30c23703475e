"""Whole runs: command to report, resume after a kill, refusals."""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from experiments import defaults, mario_iggy
from experiments.fields import flatten
from experiments.run import train_and_evaluate
from experiments.running.command_line import portable
from experiments.running.run_folder import RunFolder
from flowjax_inv.checkpoints import Checkpoints
from flowjax_inv.data import stored
from flowjax_inv.data.sets import DataSet, Split

ROOT = Path(__file__).parents[1]


def smoke(**fields):
    config = mario_iggy.get_config("smoke")
    config.distribution.layers = 1  # compiles faster
    with config.unlocked():
        for name, value in fields.items():
            *sections, field = name.split("__")
            section = config
            for part in sections:
                section = section[part]
            section[field] = value
    return config


def command(workdir: Path, *overrides: str) -> list[str]:
    return [
        sys.executable, "-m", "experiments.run", "--config=experiments/mario_iggy.py:smoke",
        f"--workdir={workdir}", *overrides,
    ]  # fmt: skip


def run(workdir: Path, *overrides: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        command(workdir, *overrides), cwd=ROOT, capture_output=True, text=True, timeout=600
    )


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


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch):
    """A run that Ctrl-C stops at its eighth step; it is not evaluated, which takes longest."""
    append = RunFolder.append_metrics

    def until_the_eighth(self: RunFolder, line: dict) -> None:
        append(self, line)
        if line["step"] >= 8:
            raise KeyboardInterrupt

    def train(config: defaults.Config, workdir: Path) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(RunFolder, "append_metrics", until_the_eighth)
            with pytest.raises(KeyboardInterrupt):
                train_and_evaluate(config, workdir)

    return train


@pytest.mark.slow
def test_a_run_is_a_function_of_its_seed(finished: Path, tmp_path: Path, interrupted) -> None:
    interrupted(smoke(), tmp_path / "again")
    interrupted(smoke(seed=1), tmp_path / "other")
    first, again, other = (
        (folder / "metrics.jsonl").read_text().splitlines()[:2]
        for folder in (finished, tmp_path / "again", tmp_path / "other")
    )
    assert len(again) == 2
    assert again == first
    assert other != first


VARIANTS = {
    "identity": {"distribution__name": "identity"},
    "lrp": {
        "transform__name": "crop", "transform__centre": "picture",
        "distribution__name": "instaaug_lrp", "distribution__levels": (2, -1),
    },
    "instaaug": {
        "distribution__name": "instaaug", "controller__name": "patient_band",
        "objective__burn_in_epochs": 1, "objective__copies": 4, "objective__copies_per_chunk": 2,
        "evaluation__straighten_steps": 2,
    },
    "pmap": {"parallel": "pmap", "classifier__batch_norm": True, "controller__name": "band"},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", VARIANTS)
def test_every_part_trains_end_to_end(name: str, tmp_path: Path) -> None:
    results = train_and_evaluate(smoke(**VARIANTS[name]), tmp_path / name)
    assert 0 <= results["test_accuracy_averaged"] <= 1
    assert (tmp_path / name / "report.html").stat().st_size > 10_000
    if name == "lrp":  # 8 x 8 crops of a 32 x 32 picture, and the whole
        assert results["log_volume"] == pytest.approx(np.log(65))
        assert 0 <= results["entropy"] <= results["log_volume"]
        assert results["units"][0] == "half-widths"
    if name in ("identity", "lrp"):
        assert "half_range_degrees" not in results
    else:
        assert np.isfinite(results["half_range_degrees"])
    straightened = tmp_path / name / "figures" / "straightened.png"
    assert straightened.is_file() == (name == "instaaug")
    assert ("straightened_std_degrees" in results) == (name == "instaaug")


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", ["three_modes", "rotation_discovery", "no_invariance"])
def test_every_experiment_on_sprites_runs(name: str, tmp_path: Path) -> None:
    module = importlib.import_module(f"experiments.{name}")
    results = train_and_evaluate(module.get_config("smoke"), tmp_path / name)
    assert np.isfinite(results["half_range_degrees"])
    if name != "three_modes":  # where the way between modes counts
        assert results["invariance_found"] == (
            results["half_range_degrees"] > results["least_turn_degrees"]
        )
    if name == "rotation_discovery":
        assert 0 <= results["rotation_distance"] <= results["rotation_distance_90"]
        assert (tmp_path / name / "figures" / "entries.png").is_file()
    if name == "no_invariance":
        assert results["true_half_range_degrees"] == 15.0
    if name == "three_modes":
        assert 0 <= results["mode_share_error"] <= 1


SETS = {  # experiment: side, channels, classes, images per class
    "mnist": (28, 1, 10, 20),
    "cifar10": (32, 3, 10, 20),
    "cifar10_layer13": (32, 3, 10, 20),
    "selective": (28, 1, 10, 40),
    "rot_mnist": (28, 1, 10, 20),
    "olivetti": (64, 1, 40, 8),
    "tinyin": (64, 3, 200, 20),
}


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", SETS)
def test_every_experiment_runs(name: str, tmp_path: Path, monkeypatch) -> None:
    """Every `:smoke`, on noise in the shape of its set."""
    side, channels, classes, each = SETS[name]
    random = np.random.default_rng(0)

    def split(each: int) -> Split:
        labels = np.tile(np.arange(classes, dtype=np.int32), each)
        shape = (len(labels), side, side, channels)
        return Split(random.integers(0, 256, shape, dtype=np.uint8), labels)

    names = tuple(f"class {label}" for label in range(classes))
    data = DataSet(split(each), split(10), names, note="noise")
    monkeypatch.setattr(stored, "load", lambda *_, **__: data)
    config = importlib.import_module(f"experiments.{name}").get_config("smoke")
    config.data.train_size = 32  # four steps: these networks are slow here
    if name not in ("mnist", "cifar10"):  # the second rule compiles the networks once more
        config.evaluation.rules = config.evaluation.rules[:1]
    results = train_and_evaluate(config, tmp_path / name)
    if name == "olivetti":
        assert 0 <= results["test_error_degrees_averaged"] < 180
    else:
        assert 0 <= results["test_accuracy_averaged"] <= 1
    assert results["evaluation_rule"] == "plain"
    assert np.isfinite(results["entropy"])
    followed = [key for key in results if key.startswith("arc_share_class ")]
    assert len(followed) == (5 if name == "selective" else 0)
    assert "noise" in (tmp_path / name / "report.html").read_text()


@pytest.mark.parametrize(("name", "other"), [("fashion_mnist", "mnist"), ("cifar10_lt", "cifar10")])
def test_some_are_others_on_other_images(name: str, other: str) -> None:
    """So they need no run of their own above: what is compiled differs in numbers alone."""
    parts = ("classifier", "embedding", "distribution", "transform", "objective", "evaluation")
    first, second = (
        {
            field: value
            for field, value in flatten(
                importlib.import_module(f"experiments.{each}").get_config("smoke")
            )
            if field.startswith(parts) and not isinstance(value, float)
        }
        for each in (name, other)
    )
    assert first == second


def _losses(workdir: Path) -> list[float]:
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


@pytest.mark.slow
def test_a_run_goes_on_by_other_devices(tmp_path: Path, interrupted, capsys) -> None:
    """Stopped on four devices, continued on two by pmap: equal within rounding, and it says so."""
    stopped = tmp_path / "stopped"
    interrupted(smoke(num_devices=4), stopped)
    one = _losses(stopped)
    capsys.readouterr()
    interrupted(smoke(num_devices=2, parallel="pmap"), stopped)
    said = capsys.readouterr().out
    assert "of 16, on 2 devices after 4: equal, but not bit for bit" in said
    # Continued from step 5; rounding drifts apart under Adam, so only what follows soon is equal.
    np.testing.assert_allclose(_losses(stopped)[:2], one[:2], rtol=1e-3)


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


RESUME = (
    "--config.classifier.batch_norm=true", "--config.embedding.batch_norm=true",
    "--config.distribution.base=mixture", "--config.controller.name=band",
    "--config.train.epochs=6", "--config.train.log_every=1", "--config.train.checkpoint_every=20",
    "--config.distribution.layers=1", "--config.evaluation.poses=2",
)  # fmt: skip


def _steps(workdir: Path) -> list[int]:
    path = workdir / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line)["step"] for line in lines if line.endswith("\n")]


def _kill_at(workdir: Path, *, saved: int, logged: int) -> int:
    """Start a run, SIGKILL it once it has saved and logged these steps; return the last logged."""
    process = subprocess.Popen(
        command(workdir, *RESUME), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while process.poll() is None:
            whole = (workdir / "checkpoints" / str(saved)).exists()  # renamed to this at its end
            if whole and any(step >= logged for step in _steps(workdir)):
                # Stop first: while it stands still, look whether the place is the right one.
                os.kill(process.pid, signal.SIGSTOP)
                break
            time.sleep(0.002)
        assert process.poll() is None, "the run ended before it could be killed"
    finally:
        process.kill()
        process.wait()
    return max(_steps(workdir))


@pytest.mark.slow
def test_a_killed_run_continues_bit_for_bit(tmp_path: Path) -> None:
    """BatchNorm, mixture base and controller on; killed strictly between two saves."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    _kill_at(whole, saved=48, logged=48)  # its last step: the evaluation after it takes longest
    # Steps are faster than saves, which are written beside them: 20 steps give one the time.
    last = _kill_at(killed, saved=20, logged=22)
    config = json.loads((killed / "config.json").read_text())
    config.pop("command")
    with Checkpoints(killed / "checkpoints", config) as checkpoints:
        saved = checkpoints.latest_step()
    assert saved == 20
    assert saved < last < 40
    done = run(killed, *RESUME)
    assert done.returncode == 0, done.stderr
    assert "continuing at step 20 of 48" in done.stdout
    assert (killed / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    one, two = (_arrays(folder / "checkpoints" / "48") for folder in (whole, killed))
    assert one.keys() == two.keys()
    assert any("distribution" in name for name in one)
    assert any("batch_stats" in name for name in one)
    for name, value in one.items():
        np.testing.assert_array_equal(value, two[name], err_msg=name)


def _arrays(folder: Path) -> dict[str, np.ndarray]:
    """Every array of a checkpoint by its path, keys as their bits."""
    import jax
    import jax.numpy as jnp
    import orbax.checkpoint as ocp

    tree = ocp.StandardCheckpointer().restore(folder / "state")

    def plain(value):
        is_key = hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(value) if is_key else value)

    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): plain(value) for path, value in leaves}


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
    """Rotation alone, a third of the full budget, at full optimisation: within 15 degrees of 90."""
    environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    overrides = (
        "--config.transform.subgroup=rotation", "--config.train.epochs=2",
        "--config.evaluation.poses=12", "--config.data.train_size=8000",
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
