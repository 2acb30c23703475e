"""Textures under lamps, drawn here: what a thing is tells in what light it may be seen.

Stands for RawFooT, photographs of food under 46 lamps, on which InstaAug shows learned colours.
"""

from typing import NamedTuple

import numpy as np

from flowjax_inv.data.sets import DataSet, Split

__all__ = ["APART", "BRIGHT", "PLACES", "TEST_LAMPS", "textures"]

# Log-gains of red, green and blue: how bright a light is, how warm, how green.
BRIGHT, WARM, TINT = (0.5, 0.5, 0.5), (1.0, 0.0, -1.0), (-0.5, 1.0, -0.5)
# How far the two palettes of a pair are apart, in the light that their place does not know.
APART = 0.2
TEST_LAMPS = 40
_SIZE = 32


class _Place(NamedTuple):
    """Where things are seen.

    Attributes:
        patterns: of the things there.
        lamps: what lamps differ in there, log-gains of red, green and blue.
        other: what they do not, by which palettes are told apart.
        pairs: the first palette of two, two reflectances (red, green, blue), by the names of both;
            the second has `APART` of `other` more.
    """

    patterns: tuple[str, ...]
    lamps: tuple[float, float, float]
    other: tuple[float, float, float]
    pairs: dict[tuple[str, str], tuple]

    def palettes(self) -> dict[str, np.ndarray]:
        """Return the palettes by name, (2, 3) each."""
        both = np.exp(APART * np.array([[0.0], [1.0]]) * self.other)
        return {
            name: np.array(pair) * gains
            for names, pair in self.pairs.items()
            for name, gains in zip(names, both, strict=True)
        }


PLACES = {
    # Daylight is warm or cool: rock and bark are told apart by green.
    "outdoors": _Place(
        ("stripes", "rings", "blotches"), WARM, TINT,
        {("brick", "moss"): ((0.36, 0.19, 0.17), (0.26, 0.23, 0.28)),
         ("plum", "sea"): ((0.19, 0.17, 0.37), (0.31, 0.16, 0.29))},
    ),
    # Tubes are greenish or pink: cloth is told apart by warmth.
    "indoors": _Place(
        ("checks", "dots"), TINT, WARM,
        {("slate", "rust"): ((0.28, 0.22, 0.18), (0.20, 0.24, 0.28)),
         ("iris", "rose"): ((0.23, 0.17, 0.27), (0.25, 0.26, 0.20))},
    ),
}  # fmt: skip


def textures(
    *, train_size: int, test_size: int, seed: int, lamps: int, lamp_half_range: float
) -> DataSet:
    """Draw five patterns in four palettes, each image in the light of one lamp of its place.

    image = lamp * (mask * first + (1 - mask) * second) * shade, cut off at 1, with noise of 0.01.
    A lamp is a gain for each of red, green and blue, exp(h (u KIND + v BRIGHT)), u, v ~ U(-1, 1):
    outdoors KIND is WARM, daylight, indoors TINT, that of tubes. The palettes of a place differ, in
    pairs, by nothing but the light that it does not know: so no light may be taken away from all
    images, and the pattern tells which may be from this one.

    Train images know a few mild lamps, those of the test are others, up to twice as far from white.
    The n lamps of a split and place are spread (a Latin hypercube): one has u, and one v, in each
    of n equal parts of (-1, 1), so that a few tell what light there is.

    Args:
        train_size, test_size: images of each split.
        seed: of all choices; the splits have streams of their own, and the lamps as well.
        lamps: of each place in the train split; those of the test are `TEST_LAMPS`.
        lamp_half_range: h of the test, log-gains by how warm or green a lamp is; half of it by how
            bright. In the train split h is half of that.

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
    classes = {
        f"{name} {pattern}": (place, pattern, palette)
        for place, here in PLACES.items()
        for pattern in here.patterns
        for name, palette in here.palettes().items()
    }
    things = list(classes.values())

    def split(size: int, number: int, half_range: float, stream: int) -> Split:
        random, draw = (np.random.default_rng((seed, stream, k)) for k in (0, 1))
        gains = {}
        for place, here in PLACES.items():
            parts = draw.permuted(np.tile(np.arange(number), (2, 1)), axis=1).T
            kinds = 2.0 * (parts + draw.uniform(size=(number, 2))) / number - 1.0
            gains[place] = np.exp(half_range * kinds @ np.array([here.lamps, BRIGHT]))
        labels = (np.arange(size) % len(things)).astype(np.int32)
        images = []
        for place, pattern, palette in (things[k] for k in labels):
            images.append(_lit(_mask(pattern, random), palette, gains[place], random))
        return Split(np.stack(images), labels)

    return DataSet(
        train=split(train_size, lamps, 0.5 * lamp_half_range, 0),
        test=split(test_size, TEST_LAMPS, lamp_half_range, 1),
        class_names=tuple(classes),
    )


def _lit(
    mask: np.ndarray, palette: np.ndarray, gains: np.ndarray, random: np.random.Generator
) -> np.ndarray:
    first, second = palette
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
