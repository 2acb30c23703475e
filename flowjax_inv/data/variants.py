"""Pictures moved once for all: every image of a set turned, shifted, scaled, masked or cut.

Every function takes a `DataSet` and gives a new one; arrays are never changed in place.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from flowjax_inv.data.sets import DataSet, Split
from flowjax_inv.data.subsets import labels_of
from flowjax_inv.transforms import Affine

__all__ = ["centre_cropped", "disc", "rotated", "scaled", "translated", "turned_bicubic"]


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


def disc(data: DataSet, fill: Sequence[float] = (0.0,)) -> DataSet:
    """Fill what lies outside the inscribed disc, a fifth of a pixel within its rim.

    The corners of a turned picture are empty: without them nothing but the picture tells its turn.

    Args:
        data: whose images, of train and test, are filled.
        fill: intensities in [0, 1], per channel or one: those that `Normalization` makes 0, as a
            warp fills what it takes from outside. Else the corners tell views from images.

    Raises:
        ValueError: if there are several intensities, but not one per channel.
    """
    height, width, channels = data.train.images.shape[1:]
    if len(fill) not in (1, channels):
        raise ValueError(
            f"fill={tuple(fill)} for images of {channels} channels; give one intensity, or one per "
            "channel."
        )
    y, x = np.mgrid[:height, :width] - np.array([height - 1, width - 1]).reshape(2, 1, 1) / 2
    inside = np.hypot(x, y) <= min(height, width) / 2 - 0.2
    outside = np.round(255 * np.asarray(fill)).astype(np.uint8)

    def part(split: Split) -> Split:
        return dataclasses.replace(split, images=np.where(inside[..., None], split.images, outside))

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
