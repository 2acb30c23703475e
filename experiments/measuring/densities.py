"""The learned density of a run: on images whose pose nobody knows, and over time."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.setup.defaults import Config
from flowjax_inv import metrics
from flowjax_inv.data.batches import padded_batches
from flowjax_inv.data.pixels import Normalization
from flowjax_inv.data.sets import DataSet
from flowjax_inv.distributions.base import ConditionalDistribution
from flowjax_inv.inference import make_mean_shift
from flowjax_inv.training import Stream, edge_share
from flowjax_inv.transforms import Chain, Crop, Transform

__all__ = ["Subject", "make_arc_shares", "on_images", "turns", "verdict"]


@dataclasses.dataclass(frozen=True)
class Subject:
    """What is measured, and on what.

    Attributes:
        distribution: the module.
        transform: whose coordinates it draws.
        data: the set; its test split is measured.
        normalization: of stored pixels.
        config: of the run.
        key: of the run.
    """

    distribution: ConditionalDistribution
    transform: Transform
    data: DataSet
    normalization: Normalization
    config: Config
    key: jax.Array

    @property
    def section(self) -> Config:
        """The fields of the evaluation."""
        return self.config.evaluation

    def fold_key(self, stream: int) -> jax.Array:
        """Return the key of one stream."""
        return jax.random.fold_in(self.key, stream)


def make_arc_shares(subject: Subject) -> Callable[[Any], dict[str, jax.Array]] | None:
    """Return variables -> arc_share_CLASS: how much of the circle a class's images are turned by.

    The mean over the first `arc_images` test images of a class of `metrics.arc_share`, as device
    scalars; None where there is no density or no rotation round the circle, or where poses are
    known: there `posed_densities.by_pose` says more.
    """
    distribution, transform, data = subject.distribution, subject.transform, subject.data
    has_angle = distribution.has_density and "rotation" in transform.names
    axis = transform.names.index("rotation") if has_angle else 0
    if not has_angle or not transform.periodic[axis] or data.centres_degrees is not None:
        return None
    classes = len(data.class_names)
    chosen = [
        np.flatnonzero(data.test.labels == c)[: subject.section.arc_images] for c in range(classes)
    ]
    images = jnp.asarray(data.test.images[np.concatenate(chosen)])
    sizes = np.array([len(index) for index in chosen])
    of_class = np.repeat(np.arange(classes), sizes)

    @jax.jit
    def arcs(variables: Any, images: jax.Array, key: jax.Array) -> list[jax.Array]:
        density: Any = distribution.apply(variables, subject.normalization(images), train=False)
        theta = density.sample(seed=key, sample_shape=(subject.section.density_samples,))
        shares = metrics.arc_share(jnp.moveaxis(theta[..., axis], 0, -1) * 180.0)
        sums = jnp.zeros(classes).at[of_class].add(shares)
        return list(sums / np.maximum(sizes, 1))

    def measure(variables: Any) -> dict[str, jax.Array]:
        found = arcs(variables, images, subject.fold_key(Stream.ARCS))
        return {
            f"arc_share_{name}": share
            for name, share, size in zip(data.class_names, found, sizes, strict=True)
            if size
        }

    return measure


def on_images(subject: Subject, variables: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Measure the densities of test images whose pose nobody knows.

    Ranges are (p99 - p1) / 2 / 0.98 of theta, times the transform's half-range: of a uniform
    density, its half-width.

    Returns:
        Figures for results.json, and arrays for evaluation.npz (see report/evaluation.py).
    """
    data, section, normalization = subject.data, subject.section, subject.normalization
    distribution, transform = subject.distribution, subject.transform
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
    def values(variables: Any, images: jax.Array) -> jax.Array:
        density: Any = distribution.apply(variables, normalization(images), train=False)
        return density.atoms

    @jax.jit
    def sampled(variables: Any, images: jax.Array, key: jax.Array) -> tuple[jax.Array, ...]:
        density: Any = distribution.apply(variables, normalization(images), train=False)
        theta, log_prob = density.sample_and_log_prob(
            seed=key, sample_shape=(section.density_samples,)
        )
        low, high = jnp.percentile(theta, jnp.array([1.0, 99.0]), axis=0)
        ranges = (high - low) / 2 / 0.98 * box
        return (
            ranges,
            -jnp.mean(log_prob, axis=0),
            edge_share(theta, transform.periodic, distribution.discrete),
        )

    @jax.jit
    def seen(variables: Any, images: jax.Array, key: jax.Array) -> dict[str, jax.Array]:
        pixels = normalization(images)
        density: Any = distribution.apply(variables, pixels, train=False)
        theta = density.sample(seed=key, sample_shape=(10,))
        views = normalization.undo(jnp.moveaxis(transform(pixels, theta), 0, 1))
        found = {"shown_views": jnp.round(views * 255).astype(jnp.uint8)}
        moves = transform.spatial if isinstance(transform, Chain) else transform
        if isinstance(moves, Crop):
            found["shown_boxes"] = jnp.moveaxis(moves.boxes(theta[..., : moves.dim]), 0, 1)
        return found

    key = subject.fold_key(Stream.DENSITY)
    parts = [
        sampled(variables, jnp.asarray(images[index]), jax.random.fold_in(key, number))
        for number, (index, _) in enumerate(padded_batches(count, min(section.batch_size, count)))
    ]
    ranges, entropy = (np.concatenate([np.asarray(p[i]) for p in parts])[:count] for i in (0, 1))
    arrays = _turns(subject, variables) if "rotation" in transform.names else {}
    results = {
        "entropy": float(entropy.mean()),
        "saturated_share": float(np.mean([float(part[2]) for part in parts])),
    } | {
        f"half_range_{name}": float(value)
        for name, value in zip(transform.names, ranges.mean(0), strict=True)
    }
    if "rotation" in transform.names:
        results |= verdict(results["half_range_rotation"], min(data.test.images.shape[1:3]))
    if data.pictures:
        shown_images = data.test.images[shown]
        arrays |= {
            "shown_images": shown_images,
            "shown_labels": data.test.labels[shown],
        }
        views = seen(variables, jnp.asarray(shown_images), key)
        arrays |= {name: np.asarray(value) for name, value in views.items()}
        if section.straighten_shown:
            arrays |= _straightened(subject, variables, shown_images)
    if distribution.discrete:
        results["log_volume"] = float(np.log(len(values(variables, jnp.asarray(images[:1])))))
    arrays |= {
        "class_names": names,
        "coordinate_names": np.asarray(transform.names),
        "coordinate_units": np.asarray(transform.units),
        "coordinate_half_ranges": box,
        "image_labels": labels,
        "image_entropy": entropy.astype(np.float32),
        "image_ranges": ranges.astype(np.float32),
    }
    return results, arrays


def _straightened(subject: Subject, variables: Any, images: np.ndarray) -> dict[str, np.ndarray]:
    """Bring the images that a report shows to where their densities are centred."""
    shift = make_mean_shift(
        subject.distribution,
        subject.transform,
        steps=subject.section.straighten_steps,
        num_samples=100,
        step_size=0.1,
        spread="stratified",
        common_noise=True,
    )
    pixels = subject.normalization(jnp.asarray(images))
    moved = shift(variables, pixels, subject.fold_key(Stream.STRAIGHTEN))
    seen = jnp.round(subject.normalization.undo(moved.images) * 255)
    theta = np.asarray(moved.theta) * np.asarray(subject.transform.half_range, np.float32)
    return {"shown_straightened": np.asarray(seen, np.uint8), "shown_moves": theta}


def _turns(subject: Subject, variables: Any) -> dict[str, np.ndarray]:
    """Sample rotations of the first five test images of every class, for circles to be drawn."""
    data, transform = subject.data, subject.transform
    each, axis = 5, transform.names.index("rotation")
    classes = len(data.class_names)
    of_class = [np.flatnonzero(data.test.labels == c)[:each] for c in range(classes)]
    if any(len(index) < each for index in of_class):
        return {}
    images = data.test.images[np.stack(of_class)]

    @jax.jit
    def rotations(variables: Any, images: jax.Array, key: jax.Array) -> jax.Array:
        density: Any = subject.distribution.apply(
            variables, subject.normalization(images), train=False
        )
        # Few images are drawn, by bins: what is enough for a range would look ragged.
        count = max(subject.section.density_samples, 2_000)
        theta = density.sample(seed=key, sample_shape=(count,))
        return jnp.moveaxis(theta[..., axis], 0, -1) * transform.half_range[axis]

    flat = jnp.asarray(images.reshape(-1, *images.shape[2:]))
    turns = np.asarray(rotations(variables, flat, subject.fold_key(Stream.DENSITY)))
    return {
        "pose_degrees": np.zeros((classes, each), np.float32),
        "rotation_degrees": turns.reshape(classes, each, -1),
        "images": images,
    }


def turns(transform: Transform) -> bool:
    """Whether pictures can be turned by it: by an angle, or by entries that hold the rotations."""
    return "rotation" in transform.names or {"b", "d"} <= set(transform.names)


def verdict(half_range_degrees: float, size: int) -> dict[str, Any]:
    """Say whether a learned range of turns counts: whether it moves the rim by a pixel.

    Args:
        half_range_degrees: learned, about the input.
        size: pixels across the picture.

    Returns:
        Figures for results.json: least_turn_degrees, 2 / size as an angle, and invariance_found.
    """
    least = float(np.rad2deg(2.0 / size))
    return {"least_turn_degrees": least, "invariance_found": half_range_degrees > least}
