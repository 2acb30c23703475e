"""What predictions are judged by: pure functions on probabilities and labels; nats."""

import jax
import jax.numpy as jnp

__all__ = [
    "accuracy",
    "auroc",
    "calibration_error",
    "divergence_per_class",
    "kl_divergence",
    "negative_log_likelihood",
]

_LEAST = 1e-8  # what is added to a probability before its logarithm


def accuracy(probabilities: jax.Array, labels: jax.Array) -> jax.Array:
    """Share of (..., N, C) whose largest class is the label (N,): (...)."""
    return jnp.mean(jnp.argmax(probabilities, axis=-1) == labels, axis=-1)


def negative_log_likelihood(probabilities: jax.Array, labels: jax.Array) -> jax.Array:
    """Mean of -log(p(label) + 1e-8) of (..., N, C) with labels (N,): (...) nats."""
    index = jnp.broadcast_to(labels, probabilities.shape[:-1])[..., None]
    right = jnp.take_along_axis(probabilities, index, axis=-1)[..., 0]
    return -jnp.mean(jnp.log(right + _LEAST), axis=-1)


def calibration_error(probabilities: jax.Array, labels: jax.Array, *, bins: int = 15) -> jax.Array:
    """Expected calibration error: sum over bins of share * |accuracy - confidence|.

    Args:
        probabilities: (..., N, C).
        labels: (N,).
        bins: equal parts of [0, 1] by the largest probability.

    Returns:
        (...) in [0, 1].
    Source: Guo and others, On calibration of modern neural networks, 2017.
    """
    confidence = jnp.max(probabilities, axis=-1)
    right = jnp.argmax(probabilities, axis=-1) == labels
    part = jax.nn.one_hot(jnp.clip((confidence * bins).astype(jnp.int32), 0, bins - 1), bins)
    gap = jnp.sum(part * (right - confidence)[..., None], axis=-2)
    return jnp.sum(jnp.abs(gap), axis=-1) / labels.shape[-1]


def kl_divergence(p: jax.Array, q: jax.Array) -> jax.Array:
    """KL(p || q) = sum_c p log((p + 1e-8) / (q + 1e-8)) of (..., C): (...) nats.

    Source: flow paper's code, small number included.
    """
    return jnp.sum(p * (jnp.log(p + _LEAST) - jnp.log(q + _LEAST)), axis=-1)


def divergence_per_class(p: jax.Array, q: jax.Array, labels: jax.Array, classes: int) -> jax.Array:
    """Mean KL(p || q) over the images of every class: eKLD, where q are of the images moved.

    Args:
        p: (N, C) predictions of the images.
        q: (N, C) predictions of the same images, moved.
        labels: (N,), below `classes`.
        classes: how many.

    Returns:
        (classes,) nats; NaN for a class without images.
    Source: flow paper, Figure 4.
    """
    of_class = jax.nn.one_hot(labels, classes, axis=0)
    totals = jnp.matmul(of_class, kl_divergence(p, q), precision="highest")
    return totals / jnp.sum(of_class, axis=-1)


def auroc(scores: jax.Array, positive: jax.Array) -> jax.Array:
    """Area under the ROC curve: P(score of a positive > of a negative) + half of ties.

    Args:
        scores: (N,).
        positive: (N,) bool, or 1 and 0.

    Returns:
        Scalar in [0, 1]; NaN if all are of one kind, or a score is NaN.
    """
    positive = jnp.asarray(positive, bool)
    negatives = jnp.sum(~positive)
    ordered = jnp.sort(jnp.where(positive, jnp.inf, scores))
    # No more than the negatives: at infinity the positives stand among them.
    below, up_to = (
        jnp.minimum(jnp.searchsorted(ordered, scores, side=side), negatives)
        for side in ("left", "right")
    )
    # A share for each positive: the number of all pairs does not fit 32 bits.
    share = jnp.where(positive, (below + up_to) / (2 * negatives), 0.0)
    area = jnp.sum(share) / jnp.sum(positive)
    return jnp.where(jnp.any(jnp.isnan(scores)), jnp.nan, area)
