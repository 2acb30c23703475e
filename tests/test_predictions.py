"""Scores of predictions: values worked out by hand, or by SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from flowjax_inv import metrics

P = jnp.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6], [0.5, 0.4, 0.1]])
LABELS = jnp.array([0, 1, 2, 1])


@pytest.mark.slow
def test_accuracy_likelihood_and_leading_axes() -> None:
    np.testing.assert_allclose(metrics.accuracy(P, LABELS), 0.75)
    expected = -np.mean(np.log([0.7, 0.6, 0.6, 0.4]))
    np.testing.assert_allclose(metrics.negative_log_likelihood(P, LABELS), expected, rtol=1e-5)
    both = jnp.stack([P, jnp.roll(P, 1, axis=-1)])
    for score in (
        metrics.accuracy, metrics.negative_log_likelihood, metrics.calibration_error
    ):  # fmt: skip
        np.testing.assert_allclose(score(both, LABELS)[1], score(both[1], LABELS), rtol=1e-6)


def test_calibration() -> None:
    """Bins of a third: confidences 0.7; 0.6, 0.6, 0.5 in the other."""
    got = metrics.calibration_error(P, LABELS, bins=3)
    np.testing.assert_allclose(got, (abs(1 - 0.7) + abs(2 - 1.7)) / 4, rtol=1e-5)
    key_p, key_y = jax.random.split(jax.random.key(0))
    sure = jax.random.uniform(key_p, (200_000,), minval=0.5)
    labels = (jax.random.uniform(key_y, sure.shape) > sure).astype(jnp.int32)
    honest = jnp.stack([sure, 1 - sure], axis=-1)
    assert metrics.calibration_error(honest, labels) < 0.01
    assert metrics.calibration_error(honest**8 / (honest**8).sum(-1, keepdims=True), labels) > 0.1


def test_divergence() -> None:
    q = jnp.roll(P, 1, axis=0)
    each = np.asarray(stats.entropy(np.asarray(P), np.asarray(q), axis=-1))
    np.testing.assert_allclose(metrics.kl_divergence(P, q), each, rtol=1e-4)
    got = metrics.divergence_per_class(P, q, LABELS, 4)
    np.testing.assert_allclose(got[:3], [each[0], (each[1] + each[3]) / 2, each[2]], rtol=1e-4)
    assert np.isnan(got[3])
    np.testing.assert_allclose(metrics.kl_divergence(P, P), 0.0, atol=1e-7)


def test_auroc_is_mann_whitneys_statistic() -> None:
    scores = jnp.round(jax.random.normal(jax.random.key(0), (60,)), 1)  # with ties
    positive = jnp.arange(60) % 3 == 0
    split = np.asarray(scores[positive]), np.asarray(scores[~positive])
    expected = stats.mannwhitneyu(*split).statistic / (20 * 40)
    np.testing.assert_allclose(metrics.auroc(scores, positive), expected, rtol=1e-5)


def test_auroc_of_many_scores_and_of_infinite_ones() -> None:
    scores = jnp.arange(100_000.0)
    np.testing.assert_allclose(metrics.auroc(scores, scores >= 50_000), 1.0, rtol=1e-5)
    with_infinities = jnp.array([jnp.inf, 2.0, jnp.inf, -jnp.inf])
    assert float(metrics.auroc(with_infinities, jnp.array([1, 1, 0, 0]))) == pytest.approx(0.625)
    assert np.isnan(metrics.auroc(jnp.array([jnp.nan, 0.0]), jnp.array([True, False])))


def test_spread_of_angles() -> None:
    angle = 175.0 + 10.0 * jax.random.normal(jax.random.key(0), (5_000,))
    np.testing.assert_allclose(metrics.circular_std_degrees(angle), 10.0, rtol=0.05)
    np.testing.assert_allclose(metrics.circular_std_degrees(jnp.full(3, 40.0)), 0.0, atol=0.1)
    apart = metrics.pairwise_degrees(jnp.array([170.0, -170.0, 180.0]))
    np.testing.assert_allclose(apart, (20 + 10 + 10) / 3, rtol=1e-5)
