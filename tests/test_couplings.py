"""The loop over couplings equals the couplings written out, value and gradient."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flowjax_inv.distributions.bijections import Conditioner, ConditionerNet, Squash
from flowjax_inv.distributions.couplings import Couplings
from flowjax_inv.distributions.flow import Flow
from flowjax_inv.networks import SimpleConv

CAP, IMAGES, LAYERS = 3.0, 4, 3
EMBEDDING = jax.random.normal(jax.random.key(0), (IMAGES, 5))


def _conditioners(params: Any, dim: int, hidden_layers: int) -> list[Conditioner]:
    net: Any = ConditionerNet(dim, 2 * dim, 8, hidden_layers)
    return [net.apply(p, EMBEDDING) for p in params]


def _case(dim: int, hidden_layers: int) -> tuple[list[Any], list[list[int]]]:
    """Return parameters away from the identity, and orders that differ."""
    net = ConditionerNet(dim, 2 * dim, 8, hidden_layers, start_scale=1.0)
    params = [net.init(jax.random.key(layer), EMBEDDING) for layer in range(LAYERS)]
    random = np.random.default_rng(1)
    return params, [random.permutation(dim).tolist() for _ in range(LAYERS)]


def _written_out(
    conditioners: list[Conditioner], orders: list[list[int]], inner_squash: float, x: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """All coordinates, half of them masked, layer after layer: the formulas as they stand."""
    dim = x.shape[-1]
    kept = np.arange(dim) < (dim + 1) // 2 if dim > 1 else np.zeros(1, bool)
    total: Any = 0.0
    for conditioner, order in zip(conditioners, orders, strict=True):
        both = conditioner(jnp.where(kept, x, 0.0)).reshape(*x.shape, 2)
        log_scale = jnp.where(kept, 0.0, CAP * jnp.tanh(both[..., 1] / CAP))
        x = x * jnp.exp(log_scale) + jnp.where(kept, 0.0, both[..., 0])
        x, total = x[..., np.asarray(order)], total + log_scale.sum(-1)
        if inner_squash:
            x, slope = Squash(inner_squash, inner_squash).forward_and_log_det(x)
            total = total + slope
    return x, total


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dim", "hidden_layers", "inner_squash", "lead", "devices"),
    [
        (1, 1, 6.0, (7,), 1),
        (2, 1, 6.0, (), 1),
        (3, 2, 0.0, (7,), 1),
        (6, 1, 6.0, (2, 3), 1),
        (6, 1, 6.0, (2, 3), 2),
    ],
)
def test_value_gradient_and_inverse(
    dim: int,
    hidden_layers: int,
    inner_squash: float,
    lead: tuple[int, ...],
    devices: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On one device conditioners of one hidden layer are C, see `couplings.perceptron`."""
    monkeypatch.setattr(jax, "device_count", lambda: devices)
    params, orders = _case(dim, hidden_layers)
    x = jax.random.normal(jax.random.key(9), (*lead, IMAGES, dim))
    weights = jnp.cos(jnp.arange(x.size)).reshape(x.shape)

    def loop(params: Any) -> Couplings:
        conditioners = _conditioners(params, dim, hidden_layers)
        return Couplings(conditioners, orders, log_scale_cap=CAP, inner_squash=inner_squash)

    def ours(params: Any, x: jax.Array) -> Any:
        return loop(params).forward_and_log_det(x)

    def reference(params: Any, x: jax.Array) -> Any:
        conditioners = _conditioners(params, dim, hidden_layers)
        return _written_out(conditioners, orders, inner_squash, x)

    def number(function: Any) -> Any:
        def value(params: Any, x: jax.Array) -> jax.Array:
            y, log_det = function(params, x)
            return jnp.sum(weights * y) + jnp.sum(weights[..., 0] * log_det)

        return jax.jit(jax.grad(value, argnums=(0, 1)))

    y, log_det = jax.jit(ours)(params, x)
    expected, expected_log_det = jax.jit(reference)(params, x)
    np.testing.assert_allclose(y, expected, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(log_det, expected_log_det, rtol=2e-5, atol=5e-5)
    for a, b in zip(
        jax.tree.leaves(number(ours)(params, x)),
        jax.tree.leaves(number(reference)(params, x)),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    back, inverse_log_det = jax.jit(lambda y: loop(params).inverse_and_log_det(y))(y)
    np.testing.assert_allclose(back, x, atol=2e-3)
    np.testing.assert_allclose(inverse_log_det, -log_det, atol=2e-3)


@pytest.mark.slow
def test_under_vmap_it_is_the_same() -> None:
    params, orders = _case(3, 1)
    loop = Couplings(_conditioners(params, 3, 1), orders, log_scale_cap=CAP, inner_squash=6.0)
    x = jax.random.normal(jax.random.key(9), (5, IMAGES, 3))
    for a, b in zip(
        jax.vmap(loop.forward_and_log_det)(x), loop.forward_and_log_det(x), strict=True
    ):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_no_images_and_no_samples() -> None:
    params, orders = _case(3, 1)
    for images, samples in ((0, 2), (IMAGES, 0)):
        net: Any = ConditionerNet(3, 6, 8)
        conditioners = [net.apply(p, EMBEDDING[:images]) for p in params]
        loop = Couplings(conditioners, orders, log_scale_cap=CAP, inner_squash=6.0)
        y, log_det = loop.forward_and_log_det(jnp.zeros((samples, images, 3)))
        assert y.shape == (samples, images, 3)
        assert log_det.shape == (samples, images)


def test_nothing_is_mapped_outside_the_last_squash() -> None:
    params, orders = _case(2, 1)
    loop = Couplings(_conditioners(params, 2, 1), orders, log_scale_cap=CAP, inner_squash=6.0)
    y = jnp.zeros((IMAGES, 2)).at[0, 1].set(6.5)
    x, log_det = loop.inverse_and_log_det(y)
    assert np.isfinite(np.asarray(x)).all()
    np.testing.assert_array_equal(np.isfinite(np.asarray(log_det)), [False, True, True, True])


@pytest.mark.slow
def test_log_prob_is_that_of_the_samples_as_far_as_floats_tell() -> None:
    """Narrower than rounding, samples keep their density and `log_prob` may not know it."""
    images = jnp.linspace(0.0, 1.0, 2 * 8 * 8).reshape(2, 8, 8, 1)
    flow = Flow(dim=6, embed=SimpleConv(features=4, width=2), layers=12)
    leaves, tree = jax.tree.flatten(jax.jit(flow.init)(jax.random.key(0), images))
    keys = jax.random.split(jax.random.key(1), len(leaves))

    def both(far: float) -> tuple[np.ndarray, np.ndarray]:
        moved = [x + far * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)]
        density: Any = flow.apply(jax.tree.unflatten(tree, moved), images)
        theta, drawn = density.sample_and_log_prob(seed=jax.random.key(2), sample_shape=(500,))
        return np.ravel(drawn), np.ravel(density.log_prob(theta))

    drawn, found = both(0.07)
    told = drawn < 4.0 * 6
    assert np.mean(told) > 0.5
    assert np.quantile(np.abs(drawn - found)[told], 0.99) < 0.1
    drawn, found = both(0.2)
    assert np.isfinite(drawn).all()
    assert not np.isnan(found).any()
    assert (drawn[np.isneginf(found)] > 4.0 * 6).all()
