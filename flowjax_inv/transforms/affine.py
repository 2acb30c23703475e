"""Transforms by matrices: named subgroups of the affine maps, and free entries of their algebra."""

from dataclasses import dataclass, field
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from flowjax_inv.naming import check_name
from flowjax_inv.transforms.base import ByMatrix, wrap
from flowjax_inv.transforms.matrices import as_matrices, assemble, exp, log

__all__ = ["Affine", "Decoupled"]

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
    "scale": ("scale",),
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
class Affine(ByMatrix):
    """Turn, shift, scale and shear images by the matrix of theta.

    "affine":                M = exp(sum_i theta_i h_i G_i)
    "rotation_translation":  M = T(t) R(angle): input position = R(angle) x + t
    "rotation", "translation", "scale": M = R(angle), M = T(t), M = exp(s) on both axes

    Args:
        subgroup: "affine" (six coordinates), "translation" (x, y), "rotation" (one), "scale" (one),
            or "rotation_translation" (translation_x, translation_y, rotation).
        basis: of "affine": "augerino" (translation x and y, rotation, isotropic scale, stretch,
            shear) or "scales" (scale_x and scale_y instead of scale and stretch).
        half_range: per coordinate: degrees for rotation, half pictures for translations, log for
            scales and shear. Default: 180 degrees, and 1 for all others.
        warp: `method` of `warps.warp`.
        padding: "zeros" or "border".
        align_corners: the pixel-centre rule.

    Convention: output to input, x right, y down; positive rotation turns counter-clockwise as
        seen, positive translation moves the content left or up, positive scale shrinks it.
        A picture that is not square is turned in [-1, 1]^2, and so sheared: pad it to a square.
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
        check_name("subgroup", self.subgroup, tuple(_SUBGROUPS))
        check_name("basis", self.basis, tuple(_BASES))
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
        """True for the rotations, the translations and the scalings, each alone."""
        return self.subgroup in ("rotation", "translation", "scale")

    def matrix(self, theta: ArrayLike) -> jax.Array:
        """Return the matrices (..., 3, 3) of theta (..., d), output to input."""
        theta = self._check(theta)
        if self.subgroup == "affine":
            return exp(_combine(theta, self._generators()))
        column = {name: theta[..., i] * h for i, (name, h) in enumerate(self._scaled())}
        zero = jnp.zeros_like(theta[..., 0])
        cos, sin = _cos_sin(column.get("rotation", zero))
        if "scale" in column:  # alone
            cos, sin = jnp.exp(column["scale"]), zero
        x, y = (column.get(f"translation_{axis}", zero) for axis in "xy")
        return assemble((cos, -sin, sin, cos), (x, y))

    def coordinates(self, matrix: ArrayLike) -> jax.Array:
        """Return theta (..., d) of matrices (..., 3, 3) of this subgroup: undoes `matrix`."""
        matrix = as_matrices(matrix)
        if self.subgroup == "affine":
            return _coefficients(log(matrix), self._generators())
        half_turns = jnp.arctan2(matrix[..., 1, 0], matrix[..., 0, 0]) / np.pi
        column = {"rotation": half_turns, "translation_x": matrix[..., 0, 2]}
        column |= {"translation_y": matrix[..., 1, 2], "scale": jnp.log(matrix[..., 0, 0])}
        return wrap(
            jnp.stack([column[name] / h for name, h in self._scaled()], axis=-1), self.periodic
        )

    def inverse(self, theta: ArrayLike) -> jax.Array:
        """Return the theta that undoes theta; it may lie outside the box."""
        if self.subgroup == "rotation_translation":
            return super().inverse(theta)
        return wrap(-self._check(theta), self.periodic)

    def _scaled(self) -> list[tuple[str, float]]:
        """Pair names with half-ranges, the rotation's in half turns: 180 becomes exactly 1."""
        pairs = zip(self.names, self.half_range, strict=True)
        return [(name, h / 180.0 if name == "rotation" else h) for name, h in pairs]

    def _generators(self) -> np.ndarray:
        return np.stack(
            [h * (np.pi if name == "rotation" else 1.0) * _generator(_GENERATORS[name])
             for name, h in self._scaled()]
        )  # fmt: skip


@dataclass(frozen=True)
class Decoupled(ByMatrix):
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
            check_name("entry", entry, tuple(_ENTRIES))
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
