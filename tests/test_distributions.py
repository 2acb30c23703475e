"""Which distributions keep which laws. A new method adds one line to CASES."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import laws_distributions as laws
import numpy as np
import optax
import pytest
from laws_distributions import Case, Pixels, case

from experiments import build
from flowjax_inv.distributions.base import (
    ConditionalDistribution,
    bounded,
    log_prob_along_samples,
    unbounded,
)
from flowjax_inv.distributions.bases import GaussianMixture, UniformBox
from flowjax_inv.distributions.box import Augerino, Fixed, Identity, InstaAug
from flowjax_inv.distributions.circular import Circular
from flowjax_inv.distributions.flow import Flow
from flowjax_inv.distributions.gaussian import ConditionalGaussian
from flowjax_inv.networks import PolarConv
from flowjax_inv.transforms import Affine


def flow(dim: int, **fields: Any) -> ConditionalDistribution:
    few: dict[str, Any] = {"layers": 3, "width": 8, "start_scale": 0.5, "components": 3}
    return Flow(dim=dim, embed=Pixels(), **few | fields)


def gaussian(dim: int, **fields: Any) -> ConditionalDistribution:
    return ConditionalGaussian(dim=dim, embed=Pixels(), start_scale=0.5, **fields)


def circular() -> ConditionalDistribution:
    return Circular(dim=1, embed=nn.Sequential([Pixels(), nn.Dense(6)]))


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
    "spline_box_3": lambda: flow(
        3,
        bijection="spline",
        base="box",
        bins=5,
        periodic=(False, False, True),
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
    """Besides a point, and crops, which have laws of their own in test_crops and test_flow_lrp."""
    apart = {"identity", "instaaug_lrp", "flow_lrp"}
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


def test_identity_is_a_point_at_zero() -> None:
    module = Identity(dim=3)
    variables = module.init(jax.random.key(0), laws.IMAGES)
    density: Any = module.apply(variables, laws.IMAGES)
    theta, log_prob = density.sample_and_log_prob(seed=jax.random.key(0), sample_shape=(5,))
    assert not variables
    np.testing.assert_array_equal(theta, np.zeros((5, 3, 3)))
    np.testing.assert_array_equal(log_prob, np.zeros((5, 3)))
    assert density.log_prob(jnp.full((3, 3), 0.1)).max() == -np.inf
    assert module.regularizer(density, log_prob) == 0
    assert not module.has_density


def applied(module: ConditionalDistribution, images: jax.Array = laws.IMAGES) -> Any:
    return module.apply(module.init(jax.random.key(0), images), images)


def bonus(module: ConditionalDistribution) -> float:
    density = applied(module)
    _, log_prob = density.sample_and_log_prob(seed=jax.random.key(0), sample_shape=(7,))
    return float(module.regularizer(density, log_prob))


def test_a_fixed_box_is_the_same_for_every_image_and_rewards_nothing() -> None:
    module = Fixed(dim=2, box_low=(-0.5,), box_high=(0.5, 1.0))
    density = applied(module)
    theta = density.sample(seed=jax.random.key(0), sample_shape=(4_000,))
    np.testing.assert_allclose(theta.min(0), [[-0.5, -0.5]] * 3, atol=2e-3)
    np.testing.assert_allclose(theta.max(0), [[0.5, 1.0]] * 3, atol=2e-3)
    assert not module.init(jax.random.key(0), laws.IMAGES)
    assert bonus(module) == 0


def test_augerino_starts_and_is_rewarded_as_its_fields_say() -> None:
    """Half-ranges 0.25 and 0.5 of scales pi and 2: widths pi / 2 and 2."""
    fields: Any = {"start_half_range": (0.25, 0.5), "scales": (np.pi, 2.0)}
    paper, code, nats = (Augerino(dim=2, bonus=b, **fields) for b in ("paper", "code", "entropy"))
    theta = applied(paper).sample(seed=jax.random.key(0), sample_shape=(4_000,))
    np.testing.assert_allclose(jnp.abs(theta).max(0), [[0.25, 0.5]] * 3, atol=1e-3)
    assert bonus(paper) == pytest.approx(-((np.pi / 4) ** 2 + 1.0), rel=1e-5)
    assert bonus(code) == pytest.approx(-np.hypot(np.pi / 2, 2.0), rel=1e-5)
    assert bonus(nats) == pytest.approx(-np.log(0.5 * 1.0), rel=1e-5)


def test_the_reward_of_augerinos_code_ends_at_its_cut_off() -> None:
    assert bonus(Augerino(dim=1, bonus="code", start_half_range=(0.5,), scales=(11.0,))) == 0
    assert bonus(Augerino(dim=1, bonus="code", start_half_range=(0.5,), scales=(9.0,))) < -8.9


def test_instaaug_is_not_symmetric_and_its_code_counts_half_widths() -> None:
    module = InstaAug(dim=1, embed=Pixels(), bonus="code", scales=(np.pi,))
    variables: Any = module.init(jax.random.key(0), laws.IMAGES)
    limits = -np.log(1 / np.array([[0.2], [0.6]]) - 1)  # as sigmoid's argument
    variables["params"]["half_ranges"] = jnp.asarray(limits, jnp.float32)
    variables["params"]["half_ranges_projection"]["kernel"] *= 0.0
    density: Any = module.apply(variables, laws.IMAGES)
    theta, log_prob = density.sample_and_log_prob(seed=jax.random.key(0), sample_shape=(4_000,))
    np.testing.assert_allclose([theta.min(), theta.max()], [-0.2, 0.6], atol=2e-3)
    np.testing.assert_allclose(log_prob, -np.log(0.8), atol=1e-3)
    assert float(module.regularizer(density, log_prob)) == pytest.approx(-0.8 * np.pi, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("cls", [Augerino, InstaAug])
def test_a_range_always_holds_what_does_nothing(cls: Any) -> None:
    """Crops do nothing at the size 1, the edge of the box: the range reaches down from there."""
    embed: Any = {"embed": Pixels()} if cls is InstaAug else {}
    module = cls(dim=2, anchor=(0.0, 1.0), start_half_range=(0.1, 0.3), **embed)
    theta = case("anchored", module, 0.1).density().sample(
        seed=jax.random.key(0), sample_shape=(4_000,)
    )  # fmt: skip
    assert float(theta[..., 1].max()) == pytest.approx(1.0, abs=2e-3)
    assert float(theta[..., 1].min()) > 0
    assert float(theta.max()) <= 1


@pytest.mark.slow
def test_an_even_start_gives_every_region_of_the_box_its_share() -> None:
    """About a third of the mass in every third; the couplings start near the identity."""
    for dim in (1, 3):
        module = flow(
            dim, components=30, loc_start="even", tanh_width=0.5, start_scale=0.01, layers=1
        )
        theta = np.asarray(case("", module, spread=0.0).drawn(jax.random.key(0), (20_000,))[0])
        shares = [np.mean(np.abs(theta[..., 0] - c) < 1 / 3) for c in (-2 / 3, 0.0, 2 / 3)]
        np.testing.assert_allclose(shares, 1 / 3, atol=0.05)
        assert 0.4 < np.mean(theta[..., -1] < 0) < 0.6


@pytest.mark.slow
def test_full_gaussian_correlates_and_diagonal_does_not() -> None:
    def correlation(covariance: str) -> np.ndarray:
        density = case(covariance, gaussian(2, covariance=covariance), 0.6).density()
        theta = np.asarray(density.sample(seed=jax.random.key(2), sample_shape=(4_000,)))
        z = np.arctanh(np.clip(theta, -0.9999, 0.9999))
        return np.array([np.corrcoef(z[:, image].T)[0, 1] for image in range(3)])

    assert np.abs(correlation("diagonal")).max() < 0.06
    assert np.abs(correlation("full")).max() > 0.2


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: Fixed(dim=2, box_low=(0.0,) * 3),
            "box_low has 3 numbers for 2 coordinates; give one",
        ),
        (lambda: Fixed(dim=1, box_low=(0.5,), box_high=(0.5,)), "want -1 <= low < high <= 1"),
        (lambda: Fixed(dim=1, box_high=(1.5,)), "want -1 <= low < high <= 1"),
        (
            lambda: Augerino(dim=1, start_half_range=(1.0,)),
            "start_half_range=.*above 0.0001 and below 1",
        ),
        (
            lambda: gaussian(2, covariance="round"),
            "covariance='round' is unknown; did you mean one of diagonal, full",
        ),
        (
            lambda: flow(1, loc_start="middle"),
            "loc_start='middle' is unknown; did you mean one of random, even",
        ),
        (lambda: flow(1, bijection="affine"), "bijection='affine' is unknown; did you mean one of"),
        (lambda: flow(1, base="gaussian"), "base='gaussian' is unknown; did you mean one of"),
        (lambda: flow(1, gumbel="straight"), "gumbel='straight' is unknown; did you mean one of"),
        (lambda: flow(1, layers=0), "layers is 0; want at least 1"),
        (
            lambda: flow(3, periodic=(True,)),
            "periodic has 1 entries for 3 coordinates; give one each",
        ),
        (lambda: Augerino(dim=1, anchor=(0.0, 0.2)), "anchor has 2 numbers for 1 coordinates"),
        (lambda: Augerino(dim=3, scales=(1.0, 2.0)), "scales has 2 numbers for 3 coordinates"),
    ],
)
def test_refusals(make: Callable[[], ConditionalDistribution], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        applied(make())


@pytest.mark.slow
def test_a_circular_density_turns_with_its_image() -> None:
    """g(T - dT; A_dT I) = g(T; I), by the warp's own dT, whatever the weights."""
    transform = Affine("rotation")
    module = Circular(dim=1, embed=PolarConv(features=16, width=3))
    images = jax.random.normal(jax.random.key(0), (2, 16, 16, 1))
    variables = jax.jit(module.init)(jax.random.key(1), images)
    theta = jnp.linspace(-1.0, 1.0, 33)[:, None, None]

    @jax.jit
    def log_prob(images: jax.Array, dtheta: float) -> jax.Array:
        density: Any = module.apply(variables, transform(images, jnp.full((2, 1), dtheta)))
        return density.log_prob(jnp.mod(theta - dtheta + 1.0, 2.0) - 1.0)

    for dtheta in (0.5, -0.5, 1.0):
        np.testing.assert_allclose(log_prob(images, dtheta), log_prob(images, 0.0), atol=1e-3)


def test_circular_refuses_what_is_no_circle() -> None:
    with pytest.raises(ValueError, match=r"got the coordinates \(a, b\); it serves a single one"):
        Circular(dim=2, embed=Pixels(), periodic=(True, False), names=("a", "b"))


@pytest.mark.parametrize("cls", [Augerino, InstaAug])
def test_unknown_bonus_is_refused(cls: Any) -> None:
    embed: Any = {"embed": Pixels()} if cls is InstaAug else {}
    with pytest.raises(
        ValueError, match="bonus='volume' is unknown; did you mean one of paper, code"
    ):
        bonus(cls(dim=1, **{"bonus": "volume"}, **embed))


@pytest.mark.parametrize(
    "name", [pytest.param("spline_circle_1", marks=pytest.mark.slow), "circular_1"]
)
def test_circular_density_has_no_step_at_the_seam(name: str) -> None:
    circle = case("circle", CASES[name]())
    left, right = circle.log_prob(np.array([[[-0.99999]] * 3, [[0.99999]] * 3]))
    np.testing.assert_allclose(left, right, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("base", ["mixture", "box"])
def test_the_start_is_where_the_fields_say(base: str) -> None:
    """Before training: samples of standard deviation near start_scale around centres."""
    module = flow(2, base=base, start_scale=0.05, loc_std=0.0, layers=2)
    variables = module.init(jax.random.key(0), laws.IMAGES)
    density: Any = module.apply(variables, laws.IMAGES)
    z = density.base.sample(seed=jax.random.key(0), sample_shape=(4_000,))
    expected = 0.05 if base == "mixture" else 2 * 0.05 / np.sqrt(12)
    np.testing.assert_allclose(np.std(z, axis=0), expected, rtol=0.1)


@pytest.mark.slow
def test_bounded_is_inside_and_inverted() -> None:
    x = jnp.linspace(-50, 50, 101)
    y = bounded(x, -6.0, 0.7)
    assert y.min() >= -6
    assert y.max() <= 0.7
    inner = jnp.linspace(-5.5, 0.5, 20)
    np.testing.assert_allclose(bounded(unbounded(inner, -6.0, 0.7), -6.0, 0.7), inner, atol=1e-5)
    assert (jax.vmap(jax.grad(lambda v: bounded(v, -6.0, 0.7)))(jnp.array([-8.0, 2.0])) > 0).all()
