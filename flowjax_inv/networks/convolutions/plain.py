"""XLA's own convolution, by PyTorch's way to pad."""

import jax
from jax import lax

__all__ = ["convolve"]


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
