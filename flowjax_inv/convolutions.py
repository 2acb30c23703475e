"""What makes convolutions fast on a CPU: the weight gradient in slices of the batch.

XLA's forward and input gradient are fine on a CPU; its weight gradient of a large batch is the slow
part (at 256 images of 32x32 up to three times the sum over slices of 32). Networks choose by one
field: "auto" takes the slices on a single CPU device and XLA's own gradient everywhere else.
"""

from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

__all__ = ["Conv3x3", "convolve", "convolve_sliced"]

_SLICE = 32  # images; 16 to 64 measured alike, the whole batch up to three times slower


def convolve(images: jax.Array, kernel: jax.Array) -> jax.Array:
    """Convolve (N, H, W, C) with (3, 3, C, D), stride 1, zero padding: (N, H, W, D)."""
    return lax.conv_general_dilated(
        images, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


@jax.custom_vjp
def convolve_sliced(images: jax.Array, kernel: jax.Array) -> jax.Array:
    """Equal `convolve`, with dL/dkernel = the sum of the gradients of slices of the batch.

    The slices are unrolled: inside a loop of XLA's a weight gradient falls to a far slower kernel.
    Reverse mode only.
    """
    return convolve(images, kernel)


def _forward(images: jax.Array, kernel: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return convolve(images, kernel), (images, kernel)


def _backward(
    saved: tuple[jax.Array, jax.Array], cotangent: jax.Array
) -> tuple[jax.Array, jax.Array]:
    images, kernel = saved
    to_images = jax.vjp(lambda x: convolve(x, kernel), images)[1](cotangent)[0]
    to_kernel = jnp.zeros_like(kernel)
    for start in range(0, images.shape[0], _SLICE):
        part, pull = images[start : start + _SLICE], cotangent[start : start + _SLICE]
        to_kernel += jax.vjp(lambda k, part=part: convolve(part, k), kernel)[1](pull)[0]
    return to_images, to_kernel


convolve_sliced.defvjp(_forward, _backward)


class Conv3x3(nn.Module):
    """A 3x3 convolution with bias, stride 1, zero padding; parameters as of `flax.linen.Conv`.

    Attributes:
        features: channels of the output.
        gradient: "sliced", "lax", or "auto": "sliced" on a single CPU device, else "lax".

    Convention: "lax" is the choice for forward-mode derivatives, export, and several devices.
    """

    features: int
    gradient: Literal["auto", "lax", "sliced"] = "auto"

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        """Map images (N, H, W, C) to (N, H, W, features)."""
        shape = (3, 3, images.shape[-1], self.features)
        kernel = self.param("kernel", nn.initializers.lecun_normal(), shape)
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        single = jax.default_backend() == "cpu" and jax.device_count() == 1
        sliced = self.gradient == "sliced" or (self.gradient == "auto" and single)
        return (convolve_sliced if sliced else convolve)(images, kernel) + bias
