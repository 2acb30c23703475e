"""A network that sees nothing: the control for what conditioning on the image is worth."""

import flax.linen as nn
import jax
import jax.numpy as jnp

__all__ = ["Blind"]


class Blind(nn.Module):
    """One learned vector for every image.

    As embedding it makes any density one distribution for all images, as rich as that of each.

    Attributes:
        features: length of the vector, which starts as N(0, 1).
    """

    features: int

    @nn.compact
    def __call__(self, images: jax.Array, train: bool = False) -> jax.Array:  # noqa: FBT001, FBT002
        """Map (N, H, W, C) to (N, features), every row the same."""
        del train
        vector = self.param("vector", nn.initializers.normal(1.0), (self.features,))
        return jnp.broadcast_to(vector, (images.shape[0], self.features))
