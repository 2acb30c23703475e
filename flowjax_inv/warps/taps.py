"""Four taps of a picture per position, blended, and the derivative in the map: the formulas.

What training needs is the derivative in the maps, and it has two ways of reading the taps.
"gather" keeps the axes of the batch, so a sharded batch stays on its devices. "flat" reads number
by number with one index over all images (fewer than 2^31 numbers), and sums both directions of the
slope in one pass, as a complex number: on two CPU cores one and a half to three times as fast for
colour pictures, little for grey ones. Values are computed alike.

Maps are rows (..., 2, 3) in pixels from the middle, see `positions.pixel_rows`.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from flowjax_inv.warps.positions import along_basis, clamp, grid_of_pixels, limits, positions

__all__ = ["blend", "change"]


def blend(images: jax.Array, rows: jax.Array, lead: tuple[int, ...], padding: str) -> jax.Array:
    """Return the bilinear values (*lead, H, W, C) where the maps point; linear in the images."""
    return _blend(images, *_held(rows, images, padding)[1], lead)


def change(
    images: jax.Array,
    rows: jax.Array,
    d_rows: jax.Array,
    lead: tuple[int, ...],
    padding: str,
    method: str,
) -> jax.Array:
    """Weigh the taps by the tangents of their weights: how `blend` changes with the maps.

    Positions are linear in the map, so their tangents are one product with the basis (u, v, 1);
    transposed, that is one matrix product, where autodiff's own sums over pixels are fused with
    the gathers and cost many times as much on a CPU.
    """
    height, width = images.shape[-3:-1]
    (x, y), (held_x, held_y) = _held(rows, images, padding)
    grid, d_rows = grid_of_pixels(height, width), jnp.moveaxis(d_rows, -2, 0)
    if method == "flat":  # both rows in one number: transposed, one pass over the taps
        both = along_basis(lax.complex(d_rows[0], d_rows[1]), grid)
        dx, dy = both.real, both.imag
    else:
        dx, dy = along_basis(d_rows, grid)
    # As in `clamp`: a position at or beyond a limit does not move.
    (left, right), (top, bottom) = (limits(n, padding) for n in (width, height))
    dx = jnp.where((x > left) & (x < right), dx, 0.0)
    dy = jnp.where((y > top) & (y < bottom), dy, 0.0)
    corners, r, b = _corners(held_x, held_y)
    weights = (  # tangents of those in `_blend`
        -(1.0 - b) * dx - (1.0 - r) * dy,
        (1.0 - b) * dx - r * dy,
        (1.0 - r) * dy - b * dx,
        b * dx + r * dy,
    )
    kept = [
        jnp.where(_inside(i, j, height, width), weight, 0.0)
        for (i, j), weight in zip(corners, weights, strict=True)
    ]
    if method == "flat":  # transposed, a sum over channels that is written out
        taps = zip(*(_channels(images, i, j, lead) for i, j in corners), strict=True)
        return jnp.stack([_dot(kept, channel) for channel in taps], axis=-1)
    return _dot([w[..., None] for w in kept], [_tap(images, i, j, lead) for i, j in corners])


def _held(
    rows: jax.Array, images: jax.Array, padding: str
) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
    """Return positions x, y (..., H, W) in pixels, and where they are held."""
    height, width = images.shape[-3:-1]
    x, y = positions(rows, height, width)
    return (x, y), (clamp(x, width, padding), clamp(y, height, padding))


def _corners(
    x: jax.Array, y: jax.Array
) -> tuple[list[tuple[jax.Array, jax.Array]], jax.Array, jax.Array]:
    """Return column and row of the four neighbours, and where between them, x and y in [0, 1)."""
    x0, y0 = jnp.floor(x), jnp.floor(y)
    column, row = x0.astype(jnp.int32), y0.astype(jnp.int32)
    corners = [(i, j) for j in (row, row + 1) for i in (column, column + 1)]
    return corners, x - x0, y - y0


def _inside(i: jax.Array, j: jax.Array, height: int, width: int) -> jax.Array:
    return (i >= 0) & (i < width) & (j >= 0) & (j < height)


def _nearest(i: jax.Array, j: jax.Array, height: int, width: int) -> jax.Array:
    """Return the index, row by row, of pixel (i, j) or of the nearest one there is."""
    return jnp.clip(j, 0, height - 1) * width + jnp.clip(i, 0, width - 1)


def _blend(images: jax.Array, x: jax.Array, y: jax.Array, lead: tuple[int, ...]) -> jax.Array:
    """Return the bilinear value at positions x, y (..., H, W) in pixels, clamped."""
    corners, right, below = _corners(x, y)
    left, above = 1.0 - right, 1.0 - below
    weights = (above * left, above * right, below * left, below * right)
    kept = [
        # 0 times, not 0: a NaN position must stay visible.
        jnp.where(_inside(i, j, *images.shape[-3:-1]), weight, 0.0 * weight)[..., None]
        for (i, j), weight in zip(corners, weights, strict=True)
    ]
    return _dot(kept, [_tap(images, i, j, lead) for i, j in corners])


def _dot(weights: Sequence[jax.Array], taps: Sequence[jax.Array]) -> jax.Array:
    nothing = jnp.zeros((), weights[0].dtype)
    return sum((w * tap for w, tap in zip(weights, taps, strict=True)), nothing)


def _tap(images: jax.Array, i: jax.Array, j: jax.Array, lead: tuple[int, ...]) -> jax.Array:
    """Return pixels i, j (..., H, W) of the images, or their nearest: (..., H, W, C)."""
    height, width, channels = images.shape[-3:]
    # Real leading axes of the images become batch axes of the gather, the others vanish: no copy
    # per matrix, and (unlike one flat index over the batch) a sharded batch stays on its devices.
    offset = len(lead) - (images.ndim - 3)
    batch = tuple(n + offset for n, size in enumerate(images.shape[:-3]) if size != 1)
    k = len(batch)
    pixels = images.reshape(*(lead[n] for n in batch), height * width, channels)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(len(lead) + 2,),
        collapsed_slice_dims=(k,),
        start_index_map=(k,),
        operand_batching_dims=tuple(range(k)),
        start_indices_batching_dims=batch,
    )
    index = jnp.broadcast_to(_nearest(i, j, height, width), (*lead, height, width))[..., None]
    return lax.gather(pixels, index, numbers, (1,) * (k + 1) + (channels,),
                      mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS)  # fmt: skip


def _channels(
    images: jax.Array, i: jax.Array, j: jax.Array, lead: tuple[int, ...]
) -> list[jax.Array]:
    """Return the channels of `_tap` (..., H, W), read by one index over all images."""
    *batch, height, width, channels = images.shape
    first = jnp.arange(math.prod(batch), dtype=jnp.int32).reshape(*batch, 1, 1) * (height * width)
    index = (_nearest(i, j, height, width) + first) * channels
    index = jnp.broadcast_to(index, (*lead, height, width))
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,)
    )
    mode = lax.GatherScatterMode.PROMISE_IN_BOUNDS
    return [
        lax.gather(images.reshape(-1), (index + channel)[..., None], numbers, (1,), mode=mode)
        for channel in range(channels)
    ]
