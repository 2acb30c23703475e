"""A finished run: what results.json of a good one holds, on sprites and on images; its folder."""

import json
import math
from pathlib import Path
from typing import Any, cast

import numpy as np

from experiments.report.evaluation import wrap

HALF_RANGE = 90.0

GOOD = {
    "half_range_degrees": 88.14,
    "half_range_raw_degrees": 86.4,
    "true_half_range_degrees": 90.0,
    "outside_share": 0.0213,
    "kolmogorov_distance": 0.046,
    "test_accuracy": 0.9983,
    "test_accuracy_averaged": 0.985,
    "entropy": -0.004,
    "log_volume": math.log(2),
    "entropy_floor": -1.5,
    "seconds": 251.0,
    "seed": 3,
    "steps": 6000,
    "method": "flow",
    "collapsed": False,
    "saturated": False,
    "saturated_share": 0.0012,
}
IMAGES = {
    "method": "flow",
    "test_accuracy": 0.9842,
    "test_accuracy_averaged": 0.98734,
    "evaluation_rule": "plain",
    "evaluation_average": "probs",
    "evaluation_samples": 20,
    "test_accuracy_plain_probs": 0.98734,
    "test_accuracy_code_logits": 0.9881,
    "paper": "99.2 ± 0.1 (Table 1)",
    "entropy": 1.25,
    "entropy_floor": -3.0,
    "log_volume": 6 * math.log(2),
    "saturated_share": 0.01,
    "half_range_scale": 0.2345,
    "half_range_rotation": 24.56,
    "half_range_translation_x": 0.1,
}


def make_evaluation(*, samples: int = 240, translation: bool = False) -> dict[str, np.ndarray]:
    """Two classes, five poses each; the resulting poses fill the true arc evenly: no randomness."""
    centres = np.array([[0.0], [180.0]])
    offsets = np.array([-80.0, -40.0, 0.0, 40.0, 80.0])
    poses = np.stack([wrap(centre[0] + offsets) for centre in centres])
    ends = HALF_RANGE * (2 * (np.arange(samples) + 0.5) / samples - 1)
    rotations = wrap(centres[:, :, None] + ends - poses[:, :, None])
    images = np.arange(2 * 5 * 6 * 8 * 3, dtype=np.uint32).reshape(2, 5, 6, 8, 3).astype(np.uint8)
    evaluation = {
        "class_names": np.array(["sprite, up", "sprite, down"]),
        "pose_degrees": poses,
        "rotation_degrees": rotations,
        "centres_degrees": centres,
        "arc_half_range_degrees": np.array(HALF_RANGE),
        "images": images,
        "view_index": np.array([1, 3]),
        "views": np.full((2, 2, 3, 6, 8, 3), 77, np.uint8),
        "half_range_degrees": np.array([[80.0, 85.0, 90.0, 85.0, 80.0]] * 2),
    }
    if translation:
        evaluation["translation"] = np.full((2, 5, samples, 2), 0.2)
    return evaluation


def make_metrics(count: int = 80) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for i in range(count):
        line = {"step": 10 * i, "epoch": i / 10, "loss": 1.0, "cross_entropy": 1.1, "entropy": 0.4}
        line |= {"alpha": 0.25, "train_accuracy": 0.9, "saturated_share": 0.001, "new_key": "x"}
        lines.append(line | ({"test_accuracy": 0.95} if i % 20 == 0 else {}))
    return lines


def write_run(
    folder: Path,
    *,
    evaluation: dict[str, np.ndarray] | None = None,
    results: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
) -> Path:
    folder.mkdir(parents=True)
    config = {"training": {"lr": 1e-3}, "command": "python -m x"} if config is None else config
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "environment.json").write_text(json.dumps({"jax": "0.10.2", "dirty": False}))
    lines = [json.dumps(line) for line in make_metrics()]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "results.json").write_text(json.dumps(GOOD if results is None else results))
    if evaluation is not None:
        np.savez(folder / "evaluation.npz", **cast(Any, evaluation))
    return folder
