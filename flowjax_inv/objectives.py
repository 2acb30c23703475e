"""Terms of the loss over copies; every cross-entropy is in nats."""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import optax
from jax import lax

__all__ = ["AVERAGES", "Average", "score_function_term", "view_cross_entropy"]

Average = Literal["losses", "logits", "probs"]
AVERAGES: tuple[Average, ...] = ("losses", "logits", "probs")


def view_cross_entropy(logits: jax.Array, labels: jax.Array, average: Average) -> jax.Array:
    """Cross-entropy of n views per image, averaged in one of three places.

    "losses": mean over views of CE(logits)        (paper eq. 9-10: an upper bound on "probs")
    "logits": CE(mean over views of logits)        (the authors' Table 1 code)
    "probs":  -log mean over views of p(label)     (the loss of the averaged prediction)

    Args:
        logits: (n, N, C).
        labels: (N,) int.
        average: which of the three.

    Returns:
        (N,) nats.

    Raises:
        ValueError: if `average` is none of the three.
    """
    if average == "losses":
        each = optax.softmax_cross_entropy_with_integer_labels(
            logits, jnp.broadcast_to(labels, logits.shape[:-1])
        )
        return jnp.mean(each, axis=0)
    if average == "logits":
        return optax.softmax_cross_entropy_with_integer_labels(jnp.mean(logits, axis=0), labels)
    if average == "probs":
        log_p = jnp.take_along_axis(
            jax.nn.log_softmax(logits), labels[None, :, None].repeat(logits.shape[0], 0), axis=-1
        )[..., 0]
        return jnp.log(logits.shape[0]) - jax.nn.logsumexp(log_p, axis=0)
    raise ValueError(f'average is "{average}"; allowed: {", ".join(AVERAGES)}.')


def score_function_term(
    losses: jax.Array,
    log_prob: jax.Array,
    *,
    baseline: bool = True,
    over_devices: Callable[[jax.Array], jax.Array] = lambda value: value,
    devices: int = 1,
) -> jax.Array:
    """Zero in value; its gradient is that of E[loss] for samples that carry none.

    grad = mean(stop(losses - b) grad log g), b = mean over the other samples, or 0

    Args:
        losses: (n, N) loss of every sample.
        log_prob: (n, N) log g of the same samples.
        baseline: subtract b; without it the gradient is the same on average, and noisier.
        over_devices: mean over the devices that hold other parts of the batch.
        devices: their number.

    Source: Williams, Simple statistical gradient-following algorithms, 1992.
    """
    total = losses.size * devices
    # Leaving x out of the mean is a factor: x - (S - x) / (M - 1) = M / (M - 1) (x - S / M).
    centred = losses - over_devices(jnp.mean(losses))
    weight = lax.stop_gradient(centred * (total / max(total - 1, 1)) if baseline else losses)
    return jnp.mean(weight * (log_prob - lax.stop_gradient(log_prob)))
