"""Mean-shift on figures of known pose: do turned copies of one figure end at one pose?"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from experiments.measuring.densities import Subject
from flowjax_inv import metrics
from flowjax_inv.inference import make_mean_shift
from flowjax_inv.training import Stream

__all__ = ["straighten"]


def straighten(
    subject: Subject, variables: Any, poses: dict[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Straighten the figures that `densities.by_pose` measured, and say how far apart they end.

    Nothing where classes have several arcs or sectors, whose density has no one centre, or where
    nothing turns by an angle.

    Args:
        subject: what is measured.
        variables: of the distribution.
        poses: arrays of `densities.by_pose`.

    Returns:
        Figures for results.json: straightened_std_degrees, the circular standard deviation of a
        class's final poses, median over classes, and its worst; the share that came to rest.
        Arrays for evaluation.npz: straightened_degrees (steps + 1, C, P), straightened (C, Q, H,
        W, 3), the pictures `view_index`.
    """
    section, transform = subject.section, subject.transform
    centres = poses["centres_degrees"]
    one_arc = centres.shape[1] == 1 and not subject.config.data.sectors
    if not section.straighten_steps or not one_arc or "rotation" not in transform.names:
        return {}, {}
    axis = transform.names.index("rotation")
    images = poses["images"]
    shift = make_mean_shift(
        subject.distribution,
        transform,
        steps=section.straighten_steps,
        num_samples=100,
        step_size=0.1,
        # The figures only turn. A small bias in their place adds up, step by step, until they are
        # nothing the density has seen: the spread of final poses then grows again.
        coordinates=("rotation",),
        spread="stratified",
        common_noise=True,
    )
    flat = subject.normalization(jnp.asarray(images.reshape(-1, *images.shape[2:])))
    moved = shift(variables, flat, subject.fold_key(Stream.STRAIGHTEN))
    turned = moved.trajectory[..., axis] * transform.half_range[axis]
    track = poses["pose_degrees"] + np.asarray(turned).reshape(-1, *images.shape[:2])
    spread = metrics.circular_std_degrees(jnp.asarray(track[-1]))
    seen = moved.images.reshape(images.shape)[:, poses["view_index"]]
    return {
        "straightened_std_degrees": float(jnp.median(spread)),
        "straightened_std_degrees_worst": float(jnp.max(spread)),
        "straightened_converged_share": float(jnp.mean(moved.converged)),
    }, {
        "straightened_degrees": track.astype(np.float32),
        "straightened": np.asarray(jnp.round(subject.normalization.undo(seen) * 255), np.uint8),
    }
