"""From stored pixels to what networks see: scale, normalise, mirror."""

import dataclasses

import jax
import jax.numpy as jnp

__all__ = ["Normalization", "mirror_at_random"]


@dataclasses.dataclass(frozen=True)
class Normalization:
    """Pixels to network inputs: x = (I / 255 - mean) / std, per channel.

    Outside the picture a warp fills with 0 of the normalised scale: the mean colour.

    Attributes:
        mean, std: of intensities in [0, 1], one number for all channels or one per channel.

    Raises:
        ValueError: if a std is not positive, or the lengths differ.
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        """Refuse what cannot be divided by."""
        if len(self.mean) != len(self.std) or not self.mean or min(self.std) <= 0:
            raise ValueError(
                f"mean={self.mean}, std={self.std}; want as many positive std as means: one for "
                "all channels, or one per channel."
            )

    def __call__(self, images: jax.Array) -> jax.Array:
        """Return uint8 images (..., C) normalised, float32; float images come back unchanged.

        Raises:
            ValueError: if there are several means, but not one per channel.
        """
        if images.dtype != jnp.uint8:
            return images
        if len(self.mean) not in (1, images.shape[-1]):
            raise ValueError(
                f"mean={self.mean} for images of {images.shape[-1]} channels; give one number, or "
                "one per channel, and as many std."
            )
        scaled = images.astype(jnp.float32) / 255.0
        return (scaled - jnp.asarray(self.mean)) / jnp.asarray(self.std)

    def undo(self, images: jax.Array) -> jax.Array:
        """Return intensities in [0, 1] of normalised images: what a person looks at."""
        return jnp.clip(images * jnp.asarray(self.std) + jnp.asarray(self.mean), 0.0, 1.0)


def mirror_at_random(images: jax.Array, keys: jax.Array) -> jax.Array:
    """Swap left and right of every image with probability 1/2: (N, H, W, C), keys (N,)."""
    turned = jax.vmap(jax.random.bernoulli)(keys)
    return jnp.where(turned[:, None, None, None], images[:, :, ::-1], images)
