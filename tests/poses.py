"""Pictures whose pose can be read, and densities that read it: known answers for inference."""

import distrax
import jax
import jax.numpy as jnp

from flowjax_inv.distributions.bases import UniformBox


def blobs(degrees: jax.Array, size: int = 21) -> jax.Array:
    """Pictures (N, size, size, 1) of a blob right of the middle, turned by degrees (N,)."""
    radians = jnp.deg2rad(degrees)[:, None, None]
    axis = jnp.linspace(-1.0, 1.0, size)
    # A positive turn is counter-clockwise as seen; y runs down.
    x, y = 0.5 * jnp.cos(radians), -0.5 * jnp.sin(radians)
    return jnp.exp(-((axis - x) ** 2 + (axis[:, None] - y) ** 2) / 0.08)[..., None]


def pose(images: jax.Array) -> jax.Array:
    """Direction of the centre of brightness, (N,) in half turns."""
    axis = jnp.linspace(-1.0, 1.0, images.shape[1])
    x = jnp.einsum("nhwc,w->n", images, axis)
    y = jnp.einsum("nhwc,h->n", images, axis)
    return jnp.arctan2(-y, x) / jnp.pi


def upright(half_width: float):
    """Return images -> uniform density, half_width half turns either side of what rights them."""

    def propose(images: jax.Array) -> distrax.Distribution:
        loc = -pose(images)[:, None]
        return _Circle(UniformBox(loc, jnp.full_like(loc, jnp.log(2.0 * half_width))))

    return propose


class _Circle(distrax.Distribution):
    """A density on the line, brought onto the circle [-1, 1)."""

    def __init__(self, line: distrax.Distribution):
        super().__init__()
        self.line = line

    @property
    def event_shape(self) -> tuple[int, ...]:
        return self.line.event_shape

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return self.line.batch_shape

    def _sample_n(self, key, n):
        return jnp.mod(self.line.sample(seed=key, sample_shape=(n,)) + 1.0, 2.0) - 1.0

    def _sample_n_and_log_prob(self, key, n):
        sample, log_prob = self.line.sample_and_log_prob(seed=key, sample_shape=(n,))
        return jnp.mod(sample + 1.0, 2.0) - 1.0, log_prob

    def log_prob(self, value: jax.Array) -> jax.Array:
        turns = jnp.array([-2.0, 0.0, 2.0])[:, None, None]
        each = jax.vmap(lambda turn: self.line.log_prob(value + turn))(turns)
        return jax.nn.logsumexp(each, axis=0)
