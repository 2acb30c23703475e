"""The polar network: its outputs turn, and are mirrored, with the image."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flowjax_inv.networks import PolarConv
from flowjax_inv.networks.polar import polar_image


@pytest.mark.slow
@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("shape", [(2, 32, 32, 3), (2, 18, 18, 1)])
def test_outputs_of_the_polar_network_turn_with_the_image(shape, batch_norm) -> None:
    """Whatever the weights: a quarter turn moves the outputs by a quarter of the circle."""
    network = PolarConv(features=16, width=3, batch_norm=batch_norm)
    images = jax.random.normal(jax.random.key(0), shape)
    variables = jax.jit(network.init)(jax.random.key(1), images)

    def scores(images: jax.Array) -> np.ndarray:
        return np.asarray(network.apply(variables, images))

    expected = scores(images)
    assert np.ptp(expected, axis=1).min() > 0.01
    turned = scores(jnp.rot90(images, 1, (1, 2)))
    np.testing.assert_allclose(turned, np.roll(expected, -4, axis=1), atol=1e-4)
    # Neither corners nor what a wide picture has beside its middle square are seen.
    axis = jnp.linspace(-1.0, 1.0, shape[1])
    outside = (axis**2 + axis[:, None] ** 2 > 1.3)[..., None]
    np.testing.assert_allclose(scores(jnp.where(outside, 9.0, images)), expected, atol=1e-4)
    wide = jnp.pad(images, ((0, 0), (0, 0), (3, 3), (0, 0)), constant_values=9.0)
    np.testing.assert_allclose(scores(wide), expected, atol=1e-4)


@pytest.mark.slow
def test_outputs_of_the_mirrored_polar_network_are_mirrored_with_the_image() -> None:
    """Whatever the weights: output k of an image is output -k of its mirror image."""
    images = jax.random.normal(jax.random.key(0), (2, 16, 16, 3))
    plain, both = (PolarConv(features=16, width=3, mirrored=mirrored) for mirrored in (False, True))
    variables = jax.jit(plain.init)(jax.random.key(1), images)
    opposite = -np.arange(16) % 16
    expected = np.asarray(both.apply(variables, images))
    there = np.asarray(both.apply(variables, images[:, :, ::-1]))
    np.testing.assert_allclose(there[:, opposite], expected, atol=1e-5)
    alone = [np.asarray(plain.apply(variables, x)) for x in (images, images[:, :, ::-1])]
    np.testing.assert_allclose(expected, (alone[0] + alone[1][:, opposite]) / 2, atol=1e-5)
    assert np.abs(alone[0] - expected).max() > 0.01
    training: Any = both.apply(variables, images, train=True)
    np.testing.assert_allclose(training, alone[0], atol=1e-6)


def test_a_ray_of_the_polar_image_points_against_its_turn() -> None:
    """Bright to the right: theta = 0 reads it at -1, as a turn by -180 degrees leaves it."""
    images = jnp.zeros((1, 16, 16, 1)).at[:, 7:9, 8:].set(1.0)
    rays = np.asarray(polar_image(images, 8))[0, 1:, :, 0].mean(axis=0)
    assert rays.argmax() == 4, "the ray of theta = 0 points to the right"
    up = np.asarray(polar_image(jnp.rot90(images, 1, (1, 2)), 8))[0, 1:, :, 0].mean(axis=0)
    assert up.argmax() == 2, "turned by 90 degrees the same is at -90"


def test_the_polar_network_says_what_it_wants() -> None:
    with pytest.raises(ValueError, match=r"PolarConv of 7 directions got .* even number"):
        jax.jit(PolarConv(features=7).init)(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    with pytest.raises(ValueError, match=r"\(1, 4, 32, 3\); it wants .* H, W >= 8"):
        jax.jit(PolarConv(features=8).init)(jax.random.key(0), jnp.zeros((1, 4, 32, 3)))
