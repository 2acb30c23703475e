"""Colours: affine maps of red, green and blue, the same for every pixel."""

import abc
import math
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from flowjax_inv.naming import check_name
from flowjax_inv.transforms.base import Transform, wrap

__all__ = ["Colour", "Gains", "Light"]

# Grey, and an orthonormal basis of the plane of chroma: red against blue, green against the others.
_GREY = np.full(3, 1 / 3)
_WARM, _TINT = np.array([1.0, 0.0, -1.0]) / math.sqrt(2), np.array([-1.0, 2.0, -1.0]) / math.sqrt(6)
_TO_GREY = np.full((3, 3), 1 / 3)
_TO_CHROMA = np.eye(3) - _TO_GREY
_QUARTER = np.outer(_TINT, _WARM) - np.outer(_WARM, _TINT)  # turns chroma by 90 degrees

_COLOURS = {
    "exposure": ("brightness", "contrast"),
    "jitter": ("brightness", "contrast", "saturation", "hue"),
    "grey_world": ("warmth", "tint"),
    "all": ("brightness", "contrast", "saturation", "hue", "warmth", "tint"),
}
_HALF_RANGES = {
    "brightness": 0.5, "contrast": math.log(2.0), "saturation": 1.0, "hue": 180.0, "warmth": 0.25,
    "tint": 0.25,
}  # fmt: skip
_UNITS = {"hue": "degrees", "contrast": "log-gain", "saturation": "log-gain"}


class _Map(NamedTuple):
    """Grey g -> e^grey (g - 1/2) + 1/2 + shift; chroma p -> e^chroma R(turn) p + (warm, tint)."""

    grey: jax.Array
    shift: jax.Array
    chroma: jax.Array
    turn: jax.Array  # half turns
    warm: jax.Array
    tint: jax.Array


@dataclass(frozen=True)
class _OfColours(Transform):
    """What colour transforms share: x -> L x + o on intensities, carried over to normalised ones.

    Args:
        mean, std: what images were normalised by, per channel or one, (x - mean) / std.

    Raises:
        ValueError: for bad half-ranges, or mean and std that are not one number or three.
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    half_range: tuple[float, ...] = field(default=cast("tuple[float, ...]", None), kw_only=True)

    def __post_init__(self) -> None:
        """Refuse numbers of other channels, fill in the default half-range."""
        for name in ("mean", "std"):
            numbers = tuple(float(x) for x in np.atleast_1d(getattr(self, name)))
            if len(numbers) not in (1, 3) or (name == "std" and min(numbers) <= 0):
                raise ValueError(
                    f"{name}={numbers}; {type(self).__name__} wants one number or three, of red, "
                    f"green and blue{', positive' * (name == 'std')}."
                )
            object.__setattr__(self, name, numbers)
        if self.half_range is None:
            object.__setattr__(self, "half_range", self._own_half_range)
        super().__post_init__()

    @property
    def units(self) -> tuple[str, ...]:
        """Units of theta * half_range: intensities, log-gains or degrees."""
        return tuple(_UNITS.get(name, "intensity") for name in self.names)

    @property
    def _own_half_range(self) -> tuple[float, ...]:
        return tuple(_HALF_RANGES[name] for name in self.names)

    @abc.abstractmethod
    def _deviation(self, theta: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return L - 1 (..., 3, 3) and o (..., 3) of theta (..., d), of intensities."""

    @abc.abstractmethod
    def _theta(self, linear: jax.Array, offset: jax.Array) -> jax.Array:
        """Return theta (..., d) of L and o: undoes `_deviation`."""

    def matrix(self, theta: ArrayLike) -> jax.Array:
        """Return the matrices (..., 4, 4) of theta (..., d), output to input."""
        deviation, offset = self._normalised(self.inverse(theta))
        linear = deviation + jnp.eye(3, dtype=deviation.dtype)
        top = jnp.concatenate([linear, offset[..., None]], axis=-1)
        last = jnp.broadcast_to(jnp.eye(4, dtype=top.dtype)[3:], (*top.shape[:-2], 1, 4))
        return jnp.concatenate([top, last], axis=-2)

    def coordinates(self, matrix: ArrayLike) -> jax.Array:
        """Return theta (..., d) of matrices (..., 4, 4) of this family: undoes `matrix`."""
        matrix = jnp.asarray(matrix)
        if matrix.shape[-2:] != (4, 4):
            raise ValueError(f"matrices have shape {matrix.shape}; want (..., 4, 4).")
        mean, std = (jnp.asarray(x, matrix.dtype) for x in self._mean_std())
        linear = matrix[..., :3, :3] * (std[:, None] / std)
        offset = std * matrix[..., :3, 3] + mean - jnp.sum(linear * mean, axis=-1)
        return self.inverse(self._theta(linear, offset))

    def __call__(self, images: ArrayLike, theta: ArrayLike) -> jax.Array:
        """Colour images (..., H, W, 3) by theta (..., d); leading axes broadcast."""
        images = jnp.asarray(images)
        if not jnp.issubdtype(images.dtype, jnp.floating):
            raise TypeError(f"images have dtype {images.dtype}; want floating point.")
        if images.ndim < 3 or images.shape[-1] != 3:
            raise ValueError(
                f"images have shape {images.shape}; {type(self).__name__} wants (..., H, W, 3): "
                "grey pictures have no hue. Take their three channels, or a transform that moves "
                "positions."
            )
        deviation, offset = self._normalised(self._check(theta))
        # What is added: so that theta = 0 changes no bit.
        red, green, blue = (
            deviation[..., None, None, :, j] * images[..., j, None].astype(deviation.dtype)
            for j in range(3)
        )
        added = red + green + blue + offset[..., None, None, :]
        return (images + added).astype(images.dtype)

    def _mean_std(self) -> tuple[np.ndarray, np.ndarray]:
        return np.broadcast_to(self.mean, 3), np.broadcast_to(self.std, 3)

    def _normalised(self, theta: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return L - 1 and o of normalised colours."""
        deviation, offset = self._deviation(theta)
        mean, std = (x.astype(offset.dtype) for x in self._mean_std())
        offset = (offset + jnp.sum(deviation * mean, axis=-1)) / std
        return deviation * (std / std[:, None]), offset


@dataclass(frozen=True)
class Gains(_OfColours):
    """Change the light: red, green and blue each by a gain, as another lamp would.

    x_c -> e^(theta_c h_c) x_c, of intensities, which are not cut off at 1.

    Args:
        mean, std: what images were normalised by, per channel or one, (x - mean) / std.
        half_range: log-gains of red, green and blue. Default: log 2.

    Convention: positive is brighter. Matrices act on normalised colours (red, green, blue, 1), from
        output to input.

    Raises:
        ValueError: for bad half-ranges, or mean and std that are not one number or three.
    Source: von Kries's model of a change of light, which grey-world white balance undoes.
    """

    # Log-gains of red, green and blue by each coordinate, a row each; rows are orthogonal.
    _axes: ClassVar[np.ndarray] = np.eye(3)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coordinates, in the order of theta."""
        return ("red", "green", "blue")

    @property
    def units(self) -> tuple[str, ...]:
        """Log-gains, all."""
        return ("log-gain",) * 3

    @property
    def commutative(self) -> bool:
        """Gains multiply."""
        return True

    def inverse(self, theta: ArrayLike) -> jax.Array:
        """Return the theta that undoes theta: -theta."""
        return -self._check(theta)

    def _deviation(self, theta: jax.Array) -> tuple[jax.Array, jax.Array]:
        logs = theta * jnp.asarray(self.half_range, theta.dtype)
        # Not a matrix product: accelerators round its factors.
        gains = jnp.expm1(jnp.sum(logs[..., None] * self._axes.astype(logs.dtype), axis=-2))
        return gains[..., None] * jnp.eye(3, dtype=theta.dtype), jnp.zeros_like(theta)

    def _theta(self, linear: jax.Array, offset: jax.Array) -> jax.Array:
        gains = jnp.log(jnp.diagonal(linear, axis1=-2, axis2=-1))
        axes = (self._axes / np.sum(self._axes**2, axis=1, keepdims=True)).astype(gains.dtype)
        logs = jnp.sum(gains[..., None, :] * axes, axis=-1)
        return logs / jnp.asarray(self.half_range, logs.dtype)

    @property
    def _own_half_range(self) -> tuple[float, ...]:
        return (math.log(2.0),) * 3


@dataclass(frozen=True)
class Light(Gains):
    """Change the light by what lamps differ in: how bright it is, how warm, and how green.

    Log-gains of red, green and blue, of theta times half-range: brightness (b, b, b), warmth
    (w, 0, -w), tint (-t / 2, t, -t / 2). The same family as `Gains`, in other coordinates: here a
    box, or a density of independent coordinates, can say "warm or cool, but never green".

    Args:
        mean, std: what images were normalised by, per channel or one, (x - mean) / std.
        half_range: log-gains of brightness, warmth (red's) and tint (green's). Default: log 2.

    Convention: positive is brighter, towards red, towards green. Matrices act on normalised colours
        (red, green, blue, 1), from output to input.

    Raises:
        ValueError: for bad half-ranges, or mean and std that are not one number or three.
    Source: exposure, temperature and tint, by which photographs are developed.
    """

    _axes: ClassVar[np.ndarray] = np.array([[1.0, 1.0, 1.0], [1.0, 0.0, -1.0], [-0.5, 1.0, -0.5]])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coordinates, in the order of theta."""
        return ("brightness", "warmth", "tint")


@dataclass(frozen=True)
class Colour(_OfColours):
    """Brighten, saturate and tint images; no pixel changes its place.

    A colour is its grey g, the mean of red, green and blue, and its chroma p, a point of the plane
    of red against blue and green against both:

        g -> e^contrast (g - 1/2) + 1/2 + brightness
        p -> e^(contrast + saturation) R(hue) p + (warmth, tint)

    Intensities are in [0, 1] and are not cut off there: so all is a group, with inverses.

    Args:
        colours: "exposure" (brightness, contrast), "jitter" (saturation and hue too), "grey_world"
            (warmth and tint: what is seen as grey moves), or "all".
        half_range: per coordinate: intensities for brightness, warmth and tint, log-gains for
            contrast and saturation, degrees for hue. Default: 0.5, log 2, 1, 180, 0.25, 0.25.
        mean, std: what images were normalised by, per channel or one, (x - mean) / std.

    Convention: positive brightness, contrast and saturation raise what they are called by, positive
        hue turns red to green to blue, positive warmth is towards red, positive tint towards green.
        Matrices act on normalised colours (red, green, blue, 1), from output to input.

    Raises:
        ValueError: for an unknown name, bad half-ranges, or mean and std that are not one number
            or three, std positive.
    Source: ours. Brightness and contrast as in Augerino's section 9, without its clipping;
        InstaAug jitters hue, saturation and value, which has no inverse.
    """

    colours: str = field(default="jitter", kw_only=True)

    def __post_init__(self) -> None:
        """Refuse what names no colours."""
        check_name("colours", self.colours, tuple(_COLOURS))
        super().__post_init__()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coordinates, in the order of theta."""
        return _COLOURS[self.colours]

    @property
    def periodic(self) -> tuple[bool, ...]:
        """True for a hue of half-range 180 degrees."""
        pairs = zip(self.names, self.half_range, strict=True)
        return tuple(name == "hue" and h == 180.0 for name, h in pairs)

    @property
    def commutative(self) -> bool:
        """True for shifts alone."""
        return self.colours == "grey_world"

    def inverse(self, theta: ArrayLike) -> jax.Array:
        """Return the theta that undoes theta; it may lie outside the box."""
        return self._of_map(_inverse(self._map(theta)))

    def _map(self, theta: ArrayLike) -> _Map:
        theta = self._check(theta)
        zero = jnp.zeros_like(theta[..., 0])
        scaled = {name: theta[..., i] * h for i, (name, h) in enumerate(self._scaled())}
        brightness, contrast, saturation, hue, warmth, tint = (
            scaled.get(name, zero) for name in _COLOURS["all"]
        )
        return _Map(contrast, brightness, contrast + saturation, hue, warmth, tint)

    def _of_map(self, found: _Map) -> jax.Array:
        column = dict(
            zip(_COLOURS["all"], (found.shift, found.grey, found.chroma - found.grey, found.turn,
                                  found.warm, found.tint), strict=True)
        )  # fmt: skip
        theta = jnp.stack([column[name] / h for name, h in self._scaled()], axis=-1)
        return wrap(theta, self.periodic)

    def _scaled(self) -> list[tuple[str, float]]:
        """Pair names with half-ranges, the hue's in half turns: 180 becomes exactly 1."""
        pairs = zip(self.names, self.half_range, strict=True)
        return [(name, h / 180.0 if name == "hue" else h) for name, h in pairs]

    def _deviation(self, theta: jax.Array) -> tuple[jax.Array, jax.Array]:
        colours = self._map(theta)
        radius, angle = jnp.exp(colours.chroma), np.pi * colours.turn
        weighted = (
            (_TO_GREY, jnp.expm1(colours.grey)),
            (_TO_CHROMA, radius * jnp.cos(angle) - 1.0),
            (_QUARTER, radius * jnp.sin(angle)),
        )
        grey, chroma, turned = (w[..., None, None] * m.astype(w.dtype) for m, w in weighted)
        shift = colours.shift - 0.5 * jnp.expm1(colours.grey)
        along = ((np.ones(3), shift), (_WARM, colours.warm), (_TINT, colours.tint))
        lift, warm, tint = (w[..., None] * m.astype(w.dtype) for m, w in along)
        return grey + chroma + turned, lift + warm + tint

    def _theta(self, linear: jax.Array, offset: jax.Array) -> jax.Array:
        def entry(row: np.ndarray, column: np.ndarray) -> jax.Array:
            return jnp.sum(linear * np.outer(row, column), axis=(-2, -1))

        cos, sin = entry(_WARM, _WARM), entry(_TINT, _WARM)
        grey = jnp.log(entry(_GREY, np.ones(3)))
        shift = jnp.sum(offset * _GREY, axis=-1) + 0.5 * jnp.expm1(grey)
        chroma, turn = 0.5 * jnp.log(cos * cos + sin * sin), jnp.arctan2(sin, cos) / np.pi
        warm, tint = jnp.sum(offset * _WARM, axis=-1), jnp.sum(offset * _TINT, axis=-1)
        return self._of_map(_Map(grey, shift, chroma, turn, warm, tint))


def _inverse(colours: _Map) -> _Map:
    """Return the map that undoes another."""
    angle, radius = np.pi * colours.turn, jnp.exp(-colours.chroma)
    cos, sin = radius * jnp.cos(angle), radius * jnp.sin(angle)
    return _Map(
        -colours.grey,
        -colours.shift * jnp.exp(-colours.grey),
        -colours.chroma,
        -colours.turn,
        -(cos * colours.warm + sin * colours.tint),
        sin * colours.warm - cos * colours.tint,
    )
