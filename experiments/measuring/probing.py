"""What a representation learned without labels is worth: a linear probe on it."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from experiments.setup.assembly import Assembly
from flowjax_inv.data.batches import padded_batches
from flowjax_inv.inference import average_views, view_logits
from flowjax_inv.networks import Projected
from flowjax_inv.training import Stream

__all__ = ["fit_probe", "probe"]

_PENALTY = 1e-3  # of half the squared weights, nats per image
_STEPS = 300


def fit_probe(
    features: np.ndarray, labels: np.ndarray, classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Fit a multinomial logistic regression on standardised features, by L-BFGS.

    Args:
        features: (N, E).
        labels: (N,) int.
        classes: C.

    Returns:
        Weights (E, C) and biases (C,), of the features as they are given.
    """
    mean, std = features.mean(axis=0), features.std(axis=0) + 1e-6
    scaled, right = jnp.asarray((features - mean) / std), jnp.asarray(labels)
    shape = features.shape[1] + 1, classes

    @jax.jit
    def cost(flat: jax.Array) -> tuple[jax.Array, jax.Array]:
        def value(flat: jax.Array) -> jax.Array:
            weights = flat.reshape(shape)
            log_p = jax.nn.log_softmax(scaled @ weights[:-1] + weights[-1])
            fit = -jnp.mean(jnp.take_along_axis(log_p, right[:, None], axis=-1))
            return fit + 0.5 * _PENALTY * jnp.sum(weights[:-1] ** 2)

        return jax.value_and_grad(value)(flat)

    def both(flat: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = cost(jnp.asarray(flat, jnp.float32))
        return float(value), np.asarray(slope, np.float64)

    start = np.zeros(shape[0] * shape[1])
    found = minimize(both, start, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS})
    weights = found.x.reshape(shape).astype(np.float32)
    kernel = weights[:-1] / std[:, None]
    return kernel, weights[-1] - mean @ kernel


def probe(parts: Assembly, variables: Mapping[str, Any], *, key: jax.Array) -> dict[str, Any]:
    """Fit a linear probe on the train images as they are, and score it on the test images.

    Returns:
        test_accuracy of images as they are, test_accuracy_averaged over views (probabilities), and
        probe, what it was fitted on.
    """
    section, encoder = parts.config.evaluation, parts.classifier
    if not isinstance(encoder, Projected):
        raise TypeError(f"a contrast was learned by {type(encoder).__name__}, not by Projected.")

    def features(variables: Any, images: jax.Array) -> jax.Array:
        made: Any = encoder.apply(variables["classifier"], images, method="represent")
        return made

    @jax.jit
    def represented(variables: Any, images: jax.Array) -> jax.Array:
        return features(variables, parts.normalization(images))

    def over(images: np.ndarray, each: Callable[[np.ndarray, int], jax.Array]) -> np.ndarray:
        found = [
            np.asarray(each(images[index], number))[np.asarray(mask) > 0]
            for number, (index, mask) in enumerate(
                padded_batches(len(images), min(section.batch_size, len(images)))
            )
        ]
        return np.concatenate(found)

    train, test = (
        over(images, lambda some, _: represented(variables, some))
        for images in (parts.data.train.images, parts.data.test.images)
    )
    kernel, bias = fit_probe(train, parts.data.train.labels, len(parts.data.class_names))
    labels = parts.data.test.labels
    plain = float(np.mean(np.argmax(test @ kernel + bias, axis=-1) == labels))
    results: dict[str, Any] = {"test_accuracy": plain, "probe": "train images as they are"}
    if not parts.distribution.has_density:
        return results | {"test_accuracy_averaged": plain, "evaluation_samples": 1}
    key = jax.random.fold_in(key, Stream.PREDICT)

    @jax.jit
    def averaged(variables: Any, images: jax.Array, key: jax.Array) -> jax.Array:
        logits = view_logits(
            lambda x: features(variables, x) @ kernel + bias,
            lambda x: parts.distribution.apply(variables["distribution"], x, train=False),  # pyright: ignore[reportArgumentType]
            parts.transform,
            parts.normalization(images),
            key=key,
            num_samples=section.num_samples,
        )
        return average_views(logits, "probs")

    many = over(
        parts.data.test.images,
        lambda some, number: averaged(variables, some, jax.random.fold_in(key, number)),
    )
    return results | {
        "test_accuracy_averaged": float(np.mean(np.argmax(many, axis=-1) == labels)),
        "evaluation_rule": "plain",
        "evaluation_average": "probs",
        "evaluation_samples": section.num_samples,
    }
