"""A network computed in bfloat16, with everything around it in float32."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

__all__ = ["Bfloat16"]


class Bfloat16(nn.Module):
    """Compute a network in bfloat16: half the bytes, and matrix units at their full rate.

    Parameters and images are rounded to bfloat16 (8 bits of mantissa, relative error 2^-9) where
    they are used; sums of products are the hardware's (float32 on NVIDIA GPUs and TPUs), batch
    statistics are float32, and so are the outputs, for the loss. The parameters themselves and
    their gradients stay float32: updates smaller than a rounding add up.

    Attributes:
        inner: the network, images (N, H, W, C) -> (N, features). Its parameters are found as
            without this module, so weights go from one to the other.

    Convention: on a CPU, which has no such units, it is slower than float32.
    Source: Micikevicius et al., Mixed precision training, 2018; bfloat16 has float32's range and
        needs no scaled loss.
    """

    inner: nn.Module

    def setup(self) -> None:
        """Keep the parameters where they are without this module."""
        nn.share_scope(self, self.inner)

    def __call__(self, images: jax.Array, *, train: bool = False) -> jax.Array:
        """Map images (N, H, W, C), float32, to (N, features), float32."""
        if self.is_initializing():  # the parameters are made as without this module
            return self.inner(images, train=train)

        def call(inner: nn.Module, images: jax.Array) -> jax.Array:
            return inner(images, train=train)

        rounded = nn.map_variables(call, "params", trans_in_fn=_rounded)
        return rounded(self.inner, images.astype(jnp.bfloat16)).astype(jnp.float32)


def _rounded(params: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
