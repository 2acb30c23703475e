"""A density on the circle, as free as a histogram and continuous: a spline flow of one circle."""

from collections.abc import Sequence

import distrax
import flax.linen as nn
import jax
import jax.numpy as jnp

from flowjax_inv.distributions.base import ConditionalDistribution
from flowjax_inv.distributions.noise import draw_noise

__all__ = ["Circular", "LinearOnCircle"]


class LinearOnCircle(distrax.Distribution):
    """Density on [-1, 1), its ends joined, linear between K values at theta_k = -1 + 2 k / K.

        g(theta) = K / 2 ((1 - f) p_k + f p_{k+1}),  f = (theta - theta_k) K / 2

    with p = softmax(scores). It is the flow theta = F^-1(u), u ~ U[0, 1], F quadratic between the
    theta_k. Samples carry no gradient: by F^-1 all would move when mass does anywhere, and the
    losses of far apart modes would not be compared.

    Args:
        scores: (N, K).

    Source: Müller et al., Neural importance sampling, 2019, section 4.2 (piecewise-quadratic
        warps), closed to a circle.
    """

    def __init__(self, scores: jax.Array):
        super().__init__()
        self.log_mass = jax.nn.log_softmax(scores)

    @property
    def event_shape(self) -> tuple[int, ...]:
        """(1,)."""
        return (1,)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """(N,)."""
        return self.log_mass.shape[:-1]

    def _sample_n(self, key: jax.Array, n: int) -> jax.Array:
        return self._sample_n_and_log_prob(key, n)[0]

    def _sample_n_and_log_prob(self, key: jax.Array, n: int) -> tuple[jax.Array, jax.Array]:
        u = draw_noise(jax.random.uniform, key, n, self.batch_shape)
        left = jnp.exp(self.log_mass)
        right = jnp.roll(left, -1, axis=-1)
        ends = jnp.cumsum(0.5 * (left + right), axis=-1)
        ends = ends / ends[..., -1:]  # rounding
        bins = self.log_mass.shape[-1]
        index = jnp.minimum(jnp.sum(u[..., None] >= ends, axis=-1), bins - 1)

        def at(values: jax.Array) -> jax.Array:
            return _at(values, index)

        # The rest r of u solves p_k f + (p_{k+1} - p_k) f^2 / 2 = r; in this form nothing cancels.
        rest = jnp.maximum(u - jnp.where(index > 0, at(jnp.roll(ends, 1, axis=-1)), 0.0), 0.0)
        p, q = at(left), at(right)
        root = jnp.sqrt(jnp.maximum(p**2 + 2.0 * (q - p) * rest, 0.0))
        inside = jnp.clip(2.0 * rest / jnp.maximum(p + root, 1e-30), 0.0, 1.0)
        theta = jax.lax.stop_gradient(-1.0 + 2.0 * (index + inside) / bins)[..., None]
        return theta, self.log_prob(theta)

    def log_prob(self, value: jax.Array) -> jax.Array:
        """Return log g of value (..., N, 1) in the unit box: (..., N), nats."""
        place = value[..., 0]
        bins = self.log_mass.shape[-1]
        position = (jnp.clip(place, -1.0, 1.0) + 1.0) * (bins / 2)
        first = jnp.minimum(jnp.floor(position), bins - 1.0)
        # Not 0 nor 1, where the logarithm of a weight would have no gradient.
        part = jnp.clip(position - first, 1e-6, 1.0 - 1e-6)
        index = first.astype(int)
        density = jnp.logaddexp(
            jnp.log1p(-part) + _at(self.log_mass, index),
            jnp.log(part) + _at(self.log_mass, (index + 1) % bins),
        ) + jnp.log(bins / 2)
        return jnp.where(jnp.abs(place) <= 1.0, density, -jnp.inf)


def _at(values: jax.Array, index: jax.Array) -> jax.Array:
    """Return values (N, K) at index (..., N): (..., N)."""
    index = jnp.broadcast_to(index, (*index.shape[:-1], values.shape[0]))
    every = jnp.broadcast_to(values, (*index.shape, values.shape[-1]))
    return jnp.take_along_axis(every, index[..., None], axis=-1)[..., 0]


class Circular(ConditionalDistribution):
    """Density on one circle, linear between values that the network gives: `LinearOnCircle`.

    Nothing stands between network and density. So with `networks.PolarConv`, whose outputs turn
    with the image, g(theta - dtheta; A_dtheta I) = g(theta; I) by construction: every turned copy
    of an image is sent to the same poses. That is so for "which way is up?", and not where turning
    an image far enough gives it another class: there take a network that sees pixels.

    Attributes:
        embed: network of images to scores (N, K), of the turns theta_k = -1 + 2 k / K.
        periodic: (True,), from the transform: one coordinate, which is a circle.
        names: of the coordinates, for the refusal.
    """

    reparameterized = False

    embed: nn.Module
    periodic: Sequence[bool] = (True,)
    names: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Refuse coordinates that are no circle."""
        if self.dim != 1 or tuple(self.periodic) != (True,):
            raise ValueError(
                f"Circular got the coordinates ({', '.join(self.names) or self.dim}); it serves a "
                "single one that is a circle: take rotations alone, over 180 degrees."
            )
        super().__post_init__()

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> distrax.Distribution:
        """Return the density of every image in (N, H, W, C)."""
        return LinearOnCircle(self.embed(images, train=train).astype(jnp.float32))
