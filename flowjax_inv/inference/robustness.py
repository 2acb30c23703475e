"""How predictions fare when images are turned: a sweep of angles, and the C8 average."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from flowjax_inv import metrics

__all__ = ["C8", "Sweep", "c8_average", "judged", "rotation_sweep"]

C8 = tuple(float(45 * turn) for turn in range(-4, 4))  # degrees, the rotations by an eighth


class Sweep(NamedTuple):
    """What `rotation_sweep` returns, (A,) each.

    Attributes:
        degrees: by which images were turned.
        accuracy: in [0, 1].
        negative_log_likelihood: nats.
        calibration_error: in [0, 1].
    """

    degrees: np.ndarray
    accuracy: np.ndarray
    negative_log_likelihood: np.ndarray
    calibration_error: np.ndarray


def rotation_sweep(
    predict: Callable[[Any], Any],
    turn: Callable[[Any, float], Any],
    images: Any,
    labels: Any,
    degrees: Sequence[float] = C8,
) -> Sweep:
    """Judge predictions of images turned by one angle after the other.

    Args:
        predict: images -> probabilities (N, classes).
        turn: images, degrees (counter-clockwise) -> images. Better with another interpolation than
            training used: what a density learned of blur then does not help it.
        images: (N, H, W, C), whatever `turn` takes.
        labels: (N,).
        degrees: (A,) angles.

    Raises:
        ValueError: if there are not as many labels as images.
    """
    seen = [np.asarray(predict(turn(images, angle))) for angle in degrees]
    return judged(np.stack(seen), labels, degrees)


def judged(probabilities: Any, labels: Any, degrees: Sequence[float]) -> Sweep:
    """Judge predictions (A, N, classes) of images turned by A angles, labels (N,)."""
    probabilities, labels = jnp.asarray(probabilities), jnp.asarray(labels)
    if len(labels) != probabilities.shape[1]:
        raise ValueError(
            f"{len(labels)} labels for {probabilities.shape[1]} images; want one for each."
        )
    scores = (metrics.accuracy, metrics.negative_log_likelihood, metrics.calibration_error)
    found = [np.asarray(score(probabilities, labels)) for score in scores]
    return Sweep(np.asarray(degrees, np.float32), *found)


def c8_average(sweep: Sweep) -> float:
    """Mean accuracy over the eight multiples of 45 degrees.

    Raises:
        ValueError: if one of them was not swept.
    """
    swept = sweep.degrees % 360.0
    index = [np.flatnonzero(np.abs(swept - angle % 360.0) < 1e-3)[:1] for angle in C8]
    if any(len(found) == 0 for found in index):
        raise ValueError(
            f"swept were {', '.join(f'{d:g}' for d in sweep.degrees)} degrees; the C8 average "
            "wants every multiple of 45."
        )
    return float(np.mean(sweep.accuracy[np.concatenate(index)]))
