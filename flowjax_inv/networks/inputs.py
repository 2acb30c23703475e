"""What a network is shown of an image: its disc, its four quarter turns, fewer pixels."""

import flax.linen as nn
import jax
import jax.numpy as jnp

__all__ = ["CircularMask", "QuarterTurns", "Shrunk"]


class CircularMask(nn.Module):
    """Show a network the inscribed disc of an image, 0 around it.

    A turned picture has empty corners, by which its angle can be read off; with the mask every
    picture has.

    Attributes:
        inner: the network, images (N, H, W, C) -> (N, features).
    """

    inner: nn.Module

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> jax.Array:
        """Map images (N, H, W, C) to what the network makes of them, (N, features)."""
        y, x = (jnp.linspace(-1.0, 1.0, size) if size > 1 else jnp.zeros(1)
                for size in images.shape[1:3])  # fmt: skip
        disc = x**2 + y[:, None] ** 2 <= 1.0
        return self.inner(jnp.where(disc[..., None], images, 0.0), train=train)


class QuarterTurns(nn.Module):
    """Show a network an image in its four quarter turns; join what it makes of them.

    What says "this is up" is learned once, not once for every direction.

    Attributes:
        inner: the network, images (4 N, H, H, C) -> (4 N, features).
    """

    inner: nn.Module

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> jax.Array:
        """Map images (N, H, H, C) to (N, 4 features)."""
        if images.shape[1] != images.shape[2]:
            raise ValueError(
                f"images have shape {images.shape}; a quarter turn wants square ones, or "
                "quarter_turns=False."
            )
        turned = jnp.stack([jnp.rot90(images, turn, axes=(1, 2)) for turn in range(4)], axis=1)
        # Images first: devices that share them share the turns alike.
        features = self.inner(turned.reshape(-1, *images.shape[1:]), train=train)
        return features.reshape(images.shape[0], -1)


class Shrunk(nn.Module):
    """Show a network an image of fewer pixels: means over squares.

    Attributes:
        inner: the network.
        factor: side of a square; what does not fill one, at the right and below, is not seen.
    """

    inner: nn.Module
    factor: int

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> jax.Array:
        """Map images (N, H, W, C) to what the network makes of (N, H / factor, W / factor, C)."""
        square = (self.factor, self.factor)
        return self.inner(nn.avg_pool(images, square, strides=square), train=train)
