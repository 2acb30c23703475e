"""What the figures know of `evaluation.npz`: its arrays, poses on the circle, poses in words.

Runs whose poses are known, the sprites, have one set of arrays; all others have the `image_`,
`coordinate_` and `shown_` arrays, one entry per test image, coordinate or shown image.

Angles are degrees, counter-clockwise as seen is positive, 0 is upright; "left" in words means
counter-clockwise.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["Arrays", "MissingArrayError", "arcs", "offset", "plain", "require", "turned", "wrap"]

Arrays = Mapping[str, np.ndarray]

RANKS = {
    "class_names": 1,
    "pose_degrees": 2,
    "rotation_degrees": 3,
    "centres_degrees": 2,
    "images": 5,
    "views": 6,
    "straightened_degrees": 3,
    "straightened": 5,
    "view_index": 1,
    "translation": 4,
    "half_range_degrees": 2,
    "entry_names": 1,
    "entries": 4,
    "entry_distance": 3,
    "coordinate_names": 1,
    "coordinate_units": 1,
    "coordinate_half_ranges": 1,
    "image_labels": 1,
    "image_entropy": 1,
    "image_ranges": 2,
    "shown_images": 4,
    "shown_labels": 1,
    "shown_views": 5,
    "shown_boxes": 3,
    "shown_straightened": 4,
    "shown_moves": 2,
    "map_images": 4,
    "map_labels": 3,
    "map_plain": 3,
    "map_averaged": 3,
}


class MissingArrayError(ValueError):
    """A figure lacks an array of the evaluation, or the array has another rank than stated."""


def require(evaluation: Arrays, *keys: str) -> list[np.ndarray]:
    """Take arrays out of the evaluation, or say which are missing or of another rank."""
    missing = [key for key in keys if key not in evaluation]
    if missing:
        raise MissingArrayError(f"evaluation.npz has no {', '.join(missing)}")
    for key in keys:
        rank = np.ndim(evaluation[key])
        if rank != RANKS[key]:
            shape = np.shape(evaluation[key])
            raise MissingArrayError(f"{key} has shape {shape}; it should have {RANKS[key]} axes")
    return [np.asarray(evaluation[key]) for key in keys]


def arcs(evaluation: Arrays) -> tuple[np.ndarray, float] | None:
    """Take centres (C, M) and half-width of the true arcs, None where the truth is unknown."""
    if "centres_degrees" not in evaluation or "arc_half_range_degrees" not in evaluation:
        return None
    (centres,) = require(evaluation, "centres_degrees")
    return centres, float(evaluation["arc_half_range_degrees"])


def wrap(degrees: np.ndarray) -> np.ndarray:
    """Bring angles into (-180, 180]."""
    return 180.0 - np.mod(180.0 - np.asarray(degrees, dtype=float), 360.0)


def offset(poses: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Measure poses (P,) from the nearest of the centres (M,), in degrees."""
    offsets = wrap(poses[:, None] - centres[None])
    nearest = np.abs(offsets).argmin(axis=1)
    return np.take_along_axis(offsets, nearest[:, None], axis=1)[:, 0]


def turned(pose: float | np.ndarray) -> str:
    """Say a pose in words: upright, turned 60° left, upside down."""
    angle = float(wrap(np.asarray(pose)))
    if abs(angle) < 0.05:
        return "upright"
    if abs(angle) > 179.95:
        return "upside down"
    size = f"{abs(angle):.1f}".removesuffix(".0")
    return f"turned {size}° {'left' if angle > 0 else 'right'}"


def plain(text: Any) -> str:
    """Keep matplotlib from reading a name as mathematics, and long names short."""
    words = str(text)
    words = words if len(words) <= 26 else words[:25] + "…"
    return words.replace("$", r"\$")
