"""The Mario-Iggy set: two figures, turned; each figure upright and upside down are two classes."""

import functools
import importlib.resources
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from flowjax_inv.data.sets import DataSet, Split
from flowjax_inv.transforms import Affine

__all__ = ["CLASS_NAMES", "class_centres_degrees", "load_sprites", "mario_iggy", "turned"]

_FIGURES = ("first", "second")
CLASS_NAMES = tuple(f"{figure} {way}" for figure in _FIGURES for way in ("up", "down"))
_KEYS = ("mario", "iggy")
_SHAPE = (1, 3, 32, 32)


def load_sprites(path: str | Path | None = None) -> np.ndarray:
    """Read two figures: (2, 32, 32, 3) float32 in [0, 1].

    Args:
        path: an .npz with the keys mario and iggy, each (1, 3, 32, 32) floats in [0, 1]; None
            takes the two figures shipped with the package.

    Raises:
        ValueError: if the file cannot be read, a key is missing, or shape or range is wrong.
    """
    if path is None or str(path) == "":
        source = importlib.resources.files("flowjax_inv.data").joinpath("sprites.npz")
        with importlib.resources.as_file(source) as shipped:
            return load_sprites(shipped)
    wanted = "an .npz with keys mario and iggy, each (1, 3, 32, 32) floats in [0, 1]"
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            missing = [key for key in _KEYS if key not in file]
            if missing:
                raise ValueError(
                    f"sprites file {path} has keys {sorted(file)}, not {missing[0]}; want {wanted}."
                )
            figures = [np.asarray(file[key]) for key in _KEYS]
    except (OSError, ValueError, EOFError, AttributeError) as error:
        if str(error).startswith("sprites file"):
            raise
        raise ValueError(f"sprites file {path} cannot be read ({error}); want {wanted}.") from error
    except Exception as error:  # zipfile and pickle raise their own kinds for damaged files
        raise ValueError(f"sprites file {path} is damaged ({error}); want {wanted}.") from error
    for key, figure in zip(_KEYS, figures, strict=True):
        if figure.shape != _SHAPE or figure.dtype.kind != "f":
            raise ValueError(
                f"sprites file {path}: {key} is {figure.dtype} {figure.shape}; want {wanted}."
            )
        if not (np.isfinite(figure).all() and figure.min() >= 0 and figure.max() <= 1):
            raise ValueError(
                f"sprites file {path}: {key} spans [{figure.min()}, {figure.max()}]; want {wanted}."
            )
    return np.concatenate(figures).transpose(0, 2, 3, 1).astype(np.float32)


def class_centres_degrees(modes: int) -> np.ndarray:
    """Centres of the arcs of the four classes, in degrees: (4, modes), wrapped to [-180, 180).

    "up": 360 k / modes. "down": opposite for one mode; for more, halfway between the "up" arcs.

    Source: flow paper's code: one mode 0 and 180; three modes 0, +-120 and 180, +-60.
    """
    up = 360.0 * np.arange(modes) / modes
    # 180 degrees away: for an odd number of modes that is halfway between two "up" arcs as well.
    down = up + (180.0 if modes % 2 else 180.0 / modes)
    wrapped = (np.stack([up, down, up, down]) + 180.0) % 360.0 - 180.0
    return wrapped.astype(np.float32)


def _sector_centres_degrees(sectors: int) -> np.ndarray:
    """Centres of the classes of two figures whose circles are cut evenly: (2 sectors, 1)."""
    one = 360.0 * np.arange(sectors) / sectors
    return ((np.tile(one, 2) + 180.0) % 360.0 - 180.0).astype(np.float32)[:, None]


def turned(sprites: np.ndarray, pose_degrees: np.ndarray, align_corners: bool) -> np.ndarray:  # noqa: FBT001  # the field's name everywhere
    """Turn each sprite counter-clockwise: (N, H, W, C) in [0, 1] -> (N, H, W, C) uint8.

    Args:
        sprites: (N, H, W, C) float.
        pose_degrees: (N,).
        align_corners: pixel-centre rule of the rendering.
    """
    transform = Affine("rotation", align_corners=align_corners)
    block = 250  # the four taps then stay in the cache
    theta = np.asarray(pose_degrees, np.float32) / 180.0
    total = len(theta)
    padded = np.resize(theta, (-(-total // block) * block,))
    index = np.resize(np.arange(total), padded.shape)
    parts = [
        np.asarray(_rendered(transform, sprites[index[i : i + block]], padded[i : i + block]))
        for i in range(0, len(padded), block)
    ]
    return np.concatenate(parts)[:total]


@functools.partial(jax.jit, static_argnums=0)
def _rendered(transform: Affine, images: jax.Array, theta: jax.Array) -> jax.Array:
    pixels = transform(images, theta[:, None]) * 255.0
    return jnp.clip(jnp.round(pixels), 0, 255).astype(jnp.uint8)


def mario_iggy(
    *,
    sprites: np.ndarray,
    half_range_degrees: float = 90.0,
    modes: int = 1,
    sectors: int = 0,
    train_size: int = 12_000,
    test_size: int = 600,
    align_corners: bool = False,
    seed: int = 0,
) -> DataSet:
    """Make the set: each class is one figure, turned uniformly within its arcs.

    pose = centre_k + U(-R, R), rendered once with bilinear sampling and zeros outside. Classes:
    0 first figure up, 1 first down, 2 second up, 3 second down. All modes share one draw of angles.
    With sectors the circle of each figure is cut into that many classes, which touch: the only
    invariance is to turns within one of them.

    Args:
        sprites: (2, H, W, C) float in [0, 1].
        half_range_degrees: R; 90 and 45 with one mode, 30 with three in the paper.
        modes: number of arcs per class.
        sectors: classes per figure; 0: up and down. Class k of a figure is centred at 360 k / S
            degrees and reaches 180 / S to either side, whatever `half_range_degrees`.
        train_size, test_size: images in all, divisible by 4 modes, or by 2 sectors.
        align_corners: pixel-centre rule of the rendering. The authors render with False and
            augment with True.
        seed: of the angles and the order.

    Raises:
        ValueError: if a size does not divide, or the arcs of two classes overlap.
    Source: flow paper section 4 and its code (train_mario.py).
    """
    if sectors and modes > 1:
        raise ValueError(f"sectors={sectors} with modes={modes}; sectors have one arc each.")
    arcs = 2 * sectors or 4 * modes
    for name, size in (("train_size", train_size), ("test_size", test_size)):
        if size <= 0 or size % arcs:
            raise ValueError(f"{name} is {size}; want a positive multiple of {arcs}.")
    if sectors:
        centres, half_range_degrees = _sector_centres_degrees(sectors), 180.0 / sectors
        names = tuple(
            f"{figure} {360.0 * k / sectors:g}°" for figure in _FIGURES for k in range(sectors)
        )
    elif not 0 < half_range_degrees <= 90.0 / modes:
        raise ValueError(
            f"half_range_degrees is {half_range_degrees} with modes={modes}; want (0, "
            f"{90 / modes:g}]: wider arcs of two classes would overlap."
        )
    else:
        centres, names = class_centres_degrees(modes), CLASS_NAMES
    classes = len(names)
    random = np.random.default_rng(seed)

    def split(size: int) -> Split:
        each = random.uniform(-half_range_degrees, half_range_degrees, (classes, 1, size // arcs))
        pose = (centres[:, :, None] + each).reshape(-1).astype(np.float32)
        pose = (pose + 180.0) % 360.0 - 180.0
        labels = np.repeat(np.arange(classes, dtype=np.int32), size // classes)
        order = random.permutation(size)
        labels, pose = labels[order], pose[order]
        return Split(turned(sprites[labels // (classes // 2)], pose, align_corners), labels, pose)

    return DataSet(split(train_size), split(test_size), names, centres, half_range_degrees)
