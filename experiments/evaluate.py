"""Final measurements of a run: accuracy of one and of averaged views, and the learned density."""

from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from experiments.defaults import Config
from flowjax_inv import metrics
from flowjax_inv.data.batches import padded_batches
from flowjax_inv.data.sets import DataSet, Split
from flowjax_inv.data.sprites import load_sprites, turned
from flowjax_inv.distributions.base import ConditionalDistribution
from flowjax_inv.inference import make_predict
from flowjax_inv.training import edge_share, to_float
from flowjax_inv.transforms import Transform

__all__ = ["averaged_accuracy", "density_by_pose", "make_accuracy"]

_STREAM_PREDICT, _STREAM_DENSITY = 2, 3  # beside those of training.py


def make_accuracy(classifier: nn.Module, split: Split, batch_size: int) -> Any:
    """Return variables -> accuracy of the classifier alone on the whole split, as a device scalar.

    The last batch is padded and masked, so no image is dropped and one shape is compiled.
    """
    images, labels = jnp.asarray(split.images), jnp.asarray(split.labels)
    batches = padded_batches(len(split), batch_size)

    @jax.jit
    def correct(
        variables: Any, images: jax.Array, labels: jax.Array, index: jax.Array, mask: jax.Array
    ) -> jax.Array:
        logits: Any = classifier.apply(variables, to_float(images[index]), train=False)
        return jnp.sum((jnp.argmax(logits, -1) == labels[index]) & mask)

    def accuracy(variables: Any) -> jax.Array:
        total = sum(correct(variables, images, labels, index, mask) for index, mask in batches)
        return jnp.asarray(total) / len(split)

    return accuracy


def averaged_accuracy(
    classifier: nn.Module,
    distribution: ConditionalDistribution,
    transform: Transform,
    variables: Mapping[str, Any],
    split: Split,
    section: Config,
    *,
    key: jax.Array,
) -> float:
    """Return the accuracy of predictions averaged over views, by the rule of `section`."""
    predict = make_predict(
        classifier,
        distribution,
        transform,
        num_samples=section.num_samples,
        average=section.average,
        include_original=section.include_original,
    )
    key = jax.random.fold_in(key, _STREAM_PREDICT)
    correct = 0
    for number, (index, mask) in enumerate(padded_batches(len(split), section.batch_size)):
        images = to_float(jnp.asarray(split.images[index]))
        probs = predict(variables, images, jax.random.fold_in(key, number))
        hits = np.asarray(jnp.argmax(probs, -1)) == split.labels[index]
        correct += int(np.sum(hits & mask))
    return correct / len(split)


def density_by_pose(
    distribution: ConditionalDistribution,
    transform: Transform,
    variables: Any,
    data: DataSet,
    config: Config,
    *,
    key: jax.Array,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Measure the density at poses over the whole first arc of every class.

    Returns:
        Figures for results.json, and arrays for evaluation.npz (see report/page.py).
    """
    centres, half_range = data.centres_degrees, data.arc_half_range_degrees
    if centres is None or half_range is None or "rotation" not in transform.names:
        return {}, {}
    if not distribution.has_density:
        return {}, {}
    section = config.evaluation
    classes, poses = len(data.class_names), section.poses
    # Middles of equal parts: at the very end of an arc two classes share one picture.
    offsets = ((np.arange(poses) + 0.5) / poses * 2 - 1) * half_range
    # A first centre of -180 is shown as 180: poses then run upward without a jump.
    first = np.where(centres[:, :1] == -180.0, 180.0, centres[:, :1])
    pose = first + offsets
    sprites = load_sprites(config.data.sprites)
    which = np.repeat(np.arange(classes) // 2, poses)
    images = turned(sprites[which], pose.reshape(-1), config.data.align_corners)

    @jax.jit
    def samples(variables: Any, images: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        density: Any = distribution.apply(variables, to_float(images), train=False)
        return density.sample_and_log_prob(seed=key, sample_shape=(section.density_samples,))

    theta, log_prob = samples(
        variables, jnp.asarray(images), jax.random.fold_in(key, _STREAM_DENSITY)
    )
    theta = jnp.moveaxis(theta, 0, 1).reshape(classes, poses, -1, transform.dim)
    axis = transform.names.index("rotation")
    rotation = theta[..., axis] * transform.half_range[axis]
    half, raw = metrics.half_range_degrees(rotation)
    result = metrics.wrap_degrees(rotation + pose[..., None])
    outside = jnp.stack(
        [
            metrics.outside_share(result[i], jnp.asarray(centres[i]), half_range)
            for i in range(classes)
        ]
    )
    distance = jnp.stack(
        [
            metrics.kolmogorov_distance(result[i], jnp.asarray(centres[i]), half_range)
            for i in range(classes)
        ]
    )
    shown = (poses * np.array([0.1, 0.3, 0.5, 0.7, 0.9])).astype(int)
    views = 12
    picture = to_float(jnp.asarray(images)).reshape(classes, poses, *images.shape[1:])[:, shown]
    view_theta = jnp.moveaxis(theta[:, shown, :views], 2, 0)
    seen = transform(picture, view_theta)
    results = {
        "half_range_degrees": float(jnp.median(half)),
        "half_range_raw_degrees": float(jnp.median(raw)),
        "true_half_range_degrees": float(half_range),
        "outside_share": float(jnp.median(outside)),
        "outside_share_mean": float(jnp.mean(outside)),
        "kolmogorov_distance": float(jnp.median(distance)),
        "kolmogorov_distance_worst": float(jnp.max(distance)),
        "entropy": float(-jnp.mean(log_prob)),
        "saturated_share": float(edge_share(theta, transform.periodic)),
    }
    arrays = {
        "class_names": np.asarray(data.class_names),
        "pose_degrees": pose.astype(np.float32),
        "rotation_degrees": np.asarray(rotation, np.float32),
        "half_range_degrees": np.asarray(half, np.float32),
        "centres_degrees": centres,
        "arc_half_range_degrees": np.float32(half_range),
        "images": images.reshape(classes, poses, *images.shape[1:]),
        "view_index": shown,
        "views": np.asarray(jnp.round(jnp.moveaxis(seen, 0, 2) * 255), np.uint8),
    }
    if "translation_x" in transform.names:
        start = transform.names.index("translation_x")
        width = np.asarray(transform.half_range[start : start + 2], np.float32)
        arrays["translation"] = np.asarray(theta[..., start : start + 2]) * width
    return results, arrays
