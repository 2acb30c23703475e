"""The folder of a run: config, environment, metrics and results as files that survive a kill."""

import importlib.metadata
import json
import math
import os
import platform
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

from flowjax_inv.training.checkpoints import config_differences

__all__ = ["RunFolder", "environment"]

_PACKAGES = ("jax", "jaxlib", "flax", "optax", "distrax", "orbax-checkpoint", "numpy")


def _write(path: Path, data: bytes) -> None:
    """Write beside the place and rename: the file is whole or not there."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


class RunFolder:
    """Files of one run.

    Args:
        path: the folder; made if absent.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        self.metrics_path = self.path / "metrics.jsonl"
        self.checkpoints_path = self.path / "checkpoints"

    def read_json(self, name: str) -> dict[str, Any] | None:
        """Return the object in a JSON file of the folder, None if there is no such file."""
        path = self.path / name
        if not path.exists():
            return None
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is damaged ({error}); take an empty folder.") from error

    def results_of(self, config: dict[str, Any]) -> dict[str, Any] | None:
        """Return the results of a finished run of this config, None if it is not finished.

        Args:
            config: nested dict of plain values, without command and places.

        Raises:
            ValueError: if the folder holds a run of another config, or a file is damaged.
        """
        stored = self.read_json("config.json")
        if stored is None:
            return None
        differences = config_differences(
            {name: value for name, value in stored.items() if name != "command"}, config
        )
        if differences:
            raise ValueError(
                f"{self.path} holds a run of another config ({'; '.join(differences)}); take that "
                "config or an empty folder."
            )
        return self.read_json("results.json")

    def write_json(self, name: str, content: dict[str, Any]) -> None:
        """Write an object, whole or not at all."""
        text = json.dumps(content, indent=2, sort_keys=True, allow_nan=False) + "\n"
        _write(self.path / name, text.encode())

    def write_arrays(self, name: str, arrays: dict[str, np.ndarray]) -> None:
        """Write a compressed .npz, whole or not at all."""
        with tempfile.TemporaryFile() as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
            file.seek(0)
            _write(self.path / name, file.read())

    def append_metrics(self, line: dict[str, Any]) -> None:
        """Add one line to metrics.jsonl and see it to the disk."""
        finite = {k: v if math.isfinite(v) else None for k, v in line.items()}
        with self.metrics_path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(finite) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def metrics(self) -> list[dict[str, Any]]:
        """Return the lines of metrics.jsonl; none if there is no such file."""
        if not self.metrics_path.exists():
            return []
        text = self.metrics_path.read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]

    def cut_metrics(self, step: int) -> None:
        """Drop the lines after `step`, and a line that was cut short: they will be made again."""
        if not self.metrics_path.exists():
            return
        kept = []
        for line in self.metrics_path.read_text(encoding="utf-8").splitlines(keepends=True):
            try:
                whole = line.endswith("\n") and json.loads(line)["step"] <= step
            except (ValueError, KeyError):
                whole = False
            if whole:
                kept.append(line)
        _write(self.metrics_path, "".join(kept).encode())


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def environment() -> dict[str, Any]:
    """Return what a run ran on: versions, devices, threads, commit; no path of the machine."""
    status = _git("status", "--porcelain")
    return {
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in _PACKAGES},
        "system": platform.system(),
        "machine": platform.machine(),
        "backend": jax.default_backend(),
        "device": jax.devices()[0].device_kind,
        "devices": jax.device_count(),
        "processors": os.cpu_count(),
        "usable_processors": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "git_commit": _git("rev-parse", "HEAD"),
        "git_dirty": None if status is None else bool(status),
    }
