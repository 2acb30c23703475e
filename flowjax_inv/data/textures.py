"""Textures under lamps, drawn here: what a thing is, and the light it is seen in.

Stands for RawFooT, photographs of food under 46 lamps, on which InstaAug shows learned colours.
"""

import numpy as np

from flowjax_inv.data.sets import DataSet, Split

__all__ = ["BRIGHT", "PALETTES", "PATTERNS", "TEST_LAMPS", "WARM", "textures"]

PATTERNS = ("stripes", "checks", "dots", "rings", "blotches")
# Two reflectances each, (red, green, blue). Brick and moss have the same ratios, so have sea and
# plum: a tint of green, which no lamp has, tells them apart.
PALETTES = {
    "brick": ((0.42, 0.22, 0.20), (0.30, 0.27, 0.33)),
    "moss": ((0.34, 0.30, 0.16), (0.24, 0.37, 0.27)),
    "sea": ((0.18, 0.28, 0.36), (0.30, 0.26, 0.28)),
    "plum": ((0.22, 0.20, 0.44), (0.37, 0.19, 0.34)),
}
# What lamps differ in, log-gains of red, green and blue: how warm their light is, and how bright.
WARM, BRIGHT = (1.0, 0.0, -1.0), (0.5, 0.5, 0.5)
TEST_LAMPS = 40
_SIZE = 32


def textures(
    *, train_size: int, test_size: int, seed: int, lamps: int, lamp_half_range: float
) -> DataSet:
    """Draw five patterns in four palettes, each image in the light of one lamp.

    image = lamp * (mask * first + (1 - mask) * second) * shade, cut off at 1, with noise of 0.01.
    A lamp is a gain for each of red, green and blue, exp(h (u WARM + v BRIGHT)), u, v ~ U(-1, 1):
    warm or cool, bright or dim, never green. Train images know a few lamps, those of the test are
    others. The n lamps of a split are spread (a Latin hypercube): one has u, and one v, in each of
    n equal parts of (-1, 1), so that a few tell what light there is, whatever the seed.

    Args:
        train_size, test_size: images of each split.
        seed: of all choices; the splits have streams of their own, and the lamps as well.
        lamps: of the train split; those of the test are `TEST_LAMPS`.
        lamp_half_range: h, log-gains by how warm a lamp is; half of it by how bright.

    Returns:
        Images (N, 32, 32, 3); twenty classes in turn.

    Raises:
        ValueError: if a size or the number of lamps is below 1, or h is negative.
    """
    if min(train_size, test_size, lamps) < 1 or lamp_half_range < 0:
        raise ValueError(
            f"train_size={train_size}, test_size={test_size}, lamps={lamps}, lamp_half_range="
            f"{lamp_half_range}; want at least 1 of each, and a half-range of 0 or more: textures "
            "are drawn, there is no whole set."
        )
    pairs = [(pattern, palette) for pattern in PATTERNS for palette in PALETTES]

    def split(size: int, number: int, stream: int) -> Split:
        random = np.random.default_rng((seed, stream))
        draw = np.random.default_rng((seed, stream, 1))
        parts = draw.permuted(np.tile(np.arange(number), (2, 1)), axis=1).T
        kinds = 2.0 * (parts + draw.uniform(size=(number, 2))) / number - 1.0
        gains = np.exp(lamp_half_range * kinds @ np.array([WARM, BRIGHT]))
        labels = (np.arange(size) % len(pairs)).astype(np.int32)
        images = [
            _lit(_mask(pairs[k][0], random), PALETTES[pairs[k][1]], gains, random) for k in labels
        ]
        return Split(np.stack(images), labels)

    return DataSet(
        train=split(train_size, lamps, 0),
        test=split(test_size, TEST_LAMPS, 1),
        class_names=tuple(f"{palette} {pattern}" for pattern, palette in pairs),
    )


def _lit(
    mask: np.ndarray, palette: tuple, gains: np.ndarray, random: np.random.Generator
) -> np.ndarray:
    first, second = (np.asarray(colour) for colour in palette)
    surface = mask[..., None] * first + (1.0 - mask[..., None]) * second
    seen = surface * gains[random.integers(len(gains))] * random.uniform(0.85, 1.15)
    seen += random.normal(0.0, 0.01, seen.shape)
    return np.round(255.0 * np.clip(seen, 0.0, 1.0)).astype(np.uint8)


def _mask(pattern: str, random: np.random.Generator) -> np.ndarray:
    """Return (32, 32) in [0, 1]: where the first of two colours is."""
    y, x = np.mgrid[-1.0 : 1.0 : _SIZE * 1j, -1.0 : 1.0 : _SIZE * 1j]
    angle, period = random.uniform(0.0, np.pi), random.uniform(0.4, 0.65)
    across = np.cos(angle) * x + np.sin(angle) * y
    along = np.cos(angle) * y - np.sin(angle) * x
    phase = random.uniform(0.0, 2.0 * np.pi, 2)
    one, other = (
        np.sin(2.0 * np.pi * where / period + p)
        for where, p in zip((across, along), phase, strict=True)
    )
    if pattern == "stripes":
        height = one
    elif pattern == "checks":
        height = one * other
    elif pattern == "dots":
        height = one + other - 0.8
    elif pattern == "rings":
        centre = random.uniform(-0.5, 0.5, 2)
        radius = np.hypot(x - centre[0], y - centre[1])
        height = np.sin(2.0 * np.pi * radius / period + phase[0])
    else:
        waves = random.normal(size=(12, 2)) * np.pi / period
        phases = random.uniform(0.0, 2.0 * np.pi, 12)
        height = np.cos(waves[:, :1, None] * x + waves[:, 1:, None] * y + phases[:, None, None])
        height = height.sum(0) / 2.0
    return 1.0 / (1.0 + np.exp(-8.0 * height))
