"""Two transforms in one theta: colours, and where pixels are."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from flowjax_inv.transforms.base import Spatial, Transform

__all__ = ["Chain"]


@dataclass(frozen=True)
class Chain(Transform):
    """Colour images, then move their pixels: A_T(I) = spatial(colour(I, theta_c), theta_s).

    theta is theta_s followed by theta_c. Neither touches what the other changes: two in a row are
    composed part by part.

    Args:
        spatial: moves pixels: an `Affine`, a `Decoupled`, a `Crop`.
        colour: moves none: a `Colour`.

    Convention: matrices are block-diagonal, those of positions first. What is outside the picture
        is padded after it was coloured.

    Raises:
        ValueError: if the first moves no pixels, or the second does: of two that do the order would
            matter, and neither inverse nor composition would be a theta.
    """

    spatial: Transform
    colour: Transform
    half_range: tuple[float, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Refuse other pairs."""
        if not isinstance(self.spatial, Spatial) or isinstance(self.colour, Spatial):
            kinds = " and ".join(type(part).__name__ for part in self._parts)
            raise ValueError(
                f"Chain got {kinds}; want one that moves pixels (Affine, Decoupled, Crop), then "
                "one that does not (Colour)."
            )
        object.__setattr__(self, "half_range", self.spatial.half_range + self.colour.half_range)
        super().__post_init__()

    @property
    def _parts(self) -> tuple[Transform, Transform]:
        return self.spatial, self.colour

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coordinates, in the order of theta."""
        return self.spatial.names + self.colour.names

    @property
    def units(self) -> tuple[str, ...]:
        """Units of theta * half_range, per coordinate."""
        return self.spatial.units + self.colour.units

    @property
    def periodic(self) -> tuple[bool, ...]:
        """Per coordinate: whether theta and theta + 2 are the same transform."""
        return self.spatial.periodic + self.colour.periodic

    @property
    def commutative(self) -> bool:
        """Whether both are."""
        return all(part.commutative for part in self._parts)

    @property
    def closed(self) -> bool:
        """Whether both are."""
        return all(part.closed for part in self._parts)

    @property
    def identity(self) -> jax.Array:
        """Theta (d,) of the transform that does nothing."""
        return jnp.concatenate([part.identity for part in self._parts])

    def matrix(self, theta: ArrayLike) -> jax.Array:
        """Return the matrices (..., k, k) of theta (..., d), output to input."""
        first, second = (
            part.matrix(own) for part, own in zip(self._parts, self._split(theta), strict=True)
        )
        right, below = first.shape[-1], second.shape[-1]
        pads = [(0, 0)] * (first.ndim - 2)
        top = jnp.pad(first, [*pads, (0, 0), (0, below)])
        return jnp.concatenate([top, jnp.pad(second, [*pads, (0, 0), (right, 0)])], axis=-2)

    def coordinates(self, matrix: ArrayLike) -> jax.Array:
        """Return theta (..., d) of matrices (..., k, k) of this family: undoes `matrix`."""
        matrix = jnp.asarray(matrix)
        size = self.spatial.matrix(self.spatial.identity).shape[-1]
        blocks = matrix[..., :size, :size], matrix[..., size:, size:]
        return self._joined(
            part.coordinates(block) for part, block in zip(self._parts, blocks, strict=True)
        )

    def inverse(self, theta: ArrayLike) -> jax.Array:
        """Return the theta that undoes theta; it may lie outside the box."""
        pairs = zip(self._parts, self._split(theta), strict=True)
        return self._joined(part.inverse(own) for part, own in pairs)

    def __call__(self, images: ArrayLike, theta: ArrayLike) -> jax.Array:
        """Transform images (..., H, W, 3) by theta (..., d); leading axes broadcast."""
        moved, coloured = self._split(theta)
        return self.spatial(self.colour(images, coloured), moved)

    def valid_mask(self, theta: ArrayLike, height: int, width: int) -> jax.Array:
        """Return (..., H, W) bool: which pixels are sampled inside the picture."""
        return self.spatial.valid_mask(self._split(theta)[0], height, width)

    def undo(self, views: ArrayLike, theta: ArrayLike) -> jax.Array:
        """Bring what was found in views back to the images: masks, maps, (..., H, W, C) float."""
        return self.spatial.undo(views, self._split(theta)[0])

    def undone_mask(self, theta: ArrayLike, height: int, width: int) -> jax.Array:
        """Return (..., H, W) bool: which pixels of the image its view shows."""
        return self.spatial.undone_mask(self._split(theta)[0], height, width)

    def points_in_image(self, points: ArrayLike, theta: ArrayLike) -> jax.Array:
        """Bring points (..., P, 2) of views to the images, normalised x and y."""
        return self.spatial.points_in_image(points, self._split(theta)[0])

    def _split(self, theta: ArrayLike) -> tuple[jax.Array, jax.Array]:
        theta = self._check(theta)
        return theta[..., : self.spatial.dim], theta[..., self.spatial.dim :]

    def _joined(self, thetas: Iterable[jax.Array]) -> jax.Array:
        return jnp.concatenate([*thetas], axis=-1)
