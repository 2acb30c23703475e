"""Which distributions keep which laws. A new method adds one line to CASES."""

from typing import Any

import jax
import jax.numpy as jnp
import laws_distributions as laws
import numpy as np
import optax
import pytest
from laws_distributions import Case, Pixels, case
from small_densities import circular, flow, gaussian

from experiments.setup import build
from flowjax_inv.distributions.base import (
    log_prob_along_samples,
)
from flowjax_inv.distributions.bases import GaussianMixture, UniformBox
from flowjax_inv.distributions.box import Augerino, Fixed, InstaAug

CASES = {
    "coupling_1": lambda: flow(1),
    "coupling_2": lambda: flow(2),
    "coupling_3": lambda: flow(3),
    "coupling_box_2": lambda: flow(2, base="box"),
    "coupling_8_layers_2": lambda: flow(2, layers=8),
    "coupling_other_squashes_2": lambda: flow(2, inner_squash=0.0, tanh_width=1.5),
    "coupling_shift_1": lambda: flow(1, circular_shift=True, periodic=(True,)),
    "spline_1": lambda: flow(1, bijection="spline", base="unit_box"),
    "spline_circle_1": lambda: flow(
        1, bijection="spline", base="unit_box", periodic=(True,), circular_shift=True
    ),
    "spline_mixture_1": lambda: flow(1, bijection="spline", bins=5),
    "spline_box_circle_2": lambda: flow(
        2,
        bijection="spline",
        base="box",
        bins=5,
        periodic=(False, True),
        circular_shift=True,
        layers=2,
    ),  # fmt: skip
    "fixed_2": lambda: Fixed(dim=2, box_low=(-0.5, 0.0), box_high=(0.25, 1.0)),
    "augerino_2": lambda: Augerino(dim=2, start_half_range=(0.3, 0.8)),
    "augerino_off_centre_1": lambda: Augerino(dim=1, anchor=(0.7,), start_half_range=(0.5,)),
    "instaaug_2": lambda: InstaAug(dim=2, embed=Pixels(), start_half_range=(0.4,)),
    "gaussian_full_2": lambda: gaussian(2, covariance="full"),
    "gaussian_1": lambda: gaussian(1),
    "circular_1": circular,
}
# The gradient law needs samples whose gradient is exact: a mixture of several components has only
# the straight-through one (see below), and 3-d quadrature is too coarse for differences.
GRADIENT_CASES = {
    "coupling_one_component_1": lambda: flow(1, components=1),
    "coupling_one_component_2": lambda: flow(2, components=1),
    # Away from the bound of its width, where the width has no gradient to test.
    "coupling_box_2": lambda: flow(2, base="box", start_scale=0.2),
    "spline_1": CASES["spline_1"],
    "spline_box_2": lambda: flow(2, bijection="spline", base="unit_box", bins=5),
    # In one dimension, where the grid is fine enough for edges that move by little.
    "augerino_1": lambda: Augerino(dim=1, start_half_range=(0.4,)),
    "instaaug_1": lambda: InstaAug(dim=1, embed=Pixels(), start_half_range=(0.4,)),
    "gaussian_full_2": CASES["gaussian_full_2"],
    "circular_1": CASES["circular_1"],
}


def test_every_method_is_under_the_laws() -> None:
    """Besides a point, and crops: test_crops, test_flow_lrp and test_frozen have their laws."""
    apart = {"identity", "instaaug_lrp", "flow_lrp", "crop_grid"}
    methods = {cls for name, cls in build.DISTRIBUTIONS.items() if name not in apart}
    assert methods == {type(make()) for make in CASES.values()}


# Two families for the fast loop; the others compile for minutes.
FAST = ("coupling_2", "augerino_off_centre_1")


def _marked(names):
    return [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in names]


@pytest.fixture(scope="module", params=_marked(CASES))
def each(request: pytest.FixtureRequest) -> Case:
    # Many layers multiply their noise: less of it keeps the density as broad as the others'.
    spread = 0.1 if "8_layers" in request.param else 0.25
    return case(request.param, CASES[request.param](), spread)


@pytest.mark.parametrize("law", laws.LAWS, ids=lambda law: law.__name__)
def test_law(each: Case, law) -> None:
    law(each)


@pytest.mark.parametrize("name", _marked(GRADIENT_CASES))
def test_gradient(name: str) -> None:
    step = {"coupling_box_2": 0.03, "augerino_1": 0.1, "instaaug_1": 0.1}.get(name, 0.004)
    laws.gradient_is_that_of_the_expectation(case(name, GRADIENT_CASES[name]()), step)


PATHWISE_CASES = {
    "coupling_one_component_2": GRADIENT_CASES["coupling_one_component_2"],
    "scored_1": lambda: flow(1, gumbel="score", layers=2),
    "gaussian_full_2": CASES["gaussian_full_2"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PATHWISE_CASES)
def test_the_entropys_gradient_along_samples(name: str) -> None:
    tried = case(name, PATHWISE_CASES[name]())
    laws.gradient_is_that_of_the_expectation(tried, 0.004, of_log_prob=True)


@pytest.mark.parametrize("fields", [{"base": "box"}, {"base": "unit_box"}, {"gumbel": "relaxed"}])
def test_the_entropy_of_a_moving_edge_is_not_along_samples(fields: dict[str, str]) -> None:
    """A box's density is flat: along samples nothing tells how wide it is."""
    with pytest.raises(ValueError, match='pathwise_entropy is True with base .* wants a "mixture"'):
        flow(1, pathwise_entropy=True, **fields)


@pytest.mark.slow
def test_along_samples_an_optimum_has_no_noise() -> None:
    """With a cost of -log g, E[cost + log g] is least at g: there each sample's gradient is 0."""
    tried = case("gaussian_1", CASES["gaussian_1"]())
    target = tried.density()

    def slope(along: bool) -> float:
        def value(variables: Any) -> Any:
            density = tried.density(variables=variables)
            drawn: Any = density.sample_and_log_prob(seed=jax.random.key(5), sample_shape=(9,))
            theta, log_prob = drawn
            log_prob = log_prob_along_samples(density, theta) if along else log_prob
            return jnp.mean(log_prob - target.log_prob(theta))

        return float(optax.tree.norm(jax.grad(value)(tried.variables)))

    assert slope(along=True) < 1e-4
    assert slope(along=False) > 0.1


@pytest.mark.slow
def test_straight_through_gives_the_weights_a_gradient_downhill() -> None:
    """E[z] of a two-component mixture: more weight right moves the mean right, and by about so."""

    def mean(logit: jax.Array, key: jax.Array, gumbel: str) -> jax.Array:
        logits = jnp.stack([jnp.zeros(()), logit])[None]
        loc = jnp.array([[[-0.5], [0.5]]])
        mixture = GaussianMixture(
            logits, loc, jnp.full_like(loc, -2), temperature=0.5, gumbel=gumbel
        )
        return jnp.mean(mixture.sample(seed=key, sample_shape=(20_000,)))

    gradient = jax.grad(mean)(jnp.zeros(()), jax.random.key(0), "hard")
    # d/dlogit of (p - 1/2) at p = 1/2 is 1/4; straight-through is biased towards less.
    assert 0.15 < gradient < 0.35
    # Scored weights get nothing through the samples.
    assert jax.grad(mean)(jnp.zeros(()), jax.random.key(0), "score") == 0


@pytest.mark.slow
@pytest.mark.parametrize("dim", [1, 2])
def test_a_scored_mixture_has_the_gradient_of_the_expectation(dim: int) -> None:
    """Score of the weights and gradients through the samples, together: as the step adds them up.

    Against differences of quadrature, along one direction in all parameters.
    """
    tried = case("scored", flow(dim, gumbel="score", layers=2))
    assert not tried.module.reparameterized
    laws.gradient_is_that_of_the_expectation(tried, 0.004)


@pytest.mark.slow
def test_box_samples_carry_the_gradient_of_centre_and_width() -> None:
    """E[z^2] = loc^2 + width^2 / 12: derivatives 2 loc and width^2 / 6 in log_width."""

    def second_moment(loc: jax.Array, log_width: jax.Array) -> jax.Array:
        box = UniformBox(loc[None, None], log_width[None, None])
        return jnp.mean(box.sample(seed=jax.random.key(0), sample_shape=(50_000,)) ** 2)

    by_loc, by_width = jax.grad(second_moment, argnums=(0, 1))(jnp.array(0.3), jnp.log(1.5))
    assert float(by_loc) == pytest.approx(0.6, rel=0.02)
    assert float(by_width) == pytest.approx(1.5**2 / 6, rel=0.02)


@pytest.mark.slow
def test_hard_mixture_follows_its_density_and_relaxed_does_not() -> None:
    """Relaxed draws lie between components, where the mixture's density has nothing."""

    def between(gumbel: str) -> float:
        loc = jnp.array([[[-0.8], [0.8]]])
        mixture = GaussianMixture(
            jnp.zeros((1, 2)), loc, jnp.full_like(loc, -3), temperature=1.0, gumbel=gumbel
        )
        z = mixture.sample(seed=jax.random.key(1), sample_shape=(4_000,))
        return float(jnp.mean(jnp.abs(z) < 0.5))

    assert between("hard") == between("score") == 0.0
    assert between("relaxed") > 0.2


@pytest.mark.parametrize(
    "name", [pytest.param("spline_circle_1", marks=pytest.mark.slow), "circular_1"]
)
def test_circular_density_has_no_step_at_the_seam(name: str) -> None:
    circle = case("circle", CASES[name]())
    left, right = circle.log_prob(np.array([[[-0.99999]] * 3, [[0.99999]] * 3]))
    np.testing.assert_allclose(left, right, atol=1e-3)
