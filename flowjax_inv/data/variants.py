"""What experiments make of a data set: parts of it, uneven classes, pictures turned once for all.

Every function takes a `DataSet` and gives a new one; arrays are never changed in place.
"""

import dataclasses
import difflib
import math
import re
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from flowjax_inv.data.sets import DataSet, Split
from flowjax_inv.transforms import Affine

__all__ = [
    "class_subset",
    "disc",
    "first",
    "hold_out",
    "labels_of",
    "long_tail",
    "random_subset",
    "repeated",
    "rotated",
    "scaled",
    "set_aside",
    "translated",
    "turned_bicubic",
]


def _taken(split: Split, index: np.ndarray | slice) -> Split:
    pose = split.pose_degrees
    return Split(split.images[index], split.labels[index], None if pose is None else pose[index])


def class_subset(data: DataSet, classes: str | Sequence[int | str]) -> DataSet:
    """Keep some classes, relabelled 0 .. k-1 in the order given.

    Args:
        data: any set.
        classes: labels or names, or a text of them with ranges, as "0-4,9" or "cat,dog".

    Raises:
        ValueError: if a class is unknown or named twice, or none is named.
    """
    labels = labels_of(classes, data.class_names)
    if len(set(labels)) < len(labels) or not labels:
        raise ValueError(f"classes={classes!r} gives the labels {labels}; want each once.")
    new_label = np.full(len(data.class_names), -1, np.int32)
    new_label[labels] = np.arange(len(labels))

    def kept(split: Split) -> Split:
        part = _taken(split, np.flatnonzero(new_label[split.labels] >= 0))
        return dataclasses.replace(part, labels=new_label[part.labels])

    centres = data.centres_degrees
    return dataclasses.replace(
        data,
        train=kept(data.train),
        test=kept(data.test),
        class_names=tuple(data.class_names[label] for label in labels),
        centres_degrees=None if centres is None else centres[labels],
    )


def labels_of(classes: str | Sequence[int | str], names: Sequence[str]) -> list[int]:
    """Return the labels of classes: labels or names, or a text of them with ranges, as "0-4,cat".

    Raises:
        ValueError: if a class is not among `names`.
    """
    items = classes.split(",") if isinstance(classes, str) else list(classes)
    return [label for item in items for label in _labels_of(item, tuple(names))]


def _labels_of(item: int | str, names: tuple[str, ...]) -> list[int]:
    """Return the labels of a label, a range of labels, or a name."""
    text, last = str(item).strip(), len(names) - 1
    bounds = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    if bounds:
        low, high = int(bounds[1]), int(bounds[2] or bounds[1])
        if not low <= high <= last:
            raise ValueError(f"class {text} is not among the labels; want 0 .. {last}.")
        return list(range(low, high + 1))
    if text in names:
        return [names.index(text)]
    near = difflib.get_close_matches(text, names, n=1, cutoff=0.5)
    raise ValueError(
        f'class "{text}" is unknown; '
        + (f"did you mean {near[0]}?" if near else f"want labels 0 .. {last}, or names.")
    )


def long_tail(data: DataSet, ratio: float) -> DataSet:
    """Thin out the classes of the train split, each more than the one before.

    n_i = floor(n_0 ratio^(-i / (C - 1))), the first n_i images of class i in their order; n_0 is
    the size of the smallest class. The test split stays. Where the order may not be the archive's,
    the note says so.

    Args:
        data: any set; CIFAR-10 with 10 gives 5000, 3871, 2997, 2320, 1796, 1391, 1077, 834, 645,
            500.
        ratio: rho, of the first class's size to the last's, at least 1.

    Raises:
        ValueError: if the ratio is below 1, or leaves a class empty.
    Source: Cui et al. 2019, as in LILA's code. Theirs takes n_0 from CIFAR-10, where all classes
        are alike; with uneven ones, only the smallest has room for any ratio.
    """
    classes = len(data.class_names)
    counts = np.bincount(data.train.labels, minlength=classes)
    if not 1 <= ratio < math.inf:
        raise ValueError(f"long-tail ratio is {ratio}; want 1 or more.")
    exponents = -np.arange(classes) / max(classes - 1, 1)
    # Without the last term, exact quotients such as 5000 / 100 may come out one too small.
    sizes = np.floor(counts.min() * ratio**exponents + 1e-9).astype(int)
    if sizes.min() < 1:
        raise ValueError(
            f"long-tail ratio {ratio} leaves class {data.class_names[int(sizes.argmin())]} "
            f"without an image; want at most {counts.min()}."
        )
    labels = data.train.labels
    index = [np.flatnonzero(labels == label)[:size] for label, size in enumerate(sizes)]
    note = data.note
    if data.may_be_shuffled:
        clause = "long tail: first of each class as stored, which may not be the official order"
        note = f"{note}; {clause}" if note else clause
    train = _taken(data.train, np.sort(np.concatenate(index)))
    return dataclasses.replace(data, train=train, note=note)


def first(data: DataSet, train_size: int = 0, test_size: int = 0) -> DataSet:
    """Keep the first images of each split; 0 keeps all.

    Raises:
        ValueError: if a size is negative or larger than its split.
    """
    for name, size, split in (("train", train_size, data.train), ("test", test_size, data.test)):
        _check_size(f"{name}_size", size, split, low=0)
    return dataclasses.replace(
        data,
        train=_taken(data.train, slice(train_size or None)),
        test=_taken(data.test, slice(test_size or None)),
    )


def set_aside(data: DataSet, share: float, *, seed: int, repeats: int = 1) -> tuple[DataSet, Split]:
    """Take a share of the train images, drawn at random, out of the set: at least one.

    Args:
        data: any set.
        share: in (0, 1).
        seed: of the draw.
        repeats: times every image stands in a row, see `repeated`; all of them go together.

    Returns:
        The set without them, and them; both in the set's order.

    Raises:
        ValueError: if none would be left.
    """
    images = len(data.train) // repeats
    size = max(1, round(share * images))
    if size >= images:
        raise ValueError(
            f"{size} of {images} train images are to be set aside; want fewer than there are."
        )
    aside = np.zeros(images, bool)
    aside[np.random.default_rng(seed).permutation(images)[:size]] = True
    aside = np.repeat(aside, repeats)
    rest = _taken(data.train, np.flatnonzero(~aside))
    return dataclasses.replace(data, train=rest), _taken(data.train, np.flatnonzero(aside))


def random_subset(data: DataSet, train_size: int, *, seed: int) -> DataSet:
    """Keep the first `train_size` train images of an order drawn from `seed`.

    So a smaller subset is part of a larger one of the same seed.

    Raises:
        ValueError: if the size is not 1 .. all.
    """
    _check_size("train_size", train_size, data.train, low=1)
    order = np.random.default_rng(seed).permutation(len(data.train))
    return dataclasses.replace(data, train=_taken(data.train, order[:train_size]))


def hold_out(data: DataSet, size: int) -> DataSet:
    """Make the last `size` train images the test split, to tune without the test images.

    Raises:
        ValueError: if nothing is held out, or nothing left to train on.
    """
    _check_size("held-out size", size, data.train, low=1, spare=1)
    return dataclasses.replace(
        data,
        train=_taken(data.train, slice(None, -size)),
        test=_taken(data.train, slice(-size, None)),
    )


def _check_size(name: str, size: int, split: Split, *, low: int, spare: int = 0) -> None:
    if not low <= size <= len(split) - spare:
        raise ValueError(f"{name} is {size}; want {low} .. {len(split) - spare}.")


def rotated(
    data: DataSet, half_range_degrees: float, *, seed: int, classes: str | Sequence[int | str] = ""
) -> DataSet:
    """Turn every image once, by an angle U(-R, R), train and test alike.

    Bilinear, zeros outside, pixels as squares (align_corners False). `pose_degrees` is the angle,
    counter-clockwise as seen, on top of a pose already known.

    Args:
        data: any set.
        half_range_degrees: R, in (0, 180].
        seed: of the angles; each split and each kind of variant has its own stream.
        classes: those that are turned, as in `class_subset`; the others stay upright. Empty: all.

    Raises:
        ValueError: if R is out of range, or a class is unknown.
    Source: rotated MNIST and the like of LILA and of the flow paper. Their code draws from torch's
        generator, seeds 1 and 0 for the splits, and cuts grey levels off; we round them.
    """
    if not 0 < half_range_degrees <= 180:
        raise ValueError(f"half_range_degrees is {half_range_degrees}; want (0, 180].")
    transform = Affine("rotation", half_range=(half_range_degrees,), align_corners=False)
    chosen = labels_of(classes, data.class_names) if classes else []

    def turned(split: Split, theta: np.ndarray) -> Split:
        if chosen:
            theta = theta * np.isin(split.labels, chosen)[:, None]
        known = 0.0 if split.pose_degrees is None else split.pose_degrees
        pose = theta[:, 0] * half_range_degrees + known
        pose = (pose + 180.0) % 360.0 - 180.0
        images = _warped(split.images, transform, theta)
        return Split(images, split.labels, pose.astype(np.float32))

    train, test = _draws(data, 1, seed=seed, stream=1)
    return dataclasses.replace(data, train=turned(data.train, train), test=turned(data.test, test))


def translated(data: DataSet, half_range: float, *, seed: int) -> DataSet:
    """Shift every image once, by U(-h, h) on each axis, train and test alike.

    Bilinear, zeros outside; 1 half-width is half the picture, 14 pixels of 28. Content moves left
    or up for positive draws, as everywhere in `flowjax_inv.transforms`.

    Args:
        data: any set.
        half_range: h, in half-widths and half-heights; 8 / 14 in LILA's translated MNIST.
        seed: as in `rotated`.

    Raises:
        ValueError: if h is not positive and finite.
    Source: LILA's translated sets. Their code counts from the centres of the outer pixels on MNIST
        (8 / 14 is 7.7 pixels there, 8 here), and uses 8 / 14 on CIFAR too.
    """
    return _moved(
        data, Affine("translation", half_range=(half_range, half_range)), seed=seed, stream=2
    )


def scaled(data: DataSet, log_half_range: float, *, seed: int) -> DataSet:
    """Scale every image once, on both axes by exp(U(-l, l)), train and test alike.

    Bilinear, zeros outside. Positions are multiplied by the factor: content shrinks where it is
    above 1.

    Args:
        data: any set.
        log_half_range: l, natural logarithm; log 2 in LILA's scaled MNIST.
        seed: as in `rotated`.

    Raises:
        ValueError: if l is not positive and finite.
    Source: LILA's scaled sets; their code uses align_corners True for MNIST, we use False.
    """
    names = Affine("affine").names
    half_range = tuple(log_half_range if name == "scale" else 1.0 for name in names)
    chosen = Affine("affine", half_range=half_range)
    return _moved(data, chosen, seed=seed, stream=3, columns=(names.index("scale"),))


def disc(data: DataSet) -> DataSet:
    """Set to 0 what lies outside the inscribed disc, a fifth of a pixel within its rim.

    The corners of a turned picture are empty: without them nothing but the picture tells its turn.
    """
    height, width = data.train.images.shape[1:3]
    y, x = np.mgrid[:height, :width] - np.array([height - 1, width - 1]).reshape(2, 1, 1) / 2
    inside = np.hypot(x, y) <= min(height, width) / 2 - 0.2

    def part(split: Split) -> Split:
        return dataclasses.replace(split, images=split.images * inside[..., None].astype(np.uint8))

    return dataclasses.replace(data, train=part(data.train), test=part(data.test))


def repeated(data: DataSet, times: int) -> DataSet:
    """Take every image of both splits so many times in a row, before each is turned on its own.

    Raises:
        ValueError: if `times` is not positive.
    """
    if times < 1:
        raise ValueError(f"repeats is {times}; want 1 or more.")

    def part(split: Split) -> Split:
        return _taken(split, np.repeat(np.arange(len(split)), times))

    return dataclasses.replace(data, train=part(data.train), test=part(data.test))


def centre_cropped(data: DataSet, side: int) -> DataSet:
    """Keep the middle `side` x `side` pixels of every image; where it cannot be even, up and left.

    Of a picture turned by any angle, side <= size / sqrt(2) has no corner from outside.

    Raises:
        ValueError: if the side is not within the picture.
    """
    height, width = data.train.images.shape[1:3]
    if not 1 <= side <= min(height, width):
        raise ValueError(f"centre_crop is {side}; want 1 .. {min(height, width)} pixels.")
    top, left = (height - side) // 2, (width - side) // 2

    def part(split: Split) -> Split:
        images = split.images[:, top : top + side, left : left + side]
        return dataclasses.replace(split, images=np.ascontiguousarray(images))

    return dataclasses.replace(data, train=part(data.train), test=part(data.test))


def _moved(
    data: DataSet, transform: Affine, *, seed: int, stream: int, columns: tuple[int, ...] = ()
) -> DataSet:
    """Draw the named columns of theta (default: all), the others 0, and warp both splits."""
    transform = dataclasses.replace(transform, align_corners=False)
    columns = columns or tuple(range(transform.dim))
    parts = []
    for split, draws in zip(
        (data.train, data.test), _draws(data, len(columns), seed=seed, stream=stream), strict=True
    ):
        theta = np.zeros((len(split), transform.dim), np.float32)
        theta[:, columns] = draws
        images = _warped(split.images, transform, theta)
        parts.append(dataclasses.replace(split, images=images))
    return dataclasses.replace(data, train=parts[0], test=parts[1])


def _draws(data: DataSet, dim: int, *, seed: int, stream: int) -> list[np.ndarray]:
    """Draw U(-1, 1) of shape (N, dim) for train and test, from streams of their own."""
    return [
        np.random.default_rng((seed, stream, part))
        .uniform(-1.0, 1.0, (len(split), dim))
        .astype(np.float32)
        for part, split in enumerate((data.train, data.test))
    ]


def _warped(images: np.ndarray, transform: Affine, theta: np.ndarray) -> np.ndarray:
    """Transform uint8 images (N, H, W, C) by theta (N, d), in blocks, rounded to uint8."""

    @jax.jit
    def render(block: jax.Array, theta: jax.Array) -> jax.Array:
        pixels = transform(block.astype(jnp.float32), theta)
        return jnp.clip(jnp.round(pixels), 0, 255).astype(jnp.uint8)

    size = 1500  # bounds the memory of the four taps
    result = np.empty_like(images)
    for start in range(0, len(images), size):
        # The last block is filled up, so that nothing is compiled twice.
        index = np.minimum(np.arange(start, start + size), len(images) - 1)
        block = np.asarray(render(images[index], theta[index]))
        result[start : start + size] = block[: len(images) - start]
    return result


def turned_bicubic(
    images: np.ndarray, degrees: float | np.ndarray, mean: Sequence[float]
) -> np.ndarray:
    """Turn uint8 images (N, H, W, C) about their middle, counter-clockwise, same size.

    Bicubic: an interpolation that nothing here trains with, to test with.

    Args:
        images: (N, H, W, C) uint8, one channel or three.
        degrees: one angle, or one per image.
        mean: intensity in [0, 1] outside the picture, one number or one per channel.

    Returns:
        (N, H, W, C) uint8.

    Raises:
        ValueError: if the images are not square: a turn of the box [-1, 1]^2, as transforms make
            it, is then none of the pixels.
    """
    from PIL import Image

    if images.shape[1] != images.shape[2]:
        raise ValueError(
            f"images of {images.shape[1]}x{images.shape[2]} pixels cannot be turned; pad them to "
            "squares: rotations are those of the box [-1, 1]^2, which no other picture fills."
        )
    channels = images.shape[-1]
    fill = np.broadcast_to(np.round(255 * np.asarray(mean)).astype(int), channels).tolist()
    colour: Any = fill[0] if channels == 1 else tuple(fill)
    turned = [
        Image.fromarray(image[..., 0] if channels == 1 else image).rotate(
            float(angle), resample=Image.Resampling.BICUBIC, fillcolor=colour
        )
        for image, angle in zip(images, np.broadcast_to(degrees, len(images)), strict=True)
    ]
    return np.stack([np.asarray(picture) for picture in turned]).reshape(images.shape)
