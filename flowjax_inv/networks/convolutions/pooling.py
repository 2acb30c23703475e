"""Pooling of pairs whose gradient is cheap on a CPU as well."""

import functools

import jax
import jax.numpy as jnp

__all__ = ["max_pool_2x2"]


def max_pool_2x2(x: jax.Array) -> jax.Array:
    """Max-pool 2x2 windows without overlap: (N, H, W, C) -> (N, H // 2, W // 2, C).

    y[i, j] = max over a, b in {0, 1} of x[2i + a, 2j + b]; an odd last row or column is dropped.
    Values and derivatives are those of `flax.linen.max_pool`: of equal entries the first gets the
    gradient. On a CPU XLA's own gradient, a select-and-scatter, costs ten times as much.
    """
    return _pool(x[:, : x.shape[1] // 2 * 2, : x.shape[2] // 2 * 2])


@jax.custom_jvp
def _pool(x: jax.Array) -> jax.Array:
    return functools.reduce(jnp.maximum, _quarters(x))


@_pool.defjvp
def _push(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Keep of every window's tangents that of its first greatest entry."""
    quarters = _quarters(primals[0])
    top = functools.reduce(jnp.maximum, quarters)
    # Which entry that is, 0 to 3: the gradient needs a byte per window, not the pictures.
    first = jnp.full(top.shape, 3, jnp.uint8)
    for place in (2, 1, 0):
        first = jnp.where(quarters[place] == top, jnp.uint8(place), first)
    places = jnp.arange(4, dtype=jnp.uint8).reshape(1, 1, 2, 1, 2, 1)
    batch, height, width, channels = top.shape
    windows = tangents[0].reshape(batch, height, 2, width, 2, channels)
    kept = jnp.where(first[:, :, None, :, None] == places, windows, 0.0)
    return top, jnp.sum(kept, axis=(2, 4))


def _quarters(x: jax.Array) -> list[jax.Array]:
    return [x[:, a::2, b::2] for a in (0, 1) for b in (0, 1)]
