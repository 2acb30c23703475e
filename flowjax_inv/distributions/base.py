"""The contract every conditional distribution keeps, and the smooth bound its parameters use."""

from typing import Any

import distrax
import flax.linen as nn
import jax
import jax.numpy as jnp

__all__ = [
    "ConditionalDistribution",
    "bounded",
    "free_plus_projection",
    "log_prob_along_samples",
    "unbounded",
]


class ConditionalDistribution(nn.Module):
    """Images -> density g(T; I) over the unit box [-1, 1]^dim.

    A subclass defines `__call__(images, train=False)`, which returns a `distrax.Distribution` of
    batch shape (N,) and event shape (dim,) with `sample_and_log_prob(seed=, sample_shape=)` and
    `log_prob` (-inf outside its support, which lies inside the box). The returned object may be
    used after the Linen call has ended: it holds arrays, never bound modules. `seed` is one key,
    one key per image, (N,), or one per sample and image, (n, N): an image's samples then depend on
    its own keys alone, whatever batch and device it is on. Densities draw by `noise.draw_noise`,
    which keeps this.

    Attributes:
        dim: number of coordinates of theta.

    Class attributes:
        reparameterized: True if samples carry gradients to the parameters, or a property that says
            so of an instance. Otherwise the objective adds a score-function term, see `scored`.
        pathwise_entropy: True, or a field that says so, if training is to take the entropy's
            gradient by `log_prob_along_samples`.
        has_density: False for point masses, which have no entropy to reward.
        scorable: whether the score function holds, also where samples carry gradients: the region
            where g > 0 hangs on no parameter, and `log_prob` is the density of the samples.
        discrete: True if theta takes some values only, `atoms` (K, dim) of the density, and
            log_prob is a log mass: a value at the edge of the box is then as good as any.
    """

    dim: int
    reparameterized = True
    pathwise_entropy = False
    has_density = True
    scorable = True
    discrete = False

    def __call__(self, images: jax.Array, *, train: bool = False) -> distrax.Distribution:
        """Return the density of every image in (N, H, W, C)."""
        raise NotImplementedError

    def regularizer(self, distribution: distrax.Distribution, log_prob: jax.Array) -> jax.Array:
        """Return the scalar that alpha multiplies: by default mean log g, the negative entropy.

        Args:
            distribution: what `__call__` returned.
            log_prob: (n, N) log g of the samples drawn from it, in the unit box (nats).

        Source: flow paper eq. 18.
        """
        del distribution
        return jnp.mean(log_prob)

    def scored(
        self, distribution: distrax.Distribution, theta: jax.Array, log_prob: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return log-probability and cost of samples whose choice carries no gradient, (n, N) each.

        With s the first and c the second, grad E[h + alpha regularizer] =
        E[(h + alpha c) grad s] + the gradient that flows through theta and `regularizer`.

        Args:
            distribution: what `__call__` returned.
            theta: (n, N, d) samples drawn from it.
            log_prob: (n, N) their log g.

        Returns:
            log-probability of that part of a sample which was drawn without a gradient, by default
            log g; and what each sample adds to `regularizer`, by default log g, or 0 where the
            regularizer is a closed form and not a mean over samples. Only `reparameterized=False`
            asks for it.
        """
        del distribution, theta
        return log_prob, log_prob


def log_prob_along_samples(distribution: distrax.Distribution, theta: jax.Array) -> jax.Array:
    """Return log g (n, N) of samples (n, N, d), its gradient through the samples alone.

    With the parameters p of g held still, d log g / d theta d theta / d p has the mean of the whole
    gradient, as E[d log g / d p] = 0, and less noise: none at all where g is the optimum,
    exp(-loss / alpha). It holds where samples carry gradients (what they do not carry is `scored`)
    and the region where g > 0 hangs on no parameter: a box's edge moves.

    Source: Roeder, Wu and Duvenaud, Sticking the landing, 2017.
    """
    still: Any = jax.tree.map(jax.lax.stop_gradient, distribution)
    return still.log_prob(theta)


def bounded(x: jax.Array, low: float, high: float) -> jax.Array:
    """Bound x smoothly: mid + half tanh((x - mid) / half), slope 1 in the middle of (low, high).

    The authors clamp; a clamp has no gradient outside, so a parameter that left would never return.
    """
    mid, half = (low + high) / 2, (high - low) / 2
    return mid + half * jnp.tanh((x - mid) / half)


def unbounded(y: jax.Array, low: float, high: float) -> jax.Array:
    """Invert `bounded`, to start a bounded parameter at a stated value inside (low, high)."""
    mid, half = (low + high) / 2, (high - low) / 2
    return mid + half * jnp.arctanh((y - mid) / half)


def free_plus_projection(
    module: nn.Module, name: str, free: jax.Array, embedding: jax.Array, scale: float
) -> jax.Array:
    """Return a parameter per image: a learned free value plus a projection of the embedding.

    Args:
        module: whose parameters `name` and `name_projection` these are; inside its `__call__`.
        name: of the parameter.
        free: its first value, any shape.
        embedding: (N, E).
        scale: of the projection's first kernel, as a factor on 1 / sqrt(E).

    Returns:
        (N, *free.shape).
    Source: flow paper's code.
    """
    start = nn.initializers.variance_scaling(scale**2, "fan_in", "truncated_normal")
    dense = nn.Dense(
        free.size,
        kernel_init=start,
        precision="highest",
        name=f"{name}_projection",
        parent=module,
    )
    projected = dense(embedding)
    learned = module.param(name, lambda _: free.astype(jnp.float32))
    return learned + projected.reshape(-1, *free.shape)
