"""An encoder with the head that a contrast of views is taken behind."""

import flax.linen as nn
import jax

__all__ = ["Projected"]


class Projected(nn.Module):
    """z = head(encoder(x)): a contrast compares z, and what is learned is taken before the head.

    Attributes:
        encoder: images -> representation (N, E); of it `represent` gives the same.
        width: of the head's one hidden layer.
        outputs: length of z.

    Source: Chen et al., A simple framework for contrastive learning, 2020.
    """

    encoder: nn.Module
    width: int = 128
    outputs: int = 64

    def setup(self) -> None:
        """Make the head."""
        self.hidden, self.last = nn.Dense(self.width), nn.Dense(self.outputs)

    def __call__(self, images: jax.Array, *, train: bool = False) -> jax.Array:
        """Map images (N, H, W, C) to (N, outputs)."""
        return self.last(nn.relu(self.hidden(self.encoder(images, train=train))))

    def represent(self, images: jax.Array) -> jax.Array:
        """Map images (N, H, W, C) to their representations (N, E), as after training."""
        return self.encoder(images, train=False)
