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

__all__ = ["MLP", "SimpleConv", "max_pool_2x2"]


@jax.custom_vjp
def max_pool_2x2(x: jax.Array) -> jax.Array:
    """Max-pool 2x2 windows without overlap: (N, H, W, C) -> (N, H // 2, W // 2, C).

    y[i, j] = max over a, b in {0, 1} of x[2i + a, 2j + b]; an odd last row or column is dropped.
    Values and gradients are those of `flax.linen.max_pool`: of equal entries the first gets the
    gradient. On a CPU XLA's own gradient, a select-and-scatter, costs ten times as much. Reverse
    mode only.
    """
    return jnp.max(jnp.stack(_quarters(x)), axis=0)


def _quarters(x: jax.Array) -> list[jax.Array]:
    height, width = x.shape[1] // 2 * 2, x.shape[2] // 2 * 2
    return [x[:, a:height:2, b:width:2] for a in (0, 1) for b in (0, 1)]


def _pool_forward(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return max_pool_2x2(x), x


def _pool_backward(x: jax.Array, pull: jax.Array) -> tuple[jax.Array]:
    quarters = _quarters(x)
    top = jnp.max(jnp.stack(quarters), axis=0)
    parts, free = [], jnp.ones(pull.shape, bool)
    for quarter in quarters:
        chosen = free & (quarter == top)
        free &= ~chosen
        parts.append(jnp.where(chosen, pull, 0.0))
    # Interleaved by two stacks and a reshape: cheaper than adding four padded pictures.
    rows = [jnp.stack(parts[:2], axis=3), jnp.stack(parts[2:], axis=3)]
    height, width = 2 * pull.shape[1], 2 * pull.shape[2]
    whole = jnp.stack(rows, axis=2).reshape(x.shape[0], height, width, x.shape[3])
    odd = ((0, 0), (0, x.shape[1] - height), (0, x.shape[2] - width), (0, 0))
    return (jnp.pad(whole, odd),)


max_pool_2x2.defvjp(_pool_forward, _pool_backward)


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
        for stage, channels in enumerate((1, 2, 4, 8)):
            x = Conv3x3(channels * self.width, self.conv, name=f"conv{stage}")(x)
            if self.batch_norm:
                # The slow variance: the fast one loses digits on inputs far from zero.
                x = nn.BatchNorm(
                    use_running_average=not train, use_fast_variance=False, name=f"norm{stage}"
                )(x)
            # ReLU and maximum commute; pooling first leaves the ReLU a quarter of the work.
            x = nn.relu(max_pool_2x2(x) if stage else x)
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
