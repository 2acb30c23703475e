"""Using a density at test time: predictions averaged over sampled views.

Nothing here knows training: `classify` is any function of images to logits, `propose` any function
of images to a distribution over theta.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import distrax
import flax.linen as nn
import jax
import jax.numpy as jnp

from flowjax_inv.transforms import Transform

__all__ = ["make_predict", "predict"]


def predict(
    classify: Callable[[jax.Array], jax.Array],
    propose: Callable[[jax.Array], distrax.Distribution],
    transform: Transform,
    images: jax.Array,
    *,
    key: jax.Array,
    num_samples: int,
    average: Literal["probs", "logits"] = "probs",
    include_original: bool = False,
) -> jax.Array:
    """Average a classifier over sampled views: p(c | I) = mean_k softmax f(A_{T_k}(I)), T_k ~ g.

    Args:
        classify: images (M, H, W, C) -> logits (M, classes).
        propose: images (N, H, W, C) -> distribution with batch (N,), event (d,).
        transform: images, theta (K, N, d) -> views (K, N, H, W, C).
        images: (N, H, W, C) float.
        key: PRNG key.
        num_samples: K >= 1 views per image.
        average: "probs" means probabilities (the paper), "logits" means logits (its code).
        include_original: count the untransformed image as one more view.

    Returns:
        (N, classes) probabilities.

    Raises:
        ValueError: if num_samples < 1, or `average` is neither of the two.
    Source: flow paper eq. 8.
    """
    if num_samples < 1:
        raise ValueError(f"num_samples is {num_samples}; want at least 1 view per image.")
    if average not in ("probs", "logits"):
        raise ValueError(f'average is "{average}"; allowed: probs, logits.')
    theta = propose(images).sample(seed=key, sample_shape=(num_samples,))
    views = transform(images, theta)
    if include_original:
        views = jnp.concatenate([images[None], views])
    logits = classify(views.reshape(-1, *images.shape[1:]))
    logits = logits.reshape(*views.shape[:2], logits.shape[-1])
    if average == "logits":
        return jax.nn.softmax(jnp.mean(logits, axis=0))
    return jnp.mean(jax.nn.softmax(logits), axis=0)


def make_predict(
    classifier: nn.Module,
    distribution: nn.Module,
    transform: Transform,
    *,
    num_samples: int,
    average: Literal["probs", "logits"] = "probs",
    include_original: bool = False,
) -> Callable[[Mapping[str, Any], jax.Array, jax.Array], jax.Array]:
    """Return `predict` for two Linen modules, jitted: (variables, images, key) -> (N, classes).

    Args:
        classifier, distribution: Linen modules.
        transform: theta -> views.
        num_samples, average, include_original: as in `predict`.

    Returns:
        A function of {"classifier": variables, "distribution": variables}, images (N, H, W, C)
        float, and a key. Variables are arguments, not constants, so that new weights do not
        compile again.
    """

    @jax.jit
    def averaged(variables: Mapping[str, Any], images: jax.Array, key: jax.Array) -> jax.Array:
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
        )

    return averaged
