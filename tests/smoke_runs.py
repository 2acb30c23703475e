"""The smallest run, on sprites: its config, its command, and one that is interrupted."""

import subprocess
import sys
from pathlib import Path

import pytest

from experiments import mario_iggy
from experiments.run import train_and_evaluate
from experiments.running.run_folder import RunFolder
from experiments.setup import defaults

ROOT = Path(__file__).parents[1]


def smoke(**fields):
    config = mario_iggy.get_config("smoke")
    config.num_devices = 1  # a program for four compiles and runs more slowly
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


def train_until_the_eighth(
    config: defaults.Config, workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Train until Ctrl-C at the eighth step, before the evaluation, which takes longest."""
    append = RunFolder.append_metrics

    def until_the_eighth(self: RunFolder, line: dict) -> None:
        append(self, line)
        if line["step"] >= 8:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "append_metrics", until_the_eighth)
        with pytest.raises(KeyboardInterrupt):
            train_and_evaluate(config, workdir)
