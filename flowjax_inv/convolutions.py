"""What makes convolutions fast on a CPU; networks choose by one field, `conv`.

"lax" is XLA's convolution. "patches" is equal to it to rounding and computes by shape:
* 1x1 kernels, and kernels as large as the picture, are one matrix product;
* up to four input channels: patches that hold several positions of a row, times a banded matrix;
* else XLA's convolution forward and for the input gradient, up to 8 features of two or four
  neighbouring outputs of a row as those of one: with fewer than 16 XLA takes a slower kernel; 8
  channels in pairs of columns, for the same reason;
* and its weight gradient over slices of the batch that fit the cache, summed: over the whole batch
  XLA takes one (4x4 maps) to ten times as long.
"auto" is "patches" on a single CPU device and "lax" on accelerators and on several devices.

Did not help (CPU time, what we do = 1): weight gradients from plain patch matrices in blocks under
`lax.scan` 1.2 to 2.4; banded patches from 8 channels on 2 to 5 forward; input gradients as banded
convolutions of the cotangent 3 to 8; 16 features as 32, or 8 as 32, 1.3 to 1.9; slices of 32 images
at any shape up to 2.7. XLA's flags for oneDNN, XNNPACK, no YNNPACK fusions, or 512-bit vectors: 0.9
to 1.1 of a whole step; YNNPACK fusions of elementwise work: 1.09.
`python -m benchmarks.convolution` compares with PyTorch.
"""

import functools
import math
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jax.nn.initializers import Initializer

__all__ = ["Conv", "Implementation", "convolve", "convolve_patches", "uniform_fan_in"]

Implementation = Literal["auto", "lax", "patches"]

# Measured on two cores: numbers in the pictures and cotangents of a slice of the batch, its bounds
# in pictures, numbers in a banded patch's row of the picture, and features that are made wide.
_SLICE_SIZE, _SLICE_BOUNDS, _BAND, _WIDE = 400_000, (4, 32), 24, 16
# Every slice compiles by itself, 0.05 s: beyond so many they grow, up to this length. Twice as
# long they take twice as long a picture.
_MOST_SLICES, _LONGEST = 32, 48


def uniform_fan_in(fan_in: int) -> Initializer:
    """Return the initializer U(-1/sqrt(fan_in), 1/sqrt(fan_in)): PyTorch's default."""
    bound = 1 / math.sqrt(fan_in)
    symmetric = nn.initializers.uniform(2 * bound)
    return lambda *args, **kwargs: symmetric(*args, **kwargs) - bound


def convolve(images: jax.Array, kernel: jax.Array, stride: int = 1, padding: int = 0) -> jax.Array:
    """Convolve (N, H, W, C) with (K, L, C, D) by XLA's own convolution.

    Returns:    (N, (H + 2 padding - K) // stride + 1, (W + 2 padding - L) // stride + 1, D)
    Convention: `padding` zeros on each of the four sides, at any stride, as PyTorch pads; XLA's
        "SAME" differs from padding=1 at stride 2.
    """
    sides = (padding, padding)
    return lax.conv_general_dilated(
        images,
        kernel,
        (stride, stride),
        (sides, sides),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


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
        flat = images.reshape(images.shape[0], -1) @ kernel.reshape(-1, kernel.shape[3])
        return flat[:, None, None]
    if padding == 0 and rows == columns == 1:
        x = images[:, ::stride, ::stride]
        flat = x.reshape(-1, channels) @ kernel[0, 0]
        return flat.reshape(*x.shape[:3], -1)
    if channels <= 4 and stride == 1:
        return _banded(images, kernel, padding)
    return _sliced(images, kernel, stride, padding)


def _banded(images: jax.Array, kernel: jax.Array, padding: int) -> jax.Array:
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


class Conv(nn.Module):
    """A convolution with a square kernel; parameters named and shaped as those of `nn.Conv`.

    Attributes:
        features: channels of the output.
        kernel_size: side of the kernel.
        stride: step between outputs, along both axes.
        padding: zeros on each of the four sides, as PyTorch pads.
        use_bias: add a bias per channel.
        conv: "lax", "patches", or "auto": "patches" on a single CPU device, else "lax".
        kernel_init, bias_init: how the parameters start.

    Convention: "lax" is the choice for loops of XLA's and for export, and the faster one for
        derivatives in forward mode.
    """

    features: int
    kernel_size: int = 3
    stride: int = 1
    padding: int = 0
    use_bias: bool = True
    conv: Implementation = "auto"
    kernel_init: Initializer = nn.initializers.lecun_normal()
    bias_init: Initializer = nn.initializers.zeros

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        """Map images (N, H, W, C) to (N, H', W', features), see `convolve`."""
        if self.conv not in ("auto", "lax", "patches"):
            raise ValueError(f'conv is "{self.conv}"; allowed: auto, lax, patches.')
        made: Any = self.get_variable("params", "kernel")
        if made is not None and made.shape[2] != images.shape[-1]:
            raise ValueError(
                f"images have {images.shape[-1]} channels; {self.name} was made for "
                f"{made.shape[2]}: bring them to as many."
            )
        shape = (self.kernel_size, self.kernel_size, images.shape[-1], self.features)
        kernel = self.param("kernel", self.kernel_init, shape)
        single = jax.default_backend() == "cpu" and jax.device_count() == 1
        patches = self.conv == "patches" or (self.conv == "auto" and single)
        apply = convolve_patches if patches else convolve
        x = apply(images, kernel, self.stride, self.padding)
        if not self.use_bias:
            return x
        return x + self.param("bias", self.bias_init, (self.features,))
