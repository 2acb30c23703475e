"""Where an output pixel is read: positions in the input picture, in pixels, and their limits.

The convention is in the head of `flowjax_inv.warps`.
"""

import jax
import jax.numpy as jnp
from jax import lax

__all__ = [
    "LARGEST_ENTRY",
    "along_basis",
    "clamp",
    "grid_of_pixels",
    "limits",
    "pixel_centres",
    "pixel_rows",
    "positions",
]

# Entries beyond this act as this: the largest product with a pixel position, and sums of three of
# them, stay finite in float32 (no inf - inf), and every such position is far outside anyhow.
LARGEST_ENTRY = 1e9


def pixel_centres(size: int, *, align_corners: bool) -> tuple[jax.Array, float]:
    """Return pixel centres counted from the middle (exact in float32), and pixels per unit."""
    centres = jnp.arange(size, dtype=jnp.float32) - (size - 1) / 2
    return centres, (size - 1 if align_corners else size) / 2


def grid_of_pixels(height: int, width: int) -> jax.Array:
    """Return u, v, 1 of every output pixel: (3, H, W), in pixels from the middle."""
    (u, _), (v, _) = (pixel_centres(n, align_corners=True) for n in (width, height))
    ones = jnp.ones((height, width), u.dtype)
    return jnp.stack([*jnp.broadcast_arrays(u, v[:, None]), ones])


def pixel_rows(matrices: jax.Array, height: int, width: int, *, align_corners: bool) -> jax.Array:
    """Return the first two rows of matrices (..., 3, 3) in pixels from the middle: (..., 2, 3).

    The matrix is rescaled to pixels counted from the middle instead of the positions to [-1, 1]:
    so the identity and quarter turns are exact.
    """
    (_, across), (_, down) = (
        pixel_centres(n, align_corners=align_corners) for n in (width, height)
    )
    # A single pixel counts 0 from the middle, so what its ratio is does not matter.
    units = jnp.array([[1.0, across / (down or 1.0), across], [down / (across or 1.0), 1.0, down]])
    rows = jnp.clip(matrices, -LARGEST_ENTRY, LARGEST_ENTRY)[..., :2, :]
    return rows * units.astype(rows.dtype)


def positions(rows: jax.Array, height: int, width: int) -> tuple[jax.Array, jax.Array]:
    """Return input pixel positions x, y (..., H, W) of every output pixel, of rows (..., 2, 3)."""
    # A product, not a sum of three terms: its result is stored, once. XLA would compute a sum again
    # in every fusion that needs it, rounded differently (fused multiply-add or not), and where that
    # straddles a pixel centre the taps of one rounding would get the weights of the other.
    both = along_basis(jnp.moveaxis(rows, -2, 0), grid_of_pixels(height, width))
    x, y = both[0] + (width - 1) / 2, both[1] + (height - 1) / 2
    return x, y


def limits(size: int, padding: str) -> tuple[float, float]:
    """Return where positions are held: the edge ("border"), or all taps outside ("zeros")."""
    return (0.0, size - 1.0) if padding == "border" else (-2.0, size + 1.0)


def clamp(position: jax.Array, size: int, padding: str) -> jax.Array:
    """Hold positions within the limits."""
    low, high = (jnp.array(limit, position.dtype) for limit in limits(size, padding))
    # lax.clamp has derivative 0 at its ends; jnp.clip has 1/2, of a neighbour that is not there.
    return lax.clamp(low, position, high)


def along_basis(steps: jax.Array, grid: jax.Array) -> jax.Array:
    """Return a u + b v + c of every pixel: steps (..., 3) and grid (3, H, W) give (..., H, W)."""
    basis = grid.reshape(3, -1).T.astype(steps.dtype)
    moved = jnp.einsum("...k,pk->...p", steps, basis, precision="highest")
    return moved.reshape(*steps.shape[:-1], *grid.shape[1:])
