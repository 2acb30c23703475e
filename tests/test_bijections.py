"""Laws of bijections: the inverse undoes, and the log-determinant is that of the Jacobian."""

from typing import Any

import distrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flowjax_inv.distributions import bijections
from flowjax_inv.distributions.couplings import Couplings


def _conditioner(inputs: int, outputs: int) -> bijections.Conditioner:
    net = bijections.ConditionerNet(inputs, outputs, width=8, hidden_layers=2, start_scale=1.0)
    embedding = jax.random.normal(jax.random.key(0), (1, 3))
    conditioner: Any = net.apply(jax.jit(net.init)(jax.random.key(1), embedding), embedding)
    return conditioner


KEPT = np.array([True, False, True])
NONE_KEPT = np.zeros(3, bool)
CIRCLES = (False, True, True)

BIJECTIONS = {
    "squash": lambda: bijections.Squash(1.0, 1.5),
    "inner_squash": lambda: bijections.Squash(6.0, 6.0),
    "circular_shift": lambda: bijections.CircularShift(
        jnp.array([[1.0, 0.2], [-1.0, 0.4], [0.1, -2.0]]), CIRCLES
    ),
    "couplings": lambda: Couplings(
        [_conditioner(3, 6)] * 2, [(1, 2, 0), (2, 0, 1)], log_scale_cap=3.0, inner_squash=6.0
    ),
    "spline_coupling": lambda: bijections.spline_coupling(KEPT, _conditioner(6, 48), 5, CIRCLES),
    "spline_elementwise": lambda: bijections.spline_coupling(
        NONE_KEPT, _conditioner(6, 48), 5, CIRCLES
    ),
    "chain": lambda: distrax.Chain(
        [
            bijections.Squash(1.0, 1.0),
            bijections.Squash(6.0, 6.0),
        ]
    ),
}
POINTS = jax.random.uniform(jax.random.key(2), (40, 1, 3), minval=-0.95, maxval=0.95)


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow if "spline" in n else ()) for n in BIJECTIONS],
)
def test_inverse_undoes_forward(name: str) -> None:
    bijection = BIJECTIONS[name]()
    y, log_det = jax.jit(bijection.forward_and_log_det)(POINTS)
    x, inverse_log_det = jax.jit(bijection.inverse_and_log_det)(y)
    np.testing.assert_allclose(x, POINTS, atol=2e-5)
    np.testing.assert_allclose(inverse_log_det, -log_det, atol=2e-4)
    assert np.abs(np.asarray(y - POINTS)).max() > 1e-3, "the identity proves nothing"


@pytest.mark.slow
@pytest.mark.parametrize("name", BIJECTIONS)
def test_log_determinant_is_the_jacobians(name: str) -> None:
    bijection = BIJECTIONS[name]()
    slopes = jax.jit(jax.vmap(jax.jacfwd(lambda x: bijection.forward(x[None])[0])))
    jacobian = slopes(POINTS[:, 0])
    expected = np.linalg.slogdet(np.asarray(jacobian, np.float64))[1]
    _, log_det = jax.jit(bijection.forward_and_log_det)(POINTS)
    np.testing.assert_allclose(log_det[:, 0], expected, atol=2e-4)


def test_squash_slope_is_right_where_tanh_has_saturated() -> None:
    u = np.array([[9.0], [15.0], [40.0]], np.float64)
    expected = (np.log(4.0) - 2 * u - 2 * np.log1p(np.exp(-2 * u)))[:, 0]
    _, log_det = bijections.Squash(1.0, 1.0).forward_and_log_det(jnp.asarray(u, jnp.float32))
    np.testing.assert_allclose(log_det, expected, rtol=1e-6)


def test_the_derivative_of_the_squashs_slope_is_that_of_its_value() -> None:
    """It is written down, not differentiated: at 0, on both sides and where tanh has saturated."""
    u = np.array([-12.0, -1.3, -1e-3, 0.0, 0.4, 2.0, 9.0])
    slope = jax.vmap(jax.grad(lambda u: bijections.Squash(1.0, 1.0).forward_and_log_det(u)[1]))
    step = 1e-5

    def exact(u: np.ndarray) -> np.ndarray:
        return 2 * (np.log(2.0) - np.abs(u) - np.log1p(np.exp(-2 * np.abs(u))))

    expected = (exact(u + step) - exact(u - step)) / (2 * step)
    np.testing.assert_allclose(
        slope(jnp.asarray(u, jnp.float32)[:, None])[:, 0], expected, atol=1e-5
    )


def test_squash_maps_nothing_outside_its_limit() -> None:
    x, log_det = bijections.Squash(6.0, 6.0).inverse_and_log_det(jnp.array([[6.5], [5.0]]))
    assert np.isfinite(np.asarray(x)).all()
    assert log_det[0] == -np.inf
    assert np.isfinite(log_det[1])


def test_squash_refuses_no_width() -> None:
    with pytest.raises(ValueError, match=r"Squash\(limit=1.0, width=0\): both must be positive"):
        bijections.Squash(1.0, 0)


def test_circular_shift_leaves_straight_coordinates_and_survives_no_direction() -> None:
    shift = bijections.CircularShift(jnp.zeros((1, 3, 2)), CIRCLES)
    np.testing.assert_allclose(shift.forward(POINTS), POINTS, atol=1e-6)
    turned = BIJECTIONS["circular_shift"]().forward(POINTS)
    np.testing.assert_array_equal(turned[..., 0], POINTS[..., 0])
    gradient = jax.grad(
        lambda v: jnp.sum(bijections.CircularShift(v, CIRCLES).forward(POINTS) ** 2)
    )(jnp.zeros((1, 3, 2)))
    assert np.isfinite(np.asarray(gradient)).all()


def test_conditioner_is_the_mlp_of_both_inputs() -> None:
    """The first layer, split in two, equals the dense layer on coordinates and embedding."""
    net = bijections.ConditionerNet(2, 4, width=8, start_scale=1.0)
    embedding = jax.random.normal(jax.random.key(0), (5, 3))
    params: Any = jax.jit(net.init)(jax.random.key(1), embedding)
    z = jax.random.normal(jax.random.key(2), (7, 5, 2))
    joined = jnp.concatenate([z, jnp.broadcast_to(embedding, (7, 5, 3))], axis=-1)
    p = params["params"]
    expected = jax.nn.relu(joined @ p["kernel0"] + p["bias0"]) @ p["kernel1"] + p["bias1"]
    conditioner = net.apply(params, embedding)
    assert isinstance(conditioner, bijections.Conditioner)
    np.testing.assert_allclose(conditioner(z), expected, atol=1e-5)
