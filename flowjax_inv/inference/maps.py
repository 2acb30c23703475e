"""Maps of labels averaged over views, each turned back: predictions that move with the image."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

from flowjax_inv.inference.averaging import check_images, few_at_a_time
from flowjax_inv.transforms import Transform

if TYPE_CHECKING:  # slow to import, and only named
    import distrax

__all__ = ["LabelMap", "average_maps", "predict_map", "view_maps"]


class LabelMap(NamedTuple):
    """What is predicted of every pixel.

    Attributes:
        probs: (N, H, W, classes); 1 / classes each where no view shows the pixel.
        seen: (N, H, W), share of the views that show it.
    """

    probs: jax.Array
    seen: jax.Array


def average_maps(logits: jax.Array, theta: jax.Array, transform: Transform) -> LabelMap:
    """Average maps of views: each is brought back to the image, and counts where it shows it.

        p(x) = sum_k m_k(x) softmax(B_k(f(A_k I)))(x) / sum_k m_k(x)

    B_k(V)(x) = V(M(theta_k)^-1 x), m_k 1 where that is inside the view, else 0. For a group of
    transforms that move pixels to pixels, all of it in theta, p moves with the image: p(A I) = A p.

    Args:
        logits: (K, N, H, W, classes), f of the views.
        theta: (K, N, d), of the views.
        transform: which made them.

    Raises:
        ValueError: if logits are no maps.
    Source: Augerino, eq. 6 to 8.
    """
    if logits.ndim != 5:
        raise ValueError(
            f"logits of views have shape {logits.shape}; want maps, (K, N, H, W, classes)."
        )
    height, width, classes = logits.shape[2:]
    back = transform.undo(logits.astype(jnp.float32), theta)
    shown = transform.undone_mask(theta, height, width)[..., None]
    total = jnp.sum(shown, axis=0)
    probs = jnp.sum(jnp.where(shown, jax.nn.softmax(back), 0.0), axis=0) / jnp.maximum(total, 1)
    return LabelMap(jnp.where(total > 0, probs, 1.0 / classes), total[..., 0] / logits.shape[0])


def view_maps(
    classify: Callable[[jax.Array], jax.Array],
    propose: Callable[[jax.Array], distrax.Distribution],
    transform: Transform,
    images: jax.Array,
    *,
    key: jax.Array,
    num_samples: int,
) -> tuple[jax.Array, jax.Array]:
    """Label every pixel of sampled views: f(A_T I), T ~ g(.; I).

    Args, Raises: as of `predict_map`.

    Returns:
        Logits (K, N, H, W, classes), as they lie in the views, and theta (K, N, d).
    """
    check_images(images)
    if num_samples < 1:
        raise ValueError(f"num_samples is {num_samples}; want at least 1 view per image.")
    theta = propose(images).sample(seed=key, sample_shape=(num_samples,))
    views = transform(images, theta)
    logits = few_at_a_time(classify, views.reshape(-1, *images.shape[1:]))
    if logits.ndim != 4 or logits.shape[:3] != (views.shape[0] * views.shape[1], *views.shape[2:4]):
        raise ValueError(
            f"classify() made {tuple(logits.shape)} of images {images.shape}; want a map of logits "
            "of the same height and width for each."
        )
    return logits.reshape(*views.shape[:-1], -1), theta


def predict_map(
    classify: Callable[[jax.Array], jax.Array],
    propose: Callable[[jax.Array], distrax.Distribution],
    transform: Transform,
    images: jax.Array,
    *,
    key: jax.Array,
    num_samples: int,
) -> LabelMap:
    """Predict a label for every pixel: E_T B_T f(A_T I), T ~ g(.; I).

    Args:
        classify: images (M, H, W, C) -> logits (M, H, W, classes).
        propose: images (N, H, W, C) -> distribution with batch (N,), event (d,).
        transform: images, theta -> views; it knows the way back.
        images: (N, H, W, C) float.
        key: PRNG key.
        num_samples: K >= 1 views per image.

    Returns:
        Probabilities and where they come from, see `average_maps`.

    Raises:
        TypeError: if images are not floating point.
        ValueError: if images are not (N, H, W, C) or empty, num_samples < 1, or `classify` makes
            no maps of the size of the images.
    Source: Augerino, eq. 6.
    """
    views = view_maps(classify, propose, transform, images, key=key, num_samples=num_samples)
    return average_maps(*views, transform)
