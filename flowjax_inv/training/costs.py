"""What views cost, one number an image: cross-entropies in nats, errors, contrasts of pairs."""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import optax
from jax import lax

__all__ = [
    "AVERAGES",
    "Average",
    "map_cross_entropy",
    "pair_contrast",
    "pairs_found",
    "score_function_term",
    "view_absolute_error",
    "view_cross_entropy",
    "view_squared_error",
]

Average = Literal["losses", "logits", "probs"]
AVERAGES: tuple[Average, ...] = ("losses", "logits", "probs")


def view_cross_entropy(
    logits: jax.Array, labels: jax.Array, average: Average, label_smoothing: float = 0.0
) -> jax.Array:
    """Cross-entropy of n views per image, averaged in one of three places.

    "losses": mean over views of CE(logits)        (paper eq. 9-10: an upper bound on "probs")
    "logits": CE(mean over views of logits)        (the authors' Table 1 code)
    "probs":  -log mean over views of p(label)     (the loss of the averaged prediction)

    Args:
        logits: (n, N, C).
        labels: (N,) int.
        average: which of the three.
        label_smoothing: share of a label's mass that is spread evenly over all C classes. With it
            a prediction may be too sure: what an image turns into must look like the data, not
            only like its class.

    Returns:
        (N,) nats.

    Raises:
        ValueError: if `average` is none of the three, or "probs" with smoothed labels.
    """

    def cross_entropy(logits: jax.Array) -> jax.Array:
        right = optax.softmax_cross_entropy_with_integer_labels(
            logits, jnp.broadcast_to(labels, logits.shape[:-1])
        )
        if not label_smoothing:
            return right
        spread = -jnp.mean(jax.nn.log_softmax(logits), axis=-1)
        return (1.0 - label_smoothing) * right + label_smoothing * spread

    if average == "losses":
        return jnp.mean(cross_entropy(logits), axis=0)
    if average == "logits":
        return cross_entropy(jnp.mean(logits, axis=0))
    if average == "probs" and label_smoothing:
        raise ValueError(
            f'label_smoothing is {label_smoothing} with average="probs"; it is for "losses" and '
            '"logits".'
        )
    if average == "probs":
        log_p = jnp.take_along_axis(
            jax.nn.log_softmax(logits), labels[None, :, None].repeat(logits.shape[0], 0), axis=-1
        )[..., 0]
        return jnp.log(logits.shape[0]) - jax.nn.logsumexp(log_p, axis=0)
    raise ValueError(f'average is "{average}"; allowed: {", ".join(AVERAGES)}.')


def map_cross_entropy(
    logits: jax.Array, maps: jax.Array, shown: jax.Array | None, average: Average
) -> jax.Array:
    """Cross-entropy per pixel of maps of n views, each brought back to its image.

    The three places of `view_cross_entropy`, pixel by pixel, over the views that show the pixel;
    then the mean over the pixels that any view shows.

    Args:
        logits: (n, N, H, W, C), as they lie in the image.
        maps: (N, H, W) int, labels.
        shown: (n, N, H, W) bool, which pixels of the image a view shows; None: all.
        average: which of the three. "losses" counts a pixel once for every view that shows it.

    Returns:
        (N,) nats; 0 of an image of which no view shows anything.

    Raises:
        ValueError: if `average` is none of the three.
    """
    weight = jnp.ones(logits.shape[:-1]) if shown is None else shown.astype(logits.dtype)
    total = jnp.sum(weight, axis=0)
    seen = jnp.asarray(total > 0, logits.dtype)
    if average == "losses":
        each = optax.softmax_cross_entropy_with_integer_labels(
            logits, jnp.broadcast_to(maps, logits.shape[:-1])
        )
        cost, count = jnp.sum(weight * each, axis=0), total
    elif average == "logits":
        mean = jnp.sum(weight[..., None] * logits, axis=0) / jnp.maximum(total, 1.0)[..., None]
        cost, count = seen * optax.softmax_cross_entropy_with_integer_labels(mean, maps), seen
    elif average == "probs":
        log_p = jnp.take_along_axis(
            jax.nn.log_softmax(logits),
            jnp.broadcast_to(maps, logits.shape[:-1])[..., None],
            axis=-1,
        )[..., 0]
        kept = jnp.where(weight > 0, log_p, -jnp.inf)
        kept = jnp.where(seen > 0, kept, 0.0)  # of a pixel that no view shows, a number
        cost = seen * (jnp.log(jnp.maximum(total, 1.0)) - jax.nn.logsumexp(kept, axis=0))
        count = seen
    else:
        raise ValueError(f'average is "{average}"; allowed: {", ".join(AVERAGES)}.')
    return jnp.sum(cost, axis=(1, 2)) / jnp.maximum(jnp.sum(count, axis=(1, 2)), 1.0)


def view_squared_error(outputs: jax.Array, values: jax.Array, average: Average) -> jax.Array:
    """Squared error of n views per image, averaged in one of two places; angles are not wrapped.

    "losses": mean over views of (y - t)^2;  "logits": (mean over views of y - t)^2

    Args:
        outputs: (n, N, 1) y.
        values: (N,) t.
        average: which of the two.

    Returns:
        (N,) squared units of the values.

    Raises:
        ValueError: if `average` is neither, or there is more than one output.
    """
    if outputs.shape[-1] != 1:
        raise ValueError(f"outputs have shape {outputs.shape}; a squared error wants (n, N, 1).")
    if average == "losses":
        return jnp.mean((outputs[..., 0] - values) ** 2, axis=0)
    if average == "logits":
        return (jnp.mean(outputs[..., 0], axis=0) - values) ** 2
    raise ValueError(f'average is "{average}"; a squared error allows: losses, logits.')


def view_absolute_error(outputs: jax.Array, values: jax.Array, average: Average) -> jax.Array:
    """Absolute error of n views per image, mean over m outputs, averaged in one of two places.

    "losses": mean over views of |y - t|;  "logits": |mean over views of y - t|

    Args:
        outputs: (n, N, m) y.
        values: (N, m) t.
        average: which of the two.

    Returns:
        (N,) units of the values.

    Raises:
        ValueError: if `average` is neither, or there are not as many outputs as values.
    """
    if outputs.shape[1:] != values.shape:
        raise ValueError(
            f"outputs have shape {outputs.shape} for values {values.shape}; an absolute error "
            "wants (n, N, m) for (N, m)."
        )
    if average == "losses":
        return jnp.mean(jnp.abs(outputs - values), axis=(0, -1))
    if average == "logits":
        return jnp.mean(jnp.abs(jnp.mean(outputs, axis=0) - values), axis=-1)
    raise ValueError(f'average is "{average}"; an absolute error allows: losses, logits.')


def pair_contrast(outputs: jax.Array, temperature: float) -> jax.Array:
    """Contrast of two views of every image against all other views (NT-Xent).

    Of view i and its partner j, over the 2N views:
    l_i = -log exp(s_ij / t) / sum_{k != i} exp(s_ik / t),  s the cosine of two outputs

    Args:
        outputs: (2, N, m).
        temperature: t.

    Returns:
        (N,) nats, the mean of an image's two l; 0 at least, log(2N - 1) where all look alike.
    Source: Chen et al., A simple framework for contrastive learning, 2020.
    """
    logits = _similar(outputs) / temperature
    each = optax.softmax_cross_entropy_with_integer_labels(logits, _partners(outputs))
    return jnp.mean(each.reshape(outputs.shape[:2]), axis=0)


def pairs_found(outputs: jax.Array) -> jax.Array:
    """Return (N,), the share of an image's two views (2, N, m) to which its partner is nearest."""
    nearest = jnp.argmax(_similar(outputs), axis=-1) == _partners(outputs)
    return jnp.mean(nearest.reshape(outputs.shape[:2]).astype(jnp.float32), axis=0)


def _similar(outputs: jax.Array) -> jax.Array:
    """Return the cosines (2N, 2N) of all pairs of views, -inf of a view with itself."""
    flat = outputs.reshape(-1, outputs.shape[-1])
    unit = flat * lax.rsqrt(jnp.sum(flat**2, axis=-1, keepdims=True) + 1e-12)
    cosines = jnp.matmul(unit, unit.T, precision="highest")
    return jnp.where(jnp.eye(len(flat), dtype=bool), -jnp.inf, cosines)


def _partners(outputs: jax.Array) -> jax.Array:
    number = outputs.shape[1]
    return jnp.roll(jnp.arange(2 * number), number)


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
        baseline: subtract b; without it the gradient is the same on average, and noisier. A sample
            that is alone has none.
        over_devices: mean over the devices that hold other parts of the batch.
        devices: their number.

    Source: Williams, Simple statistical gradient-following algorithms, 1992.
    """
    total = losses.size * devices
    baseline = baseline and total > 1
    # Leaving x out of the mean is a factor: x - (S - x) / (M - 1) = M / (M - 1) (x - S / M).
    centred = losses - over_devices(jnp.mean(losses))
    weight = lax.stop_gradient(centred * (total / (total - 1)) if baseline else losses)
    return jnp.mean(weight * (log_prob - lax.stop_gradient(log_prob)))
