"""The invariance bound: known cases, and averages that never change by more."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from poses import blobs, pose, upright

from flowjax_inv.distributions.bases import UniformBox
from flowjax_inv.inference import invariance_bound, predict, sampled_extremes
from flowjax_inv.transforms import Affine, Crop

ROTATION = Affine("rotation")
DEGREES = jnp.array([-150.0, -60.0, -10.0, 30.0, 120.0])
KEY = jax.random.key(0)


def _fixed(images: jax.Array) -> UniformBox:
    """The same uniform for all images, a quarter turn either side."""
    shape = (images.shape[0], 1)
    return UniformBox(jnp.zeros(shape), jnp.zeros(shape))


def _classify(images: jax.Array) -> jax.Array:
    """Two sure classes: right and left of the middle."""
    right = jnp.abs(pose(images)) < 0.5
    return 30.0 * jnp.stack([right, ~right], axis=-1)


@pytest.mark.slow
@pytest.mark.parametrize("turn", [0.1, 0.3, 1.0])
def test_a_density_that_ignores_the_image_loses_the_overlap(turn) -> None:
    """Uniforms of width 1 a turn apart: TV = min(turn, 1), exactly."""
    got = invariance_bound(_fixed, ROTATION, blobs(DEGREES), turn, key=KEY, num_samples=4_000)
    error = 4 * np.maximum(got.standard_error, 1e-3)
    np.testing.assert_array_less(np.abs(got.total_variation - min(turn, 1.0)), error)
    np.testing.assert_allclose(got.paper_bound, 2 * got.bound)


@pytest.mark.slow
def test_a_density_that_turns_with_the_image_loses_almost_nothing() -> None:
    got = invariance_bound(upright(0.25), ROTATION, blobs(DEGREES), 0.7, key=KEY)
    np.testing.assert_array_less(got.bound, 0.02)


@pytest.mark.slow
@pytest.mark.parametrize("propose", [_fixed, upright(0.25)])
@pytest.mark.parametrize("turn", [0.05, 0.25, 0.6])
def test_the_bound_holds(propose, turn) -> None:
    """Of a classifier as steep as there is; level: four standard errors of either side."""
    images, delta = blobs(DEGREES), jnp.array([turn])
    got = invariance_bound(propose, ROTATION, images, delta, key=KEY)
    before, after = (
        predict(_classify, propose, ROTATION, x, key=KEY, num_samples=1_000)
        for x in (images, ROTATION(images, jnp.broadcast_to(delta, (len(images), 1))))
    )
    change = jnp.max(jnp.abs(before - after), axis=-1)
    slack = 4 * (got.standard_error + jnp.sqrt(0.5 / 1_000))
    np.testing.assert_array_less(change, got.bound + slack)


@pytest.mark.slow
def test_known_extremes_tighten_it_and_sampled_ones_lie_inside() -> None:
    images = blobs(DEGREES)
    low, high = sampled_extremes(_classify, upright(0.1), ROTATION, images, key=KEY, num_samples=50)
    np.testing.assert_allclose(high[:, 0], 1.0, atol=1e-6)  # all views look right
    np.testing.assert_allclose(low[:, 0], 1.0, atol=1e-6)
    whole = invariance_bound(_fixed, ROTATION, images, 0.3, key=KEY)
    each = invariance_bound(upright(0.1), ROTATION, images, 0.3, key=KEY, low=low, high=high)
    assert each.bound.shape == (5, 2)
    expected = (high - low) * each.total_variation[:, None]
    np.testing.assert_allclose(each.bound, expected, atol=1e-6)
    half = invariance_bound(_fixed, ROTATION, images, 0.3, key=KEY, low=0.25, high=0.75)
    np.testing.assert_allclose(half.bound, 0.5 * whole.bound, rtol=1e-5)


def test_refusals() -> None:
    images = blobs(DEGREES)
    with pytest.raises(ValueError, match="depends on the order of two transforms; the bound holds"):
        invariance_bound(_fixed, Crop(), images, jnp.zeros(4), key=KEY)
    with pytest.raises(ValueError, match="num_samples is 999; want at least 1,000"):
        invariance_bound(_fixed, ROTATION, images, 0.1, key=KEY, num_samples=999)
    with pytest.raises(ValueError, match="high=0.0 is below low=1.0"):
        invariance_bound(_fixed, ROTATION, images, 0.1, key=KEY, low=1.0, high=0.0)
