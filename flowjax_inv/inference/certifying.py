"""What a density promises: how far an averaged prediction can change when an image is moved."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.typing import ArrayLike

from flowjax_inv.inference.averaging import check_images, view_logits
from flowjax_inv.transforms import Transform

if TYPE_CHECKING:  # slow to import, and only named
    import distrax

__all__ = ["InvarianceBound", "invariance_bound", "sampled_extremes"]

_LEAST_SAMPLES = 1_000


class InvarianceBound(NamedTuple):
    """What `invariance_bound` returns, (N,) each; both bounds (N, classes) if m and M are.

    Attributes:
        bound: (M - m) TV: no averaged probability changes by more.
        paper_bound: 2 (M - m) TV, as printed; since densities differ by as much up as down, the
            half of it holds.
        total_variation: TV[g(T - dT; A_dT I), g(T; I)] in [0, 1], an estimate.
        standard_error: of the total variation.
    """

    bound: jax.Array
    paper_bound: jax.Array
    total_variation: jax.Array
    standard_error: jax.Array


def invariance_bound(
    propose: Callable[[jax.Array], distrax.Distribution],
    transform: Transform,
    images: jax.Array,
    delta: ArrayLike,
    *,
    key: jax.Array,
    num_samples: int = 1_000,
    low: ArrayLike = 0.0,
    high: ArrayLike = 1.0,
) -> InvarianceBound:
    """Bound by how much an averaged prediction changes when the image is moved by delta.

    |p(c | I) - p(c | A_dT I)| <= (M - m) TV,  TV = E_{T ~ g(.; I)} max(0, 1 - g(T - dT; A_dT I) / g(T; I))

    It holds for exact averages and transforms that add; pixels that a warp loses or blurs are not
    in it. Sampled as it is, the bound has an error: (M - m) times `standard_error`.

    Args:
        propose: images (N, H, W, C) -> density with batch (N,), event (d,).
        transform: commutative.
        images: (N, H, W, C) float.
        delta: dT, (d,) or (N, d), box units.
        key: PRNG key.
        num_samples: at least 1,000.
        low, high: m and M, the extremes of the classifier's output over both densities' views,
            numbers, (N,), or (N, classes). Probabilities: 0 and 1, unless more is known for certain;
            `sampled_extremes` only estimates them.

    Raises:
        ValueError: if two transforms depend on their order, for fewer samples, or high < low.
    Source: flow paper section 3 (approximate invariance); without its factor 2.
    """  # noqa: E501 - one formula
    check_images(images)
    if not transform.commutative:
        raise ValueError(
            f"{type(transform).__name__}({', '.join(transform.names)}) depends on the order of two "
            "transforms; the bound holds for rotations alone or translations alone."
        )
    if num_samples < _LEAST_SAMPLES:
        raise ValueError(f"num_samples is {num_samples}; want at least {_LEAST_SAMPLES:,}.")
    delta = jnp.broadcast_to(jnp.asarray(delta, jnp.float32), (images.shape[0], transform.dim))
    density: Any = propose(images)
    theta, log_prob = density.sample_and_log_prob(seed=key, sample_shape=(num_samples,))
    back = transform.compose(theta, transform.inverse(delta))
    density = propose(transform(images, delta))
    moved = density.log_prob(back)
    lost = jnp.maximum(0.0, 1.0 - jnp.exp(moved - log_prob))
    variation = jnp.mean(lost, axis=0)
    width = jnp.subtract(high, low)
    if not isinstance(width, Tracer) and bool(jnp.any(width < 0)):
        raise ValueError(f"high={high} is below low={low}; want the larger extreme in high.")
    error = jnp.std(lost, axis=0, ddof=1) / jnp.sqrt(num_samples)
    bound = width * (variation[:, None] if width.ndim == 2 else variation)
    return InvarianceBound(bound, 2.0 * bound, variation, error)


def sampled_extremes(
    classify: Callable[[jax.Array], jax.Array],
    propose: Callable[[jax.Array], distrax.Distribution],
    transform: Transform,
    images: jax.Array,
    *,
    key: jax.Array,
    num_samples: int,
) -> tuple[jax.Array, jax.Array]:
    """Estimate m and M: the least and largest probability over sampled views, (N, classes) each.

    An estimate from inside: what was not drawn may lie beyond, so a bound made with it is an
    estimate too.

    Args:
        classify, propose, transform, images, key, num_samples: as in `predict`.
    """
    logits = view_logits(classify, propose, transform, images, key=key, num_samples=num_samples)
    probabilities = jax.nn.softmax(logits)
    return jnp.min(probabilities, axis=0), jnp.max(probabilities, axis=0)
