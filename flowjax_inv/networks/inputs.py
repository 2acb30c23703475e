"""What a network is shown of an image: its inscribed disc, fewer pixels, noise in training."""

import flax.linen as nn
import jax
import jax.numpy as jnp

__all__ = ["CircularMask", "Noisy", "Shrunk"]


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


class Noisy(nn.Module):
    """Show a network, in training, images with white noise over them.

    Noise hides what is faint and even over a picture: the block grid of its compression and the
    traces of its interpolation, by which a turned picture's angle can be read off to a degree, as
    no picture turned before it was taken allows.

    Attributes:
        inner: the network.
        noise: standard deviation of the noise, of the inputs' own unit.
    """

    inner: nn.Module
    noise: float

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> jax.Array:
        """Map images (N, H, W, C); in training with the random stream "dropout"."""
        if train:
            drawn = jax.random.normal(self.make_rng("dropout"), images.shape, images.dtype)
            images = images + self.noise * drawn
        return self.inner(images, train=train)


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
