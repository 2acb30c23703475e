"""Noise for a batch of densities: one key or several, and samples that spread evenly."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri

__all__ = ["SPREADS", "SpreadKey", "draw_noise", "repeat_key", "split_key"]

SPREADS = ("independent", "antithetic", "stratified")
# Draws whose noise can be spread: the inverse of their distribution function.
_QUANTILES: dict[Any, Callable[[jax.Array], jax.Array]] = {
    jax.random.uniform: lambda u: u,
    jax.random.normal: ndtri,
    jax.random.gumbel: lambda u: -jnp.log(-jnp.log(u)),
}


@partial(jax.tree_util.register_dataclass, data_fields=["key"], meta_fields=["spread"])
@dataclass(frozen=True)
class SpreadKey:
    """A key whose samples spread more evenly than independent ones; taken as `seed` by densities.

    Each sample alone follows the density; only together they are not independent, so that means
    over them vary less.

    Attributes:
        key: one key, or one per row, (N,).
        spread: "antithetic", the second half mirrors the first (u and 1 - u); "stratified", every
            coordinate of the noise has one sample in each of n equal parts (Latin hypercube).
    Source: Owen, Monte Carlo theory, methods and examples, chapters 8 and 10.
    """

    key: jax.Array
    spread: str


def repeat_key(key: jax.Array, rows: int) -> jax.Array:
    """Return one key per row, all alike: every density of a batch then draws the same noise."""
    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    return jnp.broadcast_to(key if typed else jax.random.wrap_key_data(key), (rows,))


def split_key(key: jax.Array | SpreadKey) -> tuple[Any, Any]:
    """Split one key, or each of several, in two; both spread as it does."""
    if isinstance(key, SpreadKey):
        first, second = split_key(key.key)
        return SpreadKey(first, key.spread), SpreadKey(second, key.spread)
    split = jax.random.split
    for _ in range(_axes(key)):
        split = jax.vmap(split)
    both = split(key)
    return both[..., 0], both[..., 1]


def draw_noise(
    draw: Callable[..., jax.Array], key: jax.Array | SpreadKey, n: int, shape: tuple[int, ...]
) -> jax.Array:
    """Draw noise of shape (n, N, ...) for a density of batch (N,).

    Args:
        draw: jax.random.normal or its like: (key, shape) -> array.
        key: one for all, one per row, (N,), or one per sample and row, (n, N); or a `SpreadKey` of
            one of the first two.
        n: samples per row.
        shape: (N, ...).

    Raises:
        ValueError: for a `SpreadKey` with a draw that is none of uniform, normal, Gumbel.
    """
    if isinstance(key, SpreadKey):
        if draw not in _QUANTILES:
            raise ValueError(
                f'samples cannot be "{key.spread}": this density draws more than uniform, normal '
                'and Gumbel noise; take "independent".'
            )
        return _QUANTILES[draw](draw_noise(partial(_evenly, spread=key.spread), key.key, n, shape))
    if _axes(key) == 2:
        return jax.vmap(jax.vmap(lambda k: draw(k, shape[1:])))(key)
    if _axes(key) == 1:
        return jax.vmap(lambda k: draw(k, (n, *shape[1:])), out_axes=1)(key)
    return draw(key, (n, *shape))


def _evenly(key: jax.Array, shape: tuple[int, ...], *, spread: str) -> jax.Array:
    """Draw from U(0, 1), spread over the first axis."""
    if spread == "antithetic":
        half = jax.random.uniform(key, ((shape[0] + 1) // 2, *shape[1:]))
        u = jnp.concatenate([half, 1.0 - half])[: shape[0]]
    else:
        key_place, key_order = jax.random.split(key)
        part = jnp.argsort(jax.random.uniform(key_order, shape), axis=0)
        u = (part + jax.random.uniform(key_place, shape)) / shape[0]
    return jnp.clip(u, 1e-7, 1.0 - 1e-7)  # infinite quantiles at the ends


def _axes(key: jax.Array) -> int:
    """Return how many axes of keys these are; old-style keys are always single."""
    return key.ndim if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else 0
