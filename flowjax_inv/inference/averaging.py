"""Predictions averaged over sampled views, of a given number or of as many as it takes."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer

from flowjax_inv.transforms import Transform

if TYPE_CHECKING:  # slow to import, and only named
    import distrax
    import flax.linen as nn

__all__ = [
    "Adaptive",
    "Average",
    "average_views",
    "check_images",
    "check_logits",
    "few_at_a_time",
    "make_predict",
    "predict",
    "predict_adaptive",
    "view_logits",
]

Average = Literal["probs", "logits", "confident"]

# Power by which confident views outweigh others: 2, 4 and 8 were alike on held-out images, turned,
# of CIFAR-10 (0.91 to 0.92 of the upright accuracy, without weights 0.90).
_CONFIDENCE = 4
POOL = 300  # draws that a norm chooses from, as in the authors' code
# Views at a time on a CPU, so that what is between a network's layers fits the cache. By XLA's
# convolutions 32 and 64 were the best of 16 to 256 on two cores (SimpleConv, LeNet, Layer13,
# ResNets); by oneDNN's 256 of 64 to 1024 (SimpleConv, Layer13; LeNet gains 7 to 10 % with 1024).
_AT_A_TIME, _AT_A_TIME_BY_ONEDNN = 32, 256


def check_images(images: jax.Array) -> None:
    """Refuse what is no batch of images.

    Raises:
        TypeError: if images are not floating point.
        ValueError: if images are not (N, H, W, C) or empty.
    """
    if images.ndim != 4 or 0 in images.shape:
        raise ValueError(f"images have shape {images.shape}; want (N, H, W, C), none of them 0.")
    if not jnp.issubdtype(images.dtype, jnp.floating):
        raise TypeError(
            f"images are {images.dtype}; a warp wants floats: convert to float, and normalise, as "
            "for training."
        )


def view_logits(
    classify: Callable[[jax.Array], jax.Array],
    propose: Callable[[jax.Array], distrax.Distribution],
    transform: Transform,
    images: jax.Array,
    *,
    key: jax.Array,
    num_samples: int,
    include_original: bool = False,
    max_norm: float | None = None,
) -> jax.Array:
    """Classify sampled views: f(A_{T_k}(I)), T_k ~ g.

    Args:
        classify: images (M, H, W, C) -> logits (M, classes), each image by itself; under jit on a
            single CPU device it is given few views at a time.
        propose: images (N, H, W, C) -> distribution with batch (N,), event (d,).
        transform: images, theta -> views.
        images: (N, H, W, C) float.
        key: PRNG key.
        num_samples: K >= 1 views per image.
        include_original: put the untransformed image before the views.
        max_norm: take the first K of 300 draws whose Euclidean norm of theta is below this, and
            where they are too few the first of the others. None: K draws, all taken.

    Returns:
        (K, N, classes) logits; (K + 1, N, classes) with the original.

    Raises:
        TypeError: if images are not floating point.
        ValueError: if images are not (N, H, W, C) or empty; if num_samples < 1, or above 300 with
            max_norm.
    Source: flow paper eq. 8; original and rejection: its code (valid_performance).
    """
    check_images(images)
    if num_samples < 1:
        raise ValueError(f"num_samples is {num_samples}; want at least 1 view per image.")
    density = propose(images)
    if max_norm is None:
        theta = density.sample(seed=key, sample_shape=(num_samples,))
    else:
        if num_samples > POOL:
            raise ValueError(
                f"num_samples is {num_samples} with max_norm; want at most {POOL}, the draws "
                "they are chosen from."
            )
        pool = density.sample(seed=key, sample_shape=(POOL,))
        far = jnp.linalg.norm(pool, axis=-1) >= max_norm
        first = jnp.argsort(far, axis=0, stable=True)[:num_samples]
        theta = jnp.take_along_axis(pool, first[..., None], axis=0)
    # Images first, views second: the fold below then keeps images that devices share in place.
    views = transform(images[:, None], jnp.moveaxis(theta, 0, 1))
    if include_original:
        views = jnp.concatenate([images[:, None], views], axis=1)
    logits = _classified(classify, views.reshape(-1, *images.shape[1:]))
    return jnp.moveaxis(logits.reshape(*views.shape[:2], -1), 1, 0)


def _classified(classify: Callable[[jax.Array], jax.Array], images: jax.Array) -> jax.Array:
    """Return logits (M, classes); say what is wrong with a classifier that gives none."""

    def checked(images: jax.Array) -> jax.Array:
        logits = classify(images)
        check_logits(logits, images)
        return _single(logits)

    try:
        return few_at_a_time(checked, images)
    except jax.errors.TracerArrayConversionError:
        raise TypeError(
            "classify() cannot be traced: it wants NumPy arrays; wrap it in jax.pure_callback, or "
            "call this function outside jit."
        ) from None


def few_at_a_time(classify: Callable[[jax.Array], jax.Array], images: jax.Array) -> jax.Array:
    """Return logits (M, ...), on a single CPU device of a few images after the other.

    Not outside jit, where a classifier may be any function and a loop would compile it; nor where
    a program is exported for any batch, and M is no number.
    """
    count, single = images.shape[0], jax.default_backend() == "cpu" and jax.device_count() == 1
    counted = isinstance(images, Tracer) and isinstance(count, int)
    most = _at_a_time()
    if not (single and counted and count > most):
        return classify(images)
    parts = math.ceil(count / most)
    size = math.ceil(count / parts)
    # Padded, not a shorter last part: the classifier would be compiled twice.
    padded = jnp.pad(images, ((0, parts * size - count), (0, 0), (0, 0), (0, 0)))
    logits = lax.map(classify, padded.reshape(parts, size, *images.shape[1:]))
    return logits.reshape(parts * size, *logits.shape[2:])[:count]


def _at_a_time() -> int:
    # Slow to import, for Flax; who has not done it has no network that calls oneDNN.
    onednn = sys.modules.get("flowjax_inv.native.onednn")
    called = onednn and onednn.available()
    return _AT_A_TIME_BY_ONEDNN if called else _AT_A_TIME


def _single(logits: jax.Array) -> jax.Array:
    """Return logits as float32 at least: means in half precision are off by more than they say."""
    return logits.astype(jnp.promote_types(logits.dtype, jnp.float32))


def check_logits(logits: Any, images: jax.Array) -> None:
    """Refuse what is no logits (N, classes) of images (N, H, W, C)."""
    if logits.ndim != 2 or logits.shape[0] != images.shape[0]:
        raise ValueError(
            f"classify() made {tuple(logits.shape)} of images {images.shape}; want one row of "
            "logits for each."
        )


def average_views(logits: jax.Array, average: Average) -> jax.Array:
    """Average views: (K, N, classes) logits -> (N, classes) probabilities.

    "probs" is the mean of the probabilities (the paper), "logits" the softmax of the mean logits
    (its code), "confident" the mean of the probabilities p_k with weights (max_c p_k(c))^4: a view
    turned the right way is classified with more confidence than others.

    Raises:
        ValueError: if `average` is none of the three.
    """
    logits = _single(logits)
    if average == "logits":
        return jax.nn.softmax(jnp.mean(logits, axis=0))
    probs = jax.nn.softmax(logits)
    if average == "probs":
        return jnp.mean(probs, axis=0)
    if average == "confident":
        weight = jnp.max(probs, axis=-1, keepdims=True) ** _CONFIDENCE
        return jnp.sum(weight * probs, axis=0) / jnp.sum(weight, axis=0)
    raise ValueError(f'average is "{average}"; allowed: {", ".join(get_args(Average))}.')


def predict(
    classify: Callable[[jax.Array], jax.Array],
    propose: Callable[[jax.Array], distrax.Distribution],
    transform: Transform,
    images: jax.Array,
    *,
    key: jax.Array,
    num_samples: int,
    average: Average = "probs",
    include_original: bool = False,
    max_norm: float | None = None,
) -> jax.Array:
    """Average a classifier over sampled views: p(c | I) = mean_k softmax f(A_{T_k}(I)), T_k ~ g.

    Args:
        classify, propose, transform, images, key, num_samples, include_original, max_norm: as in
            `view_logits`.
        average: as in `average_views`.

    Returns:
        (N, classes) probabilities.

    Raises:
        ValueError: as `view_logits` and `average_views`.
    Source: flow paper eq. 8.
    """
    logits = view_logits(
        classify,
        propose,
        transform,
        images,
        key=key,
        num_samples=num_samples,
        include_original=include_original,
        max_norm=max_norm,
    )
    return average_views(logits, average)


def make_predict(
    classifier: nn.Module,
    distribution: nn.Module,
    transform: Transform,
    *,
    num_samples: int,
    average: Average = "probs",
    include_original: bool = False,
    max_norm: float | None = None,
) -> Callable[[Mapping[str, Any], jax.Array, jax.Array], jax.Array]:
    """Return `predict` for two Linen modules, jitted: (variables, images, key) -> (N, classes).

    Args:
        classifier, distribution: Linen modules.
        transform: theta -> views.
        num_samples, average, include_original, max_norm: as in `predict`.

    Returns:
        A function of {"classifier": variables, "distribution": variables}, images (N, H, W, C)
        float, and a key. Variables are arguments, not constants, so that new weights do not
        compile again. It raises a ValueError for variables by other names.
    """

    @jax.jit
    def averaged(variables: Mapping[str, Any], images: jax.Array, key: jax.Array) -> jax.Array:
        if not {"classifier", "distribution"} <= variables.keys():
            raise ValueError(
                f"variables hold {', '.join(variables)}; want those of both networks, by the names "
                "classifier and distribution."
            )

        def applied(module: nn.Module, name: str) -> Any:
            return lambda x: module.apply(variables[name], x, train=False)

        return predict(
            applied(classifier, "classifier"),
            applied(distribution, "distribution"),
            transform,
            images,
            key=key,
            num_samples=num_samples,
            average=average,
            include_original=include_original,
            max_norm=max_norm,
        )

    return averaged


class Adaptive(NamedTuple):
    """What `predict_adaptive` returns.

    Attributes:
        probabilities: (N, classes).
        standard_error: (N,) of the mean, the largest over classes.
        num_samples: (N,) int32, views that were averaged.
    """

    probabilities: jax.Array
    standard_error: jax.Array
    num_samples: jax.Array


def predict_adaptive(
    classify: Callable[[jax.Array], jax.Array],
    propose: Callable[[jax.Array], distrax.Distribution],
    transform: Transform,
    images: jax.Array,
    *,
    key: jax.Array,
    standard_error: float = 0.01,
    block: int = 10,
    max_samples: int = 300,
) -> Adaptive:
    """Average over as many views as a stated standard error of the mean probability asks for.

    Views come in blocks; an image takes no more once its error is small enough, and all is over
    when every image is done.

    Args:
        classify, propose, transform, images, key: as in `view_logits`.
        standard_error: of the mean over views, for every class; > 0.
        block: views at a time, >= 2.
        max_samples: where it ends in any case, a multiple of the block.

    Raises:
        TypeError, ValueError: as `view_logits`; for numbers out of range.
    """
    check_images(images)
    if not standard_error > 0 or block < 2 or max_samples < block or max_samples % block:
        raise ValueError(
            f"standard_error={standard_error}, block={block}, max_samples={max_samples}; want an "
            "error above 0, at least 2 views in a block, and max_samples a multiple of it."
        )
    density = propose(images)  # once, not per block

    def views(number: jax.Array) -> jax.Array:
        logits = view_logits(
            classify, lambda _: density, transform, images,
            key=jax.random.fold_in(key, number), num_samples=block,
        )  # fmt: skip
        return jax.nn.softmax(logits)

    def error(total: jax.Array, squares: jax.Array, count: jax.Array) -> jax.Array:
        number = jnp.maximum(count, 2)[:, None]
        variance = (squares - total**2 / number) / (number - 1)
        return jnp.sqrt(jnp.max(jnp.maximum(variance, 0.0) / number, axis=-1))

    def wants(carry: tuple[jax.Array, ...]) -> jax.Array:
        number, _, _, _, active = carry
        return (number < max_samples // block) & jnp.any(active)

    def add(carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        number, total, squares, count, active = carry
        seen = views(number)
        total = total + active[:, None] * jnp.sum(seen, axis=0)
        squares = squares + active[:, None] * jnp.sum(seen**2, axis=0)
        count = count + block * active
        # Not "large": an error that is not a number ends the search as well.
        return number + 1, total, squares, count, error(total, squares, count) > standard_error

    classes = jax.eval_shape(views, jnp.int32(0)).shape[-1]
    zeros = jnp.zeros((images.shape[0], classes))
    count = jnp.zeros(images.shape[0], jnp.int32)
    start = (jnp.int32(0), zeros, zeros, count, jnp.ones(images.shape[0], bool))
    _, total, squares, count, _ = lax.while_loop(wants, add, start)
    return Adaptive(total / count[:, None], error(total, squares, count), count)
