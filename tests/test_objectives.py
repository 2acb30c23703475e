"""Terms of the loss."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from flowjax_inv.training.costs import score_function_term, view_cross_entropy, view_squared_error
from flowjax_inv.training.objectives import Objective

LOGITS = jax.random.normal(jax.random.key(0), (4, 5, 3)) * 2
LABELS = jnp.array([0, 1, 2, 1, 0])


def test_the_three_averages_by_hand() -> None:
    log_p = np.asarray(jax.nn.log_softmax(LOGITS))
    picked = log_p[:, np.arange(5), LABELS]
    np.testing.assert_allclose(
        view_cross_entropy(LOGITS, LABELS, "losses"), -picked.mean(0), rtol=1e-5
    )
    np.testing.assert_allclose(
        view_cross_entropy(LOGITS, LABELS, "probs"), -np.log(np.exp(picked).mean(0)), rtol=1e-5
    )
    mean = np.asarray(jax.nn.log_softmax(LOGITS.mean(0)))
    np.testing.assert_allclose(
        view_cross_entropy(LOGITS, LABELS, "logits"), -mean[np.arange(5), LABELS], rtol=1e-5
    )


def test_jensen_and_equality_for_one_view() -> None:
    by = {a: view_cross_entropy(LOGITS, LABELS, a) for a in ("losses", "logits", "probs")}
    assert (by["losses"] >= by["probs"] - 1e-6).all()
    one = [view_cross_entropy(LOGITS[:1], LABELS, a) for a in ("losses", "logits", "probs")]
    np.testing.assert_allclose(one[0], one[1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(one[0], one[2], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("average", ["losses", "logits"])
def test_smoothed_labels_are_those_of_optax(average: Any) -> None:
    smooth = optax.smooth_labels(jax.nn.one_hot(LABELS, 3), 0.1)
    logits = LOGITS if average == "losses" else LOGITS.mean(0, keepdims=True)
    expected = optax.softmax_cross_entropy(logits, smooth).mean(0)
    found = view_cross_entropy(LOGITS, LABELS, average, label_smoothing=0.1)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_squared_errors_by_hand() -> None:
    outputs, values = jnp.array([[[1.0], [4.0]], [[3.0], [4.0]]]), jnp.array([2.0, 1.0])
    np.testing.assert_allclose(view_squared_error(outputs, values, "losses"), [1.0, 9.0])
    np.testing.assert_allclose(view_squared_error(outputs, values, "logits"), [0.0, 9.0])


def test_refusals_of_smoothed_labels_and_squared_errors() -> None:
    with pytest.raises(ValueError, match=r'label_smoothing is 0.1 with average="probs"'):
        view_cross_entropy(LOGITS, LABELS, "probs", label_smoothing=0.1)
    with pytest.raises(ValueError, match=r"outputs have shape \(4, 5, 3\); a squared error wants"):
        view_squared_error(LOGITS, LABELS, "losses")
    with pytest.raises(ValueError, match='average is "probs"; a squared error allows'):
        view_squared_error(LOGITS[..., :1], LABELS, "probs")


def test_unknown_loss() -> None:
    loss: Any = "mse"
    with pytest.raises(ValueError, match=r"loss='mse' is unknown; .* cross_entropy, squared_error"):
        Objective(loss=loss)


def test_unknown_average() -> None:
    average: Any = "mean"
    with pytest.raises(ValueError, match='average is "mean"; allowed: losses, logits, probs'):
        view_cross_entropy(LOGITS, LABELS, average)


@pytest.mark.parametrize("baseline", [True, False])
def test_score_function_gradient_is_that_of_the_expectation(baseline: bool) -> None:
    """E[h(x)] for x ~ Bernoulli(sigmoid(w)): gradient p (1 - p) (h(1) - h(0)), value zero."""

    def term(w: jax.Array, key: jax.Array) -> jax.Array:
        p = jax.nn.sigmoid(w)
        x = jax.lax.stop_gradient(jax.random.bernoulli(key, p, (1, 50_000)).astype(jnp.float32))
        log_prob = x * jnp.log(p) + (1 - x) * jnp.log1p(-p)
        return score_function_term(3.0 * x + 1.0, log_prob, baseline=baseline)

    value, gradient = jax.value_and_grad(term)(jnp.float32(0.4), jax.random.key(0))
    p = 1 / (1 + np.exp(-0.4))
    assert abs(float(value)) < 1e-6
    assert float(gradient) == pytest.approx(3 * p * (1 - p), rel=0.02)


def test_the_baseline_takes_the_noise_of_a_constant_away() -> None:
    """Losses that are all alike push nowhere with it, and somewhere without."""
    log_prob = jax.random.normal(jax.random.key(0), (2, 8))

    def push(baseline: bool) -> jax.Array:
        term = lambda x: score_function_term(jnp.ones((2, 8)), x, baseline=baseline)  # noqa: E731
        return jnp.abs(jax.grad(term)(log_prob)).max()

    assert float(push(True)) < 1e-7
    assert float(push(False)) == pytest.approx(1 / 16)


def test_a_sample_that_is_alone_has_no_baseline() -> None:
    gradient = jax.grad(lambda x: score_function_term(jnp.full((1, 1), 3.0), x))(jnp.ones((1, 1)))
    assert float(gradient[0, 0]) == 3.0
