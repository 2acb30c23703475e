"""Transforms: coordinates theta in the unit box -> matrices or crop boxes -> images.

Convention, everywhere in this file: matrices map OUTPUT to INPUT normalised positions, x right and
y down, the picture [-1, 1] x [-1, 1]. So a positive rotation turns the picture counter-clockwise
as seen, a positive translation samples further right or down (the content moves left or up), and
a positive log-scale samples further out (the content shrinks).
"""

import abc
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from flowjax_inv import warps
from flowjax_inv.matrices import as_matrices, assemble, exp, inverse, log

__all__ = ["Affine", "Crop", "Decoupled", "Transform"]

# Element (row, column) -> value of the 3x3 generators; Augerino's without its factor of 0.1 on
# translations: here half_range carries every scale.
_GENERATORS = {
    "translation_x": {(0, 2): 1.0},
    "translation_y": {(1, 2): 1.0},
    "rotation": {(0, 1): -1.0, (1, 0): 1.0},
    "scale": {(0, 0): 1.0, (1, 1): 1.0},
    "stretch": {(0, 0): 1.0, (1, 1): -1.0},
    "shear": {(0, 1): 1.0, (1, 0): 1.0},
    "scale_x": {(0, 0): 1.0},
    "scale_y": {(1, 1): 1.0},
}
_SUBGROUPS = {
    "affine": (),  # the names depend on the basis
    "translation": ("translation_x", "translation_y"),
    "rotation": ("rotation",),
    "rotation_translation": ("translation_x", "translation_y", "rotation"),
}
_BASES = {
    "augerino": ("translation_x", "translation_y", "rotation", "scale", "stretch", "shear"),
    "scales": ("translation_x", "translation_y", "rotation", "scale_x", "scale_y", "shear"),
}
_UNITS = {
    "translation_x": "half-widths",
    "translation_y": "half-heights",
    "rotation": "degrees",
}
_ENTRIES = dict(zip("abcdef", ((i, j) for i in range(2) for j in range(3)), strict=True))


@dataclass(frozen=True)
class Transform(abc.ABC):
    """What every transform is: named coordinates in the unit box, and the pictures they make.

    A_T(I)(x) = I(M(theta) x), theta in [-1, 1]^d; theta * half_range is physical, in `units`.

    Args:
        half_range: physical half-width of the box, per coordinate.
        padding: "zeros" or "border", what is outside the picture.
        align_corners: the pixel-centre rule of `flowjax_inv.warps`.

    Raises:
        ValueError: for names and numbers that make no transform.
    """

    half_range: tuple[float, ...] = field(kw_only=True)
    padding: str = field(default="zeros", kw_only=True)
    align_corners: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        """Refuse fields that make no transform; subclasses call this last."""
        warps.check_name("padding", self.padding, warps.PADDINGS)
        given = cast("Iterable[float]", np.atleast_1d(self.half_range))  # a number, tuple or list
        half_range = tuple(float(h) for h in given)
        if len(half_range) != self.dim or not all(0 < h < math.inf for h in half_range):
            raise ValueError(
                f"half_range={half_range}; {type(self).__name__} with coordinates "
                f"({', '.join(self.names)}) wants {self.dim} positive number(s), one for each."
            )
        object.__setattr__(self, "half_range", half_range)

    @property
    @abc.abstractmethod
    def names(self) -> tuple[str, ...]:
        """Names of the coordinates, in the order of theta."""

    @property
    @abc.abstractmethod
    def units(self) -> tuple[str, ...]:
        """Units of theta * half_range, per coordinate."""

    @property
    @abc.abstractmethod
    def commutative(self) -> bool:
        """Whether the order of two transforms never matters."""

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return len(self.names)

    @property
    def periodic(self) -> tuple[bool, ...]:
        """Per coordinate: whether theta and theta + 2 are the same transform."""
        return (False,) * self.dim

    @property
    def closed(self) -> bool:
        """Whether two transforms in a row are again one of these: whether `compose` exists."""
        return True

    @property
    def identity(self) -> jax.Array:
        """Theta (d,) of the transform that does nothing."""
        return jnp.zeros(self.dim)

    @abc.abstractmethod
    def matrix(self, theta: ArrayLike) -> jax.Array:
        """Return the matrices (..., 3, 3) of theta (..., d), output to input."""

    @abc.abstractmethod
    def coordinates(self, matrix: ArrayLike) -> jax.Array:
        """Return theta (..., d) of matrices (..., 3, 3) of this family: undoes `matrix`.

        Theta may lie outside the box. Periodic coordinates are in [-1, 1); other rotations are
        read within half a turn. Matrices of another family are not noticed, except where there is
        no theta at all: then NaN.
        """

    @abc.abstractmethod
    def __call__(self, images: ArrayLike, theta: ArrayLike) -> jax.Array:
        """Transform images (..., H, W, C) by theta (..., d); leading axes broadcast.

        Args:
            images: (N, H, W, C) float.
            theta: (N, d), or (n, N, d) for n copies.

        Returns:
            (N, H, W, C) or (n, N, H, W, C), dtype of images.

        Raises:
            TypeError: if images are not floating point.
            ValueError: if theta does not end in d, or leading axes do not broadcast.
        """

    def valid_mask(self, theta: ArrayLike, height: int, width: int) -> jax.Array:
        """Return (..., H, W) bool: which pixels are sampled inside the picture."""
        matrix = self.matrix(theta)
        return warps.valid_mask(matrix, height, width, align_corners=self.align_corners)

    def inverse(self, theta: ArrayLike) -> jax.Array:
        """Return the theta that undoes theta; it may lie outside the box."""
        return self.coordinates(inverse(self.matrix(theta)))

    def compose(self, a: ArrayLike, b: ArrayLike) -> jax.Array:
        """Return the theta of "a after b"; it may lie outside the box.

        transform(transform(I, b), a) = transform(I, compose(a, b)), up to interpolation and
        padding. Matrices act on positions, from output to input, so M(compose(a, b)) = M_b M_a.

        Raises:
            ValueError: if the family is not closed.
        """
        if not self.closed:
            raise ValueError(
                f"{type(self).__name__} with coordinates ({', '.join(self.names)}) is not closed: "
                "two in a row are in general not one of them. Multiply the matrices: M_b M_a."
            )
        product = jnp.matmul(self.matrix(b), self.matrix(a), precision="highest")
        return self.coordinates(product)

    def _check(self, theta: ArrayLike) -> jax.Array:
        theta = jnp.asarray(theta)
        if theta.ndim == 0 or theta.shape[-1] != self.dim:
            raise ValueError(
                f"theta has shape {theta.shape}; {type(self).__name__} with coordinates "
                f"({', '.join(self.names)}) wants (..., {self.dim})."
            )
        return theta.astype(jnp.promote_types(theta.dtype, jnp.float32))


@dataclass(frozen=True)
class _ByMatrix(Transform):
    """A transform whose pictures are made by `warps.warp`."""

    warp: str = field(default="auto", kw_only=True)

    def __post_init__(self) -> None:
        warps.check_name("warp", self.warp, warps.METHODS)
        super().__post_init__()

    def __call__(self, images: ArrayLike, theta: ArrayLike) -> jax.Array:
        return warps.warp(
            images,
            self.matrix(theta),
            method=self.warp,
            padding=self.padding,
            align_corners=self.align_corners,
        )


@dataclass(frozen=True)
class Affine(_ByMatrix):
    """Turn, shift, scale and shear images by the matrix of theta.

    "affine":                M = exp(sum_i theta_i h_i G_i)
    "rotation_translation":  M = T(t) R(angle): input position = R(angle) x + t
    "rotation", "translation": M = R(angle), M = T(t)

    Args:
        subgroup: "affine" (six coordinates), "translation" (x, y), "rotation" (one), or
            "rotation_translation" (translation_x, translation_y, rotation).
        basis: of "affine": "augerino" (translation x and y, rotation, isotropic scale, stretch,
            shear) or "scales" (scale_x and scale_y instead of scale and stretch).
        half_range: per coordinate: degrees for rotation, half pictures for translations, log for
            scales and shear. Default: 180 degrees, and 1 for all others.
        warp: `method` of `warps.warp`.
        padding: "zeros" or "border".
        align_corners: the pixel-centre rule.

    Convention: output to input, x right, y down; positive rotation turns counter-clockwise as
        seen, positive translation moves the content left or up, positive scale shrinks it.
        A rotation by 180 degrees or more in "affine" has no principal logarithm: `coordinates`
        then gives another theta of the same matrix, or NaN at exactly half a turn.

    Raises:
        ValueError: for unknown names, or half-ranges of wrong number, not positive or not finite.
    Source: Augerino, section 3 and its appendix (generators). "rotation_translation" is not the
        exponential of the sum, but a shift of a turn: so the angle is truly periodic (in the
        exponential theta + 2 moves the offset too), the offset is just t, and all is closed form.
    """

    subgroup: str = "affine"
    basis: str = "augerino"
    half_range: tuple[float, ...] = field(default=cast("tuple[float, ...]", None), kw_only=True)

    def __post_init__(self) -> None:
        """Refuse unknown names, fill in the default half-range."""
        warps.check_name("subgroup", self.subgroup, tuple(_SUBGROUPS))
        warps.check_name("basis", self.basis, tuple(_BASES))
        if self.half_range is None:
            default = tuple(180.0 if name == "rotation" else 1.0 for name in self.names)
            object.__setattr__(self, "half_range", default)
        super().__post_init__()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coordinates, in the order of theta."""
        return _SUBGROUPS[self.subgroup] or _BASES[self.basis]

    @property
    def units(self) -> tuple[str, ...]:
        """Units of theta * half_range: degrees, half-widths, half-heights or log-scale."""
        return tuple(_UNITS.get(name, "log-scale") for name in self.names)

    @property
    def periodic(self) -> tuple[bool, ...]:
        """True for a rotation of half-range 180 degrees, but never in "affine"."""
        return tuple(
            name == "rotation" and h == 180.0 and self.subgroup != "affine"
            for name, h in zip(self.names, self.half_range, strict=True)
        )

    @property
    def commutative(self) -> bool:
        """True for the rotations alone and the translations alone."""
        return self.subgroup in ("rotation", "translation")

    def matrix(self, theta: ArrayLike) -> jax.Array:
        """Return the matrices (..., 3, 3) of theta (..., d), output to input."""
        theta = self._check(theta)
        if self.subgroup == "affine":
            return exp(_combine(theta, self._generators()))
        column = {name: theta[..., i] * h for i, (name, h) in enumerate(self._scaled())}
        zero = jnp.zeros_like(theta[..., 0])
        cos, sin = _cos_sin(column.get("rotation", zero))
        x, y = (column.get(f"translation_{axis}", zero) for axis in "xy")
        return assemble((cos, -sin, sin, cos), (x, y))

    def coordinates(self, matrix: ArrayLike) -> jax.Array:
        """Return theta (..., d) of matrices (..., 3, 3) of this subgroup: undoes `matrix`."""
        matrix = as_matrices(matrix)
        if self.subgroup == "affine":
            return _coefficients(log(matrix), self._generators())
        half_turns = jnp.arctan2(matrix[..., 1, 0], matrix[..., 0, 0]) / np.pi
        column = {"rotation": half_turns, "translation_x": matrix[..., 0, 2]}
        column["translation_y"] = matrix[..., 1, 2]
        return self._wrap(jnp.stack([column[name] / h for name, h in self._scaled()], axis=-1))

    def inverse(self, theta: ArrayLike) -> jax.Array:
        """Return the theta that undoes theta; it may lie outside the box."""
        if self.subgroup == "rotation_translation":
            return super().inverse(theta)
        return self._wrap(-self._check(theta))

    def _scaled(self) -> list[tuple[str, float]]:
        """Pair names with half-ranges, the rotation's in half turns: 180 becomes exactly 1."""
        pairs = zip(self.names, self.half_range, strict=True)
        return [(name, h / 180.0 if name == "rotation" else h) for name, h in pairs]

    def _generators(self) -> np.ndarray:
        return np.stack(
            [h * (np.pi if name == "rotation" else 1.0) * _generator(_GENERATORS[name])
             for name, h in self._scaled()]
        )  # fmt: skip

    def _wrap(self, theta: jax.Array) -> jax.Array:
        # Not mod(theta + 1, 2) - 1: that rounds small theta away.
        turned = theta - 2.0 * jnp.floor(0.5 * (theta + 1.0))
        return jnp.where(jnp.array(self.periodic), turned, theta)


@dataclass(frozen=True)
class Decoupled(_ByMatrix):
    """Move images by free entries of the Lie algebra, to discover which of them are tied.

    M = exp([[a, b, c], [d, e, f], [0, 0, 0]]), the entries not named being 0.

    Args:
        entries: any of a to f; ("b", "d") holds the rotations as b = -d.
        half_range: per entry; default 1 for each.
        warp: `method` of `warps.warp`.
        padding: "zeros" or "border".
        align_corners: the pixel-centre rule.

    Convention: output to input, x right, y down; b = -d < 0 turns counter-clockwise as seen.

    Raises:
        ValueError: for unknown, repeated or no entries, or bad half-ranges.
    Source: flow paper, eq. 20. It prints 1 in the corner; an element of the Lie algebra has 0
        there (with 1, only the homogeneous coordinate would be scaled).
    """

    entries: tuple[str, ...] = ("b", "d")
    half_range: tuple[float, ...] = field(default=cast("tuple[float, ...]", None), kw_only=True)

    def __post_init__(self) -> None:
        """Refuse unknown entries, fill in the default half-range."""
        entries = tuple(self.entries)
        for entry in entries:
            warps.check_name("entry", entry, tuple(_ENTRIES))
        if not entries or len(set(entries)) < len(entries):
            raise ValueError(f"entries={entries}; want one or more of a to f, each once.")
        object.__setattr__(self, "entries", entries)
        if self.half_range is None:
            object.__setattr__(self, "half_range", (1.0,) * len(entries))
        super().__post_init__()

    @property
    def names(self) -> tuple[str, ...]:
        """The entries, in the order of theta."""
        return self.entries

    @property
    def units(self) -> tuple[str, ...]:
        """Entries of a matrix have no better unit than "algebra"."""
        return ("algebra",) * self.dim

    @property
    def commutative(self) -> bool:
        """Whether the generators of the free entries commute."""
        return not np.any(self._brackets())

    @property
    def closed(self) -> bool:
        """Whether the free entries span a Lie algebra; ("b", "d") do not."""
        fixed = [_ENTRIES[entry] for entry in _ENTRIES if entry not in self.entries]
        return not any(np.any(self._brackets()[..., i, j]) for i, j in fixed)

    def matrix(self, theta: ArrayLike) -> jax.Array:
        """Return the matrices (..., 3, 3) of theta (..., d), output to input."""
        return exp(_combine(self._check(theta), self._generators()))

    def coordinates(self, matrix: ArrayLike) -> jax.Array:
        """Return theta (..., d) of matrices (..., 3, 3) of this family: undoes `matrix`."""
        return _coefficients(log(matrix), self._generators())

    def inverse(self, theta: ArrayLike) -> jax.Array:
        """Return the theta that undoes theta: -theta."""
        return -self._check(theta)

    def _generators(self) -> np.ndarray:
        pairs = zip(self.entries, self.half_range, strict=True)
        return np.stack([_generator({_ENTRIES[entry]: h}) for entry, h in pairs])

    def _brackets(self) -> np.ndarray:
        products = np.einsum("aij,bjk->abik", self._generators(), self._generators())
        return products - products.swapaxes(0, 1)


@dataclass(frozen=True)
class Crop(Transform):
    """Cut a box out of images and blow it up to the whole picture.

    size = max_size + (theta_size - 1) (max_size - min_size) / 2       for width and height
    centre = theta_centre (1 - size)    "room"                         for x and y
    centre = theta_centre               "picture"

    Sizes are fractions of the picture (the half-width of the box in normalised positions). In
    "room" the centre has the room that the size leaves, so inside the unit box the crop is inside
    the picture; in "picture" the centre is anywhere in the picture, and the crop may leave it.
    theta = 0 is the centre crop of the middle size.

    Args:
        min_size: smallest size, > 0.
        max_size: largest size, at most 1.
        centre: "room" or "picture".
        padding: "zeros" or "border"; for "room" it matters only outside the unit box.
        align_corners: the pixel-centre rule.

    Convention: as all matrices here: [[width, 0, x], [0, height, y], [0, 0, 1]]. The identity has
        sizes 1: theta = 1 if max_size is 1, else outside the box. Inverses and compositions are
        taken among all x -> size x + centre, size > 0: they may lie outside the box, and in "room"
        a pure translation (size 1 off the centre) has no theta: NaN.

    Raises:
        ValueError: if not 0 < min_size < max_size <= 1, or for an unknown `centre`.
    """

    min_size: float = 0.25
    max_size: float = 1.0
    centre: str = "room"
    half_range: tuple[float, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Refuse sizes that are no crops; sizes have half the span as half-range."""
        if not 0 < self.min_size < self.max_size <= 1:
            raise ValueError(
                f"Crop(min_size={self.min_size}, max_size={self.max_size}) wants fractions of the "
                "picture, 0 < min_size < max_size <= 1."
            )
        warps.check_name("centre", self.centre, ("room", "picture"))
        span = 0.5 * (self.max_size - self.min_size)
        object.__setattr__(self, "half_range", (1.0, 1.0, span, span))
        super().__post_init__()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coordinates, in the order of theta."""
        return ("centre_x", "centre_y", "width", "height")

    @property
    def units(self) -> tuple[str, ...]:
        """Of centres: room left, or half pictures; of sizes, from the middle size: pictures."""
        room = ("room left", "room left")
        centres = room if self.centre == "room" else ("half-widths", "half-heights")
        return (*centres, "picture widths", "picture heights")

    @property
    def commutative(self) -> bool:
        """A shift before a magnification is not the same after it."""
        return False

    @property
    def identity(self) -> jax.Array:
        """Theta (4,) of the whole picture: in the box only if max_size is 1."""
        size = 1.0 + (1.0 - self.max_size) / self.half_range[2]
        return jnp.array([0.0, 0.0, size, size])

    def boxes(self, theta: ArrayLike) -> jax.Array:
        """Return (..., 4): centre_x, centre_y, half_width, half_height, for `warps.crop`."""
        theta = self._check(theta)
        size = self.max_size + (theta[..., 2:] - 1.0) * self.half_range[2]
        room = 1.0 - size if self.centre == "room" else 1.0
        return jnp.concatenate([theta[..., :2] * room, size], axis=-1)

    def matrix(self, theta: ArrayLike) -> jax.Array:
        """Return the matrices (..., 3, 3) of theta (..., 4), output to input."""
        x, y, width, height = jnp.moveaxis(self.boxes(theta), -1, 0)
        zero = jnp.zeros_like(x)
        return assemble((width, zero, zero, height), (x, y))

    def coordinates(self, matrix: ArrayLike) -> jax.Array:
        """Return theta (..., 4) of matrices that only scale and shift; undoes `matrix`."""
        matrix = as_matrices(matrix)
        size = jnp.stack([matrix[..., 0, 0], matrix[..., 1, 1]], axis=-1)
        centre = matrix[..., :2, 2]
        if self.centre == "room":
            room = 1.0 - size
            # With no room left (up to rounding) only the middle can be said.
            full = jnp.abs(room) < 1e-6
            middle = jnp.where(jnp.abs(centre) < 1e-5, 0.0, jnp.nan)
            centre = jnp.where(full, middle, centre / jnp.where(full, 1.0, room))
        size = 1.0 + (size - self.max_size) / self.half_range[2]
        return jnp.concatenate([centre, size], axis=-1)

    def __call__(self, images: ArrayLike, theta: ArrayLike) -> jax.Array:
        """Crop images (..., H, W, C) by theta (..., 4); leading axes broadcast."""
        return warps.crop(
            images, self.boxes(theta), padding=self.padding, align_corners=self.align_corners
        )


def _cos_sin(half_turns: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return cos and sin of an angle in half turns; quarter turns are exact."""
    quarter = jnp.round(2.0 * half_turns)
    rest = np.pi * (half_turns - 0.5 * quarter)
    c, s, k = jnp.cos(rest), jnp.sin(rest), jnp.mod(quarter, 4.0)
    cos = jnp.where(k == 0, c, jnp.where(k == 1, -s, jnp.where(k == 2, -c, s)))
    sin = jnp.where(k == 0, s, jnp.where(k == 1, c, jnp.where(k == 2, -s, -c)))
    return cos, sin


def _generator(entries: dict[tuple[int, int], float]) -> np.ndarray:
    out = np.zeros((3, 3))
    for index, value in entries.items():
        out[index] = value
    return out


def _combine(theta: jax.Array, generators: np.ndarray) -> jax.Array:
    """Return sum_i theta_i G_i."""
    return jnp.tensordot(theta, jnp.asarray(generators, theta.dtype), axes=1, precision="highest")


def _coefficients(algebra: jax.Array, generators: np.ndarray) -> jax.Array:
    """Return theta with sum_i theta_i G_i = algebra: undoes `_combine`."""
    dual = np.linalg.pinv(generators.reshape(len(generators), 9))
    flat = algebra.reshape(*algebra.shape[:-2], 9)
    return jnp.matmul(flat, jnp.asarray(dual, flat.dtype), precision="highest")
