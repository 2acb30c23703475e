"""Runs as they are kept in docs/results, written for the tables."""

import json
from pathlib import Path
from typing import Any

MNIST = {"data": {"name": "mnist"}, "train": {"epochs": 4}}


def write_results(
    root: Path, name: str, seed: int, config: dict[str, Any] | None = None, /, **results: Any
) -> None:
    folder = root / name / str(seed)
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(json.dumps(results))
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
