"""Densities over crops: a categorical, and a categorical with a density inside every cell."""

from typing import Any

import distrax
import flax.linen as nn
import jax
import jax.numpy as jnp

from flowjax_inv.distributions.noise import SpreadKey, draw_noise, split_key

__all__ = ["CropCategorical", "CropFlow"]

_ROUNDING = 1e-5  # of theta, within which it is the crop it was drawn as
_MARGIN = 1e-5  # of a cell's half-width: rounding then never moves an offset into the next cell


class CropCategorical(distrax.Distribution):
    """Categorical over K crops: theta = atoms[k], k = argmax(logits + Gumbel noise).

    log_prob is of the counting measure: the log mass of the crop that theta is, -inf for others.

    Args:
        logits: (N, K).
        atoms: (K, d) theta of the crops, no two alike.
        temperature: give samples the gradient of the soft draw sum_k w_k atoms[k], w =
            softmax((logits + noise) / temperature): straight-through, useful and biased. None: no
            gradient.

    Source: InstaAug, section 3.2. Its code adds exponential instead of Gumbel noise, which draws
        (0.9, 0.1) as (0.944, 0.056).
    """

    def __init__(self, logits: jax.Array, atoms: jax.Array, temperature: float | None = None):
        super().__init__()
        self.log_mass, self.atoms = jax.nn.log_softmax(logits), atoms
        self.temperature = temperature

    @property
    def event_shape(self) -> tuple[int, ...]:
        """(d,)."""
        return self.atoms.shape[-1:]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """(N,)."""
        return self.log_mass.shape[:-1]

    @property
    def probs(self) -> jax.Array:
        """(N, K) mass of every crop."""
        return jnp.exp(self.log_mass)

    def draw(self, key: jax.Array, n: int) -> tuple[jax.Array, jax.Array]:
        """Return crops (n, N), int, and the scores (n, N, K) whose largest they are.

        By a `SpreadKey` from one number a sample, u, that is spread: the first crop k with
        p_1 + .. + p_k > u. So n "stratified" draws of n crops alike likely are each of them once.
        """
        if isinstance(key, SpreadKey):
            u = draw_noise(jax.random.uniform, key, n, self.batch_shape)
            below = jnp.cumsum(self.probs, axis=-1) <= u[..., None]
            index = jnp.minimum(jnp.sum(below, axis=-1), len(self.atoms) - 1)
            return index, jnp.broadcast_to(self.log_mass, (n, *self.log_mass.shape))
        scores = self.log_mass + draw_noise(jax.random.gumbel, key, n, self.log_mass.shape)
        return jnp.argmax(scores, axis=-1), scores

    def log_mass_of(self, index: jax.Array) -> jax.Array:
        """Return the log mass (..., N) of crops (..., N)."""
        every = jnp.broadcast_to(self.log_mass, (*index.shape, self.log_mass.shape[-1]))
        return jnp.take_along_axis(every, index[..., None], axis=-1)[..., 0]

    def _sample_n(self, key: jax.Array, n: int) -> jax.Array:
        return self._sample_n_and_log_prob(key, n)[0]

    def _sample_n_and_log_prob(self, key: jax.Array, n: int) -> tuple[jax.Array, jax.Array]:
        index, scores = self.draw(key, n)
        theta = self.atoms[index]
        if self.temperature is not None:
            weights = jax.nn.softmax(scores / self.temperature)
            soft = jnp.matmul(weights, self.atoms, precision="highest")
            # Zero in value, the soft draw in gradient; this order keeps the atom exact.
            theta = theta + (soft - jax.lax.stop_gradient(soft))
        return theta, self.log_mass_of(index)

    def log_prob(self, value: jax.Array) -> jax.Array:
        """Return the log mass of value (..., N, d): (..., N)."""
        index, distance = _nearest(value, self.atoms, jnp.ones_like(self.atoms))
        return jnp.where(distance <= _ROUNDING, self.log_mass_of(index), -jnp.inf)

    def entropy(self, input_hint: Any = None) -> jax.Array:
        """Return the entropy -sum_k p_k log p_k of every image, (N,) nats in [0, log K]."""
        del input_hint
        return -jnp.sum(self.probs * self.log_mass, axis=-1)

    def mode(self) -> jax.Array:
        """Return theta (N, d) of the likeliest crop."""
        return self.atoms[jnp.argmax(self.log_mass, axis=-1)]


class CropFlow(distrax.Distribution):
    """A crop k from a categorical, then offsets u in [-1, 1]^d from a flow that is given the crop.

    theta = middle_k + half_k u,   log g(theta) = log mass_k + log g(u; k) - sum log half_k

    Cells do not overlap, so theta has one k, and that is its whole density; -inf between cells.

    Args:
        crops: categorical over K crops.
        middle, half: (K, d) the cells, disjoint and inside the box.
        flow: `Flow` whose "images" are its embedding, unbound.
        variables: of the flow.
        embedding: (N, E).
    """

    def __init__(
        self,
        crops: CropCategorical,
        middle: jax.Array,
        half: jax.Array,
        flow: nn.Module,
        variables: Any,
        embedding: jax.Array,
    ):
        super().__init__()
        self.crops, self.middle, self.half = crops, middle, half
        self.flow, self.variables, self.embedding = flow, variables, embedding

    @property
    def event_shape(self) -> tuple[int, ...]:
        """(d,)."""
        return self.middle.shape[-1:]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """(N,)."""
        return self.crops.batch_shape

    def _given(self, index: jax.Array) -> Any:
        """Return the density of the offsets, given one crop per image, (N,)."""
        seen = jnp.concatenate([self.embedding, self.middle[index]], axis=-1)
        return self.flow.apply(self.variables, seen)

    def _log_volume(self, index: jax.Array) -> jax.Array:
        return jnp.sum(jnp.log(self._inner(index)), axis=-1)

    def _inner(self, index: jax.Array) -> jax.Array:
        return self.half[index] * (1.0 - _MARGIN)

    def log_mass(self, theta: jax.Array) -> jax.Array:
        """Return the log mass of the crop in whose cell theta (..., N, d) is: (..., N)."""
        return self.crops.log_mass_of(_nearest(theta, self.middle, self.half)[0])

    def _sample_n(self, key: jax.Array, n: int) -> jax.Array:
        return self._sample_n_and_log_prob(key, n)[0]

    def _sample_n_and_log_prob(self, key: jax.Array, n: int) -> tuple[jax.Array, jax.Array]:
        key_crop, key_offset = split_key(key)
        index, _ = self.crops.draw(key_crop, n)
        # Every copy conditions on a crop of its own, so it is a draw of its own.
        keys = draw_noise(_split, key_offset, n, self.batch_shape)

        def one(index: jax.Array, keys: jax.Array) -> Any:
            return self._given(index).sample_and_log_prob(seed=keys)

        offset, log_density = jax.vmap(one)(index, keys)
        theta = self.middle[index] + self._inner(index) * offset
        return theta, self.crops.log_mass_of(index) + log_density - self._log_volume(index)

    def log_prob(self, value: jax.Array) -> jax.Array:
        """Return log g of value (..., N, d) in the unit box: (..., N), nats."""
        value = jnp.broadcast_to(value, (*value.shape[:-2], *self.batch_shape, *self.event_shape))
        index, distance = _nearest(value, self.middle, self.half)
        # The margin belongs to its cell: what rounding took there has the density of the edge.
        offset = jnp.clip((value - self.middle[index]) / self._inner(index), -1.0, 1.0)

        def one(index: jax.Array, offset: jax.Array) -> jax.Array:
            return self._given(index).log_prob(offset)

        flat = offset.reshape(-1, *offset.shape[-2:])
        each = jax.vmap(one)(index.reshape(-1, index.shape[-1]), flat).reshape(index.shape)
        log_prob = self.crops.log_mass_of(index) + each - self._log_volume(index)
        return jnp.where(distance <= 1.0, log_prob, -jnp.inf)


def _split(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Return typed keys of this shape."""
    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    return jax.random.split(key if typed else jax.random.wrap_key_data(key), shape)


def _nearest(theta: jax.Array, middle: jax.Array, half: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return which of K cells theta (..., d) is nearest to, and how near: at most 1 is inside."""
    distance = jnp.max(jnp.abs(theta[..., None, :] - middle) / half, axis=-1)
    return jnp.argmin(distance, axis=-1), jnp.min(distance, axis=-1)
