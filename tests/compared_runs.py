"""Folders of finished runs, written by hand, to be compared."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np

from experiments.report.compare import compare

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
