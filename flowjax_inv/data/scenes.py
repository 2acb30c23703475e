"""Scenes drawn here: figures and digits on a rough ground, with a label for every pixel.

Stands for rotCamVid, street scenes each turned once for all, on which Augerino shows outputs that
turn back.
"""

import numpy as np

from flowjax_inv.data.digits import printed_digits
from flowjax_inv.data.sets import DataSet, Split

__all__ = ["CLASS_NAMES", "scenes"]

_DIGITS = (2, 4, 7)
CLASS_NAMES = ("ground", "first figure", "second figure", *(f"digit {k}" for k in _DIGITS))
_SIZE, _CANVAS = 32, 48  # a canvas that covers the picture in every turn
_LEAST = 12  # pixels of a thing's longer side


def scenes(
    *, sprites: np.ndarray, train_size: int, test_size: int, turn_std: float, seed: int
) -> DataSet:
    """Draw scenes of two to four upright things, and turn each scene once, by N(0, turn_std^2).

    Things lie anywhere, the later upon the earlier, in changing brightness, on a ground of random
    waves in random colours. Pictures are turned bilinearly, maps by the nearest pixel.

    Args:
        sprites: (2, 32, 32, 3) in [0, 1], the figures; where they are black they are not there.
        train_size, test_size: images of each split.
        turn_std: standard deviation of the turns, radians.
        seed: of all choices; the splits have streams of their own.

    Returns:
        Images (N, 32, 32, 3) with `maps` (N, 32, 32): 0 the ground, then figures and digits. The
        label of a scene is the thing that has most of its pixels.

    Raises:
        ValueError: if a size is below 1, or the standard deviation negative.
    """
    if min(train_size, test_size) < 1 or turn_std < 0:
        raise ValueError(
            f"train_size={train_size}, test_size={test_size}, turn_std={turn_std}; want at least 1 "
            "of each, and a deviation of 0 or more: scenes are drawn, there is no whole set."
        )
    from PIL import Image

    figures = [_cut(np.round(255 * sprite).astype(np.uint8)) for sprite in sprites]
    drawn = printed_digits(train_size=140, test_size=140, seed=seed)

    def split(size: int, stream: int, digits: Split) -> Split:
        random = np.random.default_rng((seed, stream))
        things = [[figure] for figure in figures] + [
            [_cut(image.repeat(3, -1)) for image in digits.images[digits.labels == k]]
            for k in _DIGITS
        ]
        made = [_scene(things, random) for _ in range(size)]
        angles = np.degrees(random.normal(0.0, turn_std, size))
        edge = (_CANVAS - _SIZE) // 2
        kept = slice(edge, edge + _SIZE)

        def turned(canvas: np.ndarray, angle: float, way: Image.Resampling) -> np.ndarray:
            return np.asarray(Image.fromarray(canvas).rotate(angle, way))[kept, kept]

        images = [
            turned(canvas, a, Image.Resampling.BILINEAR)
            for (canvas, _), a in zip(made, angles, strict=True)
        ]
        maps = np.stack(
            [
                turned(marks, a, Image.Resampling.NEAREST)
                for (_, marks), a in zip(made, angles, strict=True)
            ]
        ).astype(np.int32)
        counts = np.stack([(maps == k).sum((1, 2)) for k in range(1, len(CLASS_NAMES))], axis=1)
        labels = (1 + counts.argmax(1)).astype(np.int32)
        return Split(np.stack(images), labels, maps=maps)

    return DataSet(split(train_size, 0, drawn.train), split(test_size, 1, drawn.test), CLASS_NAMES)


def _cut(picture: np.ndarray) -> np.ndarray:
    """Return what is not black, (h, w, 3)."""
    there = picture.max(-1) > 40
    rows, columns = np.flatnonzero(there.any(1)), np.flatnonzero(there.any(0))
    return picture[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def _scene(things: list, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw one canvas and its marks, (48, 48, 3) and (48, 48) uint8."""
    from PIL import Image

    canvas, marks = _ground(random), np.zeros((_CANVAS, _CANVAS), np.uint8)
    for kind in random.integers(len(things), size=random.integers(2, 5)):
        thing = things[kind][random.integers(len(things[kind]))]
        scale = random.uniform(_LEAST, 1.5 * _LEAST) / max(thing.shape[:2])
        height, width = (max(3, round(scale * side)) for side in thing.shape[:2])
        small = np.asarray(Image.fromarray(thing).resize((width, height), Image.Resampling.BOX))
        # Its middle within the disc that every turn keeps.
        radius, angle = 14.0 * np.sqrt(random.uniform()), random.uniform(0.0, 2.0 * np.pi)
        top = round(_CANVAS / 2 + radius * np.sin(angle) - height / 2)
        left = round(_CANVAS / 2 + radius * np.cos(angle) - width / 2)
        place = (slice(top, top + height), slice(left, left + width))
        there = small.max(-1) > 60
        canvas[place][there] = (random.uniform(0.7, 1.0) * small[there]).astype(np.uint8)
        marks[place][there] = kind + 1
    return canvas, marks


def _ground(random: np.random.Generator) -> np.ndarray:
    y, x = np.mgrid[0:_CANVAS, 0:_CANVAS]
    waves = random.normal(0.0, 0.5, (6, 2))
    height = sum(np.cos(a * x + b * y + random.uniform(0.0, 6.3)) for a, b in waves) / 6.0
    first, second = random.uniform(40.0, 150.0, (2, 3))
    share = (0.5 + 0.5 * np.clip(height, -1.0, 1.0))[..., None]
    colours = share * first + (1.0 - share) * second + random.normal(0.0, 8.0, (*x.shape, 3))
    return np.clip(colours, 0, 255).astype(np.uint8)
