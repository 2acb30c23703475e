"""Aligning a set: what was turned apart lies on top of each other again."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from poses import blobs, pose, upright

from flowjax_inv.inference.alignment import align, prototype, residual_degrees
from flowjax_inv.transforms import Affine

ROTATION = Affine("rotation")
DEGREES = jnp.linspace(-80.0, 80.0, 11)


@pytest.mark.slow
def test_turned_copies_are_aligned_batch_by_batch() -> None:
    images = blobs(DEGREES)
    fields: dict = {"key": jax.random.key(0), "steps": 40, "step_size": 0.5}
    fields["spread"] = "stratified"  # independent samples would each be off by their own mean
    got = align(upright(0.2), ROTATION, images, batch_size=4, **fields)
    assert got.images.shape == images.shape
    assert got.converged.all()
    residual = residual_degrees(DEGREES, 180 * jnp.asarray(got.theta[:, 0]))
    assert np.abs(residual).max() < 1.0
    assert np.abs(residual_degrees(DEGREES, jnp.zeros(11))).max() > 70
    assert got.deviations[1] < 0.1 * got.deviations[0]
    np.testing.assert_allclose(got.prototypes[0], images.mean(0), atol=1e-6)
    assert np.ptp(180 * pose(jnp.asarray(got.images))) < 1.5


def test_prototype_of_two_images() -> None:
    mean, deviation = prototype(jnp.stack([jnp.zeros((3, 4, 1)), jnp.ones((3, 4, 1))]))
    np.testing.assert_allclose(mean, 0.5)
    np.testing.assert_allclose(deviation, 0.5)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="batch_size is 0; want at least 1"):
        align(upright(0.2), ROTATION, blobs(DEGREES), key=jax.random.key(0), batch_size=0)
    with pytest.raises(ValueError, match="none of them 0"):
        align(upright(0.2), ROTATION, jnp.zeros((0, 5, 5, 1)), key=jax.random.key(0))
