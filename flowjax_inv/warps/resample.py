"""The warp by four taps as one function with its derivatives, whatever computes them."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from flowjax_inv.native import warps as native
from flowjax_inv.warps import taps

__all__ = ["resample"]


@partial(jax.custom_jvp, nondiff_argnums=(2, 3, 4))
def resample(
    images: jax.Array, rows: jax.Array, lead: tuple[int, ...], method: str, padding: str
) -> jax.Array:
    """Blend four taps per pixel.

    Args:
        images: (..., H, W, C).
        rows: (..., 2, 3), maps in pixels from the middle, see `positions.pixel_rows`.
        lead: leading axes of the result, to which both broadcast.
        method: "native", see `native`; or for the derivative in the maps "gather" or "flat", see
            `taps`.
        padding: "zeros" or "border".
    """
    if method == "native":
        return native.blend(images, rows, lead, padding)
    return taps.blend(images, rows, lead, padding)


@partial(resample.defjvp, symbolic_zeros=True)
def _jvp(
    lead: tuple[int, ...],
    method: str,
    padding: str,
    primals: tuple[jax.Array, jax.Array],
    tangents: tuple[Any, Any],
) -> tuple[jax.Array, jax.Array]:
    images, rows = primals
    d_images, d_rows = tangents
    out = resample(images, rows, lead, method, padding)
    moved = jnp.zeros_like(out)
    if not isinstance(d_rows, SymbolicZero):
        if method == "native":
            moved = native.change(images, rows, d_rows, lead, padding)
        else:
            moved = taps.change(images, rows, d_rows, lead, padding, method)
    if not isinstance(d_images, SymbolicZero):
        moved = moved + taps.blend(d_images, rows, lead, padding).astype(out.dtype)
    return out, moved
