"""Convolutions from XLA's parts that are fast on a CPU, by shape.

* 1x1 kernels, and kernels as large as the picture, are one matrix product;
* up to four input channels: patches that hold several positions of a row, times a banded matrix;
* else XLA's convolution forward and for the input gradient, up to 8 features of two or four
  neighbouring outputs of a row as those of one: with fewer than 16 XLA takes a slower kernel; 8
  channels in pairs of columns, for the same reason;
* and its weight gradient over slices of the batch that fit the cache, summed: over the whole batch
  XLA takes one (4x4 maps) to ten times as long.

Did not help (CPU time, what we do = 1): weight gradients from plain patch matrices in blocks under
`lax.scan` 1.2 to 2.4; banded patches from 8 channels on 2 to 5 forward; input gradients as banded
convolutions of the cotangent 3 to 8; 16 features as 32, or 8 as 32, 1.3 to 1.9; slices of 32 images
at any shape up to 2.7. XLA's flags for oneDNN, XNNPACK, no YNNPACK fusions, or 512-bit vectors: 0.9
to 1.1 of a whole step; YNNPACK fusions of elementwise work: 1.09.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero

from flowjax_inv.networks.convolutions.plain import convolve

__all__ = ["convolve_banded", "convolve_patches", "convolve_whole"]

# Measured on two cores: numbers in the pictures and cotangents of a slice of the batch, its bounds
# in pictures, numbers in a banded patch's row of the picture, and features that are made wide.
_SLICE_SIZE, _SLICE_BOUNDS, _BAND, _WIDE = 400_000, (4, 32), 24, 16
# Every slice compiles by itself, 0.05 s: beyond so many they grow, up to this length. Twice as
# long they take twice as long a picture.
_MOST_SLICES, _LONGEST = 32, 48


def convolve_patches(
    images: jax.Array, kernel: jax.Array, stride: int = 1, padding: int = 0
) -> jax.Array:
    """Equal `convolve`, computed the way that is fast on a CPU for the shapes at hand.

    Convention: made for reverse mode; derivatives in forward mode are right, and slower than those
        of `convolve`. Not for the inside of `lax.scan`, `lax.map` or `lax.cond`: weight gradients
        of XLA's fall to a far slower kernel there.
    """
    rows, columns, channels, _ = kernel.shape
    if padding == 0 and images.shape[1:3] == (rows, columns):
        return convolve_whole(images, kernel)
    if padding == 0 and rows == columns == 1:
        x = images[:, ::stride, ::stride]
        flat = x.reshape(-1, channels) @ kernel[0, 0]
        return flat.reshape(*x.shape[:3], -1)
    if channels <= 4 and stride == 1:
        return convolve_banded(images, kernel, padding)
    return _sliced(images, kernel, stride, padding)


def convolve_whole(images: jax.Array, kernel: jax.Array) -> jax.Array:
    """Convolve with kernels as large as the picture: one matrix product."""
    flat = images.reshape(images.shape[0], -1) @ kernel.reshape(-1, kernel.shape[3])
    return flat[:, None, None]


def convolve_banded(images: jax.Array, kernel: jax.Array, padding: int) -> jax.Array:
    """Convolve with stride 1: a patch holds what `block` neighbouring outputs of a row see.

    With few channels a patch per output is mostly copying, and its product too narrow to be fast.
    The zeros in the band cost less.
    """
    x = jnp.pad(images, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    batch, height, width, channels = x.shape
    rows, columns, _, features = kernel.shape
    height, width = height - rows + 1, width - columns + 1  # of the output
    block = max(m for m in range(1, _BAND // channels + 1) if width % m == 0)
    seen = block + columns - 1
    windows = [x[:, :, start : start + seen] for start in range(0, width, block)]
    strips = jnp.stack(windows, axis=2).reshape(batch, -1, width // block, seen * channels)
    patches = jnp.concatenate([strips[:, i : i + height] for i in range(rows)], axis=-1)
    # place[j, q, m]: input column q of a patch meets kernel column j at output m.
    column, place, output = np.ogrid[:columns, :seen, :block]
    places = (place == column + output).astype(kernel.dtype)
    band = jnp.einsum("ijcd,jqm->iqcmd", kernel, places).reshape(-1, block * features)
    flat = patches.reshape(-1, band.shape[0]) @ band
    return flat.reshape(batch, height, width, features)


@functools.partial(jax.custom_jvp, nondiff_argnums=(2, 3))
def _sliced(images: jax.Array, kernel: jax.Array, stride: int, padding: int) -> jax.Array:
    if stride > 1:
        return convolve(images, kernel, stride, padding)
    return _widened(images, kernel, (padding, padding))


@functools.partial(_sliced.defjvp, symbolic_zeros=True)
def _push(
    stride: int, padding: int, primals: tuple[jax.Array, jax.Array], tangents: tuple[Any, Any]
) -> tuple[jax.Array, jax.Array]:
    """Convolve the tangents, in forms whose transposes are the gradients that are fast."""
    images, kernel = primals
    d_images, d_kernel = tangents
    rows, columns = kernel.shape[:2]
    out = _sliced(images, kernel, stride, padding)
    change = jnp.zeros_like(out)
    if not isinstance(d_images, SymbolicZero):
        if stride == 1 and padding < min(rows, columns):
            turned = kernel[::-1, ::-1].swapaxes(2, 3)
            sides = (rows - 1 - padding, columns - 1 - padding)
            gradient = functools.partial(_widened, kernel=turned, padding=sides)
            change += jax.linear_transpose(gradient, out)(d_images)[0]
        else:
            change += convolve(d_images, kernel, stride, padding)
    if not isinstance(d_kernel, SymbolicZero):
        # Unrolled: inside a loop of XLA's a weight gradient falls to a far slower kernel.
        # The last slice first: transposed, they are summed from the first one on.
        step = _slice_length(images.shape[0], images[0].size + out[0].size)
        slices = [images[start : start + step] for start in range(0, images.shape[0], step)]
        parts = [convolve(part, d_kernel, stride, padding) for part in reversed(slices)]
        change += jnp.concatenate(parts[::-1])
    return out, change


def _widened(images: jax.Array, kernel: jax.Array, padding: tuple[int, int]) -> jax.Array:
    """Convolve with stride 1: neighbouring outputs of a row are features of a wide convolution."""
    rows, columns, channels, features = kernel.shape
    width = images.shape[2] + 2 * padding[1] - columns + 1
    if 2 * channels == _WIDE <= features and columns == 3 and width % 2 == 0:
        return _paired(images, kernel, padding)
    fitting = (m for m in (2, 4) if m * features <= _WIDE and width % m == 0)
    block = max(fitting, default=1)
    shifted = [jnp.pad(kernel, ((0, 0), (m, block - 1 - m), (0, 0), (0, 0))) for m in range(block)]
    flat = lax.conv_general_dilated(
        images,
        jnp.stack(shifted, axis=3).reshape(rows, columns + block - 1, channels, -1),
        (1, block),
        [(side, side) for side in padding],
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    return flat.reshape(*flat.shape[:2], width, features)


def _paired(images: jax.Array, kernel: jax.Array, padding: tuple[int, int]) -> jax.Array:
    """Convolve with stride 1 and three columns: two columns are one, of twice as many channels.

    A third more multiplications, by zeros, and still faster: 1.09 times for predictions of
    SimpleConv of width 8, 1.03 for its train step (processor time, one core).
    """
    rows, _, channels, features = kernel.shape
    x = jnp.pad(images, ((0, 0), (0, 0), (padding[1], padding[1]), (0, 0)))
    shifted = [jnp.pad(kernel, ((0, 0), (m, 1 - m), (0, 0), (0, 0))) for m in (0, 1)]
    flat = lax.conv_general_dilated(
        x.reshape(*x.shape[:2], -1, 2 * channels),
        jnp.stack(shifted, axis=3).reshape(rows, 2, 2 * channels, 2 * features),
        (1, 1),
        [(padding[0], padding[0]), (0, 0)],
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    return flat.reshape(*flat.shape[:2], -1, features)


def _slice_length(batch: int, numbers: int) -> int:
    """Return how many pictures of so many numbers make a slice."""
    low, high = _SLICE_BOUNDS
    fitting = min(max(2 ** round(math.log2(_SLICE_SIZE / numbers)), low), high)
    return min(max(fitting, math.ceil(batch / _MOST_SLICES)), _LONGEST)
