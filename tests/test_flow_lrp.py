"""The flow over offsets given a crop: densities by quadrature, draws, cells, the mixed gradient."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import laws_distributions as laws
import numpy as np
import pytest
from crop_cases import ALPHA, TRANSFORM, flow_lrp, fresh, gradient_is_that_of_exact_sums, h
from laws_distributions import Case, Pixels, case

from flowjax_inv.distributions.crops import FlowLRP
from flowjax_inv.transforms import Crop

NODES, SPAN = 16, 3.6


def quadrature(middle: jax.Array, half: jax.Array) -> tuple[jax.Array, np.ndarray]:
    """Return theta (K n^4, 1, 4), nodes in every cell, and their weights (K n^4).

    Cells are given by their middles and half-sides (K, 4). Even steps before the flow's squash
    u = tanh(s): there the density is smooth to the edge.
    """
    s = np.linspace(-SPAN, SPAN, NODES)
    node, weight = np.tanh(s), 2 * SPAN / (NODES - 1) / np.cosh(s) ** 2
    u = np.stack(np.meshgrid(*[node] * 4, indexing="ij"), -1).reshape(-1, 4)
    w = np.prod(np.stack(np.meshgrid(*[weight] * 4, indexing="ij"), -1).reshape(-1, 4), -1)
    places, sides = (np.asarray(x, np.float64)[:, None] for x in (middle, half))
    theta = (places + sides * u).reshape(-1, 1, 4)
    return jnp.asarray(theta, jnp.float32), (w * np.prod(sides, -1)).reshape(-1)


def exact_by_quadrature(chosen: Case) -> Callable[[Any], tuple[np.ndarray, float]]:
    """Return variables -> (integral of g per image, E[h] + alpha E[log g])."""
    points, weights = quadrature(*chosen.of(lambda density: (density.middle, density.half)))

    @jax.jit
    def log_prob(variables: Any) -> Any:
        return chosen.density(variables=variables).log_prob(points)

    of_points = np.asarray(h(points), np.float64)

    def both(variables: Any) -> tuple[np.ndarray, float]:
        log_g = np.asarray(log_prob(variables), np.float64)
        mass = np.exp(log_g) * weights[:, None]
        log_g = np.where(mass > 0, log_g, 0.0)
        return mass.sum(0), float((mass * (of_points + ALPHA * log_g)).sum(0).mean())

    return both


@pytest.fixture(scope="module", params=["picture", "room"])
def flow_case(request: pytest.FixtureRequest) -> Case:
    return case(request.param, flow_lrp(centre=request.param))


@pytest.mark.slow
def test_the_flows_density_integrates_to_one(flow_case: Case) -> None:
    total, _ = exact_by_quadrature(flow_case)(flow_case.variables)
    np.testing.assert_allclose(total, 1.0, atol=0.003)


@pytest.mark.slow
def test_samples_lie_in_the_cell_of_their_crop(flow_case: Case) -> None:
    """Cells are as often hit as their masses say, and log_prob finds the crop that was drawn."""
    from scipy import stats

    theta, log_prob = flow_case.drawn(jax.random.key(3), (4_000,))
    middle, half, probs, log_mass = flow_case.of(
        lambda density: (density.middle, density.half, density.crops.probs, density.log_mass(theta))
    )
    offset = np.abs(theta[..., None, :] - middle) / half
    inside = (offset <= 1).all(-1)
    assert (inside.sum(-1) == 1).all()
    for image in range(3):
        expected = 4_000 * np.asarray(probs[image], np.float64)
        expected *= 4_000 / expected.sum()
        assert stats.chisquare(inside[:, image].sum(0), expected).pvalue > 1e-4
    np.testing.assert_allclose(flow_case.log_prob(theta), log_prob, atol=5e-3)
    np.testing.assert_allclose(np.exp(log_mass), (inside * probs).sum(-1), rtol=1e-5)
    sizes = Crop(centre=flow_case.name).boxes(theta)[..., 2:]
    assert sizes.min() >= 0.25
    assert sizes.max() <= 1


@pytest.mark.slow
def test_offsets_are_given_the_crop_and_the_image(flow_case: Case) -> None:
    """At the middle of cells of one volume, log density differs between crops and images."""
    offsets = flow_case.of(
        lambda density: density.log_prob(density.middle[:4, None]) - density.crops.log_mass.T[:4]
    )
    assert np.std(offsets, axis=0).min() > 1e-2
    assert np.std(offsets, axis=1).min() > 1e-2


FLOW_LAWS = (
    laws.log_prob_agrees_with_samples,
    laws.nothing_outside_the_box,
    laws.finite_at_the_edge_and_for_extreme_embeddings,
    laws.rows_are_independent,
    laws.a_key_per_row_is_that_rows_alone,
    laws.entropy_is_at_most_the_log_volume,
)


@pytest.mark.slow
@pytest.mark.parametrize("law", FLOW_LAWS, ids=lambda law: law.__name__)
def test_law(flow_case: Case, law: Callable[[Case], None]) -> None:
    law(flow_case)


@pytest.mark.slow
def test_spline_offsets_and_gaps_without_density() -> None:
    """The other family serves too; no cell has the width of one level and the height of another."""
    chosen = case("", flow_lrp(bijection="spline", base="unit_box", bins=4, centre="room"))
    theta, log_prob = chosen.drawn(jax.random.key(3), (200,))
    np.testing.assert_allclose(chosen.log_prob(theta), log_prob, atol=5e-3)
    mixed = theta.at[..., 2].set(-0.9).at[..., 3].set(0.9)
    assert chosen.log_prob(mixed).max() == -np.inf


@pytest.mark.slow
def test_cells_reach_half_a_step_and_half_a_gap() -> None:
    module = FlowLRP(dim=4, embed=Pixels(), layers=1, components=1)
    density = fresh(module)
    low, high = (TRANSFORM.boxes(density.middle + s * density.half) for s in (-1, 1))
    # Level 2 at the corner: step 1/8; its size 0.375 reaches down to the smallest, up to 0.5625.
    np.testing.assert_allclose(low[0], [-1, -1, 0.25, 0.25], atol=1e-5)
    np.testing.assert_allclose(high[0], [-0.875, -0.875, 0.5625, 0.5625], atol=1e-5)
    np.testing.assert_allclose(low[256], [-1, -1, 0.5625, 0.5625], atol=1e-5)
    np.testing.assert_allclose(high[256], [-0.75, -0.75, 0.875, 0.875], atol=1e-5)
    # The whole picture moves as far as the units of the last map do.
    np.testing.assert_allclose(low[320], [-0.125, -0.125, 0.875, 0.875], atol=1e-5)
    np.testing.assert_allclose(high[320], [0.125, 0.125, 1, 1], atol=1e-5)


@pytest.mark.slow
def test_the_mixed_gradient_is_that_of_exact_sums() -> None:
    """The crop by the score function of its mass alone, the offset through the samples."""
    chosen = case("", flow_lrp())
    both = exact_by_quadrature(chosen)
    gradient_is_that_of_exact_sums(chosen, lambda v: both(v)[1], 0.005, 4_000)
