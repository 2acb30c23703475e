"""What the fields of each distribution say: where it starts, what it rewards, what it refuses."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import laws_distributions as laws
import numpy as np
import pytest
from laws_distributions import Pixels, case
from small_densities import flow, gaussian

from flowjax_inv.distributions.base import (
    ConditionalDistribution,
    bounded,
    unbounded,
)
from flowjax_inv.distributions.box import Augerino, Fixed, Identity, InstaAug
from flowjax_inv.distributions.circular import Circular
from flowjax_inv.networks import PolarConv
from flowjax_inv.transforms import Affine


def test_identity_is_a_point_at_zero() -> None:
    module = Identity(dim=3)
    variables = jax.jit(module.init)(jax.random.key(0), laws.IMAGES)
    density: Any = module.apply(variables, laws.IMAGES)
    theta, log_prob = density.sample_and_log_prob(seed=jax.random.key(0), sample_shape=(5,))
    assert not variables
    np.testing.assert_array_equal(theta, np.zeros((5, 3, 3)))
    np.testing.assert_array_equal(log_prob, np.zeros((5, 3)))
    assert density.log_prob(jnp.full((3, 3), 0.1)).max() == -np.inf
    assert module.regularizer(density, log_prob) == 0
    assert not module.has_density


def applied(module: ConditionalDistribution, images: jax.Array = laws.IMAGES) -> Any:
    return module.apply(jax.jit(module.init)(jax.random.key(0), images), images)


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
    assert not jax.jit(module.init)(jax.random.key(0), laws.IMAGES)
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
    variables: Any = jax.jit(module.init)(jax.random.key(0), laws.IMAGES)
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


@pytest.mark.slow
@pytest.mark.parametrize("base", ["mixture", "box"])
def test_the_start_is_where_the_fields_say(base: str) -> None:
    """Before training: samples of standard deviation near start_scale around centres."""
    module = flow(2, base=base, start_scale=0.05, loc_std=0.0, layers=2)
    variables = jax.jit(module.init)(jax.random.key(0), laws.IMAGES)
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
