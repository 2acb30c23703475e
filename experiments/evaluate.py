"""Final measurements of a run: accuracy of one and of averaged views, and the learned density."""

from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from experiments.defaults import Config
from flowjax_inv import metrics
from flowjax_inv.data.batches import padded_batches
from flowjax_inv.data.pixels import Normalization
from flowjax_inv.data.sets import DataSet, Split
from flowjax_inv.data.sprites import load_sprites, turned
from flowjax_inv.distributions.base import ConditionalDistribution
from flowjax_inv.inference import average_views, view_logits
from flowjax_inv.placement import Placement
from flowjax_inv.training import edge_share
from flowjax_inv.transforms import Transform

__all__ = [
    "RULES",
    "averaged_accuracies",
    "density_by_pose",
    "density_on_images",
    "make_accuracy",
    "make_arc_shares",
]

_STREAM_PREDICT, _STREAM_DENSITY, _STREAM_ARCS = 2, 3, 6  # beside those of training.py
_ARC_IMAGES = 20  # per class: those whose arcs are followed through training

# How views are chosen for an averaged prediction: the paper's average; its code's rejection of far
# samples together with the untransformed image.
RULES: dict[str, dict[str, Any]] = {
    "plain": {"include_original": False, "max_norm": None},
    "code": {"include_original": True, "max_norm": 1.0},
}
_AVERAGES = ("probs", "logits")


def _batches(
    split: Split, batch_size: int, placement: Placement
) -> list[tuple[jax.Array, jax.Array]]:
    """Return indices and masks that cover a split, divided among the devices."""
    count = len(placement.devices)
    whole = -(-batch_size // count) * count
    return [
        (placement.divide(index), placement.divide(mask))
        for index, mask in padded_batches(len(split), whole)
    ]


def make_accuracy(
    classifier: nn.Module,
    split: Split,
    batch_size: int,
    *,
    normalization: Normalization,
    placement: Placement,
) -> Callable[[Any], jax.Array]:
    """Return variables -> accuracy of the classifier alone on the whole split, as a device scalar.

    The last batch is padded and masked, so no image is dropped and one shape is compiled.
    """
    images, labels = placement.replicate((split.images, split.labels))
    batches = _batches(split, batch_size, placement)

    @jax.jit
    def correct(
        variables: Any, images: jax.Array, labels: jax.Array, index: jax.Array, mask: jax.Array
    ) -> jax.Array:
        logits: Any = classifier.apply(variables, normalization(images[index]), train=False)
        return jnp.sum((jnp.argmax(logits, -1) == labels[index]) & mask)

    def accuracy(variables: Any) -> jax.Array:
        total = sum(correct(variables, images, labels, index, mask) for index, mask in batches)
        return jnp.asarray(total) / len(split)

    return accuracy


def make_arc_shares(
    distribution: ConditionalDistribution,
    transform: Transform,
    data: DataSet,
    config: Config,
    *,
    normalization: Normalization,
    key: jax.Array,
) -> Callable[[Any], dict[str, jax.Array]] | None:
    """Return variables -> arc_share_CLASS: how much of the circle a class's images are turned by.

    The mean over the first test images of a class of `metrics.arc_share`, as device scalars; None
    where there is no rotation over the whole circle, or no density.
    """
    if not (distribution.has_density and "rotation" in transform.names):
        return None
    axis = transform.names.index("rotation")
    if transform.half_range[axis] < 180.0:
        return None
    classes = len(data.class_names)
    chosen = [np.flatnonzero(data.test.labels == c)[:_ARC_IMAGES] for c in range(classes)]
    images = jnp.asarray(data.test.images[np.concatenate(chosen)])
    sizes = np.array([len(index) for index in chosen])
    of_class = np.repeat(np.arange(classes), sizes)

    @jax.jit
    def arcs(variables: Any, images: jax.Array, key: jax.Array) -> list[jax.Array]:
        density: Any = distribution.apply(variables, normalization(images), train=False)
        theta = density.sample(seed=key, sample_shape=(config.evaluation.density_samples,))
        shares = metrics.arc_share(jnp.moveaxis(theta[..., axis], 0, -1) * 180.0)
        sums = jnp.zeros(classes).at[of_class].add(shares)
        return list(sums / np.maximum(sizes, 1))

    def measure(variables: Any) -> dict[str, jax.Array]:
        found = arcs(variables, images, jax.random.fold_in(key, _STREAM_ARCS))
        return {
            f"arc_share_{name}": share
            for name, share, size in zip(data.class_names, found, sizes, strict=True)
            if size
        }

    return measure


def averaged_accuracies(
    classifier: nn.Module,
    distribution: ConditionalDistribution,
    transform: Transform,
    variables: Mapping[str, Any],
    split: Split,
    section: Config,
    *,
    normalization: Normalization,
    placement: Placement,
    key: jax.Array,
) -> dict[str, Any]:
    """Measure predictions averaged over views, by every rule of `section`, with both averages.

    Returns:
        test_accuracy_RULE_AVERAGE for all, test_accuracy_averaged for the headline, and its names.
    """
    images, labels = placement.replicate((split.images, split.labels))
    batches = _batches(split, section.batch_size, placement)
    key = jax.random.fold_in(key, _STREAM_PREDICT)
    # The views of a point mass are all alike.
    num_samples = section.num_samples if distribution.has_density else 1
    rules = section.rules if distribution.has_density else ("plain",)
    results: dict[str, Any] = {}
    for rule in rules:

        @jax.jit
        def correct(
            variables: Any,
            images: jax.Array,
            labels: jax.Array,
            index: jax.Array,
            mask: jax.Array,
            key: jax.Array,
            rule: str = rule,
        ) -> jax.Array:
            def applied(module: nn.Module, name: str) -> Any:
                return lambda x: module.apply(variables[name], x, train=False)

            logits = view_logits(
                applied(classifier, "classifier"),
                applied(distribution, "distribution"),
                transform,
                normalization(images[index]),
                key=key,
                num_samples=num_samples,
                **RULES[rule],
            )
            answers = jnp.stack([jnp.argmax(average_views(logits, a), -1) for a in _AVERAGES])
            return jnp.sum((answers == labels[index]) & mask, axis=-1)

        total = sum(
            correct(variables, images, labels, index, mask, jax.random.fold_in(key, number))
            for number, (index, mask) in enumerate(batches)
        )
        for average, count in zip(_AVERAGES, np.asarray(total), strict=True):
            results[f"test_accuracy_{rule}_{average}"] = int(count) / len(split)
    return results | {
        "test_accuracy_averaged": results[f"test_accuracy_{rules[0]}_{section.average}"],
        "evaluation_rule": rules[0],
        "evaluation_average": section.average,
        "evaluation_samples": num_samples,
    }


def density_on_images(
    distribution: ConditionalDistribution,
    transform: Transform,
    variables: Any,
    data: DataSet,
    config: Config,
    *,
    normalization: Normalization,
    key: jax.Array,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Measure the densities of test images whose pose nobody knows.

    Ranges are (p99 - p1) / 2 / 0.98 of theta, times the transform's half-range: of a uniform
    density, its half-width.

    Returns:
        Figures for results.json, and arrays for evaluation.npz (see report/page.py).
    """
    section = config.evaluation
    # Evenly over the split: official test sets may be ordered.
    count = min(section.density_images, len(data.test))
    chosen = np.linspace(0, len(data.test) - 1, count).astype(int)
    images, labels = data.test.images[chosen], data.test.labels[chosen]
    names = np.asarray(data.class_names)
    # One image of each of twelve classes, evenly from all, or two where there are few.
    rows = np.unique(np.linspace(0, len(names) - 1, min(len(names), 12)).astype(int))
    each = 2 if len(rows) <= 6 else 1
    shown = np.concatenate([np.flatnonzero(data.test.labels == c)[:each] for c in rows])
    box = np.asarray(transform.half_range, np.float32)

    @jax.jit
    def sampled(variables: Any, images: jax.Array, key: jax.Array) -> tuple[jax.Array, ...]:
        density: Any = distribution.apply(variables, normalization(images), train=False)
        theta, log_prob = density.sample_and_log_prob(
            seed=key, sample_shape=(section.density_samples,)
        )
        low, high = jnp.percentile(theta, jnp.array([1.0, 99.0]), axis=0)
        ranges = (high - low) / 2 / 0.98 * box
        return ranges, -jnp.mean(log_prob, axis=0), edge_share(theta, transform.periodic)

    @jax.jit
    def seen(variables: Any, images: jax.Array, key: jax.Array) -> jax.Array:
        pixels = normalization(images)
        density: Any = distribution.apply(variables, pixels, train=False)
        views = transform(pixels, density.sample(seed=key, sample_shape=(10,)))
        return jnp.round(normalization.undo(jnp.moveaxis(views, 0, 1)) * 255).astype(jnp.uint8)

    key = jax.random.fold_in(key, _STREAM_DENSITY)
    parts = [
        sampled(variables, jnp.asarray(images[index]), jax.random.fold_in(key, number))
        for number, (index, _) in enumerate(padded_batches(count, min(section.batch_size, count)))
    ]
    ranges, entropy = (np.concatenate([np.asarray(p[i]) for p in parts])[:count] for i in (0, 1))
    shown_images = data.test.images[shown]
    if "rotation" in transform.names:
        arrays = _turns(distribution, transform, variables, data, section, normalization, key)
    else:
        arrays = {}
    results = {
        "entropy": float(entropy.mean()),
        "saturated_share": float(np.mean([float(part[2]) for part in parts])),
    } | {
        f"half_range_{name}": float(value)
        for name, value in zip(transform.names, ranges.mean(0), strict=True)
    }
    arrays |= {
        "class_names": names,
        "coordinate_names": np.asarray(transform.names),
        "coordinate_units": np.asarray(transform.units),
        "coordinate_half_ranges": box,
        "image_labels": labels,
        "image_entropy": entropy.astype(np.float32),
        "image_ranges": ranges.astype(np.float32),
        "shown_images": shown_images,
        "shown_labels": data.test.labels[shown],
        "shown_views": np.asarray(seen(variables, jnp.asarray(shown_images), key)),
    }
    return results, arrays


def _turns(
    distribution: ConditionalDistribution,
    transform: Transform,
    variables: Any,
    data: DataSet,
    section: Config,
    normalization: Normalization,
    key: jax.Array,
) -> dict[str, np.ndarray]:
    """Sample rotations of the first five test images of every class, for circles to be drawn."""
    each, axis = 5, transform.names.index("rotation")
    classes = len(data.class_names)
    of_class = [np.flatnonzero(data.test.labels == c)[:each] for c in range(classes)]
    if any(len(index) < each for index in of_class):
        return {}
    images = data.test.images[np.stack(of_class)]

    @jax.jit
    def rotations(variables: Any, images: jax.Array, key: jax.Array) -> jax.Array:
        density: Any = distribution.apply(variables, normalization(images), train=False)
        theta = density.sample(seed=key, sample_shape=(section.density_samples,))
        return jnp.moveaxis(theta[..., axis], 0, -1) * transform.half_range[axis]

    flat = jnp.asarray(images.reshape(-1, *images.shape[2:]))
    turns = np.asarray(rotations(variables, flat, jax.random.fold_in(key, _STREAM_DENSITY)))
    return {
        "pose_degrees": np.zeros((classes, each), np.float32),
        "rotation_degrees": turns.reshape(classes, each, -1),
        "images": images,
    }


def density_by_pose(
    distribution: ConditionalDistribution,
    transform: Transform,
    variables: Any,
    data: DataSet,
    config: Config,
    *,
    normalization: Normalization,
    key: jax.Array,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Measure the density at poses over the whole first arc of every class.

    Returns:
        Figures for results.json, and arrays for evaluation.npz (see report/page.py).
    """
    centres, half_range = data.centres_degrees, data.arc_half_range_degrees
    if centres is None or half_range is None:
        raise ValueError("the poses of this set are not known; use density_on_images.")
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
        density: Any = distribution.apply(variables, normalization(images), train=False)
        return density.sample_and_log_prob(seed=key, sample_shape=(section.density_samples,))

    theta, log_prob = samples(
        variables, jnp.asarray(images), jax.random.fold_in(key, _STREAM_DENSITY)
    )
    theta = jnp.moveaxis(theta, 0, 1).reshape(classes, poses, -1, transform.dim)
    axis = transform.names.index("rotation")
    rotation = theta[..., axis] * transform.half_range[axis]
    half, raw = metrics.half_range_degrees(rotation)
    result = metrics.wrap_degrees(rotation + pose[..., None])

    def of_each_class(measure: Callable[..., jax.Array], **fields: Any) -> jax.Array:
        """Measure (classes, poses, ...) of what samples do to poses against a class's arcs."""
        return jnp.stack(
            [
                measure(result[i], jnp.asarray(centres[i]), half_range, **fields)
                for i in range(classes)
            ]
        )

    outside = of_each_class(metrics.outside_share)
    distance = of_each_class(metrics.kolmogorov_distance)
    # The classes of one figure are neighbours: up and down.
    other = jnp.stack(
        [
            1.0 - metrics.outside_share(result[i], jnp.asarray(centres[i ^ 1]), half_range, 0.0)
            for i in range(classes)
        ]
    )
    shown = (poses * np.array([0.1, 0.3, 0.5, 0.7, 0.9])).astype(int)
    views = 12
    picture = normalization(jnp.asarray(images)).reshape(classes, poses, *images.shape[1:])[
        :, shown
    ]
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
        "wasserstein_degrees": float(jnp.median(of_each_class(metrics.wasserstein_degrees))),
        "covered_share": float(jnp.median(of_each_class(metrics.covered_share))),
        "other_class_share": float(jnp.median(other)),
        "other_class_share_mean": float(jnp.mean(other)),
        "entropy": float(-jnp.mean(log_prob)),
        "saturated_share": float(edge_share(theta, transform.periodic)),
    }
    if centres.shape[1] > 1:
        shares = of_each_class(metrics.mode_shares)
        error = jnp.abs(shares - 1.0 / centres.shape[1])
        valley = of_each_class(metrics.valley_ratio)
        results |= {
            "mode_share_error": float(jnp.median(jnp.max(error, axis=-1))),
            "mode_share_error_worst": float(jnp.max(error)),
            "outside_share_worst": float(jnp.max(outside)),
            "valley_ratio": float(jnp.median(valley)),
            "valley_ratio_worst": float(jnp.max(valley)),
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
        "views": np.asarray(
            jnp.round(normalization.undo(jnp.moveaxis(seen, 0, 2)) * 255), np.uint8
        ),
    }
    if "translation_x" in transform.names:
        start = transform.names.index("translation_x")
        width = np.asarray(transform.half_range[start : start + 2], np.float32)
        arrays["translation"] = np.asarray(theta[..., start : start + 2]) * width
    return results, arrays
