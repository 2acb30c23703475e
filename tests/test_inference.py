"""Predictions averaged over views."""

import sys
from typing import Any

import distrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flowjax_inv.distributions.bases import UniformBox
from flowjax_inv.distributions.box import Identity
from flowjax_inv.inference import (
    average_views,
    averaging,
    make_predict,
    predict,
    predict_adaptive,
)
from flowjax_inv.native import onednn
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.parametrize(("there", "most"), [(True, 256), (False, 32)])
def test_onednn_takes_more_views_at_a_time(
    there: bool, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onednn, "available", lambda: there)
    assert averaging._at_a_time() == most
    monkeypatch.delitem(sys.modules, "flowjax_inv.native.onednn")
    assert averaging._at_a_time() == 32


@pytest.mark.slow
def test_few_views_at_a_time_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """45 views in two parts, the last one padded, as on a single CPU device under jit."""
    seen: list[int] = []

    def classify(images: jax.Array) -> jax.Array:
        seen.append(images.shape[0])
        return _classify(images)

    def call(images: jax.Array) -> jax.Array:
        return predict(
            classify, _turns(0.3), ROTATION, images, key=jax.random.key(1), num_samples=8,
            include_original=True,
        )  # fmt: skip

    def value_and_gradient() -> tuple[jax.Array, jax.Array]:
        """Traced anew each time: the number of devices is read then."""
        return jax.jit(lambda x: call(x))(IMAGES), jax.jit(
            jax.grad(lambda x: jnp.sum(call(x)[:, 0]))
        )(IMAGES)

    wanted = value_and_gradient()
    assert set(seen) == {45}
    seen.clear()
    monkeypatch.setattr(averaging, "_at_a_time", lambda: 32)
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    got = value_and_gradient()
    assert set(seen) == {23}
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_confident_views_outweigh_others() -> None:
    """Probabilities (0.9, 0.1) and (0.4, 0.6): weights 0.9^4 and 0.6^4."""
    probs = jnp.array([[0.9, 0.1], [0.4, 0.6]])[:, None]
    got = average_views(jnp.log(probs) + 3.0, "confident")
    first, second = 0.9**4, 0.6**4
    np.testing.assert_allclose(
        got[0, 0], (0.9 * first + 0.4 * second) / (first + second), rtol=1e-5
    )
    np.testing.assert_allclose(got.sum(), 1.0, rtol=1e-6)
    alike = jnp.log(jnp.array([[0.7, 0.3], [0.3, 0.7]]))[:, None]
    for average in ("probs", "confident"):
        np.testing.assert_allclose(average_views(alike, average), [[0.5, 0.5]], rtol=1e-6)


def test_refusals() -> None:
    def call(**fields):
        return predict(
            _classify, _quarter_turns, ROTATION, IMAGES,
            **{"key": jax.random.key(0), "num_samples": 2} | fields,
        )  # fmt: skip

    with pytest.raises(ValueError, match="num_samples is 0; want at least 1"):
        call(num_samples=0)
    with pytest.raises(ValueError, match='average is "losses"; allowed: probs, logits, confident'):
        call(average="losses")


def _turns(half_width: float):
    """Return images -> uniform turns of up to half_width half turns."""

    def propose(images: jax.Array) -> distrax.Distribution:
        loc = jnp.zeros((images.shape[0], 1))
        return UniformBox(loc, jnp.full_like(loc, np.log(2.0 * half_width)))

    return propose


@pytest.mark.slow
def test_adaptive_takes_more_views_where_they_differ() -> None:
    """Black pictures look alike however they are turned; the others take more views."""
    images = IMAGES.at[0].set(0.0)

    @jax.jit
    def run(images):
        return predict_adaptive(
            _classify, _turns(1.0), ROTATION, images, key=jax.random.key(1), standard_error=0.01
        )

    got = run(images)
    assert int(got.num_samples[0]) == 10
    assert (np.asarray(got.num_samples[1:]) > 10).all()
    assert (np.asarray(got.num_samples) % 10 == 0).all()
    done = np.asarray(got.num_samples) < 300
    assert (np.asarray(got.standard_error)[done] <= 0.01).all()
    many = predict(_classify, _turns(1.0), ROTATION, images, key=jax.random.key(2), num_samples=900)
    np.testing.assert_allclose(got.probabilities, many, atol=4 * 0.012)


@pytest.mark.slow
def test_the_standard_error_is_that_of_the_mean() -> None:
    """Over many keys, means of 20 views deviate by what is reported (within a quarter)."""

    def one(key):
        got = predict_adaptive(
            _classify, _turns(0.3), ROTATION, IMAGES, key=key, standard_error=1e-6, block=20,
            max_samples=20,
        )  # fmt: skip
        return got.probabilities[:, 0], got.standard_error

    means, errors = jax.vmap(one)(jax.random.split(jax.random.key(0), 400))
    np.testing.assert_allclose(means.std(0) / np.sqrt((errors**2).mean(0)), 1.0, atol=0.25)


def test_views_in_half_precision_are_averaged_in_single() -> None:
    """The mean of 300 equal views is that view, and its standard error no more than rounding."""

    def classify(images: jax.Array) -> jax.Array:
        return jnp.broadcast_to(jnp.array([1.5, 0.0], jnp.bfloat16), (images.shape[0], 2))

    got = predict_adaptive(
        classify, _turns(0.1), ROTATION, IMAGES, key=jax.random.key(0), standard_error=1e-9
    )
    np.testing.assert_allclose(got.probabilities[:, 0], jax.nn.sigmoid(1.5), rtol=1e-5)
    assert float(got.standard_error.max()) < 1e-4
    flat = average_views(jnp.zeros((2, 1, 100), jnp.float16), "confident")
    np.testing.assert_allclose(flat, 0.01, rtol=1e-5)


@pytest.mark.slow
def test_any_classifier_will_do() -> None:
    """A callback to the host, as another framework's network would be; NaN stays NaN."""

    def host(images: np.ndarray) -> np.ndarray:
        return np.asarray(images).mean((1, 2)) @ np.array([[1.0, -1.0]], np.float32)

    def classify(images: jax.Array) -> jax.Array:
        return jax.pure_callback(
            host, jax.ShapeDtypeStruct((images.shape[0], 2), "float32"), images
        )

    got = predict(classify, _turns(0.1), ROTATION, IMAGES, key=jax.random.key(0), num_samples=3)
    np.testing.assert_allclose(got.sum(-1), 1.0, atol=1e-6)
    # NaN from the pixels: XLA folds the softmax of a constant NaN into whatever it finds.
    broken = predict_adaptive(
        lambda x: jnp.sqrt(_classify(x) - 1e6), _turns(0.1), ROTATION, IMAGES,
        key=jax.random.key(0),
    )  # fmt: skip
    assert np.isnan(broken.probabilities).all()
    assert (np.asarray(broken.num_samples) == 10).all()


def test_hostile_classifiers_are_named() -> None:
    def call(classify):
        return predict(
            classify, _turns(0.1), ROTATION, IMAGES, key=jax.random.key(0), num_samples=2
        )

    with pytest.raises(ValueError, match=r"classify\(\) made \(10, 6, 6, 1\) of images \(10, 6, 6"):
        call(lambda images: images)
    with pytest.raises(TypeError, match="jax.pure_callback"):
        jax.jit(lambda: call(lambda images: jnp.asarray(np.asarray(images).mean((1, 2)))))()


@pytest.mark.parametrize("field", ["standard_error", "block", "max_samples"])
def test_adaptive_refusals(field) -> None:
    with pytest.raises(ValueError, match="want an error above 0, at least 2 views in a block, and"):
        predict_adaptive(
            _classify, _turns(0.1), ROTATION, IMAGES, key=jax.random.key(0),
            **{field: 0},
        )  # fmt: skip
