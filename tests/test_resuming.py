"""A run that was stopped goes on: bit for bit, or on other devices within rounding."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from smoke_runs import ROOT, command, smoke, train_until_the_eighth

from flowjax_inv.training.checkpoints import Checkpoints

RESUME = (
    "--config.classifier.batch_norm=true", "--config.embedding.batch_norm=true",
    "--config.distribution.base=mixture", "--config.distribution.layers=1",
    "--config.controller.name=gap",
    "--config.controller.every_steps=3", "--config.data.train_size=72",
    "--config.train.batch_size=8", "--config.train.epochs=6",
    "--config.train.log_every=1", "--config.train.checkpoint_every=20",
    "--config.evaluation.poses=2", "--config.num_devices=1",
)  # fmt: skip


def _steps(workdir: Path) -> list[int]:
    path = workdir / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line)["step"] for line in lines if line.endswith("\n")]


def _kill_at(workdir: Path, *, saved: int, logged: int) -> int:
    """Start a run, SIGKILL it once it has saved and logged these steps; return the last logged.

    What it says is in the file beside its folder.
    """
    with workdir.with_suffix(".txt").open("w") as said:
        process = subprocess.Popen(
            command(workdir, *RESUME), cwd=ROOT, stdout=said, stderr=said,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
    try:
        while process.poll() is None:
            whole = (workdir / "checkpoints" / str(saved)).exists()  # renamed to this at its end
            if whole and any(step >= logged for step in _steps(workdir)):
                # Stop first: while it stands still, look whether the place is the right one.
                os.kill(process.pid, signal.SIGSTOP)
                break
            time.sleep(0.002)
        assert process.poll() is None, workdir.with_suffix(".txt").read_text()
    finally:
        process.kill()
        process.wait()
    return max(_steps(workdir))


@pytest.mark.slow
def test_a_killed_run_continues_bit_for_bit(tmp_path: Path) -> None:
    """BatchNorm, mixture base and controller on; killed strictly between two saves."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    end = {"saved": 48, "logged": 48}  # the last step: the evaluation after it takes longest
    _kill_at(whole, **end)
    # Steps are faster than saves, which are written beside them: 20 steps give one the time.
    last = _kill_at(killed, saved=20, logged=22)
    config = json.loads((killed / "config.json").read_text())
    config.pop("command")
    with Checkpoints(killed / "checkpoints", config) as checkpoints:
        saved = checkpoints.latest_step()
    assert saved == 20
    assert saved < last < 40
    _kill_at(killed, **end)
    assert "continuing at step 20 of 48" in killed.with_suffix(".txt").read_text()
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


def _losses(workdir: Path) -> list[float]:
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


@pytest.mark.devices(4)
@pytest.mark.slow
def test_a_run_goes_on_by_other_devices(tmp_path: Path, monkeypatch, capsys) -> None:
    """Stopped on four devices, continued on two by pmap: equal within rounding, and it says so."""
    stopped = tmp_path / "stopped"
    train_until_the_eighth(smoke(num_devices=4), stopped, monkeypatch)
    one = _losses(stopped)
    capsys.readouterr()
    train_until_the_eighth(smoke(num_devices=2, parallel="pmap"), stopped, monkeypatch)
    said = capsys.readouterr().out
    assert "of 16, on 2 devices after 4: equal, but not bit for bit" in said
    # Continued from step 5; rounding drifts apart under Adam, so only what follows soon is equal.
    np.testing.assert_allclose(_losses(stopped)[:2], one[:2], rtol=1e-3)
