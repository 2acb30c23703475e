"""Networks that map images to a vector: class logits, or the embedding a density is conditioned on.

Every network is a Linen module with the call `network(images, train=False)`; `train` chooses batch
statistics where a network has them and is a Python bool. A new network is one class here and one
line in `experiments/build.py`.
"""

from collections.abc import Sequence
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from flowjax_inv.convolutions import Conv3x3

__all__ = ["MLP", "SimpleConv", "max_pool_pairs"]


def max_pool_pairs(x: jax.Array, size: int) -> jax.Array:
    """Max-pool windows of `size` x `size` without overlap, by maxima of slices.

    y[i, j] = max over 0 <= a, b < size of x[size i + a, size j + b]; rows that do not fill a window
    are dropped. On a CPU the gradient of XLA's window reduction costs four times as much. Ties
    (zeros after a ReLU) split the gradient, where `flax.linen.max_pool` gives it all to the first.

    Args:
        x: (N, H, W, C).
        size: window and stride, a power of two.

    Returns:
        (N, H // size, W // size, C), dtype of x.
    """
    if size & (size - 1):
        raise ValueError(f"size is {size}; max_pool_pairs wants a power of two: 1, 2, 4, ...")
    while size > 1:
        height, width = x.shape[1] // 2 * 2, x.shape[2] // 2 * 2
        x = x[:, :height, :width]
        x = jnp.maximum(x[:, 0::2], x[:, 1::2])
        x = jnp.maximum(x[:, :, 0::2], x[:, :, 1::2])
        size //= 2
    return x


class SimpleConv(nn.Module):
    """The small convolutional network of the toy experiments.

    conv3x3 c, ReLU; conv3x3 2c, ReLU, pool 2; conv3x3 4c, ReLU, pool 2; conv3x3 8c, ReLU, pool 2;
    max over the remaining positions; linear 8c -> features. All with bias, stride 1, zero padding.

    Attributes:
        features: length of the output.
        width: c, channels of the first convolution.
        batch_norm: normalise before every ReLU (Augerino's version of this network).
        conv: how weight gradients are taken, see `convolutions.Conv3x3`.

    Convention: images (N, H, W, C) with H, W >= 8. At 32x32 (28x28) the last pooling window is the
        4x4 (3x3) of the original; the maximum over positions makes other sizes work as well.
    Source: flow paper, supplement of its code (SimpleConv); Augerino's code has batch norm.
    """

    features: int
    width: int = 32
    batch_norm: bool = False
    conv: Literal["auto", "lax", "sliced"] = "auto"

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> jax.Array:
        """Map images (N, H, W, C) to (N, features)."""
        if images.ndim != 4 or min(images.shape[1:3]) < 8:
            raise ValueError(
                f"images have shape {images.shape}; SimpleConv wants (N, H, W, C) with H, W >= 8."
            )
        x = images
        for stage, (channels, pool) in enumerate(((1, 1), (2, 2), (4, 2), (8, 2))):
            x = Conv3x3(channels * self.width, self.conv, name=f"conv{stage}")(x)
            if self.batch_norm:
                # The slow variance: the fast one loses digits on inputs far from zero.
                x = nn.BatchNorm(
                    use_running_average=not train, use_fast_variance=False, name=f"norm{stage}"
                )(x)
            # ReLU and maximum commute; pooling first leaves the ReLU a quarter of the work.
            x = nn.relu(max_pool_pairs(x, pool))
        return nn.Dense(self.features, name="head")(jnp.max(x, axis=(1, 2)))


class MLP(nn.Module):
    """Fully connected network on flattened images.

    Attributes:
        features: length of the output.
        hidden: widths of the hidden layers, each followed by a ReLU.

    Source: the frozen 3072-256-256-4 network of rotation discovery in the flow paper's code.
    """

    features: int
    hidden: Sequence[int] = (256, 256)

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> jax.Array:
        """Map images (N, ...) to (N, features); `train` changes nothing here."""
        del train
        x = images.reshape(images.shape[0], -1)
        for layer, width in enumerate(self.hidden):
            x = nn.relu(nn.Dense(width, name=f"dense{layer}")(x))
        return nn.Dense(self.features, name="head")(x)
