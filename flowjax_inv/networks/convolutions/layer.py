"""The layer that networks are made of, and how it computes: one field, `conv`."""

import math
from collections.abc import Callable
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.linen.dtypes import promote_dtype
from jax.nn.initializers import Initializer

from flowjax_inv.native import convolutions as native
from flowjax_inv.native import fused, onednn
from flowjax_inv.networks.convolutions.parts import Options, layer_by_parts
from flowjax_inv.networks.convolutions.patches import convolve_patches
from flowjax_inv.networks.convolutions.plain import convolve
from flowjax_inv.networks.convolutions.pooling import max_pool_2x2

__all__ = ["Conv", "Implementation", "uniform_fan_in"]

Implementation = Literal["auto", "lax", "onednn", "patches"]


def uniform_fan_in(fan_in: int) -> Initializer:
    """Return the initializer U(-1/sqrt(fan_in), 1/sqrt(fan_in)): PyTorch's default."""
    bound = 1 / math.sqrt(fan_in)
    symmetric = nn.initializers.uniform(2 * bound)
    return lambda *args, **kwargs: symmetric(*args, **kwargs) - bound


def _implementation(conv: str, images: jax.Array) -> Callable[..., jax.Array]:
    known = {"lax": convolve, "onednn": native.convolve_onednn, "patches": convolve_patches}
    if conv in known:
        return known[conv]
    if conv != "auto":
        raise ValueError(f'conv is "{conv}"; allowed: auto, {", ".join(known)}.')
    if jax.default_backend() != "cpu" or jax.device_count() > 1:
        return convolve
    sized = all(isinstance(size, int) for size in images.shape)  # else exported for any batch
    fits = sized and images.dtype == jnp.float32 and onednn.available()
    return native.convolve_onednn if fits else convolve_patches


class Conv(nn.Module):
    """A convolution with a square kernel; parameters named and shaped as those of `nn.Conv`.

    Attributes:
        features: channels of the output.
        kernel_size: side of the kernel.
        stride: step between outputs, along both axes.
        padding: zeros on each of the four sides, as PyTorch pads.
        use_bias: add a bias per channel.
        pool: then keep the maximum of every 2x2, as `max_pool_2x2`.
        relu: then ReLU. It and the maximum commute: after pooling a quarter of the work is left.
        conv: "lax", "onednn", "patches", or "auto", see `flowjax_inv.networks.convolutions`.
        kernel_init, bias_init: how the parameters start.

    Convention: parameters are float32, and meet images of another float type in the wider one, as
        those of `nn.Conv` do. "lax" is the choice for export.
    """

    features: int
    kernel_size: int = 3
    stride: int = 1
    padding: int = 0
    use_bias: bool = True
    pool: bool = False
    relu: bool = False
    conv: Implementation = "auto"
    kernel_init: Initializer = nn.initializers.lecun_normal()
    bias_init: Initializer = nn.initializers.zeros

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        """Map images (N, H, W, C) to (N, H', W', features), see `convolve`."""
        made: Any = self.get_variable("params", "kernel")
        if made is not None and made.shape[2] != images.shape[-1]:
            raise ValueError(
                f"images have {images.shape[-1]} channels; {self.name} was made for "
                f"{made.shape[2]}: bring them to as many."
            )
        shape = (self.kernel_size, self.kernel_size, images.shape[-1], self.features)
        kernel = self.param("kernel", self.kernel_init, shape, jnp.float32)
        images, kernel = promote_dtype(images, kernel)
        apply = _implementation(self.conv, images)
        options = Options(self.stride, self.padding, self.pool, self.relu)
        bias = None
        if self.use_bias:
            bias = self.param("bias", self.bias_init, (self.features,), jnp.float32)
            if apply is native.convolve_onednn and (self.pool or self.relu):
                return fused.layer_onednn(images, kernel, bias, options)
        return layer_by_parts(apply, images, kernel, bias, options)

    def linear(self, images: jax.Array) -> jax.Array:
        """Return what comes before pooling and ReLU: (N, H', W', features), by XLA."""
        kernel: Any = self.get_variable("params", "kernel")
        images, kernel = promote_dtype(images, kernel)
        found = convolve(images, kernel, self.stride, self.padding)
        return found + self.get_variable("params", "bias") if self.use_bias else found

    def patches(self, images: jax.Array) -> jax.Array:
        """Return (N, positions, numbers of a patch): `linear` is a product of each with W."""
        sides = ((self.padding, self.padding),) * 2
        found = jax.lax.conv_general_dilated_patches(
            images,
            (self.kernel_size,) * 2,
            (self.stride,) * 2,
            sides,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        return found.reshape(len(images), -1, found.shape[-1])

    def follow(self, linear: jax.Array) -> jax.Array:
        """Return what comes after `linear`: pooling and ReLU, where the layer has them."""
        linear = max_pool_2x2(linear) if self.pool else linear
        return nn.relu(linear) if self.relu else linear
