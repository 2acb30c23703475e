"""Predictions averaged over views."""

from typing import Any

import distrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flowjax_inv.distributions.box import Identity
from flowjax_inv.inference import make_predict, predict
from flowjax_inv.networks import MLP
from flowjax_inv.transforms import Affine

ROTATION = Affine("rotation")
IMAGES = jax.random.uniform(jax.random.key(0), (5, 6, 6, 1))


def _quarter_turns(images: jax.Array) -> distrax.Distribution:
    """Half the mass at 0, half at a quarter turn."""
    picks = distrax.Categorical(logits=jnp.zeros((images.shape[0], 2)))

    class Turns(distrax.Distribution):
        @property
        def event_shape(self) -> tuple[int, ...]:
            return (1,)

        def _sample_n(self, key, n):
            return picks.sample(seed=key, sample_shape=(n,))[..., None] * 0.5

        def log_prob(self, value):
            raise NotImplementedError

    return Turns()


def _classify(images: jax.Array) -> jax.Array:
    """Two classes by the top row against the left column: a quarter turn moves one to the other."""
    top, left = images[:, 0].mean((1, 2)), images[:, :, 0].mean((1, 2))
    return 8 * jnp.stack([top, left], -1)


@pytest.mark.parametrize("average", ["probs", "logits"])
def test_average_is_that_of_the_two_views(average) -> None:
    got = predict(
        _classify, _quarter_turns, ROTATION, IMAGES, key=jax.random.key(1), num_samples=4_000,
        average=average,
    )  # fmt: skip
    logits = jnp.stack([_classify(IMAGES), _classify(jnp.rot90(IMAGES, 1, (1, 2)))])
    expected = (
        jax.nn.softmax(logits).mean(0) if average == "probs" else jax.nn.softmax(logits.mean(0))
    )
    np.testing.assert_allclose(got, expected, atol=0.03)


def test_the_original_counts_as_one_more_view() -> None:
    """With views that are all the quarter turn, it is half of the average."""

    def always(images: jax.Array) -> distrax.Distribution:
        turn = jnp.full((images.shape[0], 1), 0.5)
        return distrax.Independent(distrax.Deterministic(turn), reinterpreted_batch_ndims=1)

    got = predict(
        _classify, always, ROTATION, IMAGES, key=jax.random.key(1), num_samples=1,
        include_original=True,
    )  # fmt: skip
    logits = jnp.stack([_classify(IMAGES), _classify(jnp.rot90(IMAGES, 1, (1, 2)))])
    np.testing.assert_allclose(got, jax.nn.softmax(logits).mean(0), atol=1e-5)


def test_make_predict_is_predict_and_compiles_once_for_new_weights() -> None:
    classifier, distribution = MLP(3, hidden=(4,)), Identity(dim=1)
    averaged: Any = make_predict(classifier, distribution, ROTATION, num_samples=2)
    for seed in (0, 1):
        weights = classifier.init(jax.random.key(seed), IMAGES)
        got = averaged({"classifier": weights, "distribution": {}}, IMAGES, jax.random.key(2))
        logits: Any = classifier.apply(weights, IMAGES)
        np.testing.assert_allclose(got, jax.nn.softmax(logits), atol=1e-6)
    assert averaged._cache_size() == 1


def test_refusals() -> None:
    def call(**fields):
        return predict(
            _classify, _quarter_turns, ROTATION, IMAGES,
            **{"key": jax.random.key(0), "num_samples": 2} | fields,
        )  # fmt: skip

    with pytest.raises(ValueError, match="num_samples is 0; want at least 1"):
        call(num_samples=0)
    with pytest.raises(ValueError, match='average is "losses"; allowed: probs, logits'):
        call(average="losses")
