"""Metrics on samples whose truth is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flowjax_inv import metrics
from flowjax_inv.transforms import Affine


def _uniform(centre: float, half: float, key: int = 0, count: int = 4_000) -> jax.Array:
    angles = jax.random.uniform(jax.random.key(key), (count,), minval=-half, maxval=half)
    return metrics.wrap_degrees(angles + centre)


@pytest.mark.parametrize("centre", [0.0, 170.0, -90.0])
@pytest.mark.parametrize("half", [5.0, 90.0, 150.0])
def test_half_range_of_a_uniform_arc_anywhere(centre: float, half: float) -> None:
    corrected, raw = metrics.half_range_degrees(_uniform(centre, half))
    assert float(corrected) == pytest.approx(half, rel=0.02)
    assert float(raw / corrected) == pytest.approx(0.98, rel=1e-5)


def test_half_range_of_several_arcs_is_about_their_centres() -> None:
    centres = jnp.array([0.0, 120.0, -120.0])
    parts = jnp.concatenate([_uniform(float(c), 25.0, key=i) for i, c in enumerate(centres)])
    corrected, _ = metrics.half_range_degrees(parts, centres)
    assert float(corrected) == pytest.approx(25.0, rel=0.02)


def test_outside_share_counts_what_is_five_degrees_off() -> None:
    pose = jnp.array([0.0, 89.0, 94.0, -94.9, 96.0, 180.0])
    assert float(metrics.outside_share(pose, jnp.zeros(1), 90.0)) == pytest.approx(2 / 6)
    three = jnp.array([0.0, 120.0, -120.0])
    assert float(metrics.outside_share(jnp.array([150.0, 180.0]), three, 30.0)) == 0.5


@pytest.mark.slow
def test_kolmogorov_distance_of_the_truth_and_of_known_errors() -> None:
    centres = jnp.array([180.0])
    assert float(metrics.kolmogorov_distance(_uniform(180, 90), centres, 90.0)) < 0.03
    # Uniform on a half-range of 81 instead of 90: distance (90 - 81) / 180 at either edge.
    got = float(metrics.kolmogorov_distance(_uniform(180, 81), centres, 90.0))
    assert got == pytest.approx(0.05, abs=0.02)
    # Everything in one point at the centre: 1/2.
    point = jnp.full((100,), 180.0)
    assert float(metrics.kolmogorov_distance(point, centres, 90.0)) == pytest.approx(0.5)


@pytest.mark.slow
def test_kolmogorov_distance_of_three_arcs() -> None:
    centres = jnp.array([0.0, 120.0, -120.0])
    parts = [_uniform(float(c), 30.0, key=i) for i, c in enumerate(centres)]
    assert float(metrics.kolmogorov_distance(jnp.concatenate(parts), centres, 30.0)) < 0.02
    # One arc of three lacks a third of the mass.
    two = jnp.concatenate(parts[:2])
    assert float(metrics.kolmogorov_distance(two, centres, 30.0)) == pytest.approx(1 / 3, abs=0.02)


def test_circular_mean_across_the_seam() -> None:
    assert float(metrics.circular_mean_degrees(jnp.array([170.0, -170.0]))) == pytest.approx(180.0)


def test_wrap_is_half_open() -> None:
    np.testing.assert_allclose(
        metrics.wrap_degrees(jnp.array([180.0, -180.0, 540.0, 10.0])), [-180, -180, -180, 10]
    )


@pytest.mark.parametrize("centre", [0.0, 180.0, 77.0])
def test_wasserstein_distance_of_a_turned_and_of_a_narrower_arc(centre: float) -> None:
    """Turned by 20 degrees: 20. Half-range 30 instead of 45: the mean of 45 u - 30 u, 7.5."""
    centres = jnp.array([centre])
    distances = [
        metrics.wasserstein_degrees(_uniform(centre + turn, half), centres, 45.0)
        for turn, half in ((0.0, 45.0), (20.0, 45.0), (0.0, 30.0))
    ]
    np.testing.assert_allclose(distances, [0.0, 20.0, 7.5], atol=1.0)


@pytest.mark.slow
def test_wasserstein_distance_agrees_with_scipy_away_from_the_seam() -> None:
    from scipy import stats

    pose = jax.random.normal(jax.random.key(0), (2, 3, 500)) * 20.0 + 10.0
    got = metrics.wasserstein_degrees(pose, jnp.zeros(1), 40.0)
    truth = np.linspace(-40, 40, 4_001)
    expected = [[stats.wasserstein_distance(row, truth) for row in rows] for rows in pose]
    np.testing.assert_allclose(got, expected, atol=0.5)


def test_wasserstein_distance_of_three_arcs_moves_a_third_by_a_third_of_the_circle() -> None:
    centres = jnp.array([0.0, 120.0, -120.0])
    parts = [_uniform(float(c), 30.0, key=i) for i, c in enumerate(centres)]
    whole = metrics.wasserstein_degrees(jnp.concatenate(parts), centres, 30.0)
    two = metrics.wasserstein_degrees(jnp.concatenate([*parts[:2], parts[0]]), centres, 30.0)
    assert float(whole) < 1.5
    assert float(two) == pytest.approx(40.0, abs=2.0)


def test_covered_share_counts_parts_with_enough_poses() -> None:
    centres = jnp.array([180.0])
    assert float(metrics.covered_share(_uniform(180, 45), centres, 45.0)) == 1.0
    # Three times as wide still puts a third of the uniform's poses everywhere on the arc.
    assert float(metrics.covered_share(_uniform(180, 135), centres, 45.0)) == 1.0
    assert float(metrics.covered_share(_uniform(180, 22.5), centres, 45.0)) == pytest.approx(
        0.5, abs=0.06
    )
    assert float(metrics.covered_share(_uniform(0, 45), centres, 45.0)) == 0.0


@pytest.mark.slow
def test_shares_and_valleys_of_modes() -> None:
    centres = jnp.array([0.0, 120.0, -120.0])
    parts = jnp.concatenate([_uniform(float(c), 30.0, key=i) for i, c in enumerate(centres)])
    np.testing.assert_allclose(metrics.mode_shares(parts, centres, 30.0), [1 / 3] * 3, atol=1e-3)
    assert float(metrics.valley_ratio(parts, centres, 30.0)) == 0.0
    circle = _uniform(0.0, 180.0, count=60_000)
    assert float(metrics.valley_ratio(circle, centres, 30.0)) == pytest.approx(1.0, abs=0.08)
    assert float(metrics.valley_ratio(parts[:8_000], centres, 30.0)) == 1.0


@pytest.mark.parametrize("centre", [0.0, 170.0, -90.0])
@pytest.mark.parametrize("half", [5.0, 90.0, 175.0, 180.0])
def test_arc_share_of_a_uniform_arc_anywhere(centre: float, half: float) -> None:
    pose = jnp.stack([_uniform(centre, half, key=key) for key in (0, 1)])
    np.testing.assert_allclose(metrics.arc_share(pose), half / 180.0, atol=0.012)


def test_arc_share_of_two_modes_counts_the_gap_between_them() -> None:
    both = jnp.concatenate([_uniform(0.0, 10.0), _uniform(60.0, 10.0)])
    assert float(metrics.arc_share(both)) == pytest.approx(80 / 360, abs=0.01)
    assert float(metrics.arc_share(jnp.full((50,), 123.0))) == 0.0


def test_the_nearest_rotation_is_that_of_the_singular_values() -> None:
    matrices = np.random.default_rng(0).normal(size=(200, 2, 2)).astype(np.float32)
    angle, distance = metrics.nearest_rotation(jnp.asarray(matrices))
    u, _, v = np.linalg.svd(matrices)
    flip = np.stack([np.ones(200), np.linalg.det(u @ v)], axis=-1)
    nearest = np.einsum("nij,nj,njk->nik", u, flip, v)
    expected = np.linalg.norm(matrices - nearest, axis=(1, 2)) / np.linalg.norm(
        matrices, axis=(1, 2)
    )
    np.testing.assert_allclose(distance, expected, atol=1e-5)
    turn = np.rad2deg(np.arctan2(nearest[:, 1, 0], nearest[:, 0, 0]))
    np.testing.assert_allclose(metrics.wrap_degrees(angle - turn), 0.0, atol=1e-2)


def test_turns_are_no_way_from_turns_and_a_scale_is() -> None:
    degrees = jnp.array([[-170.0], [-3.0], [0.0], [90.0]])
    turns = Affine("rotation").matrix(degrees / 180.0)
    angle, distance = metrics.nearest_rotation(turns)
    np.testing.assert_allclose(angle, degrees[:, 0], atol=1e-3)
    np.testing.assert_allclose(distance, 0.0, atol=1e-6)
    np.testing.assert_allclose(metrics.nearest_rotation(turns[:, :2, :2] * 2.0)[1], 0.5, atol=1e-6)
