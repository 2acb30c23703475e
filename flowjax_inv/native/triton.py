"""The four taps by one kernel each on an NVIDIA card: the formulas are those of `warps.taps`.

XLA makes a program of several kernels of them, which write positions and weights to memory; here a
thread keeps those of its pixel, and memory sees the picture, the view, and nothing else. Written in
Pallas, compiled by Triton. Positions are rounded once, so that taps and weights always agree.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from flowjax_inv.warps.positions import limits

__all__ = ["blend", "slopes"]

_BLOCK = 256  # pixels of a thread block
_LONGEST = 16  # blocks that one program of `slopes` adds up, before XLA adds up programs


def blend(
    images: jax.Array, rows: jax.Array, *, padding: str, interpret: bool = False
) -> jax.Array:
    """Return the views (n, N, H, W, C).

    Args:
        images: (N, H, W, C) float32.
        rows: (n, N, 2, 3), maps in pixels from the middle, see `positions.pixel_rows`.
        padding: "zeros" or "border".
        interpret: compute the kernel step by step, anywhere.
    """
    copies, count = rows.shape[:2]
    size = images.shape[1:]
    pixels = size[0] * size[1]
    call = pl.pallas_call(
        functools.partial(_blend_kernel, size=size, padding=padding),
        out_shape=jax.ShapeDtypeStruct((copies, count, pixels * size[2]), jnp.float32),
        grid=(copies, count, pl.cdiv(pixels, _BLOCK)),
        compiler_params=plgpu.CompilerParams(num_warps=4),
        interpret=interpret,
        name="warp_blend",
    )
    out = call(images.reshape(count, -1), rows.reshape(copies, count, 6))
    return out.reshape(copies, count, *size)


def slopes(
    images: jax.Array, rows: jax.Array, ct: jax.Array, *, padding: str, interpret: bool = False
) -> jax.Array:
    """Return the derivative of sum(ct * blend(images, rows)) in the rows: (n, N, 2, 3).

    Args:
        images, rows, padding, interpret: as in `blend`.
        ct: (n, N, H, W, C).
    """
    copies, count = rows.shape[:2]
    size = images.shape[1:]
    blocks = pl.cdiv(size[0] * size[1], _BLOCK)
    programs = pl.cdiv(blocks, _LONGEST)
    call = pl.pallas_call(
        functools.partial(
            _slopes_kernel, size=size, padding=padding, blocks=pl.cdiv(blocks, programs)
        ),
        out_shape=jax.ShapeDtypeStruct((copies, count, programs, 6), jnp.float32),
        grid=(copies, count, programs),
        compiler_params=plgpu.CompilerParams(num_warps=4),
        interpret=interpret,
        name="warp_slopes",
    )
    found = call(
        images.reshape(count, -1), rows.reshape(copies, count, 6), ct.reshape(copies, count, -1)
    )
    return jnp.sum(found, axis=2).reshape(rows.shape)


def _blend_kernel(images: Any, rows: Any, out: Any, *, size: Sequence[int], padding: str) -> None:
    copy, image, block = (pl.program_id(axis) for axis in range(3))
    height, width, channels = size
    pixel, _ = _pixels(block, height * width)
    x, y, _, _ = _positions(rows, copy, image, pixel, size)
    taps, right, below = _taps(_held(x, width, padding), _held(y, height, padding), size)
    left, above = 1.0 - right, 1.0 - below
    weights = (above * left, above * right, below * left, below * right)
    # 0 times, not 0: a NaN position must stay visible.
    kept = [jnp.where(inside, w, 0.0 * w) for (_, inside), w in zip(taps, weights, strict=True)]
    for channel in range(channels):
        value = jnp.zeros((_BLOCK,), jnp.float32)
        for (index, _), weight in zip(taps, kept, strict=True):
            value += weight * plgpu.load(images.at[image, index * channels + channel])
        # The threads beyond the last pixel are at it too, and write what it is.
        plgpu.store(out.at[copy, image, pixel * channels + channel], value)


def _slopes_kernel(
    images: Any, rows: Any, ct: Any, out: Any, *, size: Sequence[int], padding: str, blocks: int
) -> None:
    copy, image, program = (pl.program_id(axis) for axis in range(3))
    height, width, channels = size
    (least_x, most_x), (least_y, most_y) = (limits(n, padding) for n in (width, height))

    def add(block: Any, sums: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        pixel, there = _pixels(program * blocks + block, height * width)
        x, y, u, v = _positions(rows, copy, image, pixel, size)
        taps, right, below = _taps(_held(x, width, padding), _held(y, height, padding), size)
        left, above = 1.0 - right, 1.0 - below
        along_x = (-above, above, -below, below)  # derivatives of the weights in `_blend_kernel`
        along_y = (-left, -right, left, right)
        zero = jnp.zeros((_BLOCK,), jnp.float32)
        dx, dy = zero, zero
        for channel in range(channels):
            pull = plgpu.load(ct.at[copy, image, pixel * channels + channel], mask=there, other=0.0)
            for (index, inside), by_x, by_y in zip(taps, along_x, along_y, strict=True):
                tap = plgpu.load(images.at[image, index * channels + channel])
                tap = pull * jnp.where(inside, tap, 0.0)
                dx, dy = dx + by_x * tap, dy + by_y * tap
        # A position at or beyond a limit does not move.
        dx = jnp.where(there & (x > least_x) & (x < most_x), dx, 0.0)
        dy = jnp.where(there & (y > least_y) & (y < most_y), dy, 0.0)
        each = (dx * u, dx * v, dx, dy * u, dy * v, dy)
        return tuple(total + new for total, new in zip(sums, each, strict=True))

    none = tuple(jnp.zeros((_BLOCK,), jnp.float32) for _ in range(6))
    for number, total in enumerate(jax.lax.fori_loop(0, blocks, add, none)):
        plgpu.store(out.at[copy, image, program, jnp.int32(number)], jnp.sum(total))


def _pixels(block: Any, count: int) -> tuple[jax.Array, jax.Array]:
    """Return the pixels of a block, row by row, the last one again beyond it; and which are."""
    pixel = block * _BLOCK + jnp.arange(_BLOCK)
    return jnp.minimum(pixel, count - 1), pixel < count


def _positions(
    rows: Any, copy: Any, image: Any, pixel: jax.Array, size: Sequence[int]
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Return where pixels are read, x and y, and where they are, u and v from the middle."""
    height, width, _ = size
    a, b, c, d, e, f = (plgpu.load(rows.at[copy, image, jnp.int32(number)]) for number in range(6))
    u = (pixel % width).astype(jnp.float32) - (width - 1) / 2
    v = (pixel // width).astype(jnp.float32) - (height - 1) / 2
    x = a * u + b * v + c + (width - 1) / 2
    return x, d * u + e * v + f + (height - 1) / 2, u, v


def _held(position: jax.Array, size: int, padding: str) -> jax.Array:
    """Hold positions within the limits; NaN stays."""
    low, high = limits(size, padding)
    return jnp.where(position < low, low, jnp.where(position > high, high, position))


def _taps(
    x: jax.Array, y: jax.Array, size: Sequence[int]
) -> tuple[list[tuple[jax.Array, jax.Array]], jax.Array, jax.Array]:
    """Return index of the four neighbours or the nearest pixels there are, and whether they are."""
    height, width, _ = size
    x0, y0 = jnp.floor(x), jnp.floor(y)
    column, row = x0.astype(jnp.int32), y0.astype(jnp.int32)
    taps = []
    for j in (row, row + 1):
        for i in (column, column + 1):
            inside = (i >= 0) & (i < width) & (j >= 0) & (j < height)
            held = jnp.minimum(jnp.maximum(i, 0), width - 1)
            taps.append((jnp.minimum(jnp.maximum(j, 0), height - 1) * width + held, inside))
    return taps, x - x0, y - y0
