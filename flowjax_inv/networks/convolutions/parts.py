"""What a layer of a network does, part after part: convolution, bias, pooling, ReLU."""

from collections.abc import Callable
from typing import NamedTuple

import jax

from flowjax_inv.networks.convolutions.pooling import max_pool_2x2

__all__ = ["Options", "layer_by_parts"]


class Options(NamedTuple):
    """What a layer does: `stride` and `padding` of the convolution, then 2x2 pooling, then ReLU."""

    stride: int
    padding: int
    pool: bool
    relu: bool


def layer_by_parts(
    convolve: Callable[..., jax.Array],
    images: jax.Array,
    kernel: jax.Array,
    bias: jax.Array | None,
    options: Options,
) -> jax.Array:
    """Return the layer that `options` describe, its convolution by `convolve`."""
    x = convolve(images, kernel, options.stride, options.padding)
    x = x if bias is None else x + bias
    x = max_pool_2x2(x) if options.pool else x
    return jax.nn.relu(x) if options.relu else x
