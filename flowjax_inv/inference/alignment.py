"""Aligning a set of images to one pose by mean-shift, and how well that went."""

from collections.abc import Callable
from typing import Any, NamedTuple

import distrax
import jax
import jax.numpy as jnp
import numpy as np

from flowjax_inv.inference import mean_shift
from flowjax_inv.inference.averaging import check_images
from flowjax_inv.metrics import wrap_degrees
from flowjax_inv.transforms import Transform

__all__ = ["Alignment", "align", "prototype", "residual_degrees"]


class Alignment(NamedTuple):
    """What `align` returns.

    Attributes:
        theta: (N, d) what was done to every image, box units.
        images: (N, H, W, C) aligned.
        converged: (N,) bool.
        prototypes: (2, H, W, C) mean image before and after.
        deviations: (2,) standard deviation per pixel, averaged over pixels, before and after.
    """

    theta: np.ndarray
    images: np.ndarray
    converged: np.ndarray
    prototypes: np.ndarray
    deviations: np.ndarray


def prototype(images: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean image (H, W, C) of images (N, H, W, C), and the mean of the deviations per pixel.

    Source: flow paper's code (alignment notebook).
    """
    return jnp.mean(images, axis=0), jnp.mean(jnp.std(images, axis=0))


def align(
    propose: Callable[[jax.Array], distrax.Distribution],
    transform: Transform,
    images: jax.Array,
    *,
    key: jax.Array,
    batch_size: int = 256,
    **fields: Any,
) -> Alignment:
    """Align images of one set or class: each to where its own density is centred.

    Densities that move with their image are centred at one pose of a class, so what is aligned to
    its own density is aligned to the others (congealing without a joint optimisation).

    Args:
        propose, transform, key: as in `mean_shift`; images are taken in batches, so memory holds
            one of them.
        images: (N, H, W, C) float.
        batch_size: images at a time.
        **fields: of `mean_shift`: steps, num_samples, step_size ...

    Raises:
        TypeError, ValueError: as `mean_shift`; if batch_size < 1.
    Source: flow paper, Figure 7.
    """
    check_images(images)
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; want at least 1 image at a time.")
    count = len(images)
    size = min(batch_size, count)

    @jax.jit
    def part(images: jax.Array, key: jax.Array) -> Any:
        return mean_shift(propose, transform, images, key=key, **fields)

    # The last batch repeats its last image: one shape is compiled.
    parts = [
        part(images[jnp.minimum(jnp.arange(start, start + size), count - 1)], key)
        for start in range(0, count, size)
    ]
    theta, aligned, converged = (
        np.concatenate([np.asarray(getattr(p, name)) for p in parts])[:count]
        for name in ("theta", "images", "converged")
    )
    means, deviations = zip(prototype(images), prototype(jnp.asarray(aligned)), strict=True)
    return Alignment(theta, aligned, converged, np.stack(means), np.stack(deviations))


def residual_degrees(pose: jax.Array, rotation: jax.Array) -> jax.Array:
    """Pose (N,) of images after they were turned by rotation (N,), about their common direction.

    The class's own upright pose is not known to the density: only differences count.

    Args:
        pose: degrees, of the images as they came.
        rotation: degrees, what alignment did.

    Returns:
        (N,) degrees in [-180, 180), with circular mean 0.
    """
    after = jnp.deg2rad(pose + rotation)
    mean = jnp.arctan2(jnp.mean(jnp.sin(after)), jnp.mean(jnp.cos(after)))
    return wrap_degrees(jnp.rad2deg(after - mean))
