"""The gate's promise: an exact bound, and how often a fitted gate breaks it."""

import numpy as np
import pytest
from scipy.stats import binom

from flowjax_inv.inference import change_bound, fit_gate, least_images


@pytest.mark.parametrize("changed", [0, 3, 49])
def test_the_bound_is_exact(changed) -> None:
    bound = float(change_bound(changed, 50, 0.95))
    np.testing.assert_allclose(binom.cdf(changed, 50, bound), 0.05, rtol=1e-6)
    assert float(change_bound(50, 50, 0.95)) == 1.0


@pytest.mark.slow
def test_a_fitted_gate_breaks_its_promise_as_rarely_as_it_says() -> None:
    """Scores even in [0, 1], of which the share 0.3 changes: at gate t the truth is 0.3 (1 - t).

    Level: 400 calibrations at confidence 0.9; P(more than 60 broken) < 0.001 if 40 are allowed.
    """
    random = np.random.default_rng(0)
    gates = [
        fit_gate(
            random.uniform(size=600), random.uniform(size=600) < 0.3,
            max_clean_loss=0.05, confidence=0.9,
        ).gate
        for _ in range(400)
    ]  # fmt: skip
    broken = 0.3 * (1 - np.array(gates)) > 0.05
    assert 5 < broken.sum() < 60
    assert np.mean(0.3 * (1 - np.array(gates))) > 0.02  # and it does open


def test_a_larger_loss_opens_the_gate_further() -> None:
    random = np.random.default_rng(1)
    score, changes = random.uniform(size=1000), random.uniform(size=1000) < 0.5
    fits = [fit_gate(score, changes, max_clean_loss=x, confidence=0.95) for x in (0.01, 0.1, 0.9)]
    assert fits[0].gate > fits[1].gate > 0 > fits[2].gate
    for fit in fits:
        assert fit.bound <= fit.max_clean_loss
        assert fit.changed == np.sum(changes & (score > fit.gate))


def test_a_bound_rounded_up_opens_no_gate() -> None:
    """As few images as will do: the bound where nothing is acted on is 0.1, give or take an ulp."""
    fit = fit_gate(np.ones(67), np.ones(67, bool), max_clean_loss=0.1, confidence=1 - 0.9**67)
    assert (fit.gate, fit.changed) == (np.inf, 0)
    assert fit.bound <= 0.1


def test_refusals() -> None:
    assert least_images(0.01, 0.95) == 299
    fields = {"max_clean_loss": 0.01, "confidence": 0.95}
    assert fit_gate(np.zeros(299), np.zeros(299, bool), **fields).gate == -20.0
    with pytest.raises(ValueError, match=r"298 calibration images cannot show .* at least 299"):
        fit_gate(np.zeros(298), np.zeros(298, bool), **fields)
    for name, value in (("max_clean_loss", 0.0), ("confidence", 1.0)):
        with pytest.raises(ValueError, match=f"{name}={value}.*want both above 0 and below 1"):
            fit_gate(np.zeros(9), np.zeros(9, bool), **fields | {name: value})
