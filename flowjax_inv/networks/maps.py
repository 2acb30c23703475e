"""Networks whose output is a map: logits for every pixel of an image."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from flowjax_inv.networks.convolutions import Conv, Implementation
from flowjax_inv.networks.convolutions.pooling import max_pool_2x2

__all__ = ["UNet"]


class UNet(nn.Module):
    """Logits for every pixel, from what is around it near and far.

    Down: two conv3x3 with ReLU, width c at full size, 2c at half, 4c at a quarter, pool 2 between.
    Up, at half and at full size: double every pixel, join what was there on the way down, one
    conv3x3 with ReLU. Then conv1x1. All with bias and zero padding.

    Attributes:
        features: logits of a pixel.
        width: c, channels at full size.
        levels: sizes, the full one counted.
        conv: how convolutions are computed, see `flowjax_inv.networks.convolutions`.

    Convention: images (N, H, W, C), H and W divisible by 2^(levels - 1).

    Raises:
        ValueError: for images of other sizes.
    Source: Ronneberger, Fischer and Brox, U-Net, 2015; smaller, padded, one convolution on the way
        up.
    """

    features: int
    width: int = 32
    levels: int = 3
    conv: Implementation = "auto"

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> jax.Array:
        """Map images (N, H, W, C) to logits (N, H, W, features); `train` changes nothing here."""
        del train
        step = 2 ** (self.levels - 1)
        if images.ndim != 4 or any(size % step or not size for size in images.shape[1:3]):
            raise ValueError(
                f"images have shape {images.shape}; a UNet of {self.levels} levels wants "
                f"(N, H, W, C) with H and W divisible by {step}."
            )

        def convolved(x: jax.Array, level: int, name: str) -> jax.Array:
            channels = self.width * 2**level
            return Conv(channels, 3, padding=1, relu=True, conv=self.conv, name=name)(x)

        x, passed = images, []
        for level in range(self.levels):
            x = max_pool_2x2(x) if level else x
            for part in "ab":
                x = convolved(x, level, f"down{level}{part}")
            passed.append(x)
        for level in reversed(range(self.levels - 1)):
            x = jnp.repeat(jnp.repeat(x, 2, axis=1), 2, axis=2)
            x = convolved(jnp.concatenate([x, passed[level]], axis=-1), level, f"up{level}")
        return nn.Dense(self.features, name="head")(x)
