"""Values of views, vectors of space turned back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax

from flowjax_inv.transforms import Transform

if TYPE_CHECKING:  # slow to import, and only named
    import distrax

__all__ = ["view_values"]


def view_values(
    predict: Callable[[jax.Array], jax.Array],
    propose: Callable[[jax.Array], distrax.Distribution],
    transform: Transform,
    images: jax.Array,
    *,
    key: jax.Array,
    num_samples: int,
    vectors: bool = False,
) -> jax.Array:
    """Predict values of sampled views: f(A_{T_k} x), of vectors M_k^-1 f(A_{T_k} x), T_k ~ g.

    Args:
        predict: (M, ...) -> values (M, m).
        propose: (N, ...) -> distribution with batch (N,), event (d,).
        transform: theta -> views.
        images: (N, ...) float, pictures or clouds of points.
        key: PRNG key.
        num_samples: K >= 1 views each.
        vectors: whether the values are vectors of space (m = 3), which turn along with what they
            are of: `transform.undo_vectors` brings each back.

    Returns:
        (K, N, m); their mean over k is the averaged prediction.

    Raises:
        ValueError: if num_samples < 1, the values are not one row for each, or vectors are asked
            for that the transform does not turn.
    Source: Augerino eq. 6 (equivariant outputs).
    """
    if num_samples < 1:
        raise ValueError(f"num_samples is {num_samples}; want at least 1 view each.")
    if vectors and not transform.turns_vectors:
        raise ValueError(
            f"vectors is True, but {type(transform).__name__}({', '.join(transform.names)}) turns "
            "no vectors of space; take points."
        )
    theta = propose(images).sample(seed=key, sample_shape=(num_samples,))
    flat = transform(images, theta).reshape(-1, *images.shape[1:])
    values = predict(flat)
    if values.ndim != 2 or len(values) != len(flat):
        raise ValueError(
            f"predict() made {tuple(values.shape)} of {tuple(flat.shape)}; want one row of values "
            "for each."
        )
    values = values.reshape(num_samples, len(images), -1)
    return transform.undo_vectors(values, theta) if vectors else values
