"""A network on clouds of points that knows nothing but that their order does not matter."""

import flax.linen as nn
import jax
import jax.numpy as jnp

__all__ = ["PairNet"]


class PairNet(nn.Module):
    """A mean over pairs of points, then two layers and a linear one; act is swish.

        s = mean_ij act(V act(A x_i + B x_j)),   y = W act(U act(T (s, sqrt(pairs) / 8)))

    Invariant to the order of the points, to nothing else: turned or shifted, a cloud is another
    input. Pairs of points that are not there, see `transforms.Points`, have no part in it.

    Attributes:
        features: length of the output.
        width: of every layer.

    Convention: clouds (N, P, 3 + K), K kinds of points, one-hot; with K = 0 all are there.
    """

    features: int
    width: int = 64

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> jax.Array:
        """Map clouds (N, P, 3 + K) to (N, features); `train` changes nothing here."""
        del train
        clouds = images
        if clouds.ndim != 3 or clouds.shape[-1] < 3:
            raise ValueError(
                f"clouds have shape {clouds.shape}; PairNet wants (N, P, 3 + K), positions first."
            )
        kinds = clouds[..., 3:]
        there = jnp.any(kinds != 0, axis=-1) if kinds.shape[-1] else jnp.ones(clouds.shape[:-1])
        pairs = (there[:, :, None] * there[:, None, :])[..., None]
        first = nn.Dense(self.width, name="first")(clouds)
        second = nn.Dense(self.width, use_bias=False, name="second")(clouds)
        x = nn.swish(first[:, :, None] + second[:, None, :])
        x = nn.swish(nn.Dense(self.width, name="pair")(x))
        count = jnp.sum(pairs, axis=(1, 2))
        x = jnp.sum(x * pairs, axis=(1, 2)) / jnp.maximum(count, 1.0)
        # A mean, and how many there were: a sum would start as large as the cloud.
        x = jnp.concatenate([x, jnp.sqrt(count) / 8.0], axis=-1)
        for layer in range(2):
            x = nn.swish(nn.Dense(self.width, name=f"dense{layer}")(x))
        return nn.Dense(self.features, name="head")(x)
