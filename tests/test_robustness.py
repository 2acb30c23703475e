"""Sweeps of angles, on a classifier whose answers are known."""

import jax.numpy as jnp
import numpy as np
import pytest
from poses import blobs, pose

from flowjax_inv.inference.robustness import C8, c8_average, rotation_sweep
from flowjax_inv.transforms import Affine

IMAGES = blobs(jnp.linspace(-5.0, 5.0, 8))
LABELS = np.zeros(8, int)


def _turn(images, degrees):
    return Affine("rotation")(images, jnp.full((len(images), 1), degrees / 180.0))


def _predict(images):
    """Right, at 0.9, within a sixth of the circle to either side."""
    right = jnp.abs(pose(images)) < 1 / 3
    return jnp.where(right[:, None], jnp.array([0.9, 0.1]), jnp.array([0.2, 0.8]))


def test_a_sweep_judges_every_angle() -> None:
    sweep = rotation_sweep(_predict, _turn, IMAGES, LABELS)
    right = np.abs(sweep.degrees) < 60
    np.testing.assert_array_equal(sweep.accuracy, right)
    np.testing.assert_allclose(
        sweep.negative_log_likelihood, -np.log(np.where(right, 0.9, 0.2)), rtol=1e-5
    )
    np.testing.assert_allclose(sweep.calibration_error, np.where(right, 0.1, 0.8), rtol=1e-5)
    assert c8_average(sweep) == 3 / 8


@pytest.mark.slow
def test_c8_takes_the_eighths_alone_and_any_of_360_degrees() -> None:
    every = [*np.arange(0.0, 360.0, 15.0)]
    assert c8_average(rotation_sweep(_predict, _turn, IMAGES, LABELS, every)) == 3 / 8
    with pytest.raises(ValueError, match="swept were 0, 45 degrees; the C8 average wants every"):
        c8_average(rotation_sweep(_predict, _turn, IMAGES, LABELS, C8[4:6]))
    with pytest.raises(ValueError, match="7 labels for 8 images"):
        rotation_sweep(_predict, _turn, IMAGES, LABELS[:7])
