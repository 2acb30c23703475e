"""Crops: a box is cut out and blown up to the whole picture."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from flowjax_inv import warps
from flowjax_inv.naming import check_name
from flowjax_inv.transforms.base import Spatial
from flowjax_inv.transforms.matrices import as_matrices, assemble

__all__ = ["Crop"]


@dataclass(frozen=True)
class Crop(Spatial):
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
        check_name("centre", self.centre, ("room", "picture"))
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
