"""Distributions that are boxes: so far the identity, the method without augmentation."""

import distrax
import jax
import jax.numpy as jnp

from flowjax_inv.distributions.base import ConditionalDistribution

__all__ = ["Identity"]


class Identity(ConditionalDistribution):
    """The method without augmentation: theta = 0 for every image, a point mass.

    Its log_prob is of the counting measure: 0 at theta = 0 and -inf elsewhere. It has no entropy,
    and alpha multiplies zero.
    """

    has_density = False

    def __call__(self, images: jax.Array, *, train: bool = False) -> distrax.Distribution:
        """Return the point mass at 0, batch shape (N,)."""
        del train
        zeros = jnp.zeros((images.shape[0], self.dim), jnp.float32)
        return distrax.Independent(distrax.Deterministic(zeros), reinterpreted_batch_ndims=1)

    def regularizer(self, distribution: distrax.Distribution, log_prob: jax.Array) -> jax.Array:
        """Return 0: there is nothing to widen."""
        del distribution, log_prob
        return jnp.zeros(())
