"""Noise that spreads evenly: each sample still follows its law, and means vary less."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from flowjax_inv.distributions.bases import Gaussian, GaussianMixture, UniformBox
from flowjax_inv.distributions.noise import SPREADS, SpreadKey, draw_noise, split_key

KEY = jax.random.key(0)
LAWS = {
    jax.random.uniform: stats.uniform,
    jax.random.normal: stats.norm,
    jax.random.gumbel: stats.gumbel_r,
}


@pytest.mark.parametrize("spread", SPREADS[1:])
@pytest.mark.parametrize("draw", LAWS)
def test_spread_samples_follow_their_law(draw, spread) -> None:
    """The first of each set alone, over many sets: independent draws, level 0.1 %."""
    keys = jax.random.split(KEY, 2_000)
    first = jax.vmap(lambda key: draw_noise(draw, SpreadKey(key, spread), 5, (2, 3))[0, 1, 2])(keys)
    assert stats.kstest(np.asarray(first), LAWS[draw].cdf).pvalue > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("spread", SPREADS[1:])
def test_means_vary_less(spread) -> None:
    boxes = UniformBox(jnp.zeros((1, 2)), jnp.zeros((1, 2)))
    normal = Gaussian(jnp.zeros((1, 2)), jnp.eye(2)[None])
    keys = jax.random.split(KEY, 100)
    for density in (boxes, normal):

        def means(spread, density=density):
            def one(key):
                seed: Any = key if spread == "independent" else SpreadKey(key, spread)
                return density.sample(seed=seed, sample_shape=(21,)).mean(0)

            return jax.vmap(one)(keys)

        assert jnp.std(means(spread)) < 0.35 * jnp.std(means("independent"))


def test_one_key_per_row_spreads_each_row() -> None:
    keys = SpreadKey(jax.random.split(KEY, 4), "stratified")
    u = draw_noise(jax.random.uniform, keys, 8, (4,))
    np.testing.assert_array_equal(np.sort(np.floor(u * 8), axis=0), np.tile(np.arange(8), (4, 1)).T)
    assert not np.allclose(u[:, 0], u[:, 1])
    first, second = split_key(keys)
    assert first.spread == second.spread == "stratified"
    assert first.key.shape == (4,)


def test_a_mixture_takes_spread_keys_under_jit() -> None:
    mixture = GaussianMixture(
        jnp.zeros((3, 4)), jnp.zeros((3, 4, 1)), jnp.zeros((3, 4, 1)), temperature=1.0,
        gumbel="hard",
    )  # fmt: skip
    draw = jax.jit(lambda seed: mixture.sample(seed=seed, sample_shape=(10,)))
    assert draw(SpreadKey(KEY, "antithetic")).shape == (10, 3, 1)


def test_other_noise_is_refused() -> None:
    with pytest.raises(ValueError, match='samples cannot be "stratified": this density draws more'):
        draw_noise(jax.random.split, SpreadKey(KEY, "stratified"), 2, (3,))
