"""Pooling of pairs whose gradient is cheap on a CPU as well."""

import functools

import jax
import jax.numpy as jnp

__all__ = ["max_pool_2x2"]


def max_pool_2x2(x: jax.Array) -> jax.Array:
    """Max-pool 2x2 windows without overlap: (N, H, W, C) -> (N, H // 2, W // 2, C).

    y[i, j] = max over a, b in {0, 1} of x[2i + a, 2j + b]; an odd last row or column is dropped.
    Values and gradients are those of `flax.linen.max_pool`: of equal entries the first gets the
    gradient. On a CPU XLA's own gradient, a select-and-scatter, costs ten times as much. Reverse
    mode only.
    """
    return _pool(x[:, : x.shape[1] // 2 * 2, : x.shape[2] // 2 * 2])[0]


@jax.custom_vjp
def _pool(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Pool even sizes; also returns which of its window, 0 to 3, is the first greatest."""
    quarters = [x[:, a::2, b::2] for a in (0, 1) for b in (0, 1)]
    top = functools.reduce(jnp.maximum, quarters)
    first = jnp.full(top.shape, 3, jnp.uint8)
    for place in (2, 1, 0):
        first = jnp.where(quarters[place] == top, jnp.uint8(place), first)
    return top, first


def _forward(x: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
    # The gradient needs a byte per window, not the pictures.
    pooled = _pool(x)
    return pooled, pooled[1]


def _backward(first: jax.Array, pulls: tuple[jax.Array, jax.Array]) -> tuple[jax.Array]:
    pull = pulls[0][:, :, None, :, None]
    places = jnp.arange(4, dtype=jnp.uint8).reshape(1, 1, 2, 1, 2, 1)
    whole = jnp.where(first[:, :, None, :, None] == places, pull, 0.0)
    batch, height, _, width, _, channels = whole.shape
    return (whole.reshape(batch, 2 * height, 2 * width, channels),)


_pool.defvjp(_forward, _backward)
