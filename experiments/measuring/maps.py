"""Labels of pixels: how many are right, class by class, and whether they move with the image."""

from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from experiments.measuring.evaluate import Judge
from flowjax_inv.data.batches import padded_batches
from flowjax_inv.distributions.base import ConditionalDistribution
from flowjax_inv.inference import average_maps, predict_map, view_maps
from flowjax_inv.training import Stream
from flowjax_inv.transforms import Affine, Transform

__all__ = ["VIEWS", "mean_iou", "measure_maps"]

_Module = Callable[[jax.Array], Any]  # images -> what a module makes of them


VIEWS = (1, 2, 4, 8, 16, 32)  # by which the equivariance error is measured
_TURNED, _SHOWN = 96, 8  # images that are turned for it, and images that the report shows
_RADIUS = 0.8  # half pictures from the middle: beyond, a turned picture has corners of its own


def mean_iou(counts: np.ndarray) -> float:
    """Return the mean over classes of intersection by union; classes that are nowhere left out.

    Args:
        counts: (classes, classes), pixels by label and prediction.
    """
    both = np.diag(counts).astype(float)
    either = counts.sum(0) + counts.sum(1) - both
    return float(np.mean(both[either > 0] / either[either > 0]))


def measure_maps(
    judge: Judge,
    classifier: nn.Module,
    distribution: ConditionalDistribution,
    transform: Transform,
    variables: Mapping[str, Any],
    *,
    key: jax.Array,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Score maps of the test split, of images as they are and averaged over views.

    The equivariance error is the mean over turns g of the circle and pixels near the middle of
    1/2 sum_c |p_c(g x) - (g p(x))_c|, p by the first of some views, drawn anew for each side.

    Returns:
        test_accuracy_averaged (of pixels), test_mean_iou, test_mean_iou_averaged,
        equivariance_error, of the network alone, and equivariance_error_K of K views; and arrays
        of the images that the report shows.
    """
    section = judge.section
    key = jax.random.fold_in(key, Stream.PREDICT)

    def plain(variables: Any, images: jax.Array) -> jax.Array:
        logits: Any = classifier.apply(variables["classifier"], images, train=False)
        return jax.nn.softmax(logits)

    def modules(variables: Any) -> tuple[_Module, _Module]:
        def applied(module: nn.Module, name: str) -> _Module:
            return lambda x: module.apply(variables[name], x, train=False)

        return applied(classifier, "classifier"), applied(distribution, "distribution")

    count = section.num_samples if distribution.has_density else 1

    @jax.jit
    def answers(variables: Any, images: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        images = judge.normalization(images)
        averaged = predict_map(
            *modules(variables), transform, images, key=key, num_samples=count
        ).probs
        return jnp.argmax(plain(variables, images), -1), jnp.argmax(averaged, -1)

    made = []
    for number, (index, mask) in enumerate(padded_batches(len(judge.targets), section.batch_size)):
        some = answers(variables, judge.images[index], jax.random.fold_in(key, number))
        made.append([np.asarray(each)[np.asarray(mask) > 0] for each in some])
    alone, averaged = (np.concatenate(each) for each in zip(*made, strict=True))
    classes = int(max(judge.targets.max(), alone.max(), averaged.max())) + 1

    def counts(answers: np.ndarray) -> np.ndarray:
        pairs = classes * judge.targets.ravel().astype(np.int64) + answers.ravel()
        return np.bincount(pairs, minlength=classes**2).reshape(classes, classes)

    results = {
        "test_accuracy_averaged": float(np.mean(averaged == judge.targets)),
        "test_mean_iou": mean_iou(counts(alone)),
        "test_mean_iou_averaged": mean_iou(counts(averaged)),
        "evaluation_rule": "plain",
        "evaluation_average": "probs",
        "evaluation_samples": count,
    }

    def by_views(images: jax.Array, key: jax.Array) -> list[jax.Array]:
        found = [plain(variables, images)]
        if distribution.has_density:
            both = modules(variables)
            logits, theta = view_maps(*both, transform, images, key=key, num_samples=VIEWS[-1])
            found += [average_maps(logits[:k], theta[:k], transform).probs for k in VIEWS]
        return found

    images = judge.normalization(jnp.asarray(judge.images[:_TURNED]))
    names = ["equivariance_error", *(f"equivariance_error_{k}" for k in VIEWS)]
    errors = _errors(by_views, images, jax.random.fold_in(key, 1))
    results |= dict(zip(names, errors, strict=False))  # of a point mass the first alone
    shown = {
        "map_images": judge.images, "map_labels": judge.targets, "map_plain": alone,
        "map_averaged": averaged,
    }  # fmt: skip
    return results, {name: np.asarray(array[:_SHOWN]) for name, array in shown.items()}


def _errors(
    answers: Callable[[jax.Array, jax.Array], list[jax.Array]], images: jax.Array, key: jax.Array
) -> list[float]:
    """Return, answer by answer, how far maps of turned images are from turned maps, in [0, 1]."""
    turn = Affine("rotation")
    keys = jax.random.split(key, 3)
    angles = jax.random.uniform(keys[0], (len(images), 1), minval=-1.0)
    y, x = (jnp.linspace(-1.0, 1.0, size) for size in images.shape[1:3])
    inside = jnp.hypot(x[None], y[:, None]) < _RADIUS

    @jax.jit
    def errors(images: jax.Array, angles: jax.Array) -> list[jax.Array]:
        pairs = zip(answers(turn(images, angles), keys[1]), answers(images, keys[2]), strict=True)
        apart = [0.5 * jnp.sum(jnp.abs(a - turn(b, angles)), axis=-1) for a, b in pairs]
        return [jnp.sum(each * inside) / (jnp.sum(inside) * len(images)) for each in apart]

    return [float(error) for error in errors(images, angles)]
