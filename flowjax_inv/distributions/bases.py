"""Densities to build on: uniform boxes, a Gaussian, and a mixture that trains its weights."""

import distrax
import jax
import jax.numpy as jnp
import numpy as np

from flowjax_inv.distributions.noise import draw_noise, split_key
from flowjax_inv.naming import check_name

__all__ = ["Gaussian", "GaussianMixture", "UniformBox"]

# Relative slack of the support test: a sample that went forward and back through the flow in
# float32 returns within about 1e-5 of where it was, and must still count as inside.
_SLACK = 1e-5


class _AroundLoc(distrax.Distribution):
    """What the densities with one centre `loc` (N, d) per image share: their shapes."""

    loc: jax.Array

    @property
    def event_shape(self) -> tuple[int, ...]:
        """(d,)."""
        return self.loc.shape[-1:]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """(N,)."""
        return self.loc.shape[:-1]


class UniformBox(_AroundLoc):
    """Uniform on a box: z = loc + (u - 1/2) exp(log_width), u ~ U[0, 1]^d.

    log density = -sum log_width inside, -inf outside.

    Args:
        loc: (N, d) centre.
        log_width: (N, d) logarithm of the full width, one per coordinate.

    Source: flow paper's code (ConditionalUniform). There one width serves all coordinates but the
        density counts d of them, and the support is ignored; here neither.
    """

    def __init__(self, loc: jax.Array, log_width: jax.Array):
        super().__init__()
        self.loc, self.log_width = jnp.broadcast_arrays(loc, log_width)

    def _sample_n(self, key: jax.Array, n: int) -> jax.Array:
        u = draw_noise(jax.random.uniform, key, n, self.loc.shape) - 0.5
        return self.loc + u * jnp.exp(self.log_width)

    def _sample_n_and_log_prob(self, key: jax.Array, n: int) -> tuple[jax.Array, jax.Array]:
        # Not log_prob(sample): the density of what was drawn does not hang on a rounded border.
        samples = self._sample_n(key, n)
        inside = -jnp.sum(self.log_width, axis=-1)
        return samples, jnp.broadcast_to(inside, samples.shape[:-1])

    def log_prob(self, value: jax.Array) -> jax.Array:
        """Return the log density of value (..., N, d): (..., N)."""
        width = jnp.exp(self.log_width)
        inside = jnp.all(jnp.abs(value - self.loc) <= width * (0.5 + _SLACK), axis=-1)
        return jnp.where(inside, -jnp.sum(self.log_width, axis=-1), -jnp.inf)


class Gaussian(_AroundLoc):
    """Multivariate normal: z = loc + L eps, eps ~ N(0, 1).

    Distrax's own draws with one key for all rows; this one takes a key per row as well.

    Args:
        loc: (N, d).
        lower: (N, d, d) L, lower triangular with a positive diagonal.
    """

    def __init__(self, loc: jax.Array, lower: jax.Array):
        super().__init__()
        self.loc, self.lower = loc, lower

    def _sample_n(self, key: jax.Array, n: int) -> jax.Array:
        noise = draw_noise(jax.random.normal, key, n, self.loc.shape)
        moved = jnp.einsum("...ij,...j->...i", self.lower, noise, precision="highest")
        return self.loc + moved

    def log_prob(self, value: jax.Array) -> jax.Array:
        """Return the log density of value (..., N, d): (..., N)."""
        offset = value - self.loc
        lower = jnp.broadcast_to(self.lower, (*offset.shape, offset.shape[-1]))
        noise = jax.scipy.linalg.solve_triangular(lower, offset[..., None], lower=True)[..., 0]
        log_det = jnp.sum(jnp.log(jnp.diagonal(self.lower, axis1=-2, axis2=-1)), axis=-1)
        return -0.5 * jnp.sum(noise**2 + np.log(2.0 * np.pi), axis=-1) - log_det


class GaussianMixture(distrax.Distribution):
    """Mixture of diagonal Gaussians whose samples carry gradients to the weights as well.

    z = eps sum_k w_k scale_k + sum_k w_k loc_k, with w a Gumbel-softmax draw of the weights at
    `temperature`; log density = logsumexp_k (log weight_k + log N(z; loc_k, scale_k)).

    With `hard`, the value of w is the one-hot draw, so z follows the mixture exactly, and only the
    gradient is that of the soft draw (straight-through): useful and biased. Without it z is a
    blend of components, which does not follow the mixture: log_prob is then a surrogate.
    With "score" the draw is hard too, and the weights get no gradient through it at all: theirs is
    a score function's, of `log_weight`.

    Args:
        logits: (N, K).
        loc: (N, K, d).
        log_scale: (N, K, d).
        temperature: of the Gumbel-softmax.
        gumbel: "hard" (straight-through), "relaxed" or "score".

    Raises:
        ValueError: if `gumbel` is none of the three.
    Source: flow paper section 4 and its code. There the density divides by exp(log_scale) + 1e-3
        but normalises by exp(log_scale), and log_prob hides the weights from the gradient.
    """

    def __init__(
        self,
        logits: jax.Array,
        loc: jax.Array,
        log_scale: jax.Array,
        *,
        temperature: float,
        gumbel: str,
    ):
        super().__init__()
        check_name("gumbel", gumbel, ("hard", "score", "relaxed"))
        self.logits, self.loc, self.log_scale = logits, loc, log_scale
        self.temperature, self.gumbel = temperature, gumbel

    @property
    def event_shape(self) -> tuple[int, ...]:
        """(d,)."""
        return self.loc.shape[-1:]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """(N,)."""
        return self.loc.shape[:-2]

    def _sample_n(self, key: jax.Array, n: int) -> jax.Array:
        key_component, key_normal = split_key(key)
        loc, scale = self.loc, jnp.exp(self.log_scale)
        if self.logits.shape[-1] == 1:
            loc, scale = loc[..., 0, :], scale[..., 0, :]
        else:
            weights = self._draw_weights(key_component, n)
            # The highest precision: accelerators would otherwise round what log_prob does not.
            loc, scale = (
                jnp.einsum("...k,...kd->...d", weights, each, precision="highest")
                for each in (loc, scale)
            )
        shape = (*self.batch_shape, *self.event_shape)
        return loc + scale * draw_noise(jax.random.normal, key_normal, n, shape)

    def _draw_weights(self, key: jax.Array, n: int) -> jax.Array:
        noise = draw_noise(jax.random.gumbel, key, n, self.logits.shape)
        scores = jax.nn.log_softmax(self.logits) + noise
        weights = jax.nn.softmax(scores / self.temperature)
        if self.gumbel == "relaxed":
            return weights
        chosen = jax.nn.one_hot(jnp.argmax(scores, -1), scores.shape[-1], dtype=scores.dtype)
        # Zero in value, the soft draw in gradient; this order keeps the one-hot value exact.
        soft = weights - jax.lax.stop_gradient(weights) if self.gumbel == "hard" else 0.0
        return chosen + soft

    def log_prob(self, value: jax.Array) -> jax.Array:
        """Return the log density of value (..., N, d): (..., N)."""
        return jax.nn.logsumexp(jax.nn.log_softmax(self.logits) + self._of_each(value), axis=-1)

    def log_weight(self, value: jax.Array) -> jax.Array:
        """Return log_prob with the gradient of the weights alone: their score, (..., N).

        It is the mean, given the value, of the score of the component that was drawn: equal in
        expectation, and less noisy.
        """
        fixed = jax.lax.stop_gradient(self._of_each(value))
        return jax.nn.logsumexp(jax.nn.log_softmax(self.logits) + fixed, axis=-1)

    def _of_each(self, value: jax.Array) -> jax.Array:
        """Return the log density (..., N, K) of every component."""
        standard = (value[..., None, :] - self.loc) * jnp.exp(-self.log_scale)
        each = -0.5 * standard**2 - self.log_scale - 0.5 * np.log(2.0 * np.pi)
        return jnp.sum(each, axis=-1)
