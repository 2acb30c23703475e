"""Turns, shifts and linear maps of points in space."""

import math
from dataclasses import dataclass, field
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from flowjax_inv.naming import check_name
from flowjax_inv.transforms.base import Transform

__all__ = ["Points"]

# Element (row, column) -> value of the 4x4 generators.
_GENERATORS = {
    "rotation_x": {(1, 2): -1.0, (2, 1): 1.0},
    "rotation_y": {(0, 2): 1.0, (2, 0): -1.0},
    "rotation_z": {(0, 1): -1.0, (1, 0): 1.0},
    "shear_yz": {(1, 2): 1.0, (2, 1): 1.0},
    "shear_xz": {(0, 2): 1.0, (2, 0): 1.0},
    "shear_xy": {(0, 1): 1.0, (1, 0): 1.0},
    "stretch_xy": {(0, 0): 1.0, (1, 1): -1.0},
    "stretch_yz": {(1, 1): 1.0, (2, 2): -1.0},
    "scale": {(0, 0): 1.0, (1, 1): 1.0, (2, 2): 1.0},
    "translation_x": {(0, 3): 1.0},
    "translation_y": {(1, 3): 1.0},
    "translation_z": {(2, 3): 1.0},
}
_TURNS, _SHIFTS = tuple(_GENERATORS)[:3], tuple(_GENERATORS)[9:]
_SUBGROUPS = {
    "affine": tuple(_GENERATORS),
    "linear": tuple(_GENERATORS)[:9],
    "rigid": (*_TURNS, *_SHIFTS),
    "rotation": _TURNS,
    "translation": _SHIFTS,
}


@dataclass(frozen=True)
class Points(Transform):
    """Move points in space: x' = M(theta) x, M = exp(sum_i theta_i h_i G_i), G_i of 4x4.

    A cloud is (P, 3 + K): a position, then K columns that stay as they are, one per kind of point;
    where these are all 0 there is no point, and nothing moves. With K = 0 all are points.

    Args:
        subgroup: "affine" (twelve coordinates: three turns, three shears, two stretches and a
            scale, three shifts), "linear" (without the shifts), "rigid" (turns and shifts),
            "rotation", "translation".
        half_range: per coordinate: degrees for turns, the data's own length for shifts, log for the
            others. Default: 180 degrees, and 1 for all others. So turns by every axis are in the
            box, those by more than half a turn twice.

    Convention: matrices map INPUT to OUTPUT, unlike those of images, whose positions are looked up:
        two in a row are M_a M_b, "a after b". Right-handed turns.

    Raises:
        ValueError: for an unknown subgroup, or half-ranges of wrong number or not positive.
    Source: Augerino's code (qm9_models.py), where theta is one-sided, and the exponential one step
        of a Runge-Kutta method; here it is exact.
    """

    subgroup: str = "affine"
    half_range: tuple[float, ...] = field(default=cast("tuple[float, ...]", None), kw_only=True)

    def __post_init__(self) -> None:
        """Refuse unknown names, fill in the default half-range."""
        check_name("subgroup", self.subgroup, tuple(_SUBGROUPS))
        if self.half_range is None:
            default = tuple(180.0 if name in _TURNS else 1.0 for name in self.names)
            object.__setattr__(self, "half_range", default)
        super().__post_init__()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coordinates, in the order of theta."""
        return _SUBGROUPS[self.subgroup]

    @property
    def units(self) -> tuple[str, ...]:
        """Units of theta * half_range: degrees, log-scale or lengths."""
        units = dict.fromkeys(_TURNS, "degrees") | dict.fromkeys(_SHIFTS, "lengths")
        return tuple(units.get(name, "log-scale") for name in self.names)

    @property
    def commutative(self) -> bool:
        """True for the shifts alone."""
        return self.subgroup == "translation"

    @property
    def closed(self) -> bool:
        """Whether `compose` exists: for turns alone, and for shifts alone."""
        return self.subgroup in ("rotation", "translation")

    @property
    def turns_vectors(self) -> bool:
        """Whether `undo_vectors` exists: it does."""
        return True

    def matrix(self, theta: ArrayLike) -> jax.Array:
        """Return the matrices (..., 4, 4) of theta (..., d), input to output."""
        theta = self._check(theta)
        generators = jnp.asarray(self._generators(), theta.dtype)
        algebra = jnp.tensordot(theta, generators, axes=1, precision="highest")
        return jax.scipy.linalg.expm(algebra)

    def coordinates(self, matrix: ArrayLike) -> jax.Array:
        """Return theta (..., d) of turns or shifts (..., 4, 4), turns within half a turn.

        Raises:
            ValueError: for a subgroup that is neither.
        """
        matrix = jnp.asarray(matrix)
        if self.subgroup == "translation":
            return matrix[..., :3, 3] / jnp.asarray(self.half_range)
        if self.subgroup != "rotation":
            raise ValueError(
                f'matrices of the subgroup "{self.subgroup}" have no coordinates here; those of '
                "rotation and translation have."
            )
        return _turn_vector(matrix[..., :3, :3]) / jnp.radians(jnp.asarray(self.half_range))

    def inverse(self, theta: ArrayLike) -> jax.Array:
        """Return the theta that undoes theta: -theta."""
        return -self._check(theta)

    def compose(self, a: ArrayLike, b: ArrayLike) -> jax.Array:
        """Return the theta of "a after b"; M(compose(a, b)) = M_a M_b."""
        return super().compose(b, a)

    def __call__(self, images: ArrayLike, theta: ArrayLike) -> jax.Array:
        """Move clouds (..., P, 3 + K) by theta (..., d); leading axes broadcast.

        Raises:
            TypeError: if clouds are not floating point.
            ValueError: if clouds do not end in (P, 3 or more), or theta not in d.
        """
        clouds = jnp.asarray(images)
        if not jnp.issubdtype(clouds.dtype, jnp.floating):
            raise TypeError(f"clouds are {clouds.dtype}; positions are floats.")
        if clouds.ndim < 2 or clouds.shape[-1] < 3:
            raise ValueError(
                f"clouds have shape {clouds.shape}; want (..., P, 3 + K), positions first."
            )
        moved = self._moved(clouds[..., :3], self.matrix(theta))
        clouds = jnp.broadcast_to(clouds, (*moved.shape[:-1], clouds.shape[-1]))
        kinds = clouds[..., 3:]
        if kinds.shape[-1]:
            there = jnp.any(kinds != 0, axis=-1, keepdims=True)
            moved = jnp.where(there, moved, clouds[..., :3])
        return jnp.concatenate([moved, kinds], axis=-1).astype(clouds.dtype)

    def undo_vectors(self, vectors: ArrayLike, theta: ArrayLike) -> jax.Array:
        """Bring vectors (..., 3) of moved clouds back: M^-1 v, without the shift."""
        back = self.matrix(self.inverse(theta))[..., :3, :3]
        return jnp.einsum("...ij,...j->...i", back, jnp.asarray(vectors), precision="highest")

    def _moved(self, positions: jax.Array, matrix: jax.Array) -> jax.Array:
        turned = jnp.einsum("...ij,...pj->...pi", matrix[..., :3, :3], positions,
                            precision="highest")  # fmt: skip
        return turned + matrix[..., None, :3, 3]

    def _generators(self) -> np.ndarray:
        made = np.zeros((self.dim, 4, 4))
        for index, (name, half_range) in enumerate(zip(self.names, self.half_range, strict=True)):
            for place, value in _GENERATORS[name].items():
                made[(index, *place)] = value * (
                    math.radians(half_range) if name in _TURNS else half_range
                )
        return made


def _turn_vector(turn: jax.Array) -> jax.Array:
    """Return axis times angle (..., 3), radians in [0, pi], of turns (..., 3, 3).

    By the unit quaternion, read off its largest component, so that half a turn loses no digits.
    """
    diagonal = jnp.stack([turn[..., i, i] for i in range(3)], axis=-1)
    trace = jnp.sum(diagonal, axis=-1, keepdims=True)
    # Four times the squares of w, x, y, z.
    squares = jnp.concatenate([1.0 + trace, 1.0 + 2.0 * diagonal - trace], axis=-1)
    a, b, c = (turn[..., i, j] - turn[..., j, i] for i, j in ((2, 1), (0, 2), (1, 0)))
    d, e, f = (turn[..., i, j] + turn[..., j, i] for i, j in ((0, 1), (0, 2), (1, 2)))
    s = jnp.moveaxis(squares, -1, 0)
    columns = jnp.stack(
        [
            jnp.stack([s[0], a, b, c], axis=-1),
            jnp.stack([a, s[1], d, e], axis=-1),
            jnp.stack([b, d, s[2], f], axis=-1),
            jnp.stack([c, e, f, s[3]], axis=-1),
        ],
        axis=-2,
    )
    best = jnp.argmax(squares, axis=-1)
    quaternion = jnp.take_along_axis(columns, best[..., None, None], axis=-2)[..., 0, :]
    quaternion /= jnp.linalg.norm(quaternion, axis=-1, keepdims=True)
    quaternion = jnp.where(quaternion[..., :1] < 0, -quaternion, quaternion)
    length = jnp.linalg.norm(quaternion[..., 1:], axis=-1, keepdims=True)
    angle = 2.0 * jnp.arctan2(length, quaternion[..., :1])
    near = length < 1e-6
    return quaternion[..., 1:] * jnp.where(near, 2.0, angle / jnp.where(near, 1.0, length))
