"""Pooling of pairs whose gradient is cheap on a CPU as well."""

import jax
import jax.numpy as jnp

__all__ = ["max_pool_2x2"]


@jax.custom_vjp
def max_pool_2x2(x: jax.Array) -> jax.Array:
    """Max-pool 2x2 windows without overlap: (N, H, W, C) -> (N, H // 2, W // 2, C).

    y[i, j] = max over a, b in {0, 1} of x[2i + a, 2j + b]; an odd last row or column is dropped.
    Values and gradients are those of `flax.linen.max_pool`: of equal entries the first gets the
    gradient. On a CPU XLA's own gradient, a select-and-scatter, costs ten times as much. Reverse
    mode only.
    """
    return jnp.max(jnp.stack(_quarters(x)), axis=0)


def _quarters(x: jax.Array) -> list[jax.Array]:
    height, width = x.shape[1] // 2 * 2, x.shape[2] // 2 * 2
    return [x[:, a:height:2, b:width:2] for a in (0, 1) for b in (0, 1)]


def _pool_forward(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return max_pool_2x2(x), x


def _pool_backward(x: jax.Array, pull: jax.Array) -> tuple[jax.Array]:
    quarters = _quarters(x)
    top = jnp.max(jnp.stack(quarters), axis=0)
    parts, free = [], jnp.ones(pull.shape, bool)
    for quarter in quarters:
        chosen = free & (quarter == top)
        free &= ~chosen
        parts.append(jnp.where(chosen, pull, 0.0))
    # Interleaved by two stacks and a reshape: cheaper than adding four padded pictures.
    rows = [jnp.stack(parts[:2], axis=3), jnp.stack(parts[2:], axis=3)]
    height, width = 2 * pull.shape[1], 2 * pull.shape[2]
    whole = jnp.stack(rows, axis=2).reshape(x.shape[0], height, width, x.shape[3])
    odd = ((0, 0), (0, x.shape[1] - height), (0, x.shape[2] - width), (0, 0))
    return (jnp.pad(whole, odd),)


max_pool_2x2.defvjp(_pool_forward, _pool_backward)
