"""Controllers of alpha."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.setup import build
from flowjax_inv import training
from flowjax_inv.training.controllers import Constant, EntropyBand, Gap, PatientBand, Ramp

CASES = [
    Constant(0.3), Ramp(1.0, 2.0, 5), EntropyBand(low=0, high=1), PatientBand(0.3, low=0, high=1),
    Gap(0.1),
]  # fmt: skip


def test_every_controller_is_under_the_laws() -> None:
    assert set(build.CONTROLLERS.values()) == {type(controller) for controller in CASES}


@pytest.mark.parametrize("controller", CASES, ids=lambda controller: type(controller).__name__)
def test_alpha_is_a_weight_whatever_is_watched(controller: training.Controller) -> None:
    """Finite and not negative; `scan` refuses a state that changes its structure or types."""

    def one(state, entropy):
        state = controller.update(state, entropy)
        return state, controller.alpha(state)

    entropies = 10.0 * jnp.sin(jnp.arange(200.0))
    alphas = np.asarray(jax.jit(lambda: jax.lax.scan(one, controller.init(), entropies)[1])())
    assert alphas.shape == (200,)
    assert alphas.dtype == np.float32
    assert np.isfinite(alphas).all()
    assert (alphas >= 0).all()


def test_gap_raises_alpha_while_views_cost_less_than_they_may() -> None:
    controller = Gap(0.1, value=0.3, rate=0.05, decay=0.0)
    state = controller.init()
    for gap, factor in ((0.0, 0.05), (-3.0, 0.05), (0.05, 0.025), (0.1, 0.0), (9.0, -0.05)):
        moved = controller.update(state, jnp.float32(gap))
        ratio = float(controller.alpha(moved) / controller.alpha(state))
        assert ratio == pytest.approx(math.exp(factor), rel=1e-5)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"gap": 0.0}, "gap is 0.0; want nats above 0"),
        ({"gap": 0.1, "value": 0.0}, r"value is 0.0; want alpha in \[0.0001, 3.0\]"),
        ({"gap": 0.1, "decay": 1.0}, r"want a rate above 0, a decay in \[0, 1\)"),
    ],
)
def test_a_gap_that_allows_nothing_is_refused(fields: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Gap(**fields)


def _run(controller: EntropyBand, respond, steps: int):
    """Close the loop: the entropy follows alpha as `respond` says."""

    def one(carry, _):
        state, entropy = carry
        entropy = entropy + 0.2 * (respond(controller.alpha(state)) - entropy)
        return (controller.update(state, entropy), entropy), (controller.alpha(state), entropy)

    start = (controller.init(), jnp.float32(0.0))
    return jax.jit(lambda: jax.lax.scan(one, start, None, length=steps)[1])()


def test_band_brings_the_entropy_to_its_midpoint() -> None:
    controller = EntropyBand(low=0.5, high=1.5, maximum=1.0)
    alpha, entropy = _run(controller, lambda a: 4.0 * a - 0.5, 400)
    assert abs(float(entropy[-50:].mean()) - 1.0) < 0.02
    assert abs(float(alpha[-1]) - 0.375) < 0.02


def test_alpha_stays_within_its_limits_and_the_integral_does_not_wind_up() -> None:
    controller = EntropyBand(low=0.0, high=4.0, minimum=0.01, maximum=0.5)
    alpha, _ = _run(controller, lambda a: jnp.float32(-9.0), 300)
    assert alpha.max() <= 0.5 + 1e-6
    np.testing.assert_allclose(alpha[-1], 0.5, rtol=1e-4)
    state = controller.init()
    for entropy in [-9.0] * 300 + [9.0] * 40:
        state = controller.update(state, jnp.float32(entropy))
    # 300 steps at the limit would have to be paid back, had the integral gone on.
    assert float(controller.alpha(state)) < 0.1


@pytest.mark.parametrize(
    ("error", "expected"), [("point", [2, 0.25, -1]), ("interval", [1, 0, 0]),
                            ("huber", [1.5, 0.03125, -0.5])]
)  # fmt: skip
def test_errors_have_the_sign_that_raises_alpha_when_entropy_is_low(error, expected) -> None:
    controller = EntropyBand(low=1.0, high=3.0, error=error)
    got = [float(controller._error(jnp.float32(entropy))) for entropy in (0.0, 1.75, 3.0)]
    np.testing.assert_allclose(got, expected, atol=1e-6)


def test_patient_band_acts_as_instaaug_does() -> None:
    """As its scheduler would: a first epoch outside waits, and so does a returning one."""
    controller = PatientBand(value=0.2, low=3.0, high=3.5, every=2)
    state, update = controller.init(), jax.jit(controller.update)
    factors, previous = [], 0.2
    for entropy in (1.23, 1.23, 1.23, 1.30, 1.302, 3.2, 2.9, 2.9, 3.6, 3.6, 3.59):
        state = update(state, jnp.float32(entropy - 0.2))  # two steps are an epoch
        assert float(controller.alpha(state)) == pytest.approx(previous)
        state = update(state, jnp.float32(entropy + 0.2))
        factors.append(float(controller.alpha(state)) / previous)
        previous = float(controller.alpha(state))
    expected = [1, 1.2, 1.2, 1, 1.2, 1, 1, 1.2, 1, 1 / 1.2, 1]
    np.testing.assert_allclose(factors, expected, rtol=1e-5)


def test_patient_band_moves_alpha_by_so_many_factors_at_most() -> None:
    controller = PatientBand(value=0.2, low=0.0, high=1.0, most_factors=3)
    state = controller.init()
    for _ in range(10):
        state = controller.update(state, jnp.float32(-1.0))
    assert float(controller.alpha(state)) == pytest.approx(0.2 * 1.2**3, rel=1e-5)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"low": 2, "high": 1}, r"band is \[2, 1\]; low must not exceed high"),
        ({"low": 0, "high": 1, "factor": 1.0}, "factor is 1.0; want above 1"),
        ({"low": 0, "high": 1, "value": 0.0}, "value is 0.0; want above 0"),
    ],
)
def test_patient_band_refusals(fields, text) -> None:
    with pytest.raises(ValueError, match=text):
        PatientBand(**{"value": 0.2} | fields)


def test_constant() -> None:
    controller = Constant(0.3)
    state = controller.update(controller.init(), jnp.float32(2.0))
    assert float(controller.alpha(state)) == pytest.approx(0.3)
    with pytest.raises(ValueError, match=r"value is -1.0; want 0 or more"):
        Constant(-1.0)


@pytest.mark.parametrize("fields", [(0.0, 1.0, 5), (1.0, -1.0, 5), (1.0, 2.0, 0)])
def test_ramp_refusals(fields: tuple[float, float, int]) -> None:
    with pytest.raises(ValueError, match=r"want alphas above 0 and at least 1 step"):
        Ramp(*fields)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"low": 2, "high": 1}, r"band is \[2, 1\]; low must not exceed high"),
        ({"low": 0, "high": 1, "minimum": 0.0}, r"alpha limits are \[0.0, 0.5\]"),
        ({"low": 0, "high": 1, "error": "pid"}, 'error is "pid"; allowed: point'),
    ],
)
def test_refusals(fields, text) -> None:
    with pytest.raises(ValueError, match=text):
        EntropyBand(**fields)
