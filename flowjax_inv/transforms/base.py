"""The contract every transform keeps, and that of those by which pixels change their places."""

import abc
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from flowjax_inv import warps
from flowjax_inv.naming import check_name
from flowjax_inv.transforms.matrices import inverse

__all__ = ["ByMatrix", "Spatial", "Transform", "wrap"]


def wrap(theta: jax.Array, periodic: Sequence[bool]) -> jax.Array:
    """Wrap the periodic coordinates of theta (..., d) into [-1, 1); small ones stay exact."""
    if not any(periodic):
        return theta
    # Not mod(theta + 1, 2) - 1: that rounds small theta away.
    turned = theta - 2.0 * jnp.floor(0.5 * (theta + 1.0))
    return jnp.where(jnp.asarray(periodic), turned, theta)


@dataclass(frozen=True)
class Transform(abc.ABC):
    """What every transform is: named coordinates in the unit box, and the pictures they make.

    theta is in [-1, 1]^d; theta * half_range is physical, in `units`. Where no pixel changes its
    place, maps of the view are maps of the image.

    Args:
        half_range: physical half-width of the box, per coordinate.

    Raises:
        ValueError: for names and numbers that make no transform.
    """

    half_range: tuple[float, ...] = field(kw_only=True)

    def __post_init__(self) -> None:
        """Refuse fields that make no transform; subclasses call this last."""
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
        """Names of the coordinates, in the order of theta.

        Experiments know a turn by "rotation", in degrees, and shifts by "translation...", in half
        pictures: these have `translation_half_range`, unless `half_range` is given.
        """

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

    @property
    def turns_vectors(self) -> bool:
        """Whether `undo_vectors` exists."""
        return False

    @abc.abstractmethod
    def matrix(self, theta: ArrayLike) -> jax.Array:
        """Return the matrices (..., k, k) of theta (..., d), output to input.

        k is 3 for positions x, y, 1; 4 for colours red, green, blue, 1.
        """

    @abc.abstractmethod
    def coordinates(self, matrix: ArrayLike) -> jax.Array:
        """Return theta (..., d) of matrices (..., k, k) of this family: undoes `matrix`.

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

    @abc.abstractmethod
    def inverse(self, theta: ArrayLike) -> jax.Array:
        """Return the theta that undoes theta; it may lie outside the box."""

    def valid_mask(self, theta: ArrayLike, height: int, width: int) -> jax.Array:
        """Return (..., H, W) bool: which pixels are sampled inside the picture."""
        return jnp.ones((*self._check(theta).shape[:-1], height, width), bool)

    def undo(self, views: ArrayLike, theta: ArrayLike) -> jax.Array:
        """Bring what was found in views back to the images: masks, maps, (..., H, W, C) float."""
        views, theta = jnp.asarray(views), self._check(theta)
        leading = jnp.broadcast_shapes(views.shape[:-3], theta.shape[:-1])
        return jnp.broadcast_to(views, (*leading, *views.shape[-3:]))

    def undone_mask(self, theta: ArrayLike, height: int, width: int) -> jax.Array:
        """Return (..., H, W) bool: which pixels of the image its view shows."""
        return self.valid_mask(theta, height, width)

    def points_in_image(self, points: ArrayLike, theta: ArrayLike) -> jax.Array:
        """Bring points (..., P, 2) of views to the images, normalised x and y."""
        points, theta = jnp.asarray(points), self._check(theta)
        leading = jnp.broadcast_shapes(points.shape[:-2], theta.shape[:-1])
        return jnp.broadcast_to(points, (*leading, *points.shape[-2:]))

    def undo_vectors(self, vectors: ArrayLike, theta: ArrayLike) -> jax.Array:
        """Bring vectors of space (..., 3), found in a view, back to what was moved.

        Raises:
            NotImplementedError: where `turns_vectors` is False.
        """
        raise NotImplementedError

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
class Spatial(Transform):
    """A transform that moves pixels: A_T(I)(x) = I(M(theta) x).

    Args:
        half_range: physical half-width of the box, per coordinate.
        padding: "zeros" or "border", what is outside the picture.
        align_corners: the pixel-centre rule of `flowjax_inv.warps`.

    Raises:
        ValueError: for names and numbers that make no transform.
    """

    padding: str = field(default="zeros", kw_only=True)
    align_corners: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        check_name("padding", self.padding, warps.PADDINGS)
        super().__post_init__()

    def inverse(self, theta: ArrayLike) -> jax.Array:
        """Return the theta that undoes theta; it may lie outside the box."""
        return self.coordinates(inverse(self.matrix(theta)))

    def valid_mask(self, theta: ArrayLike, height: int, width: int) -> jax.Array:
        """Return (..., H, W) bool: which pixels are sampled inside the picture."""
        matrix = self.matrix(theta)
        return warps.valid_mask(matrix, height, width, align_corners=self.align_corners)

    def undo(self, views: ArrayLike, theta: ArrayLike) -> jax.Array:
        """Bring what was found in views back to the images: masks, maps, (..., H, W, C) float.

        B(V)(x) = V(M(theta)^-1 x); by the matrix, so it needs no theta of the inverse. What the
        view does not show is padded: `undone_mask` tells where.
        """
        back = inverse(self.matrix(theta))
        return warps.warp(views, back, padding=self.padding, align_corners=self.align_corners)

    def undone_mask(self, theta: ArrayLike, height: int, width: int) -> jax.Array:
        """Return (..., H, W) bool: which pixels of the image its view shows."""
        back = inverse(self.matrix(theta))
        return warps.valid_mask(back, height, width, align_corners=self.align_corners)

    def points_in_image(self, points: ArrayLike, theta: ArrayLike) -> jax.Array:
        """Bring points (..., P, 2) of views to the images: M(theta) x, normalised x and y."""
        matrix = self.matrix(theta)
        points = jnp.asarray(points)
        turned = jnp.einsum("...ij,...pj->...pi", matrix[..., :2, :2], points, precision="highest")
        return turned + matrix[..., None, :2, 2]


@dataclass(frozen=True)
class ByMatrix(Spatial):
    """A transform whose pictures are made by `warps.warp`."""

    warp: str = field(default="auto", kw_only=True)

    def __post_init__(self) -> None:
        check_name("warp", self.warp, warps.METHODS)
        super().__post_init__()

    def __call__(self, images: ArrayLike, theta: ArrayLike) -> jax.Array:
        """Transform images (..., H, W, C) by theta (..., d); leading axes broadcast."""
        return warps.warp(
            images,
            self.matrix(theta),
            method=self.warp,
            padding=self.padding,
            align_corners=self.align_corners,
        )
