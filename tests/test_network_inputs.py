"""What a network is shown: without corners, with noise, shrunk."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from flowjax_inv.networks import CircularMask, Noisy, Shrunk


def test_noise_is_shown_in_training_alone() -> None:
    inner: Any = lambda x, train: x  # noqa: E731
    images = jnp.zeros((4, 40, 40, 3))
    noisy = Noisy(inner, 0.3)
    np.testing.assert_array_equal(noisy.apply({}, images), images)
    seen = np.asarray(noisy.apply({}, images, train=True, rngs={"dropout": jax.random.key(0)}))
    np.testing.assert_allclose(seen.std(), 0.3, rtol=0.02)
    assert abs(np.corrcoef(seen[0].ravel(), seen[1].ravel())[0, 1]) < 0.05


def test_a_shrunk_image_is_of_means() -> None:
    inner: Any = lambda x, train: x  # noqa: E731
    images = jnp.arange(2 * 4 * 5, dtype=jnp.float32).reshape(2, 4, 5, 1)
    seen = np.asarray(Shrunk(inner, 2).apply({}, images))
    assert seen.shape == (2, 2, 2, 1)
    np.testing.assert_allclose(seen[0, 0, 0, 0], (0 + 1 + 5 + 6) / 4)


def test_the_circular_mask_hides_corners_and_nothing_else() -> None:
    images = jax.random.normal(jax.random.key(0), (2, 9, 13, 3))
    keep: Any = lambda x, train: x  # noqa: E731
    masked = CircularMask(keep)
    seen = np.asarray(masked.apply({}, images))
    assert (seen[:, 0, 0] == 0).all()
    assert (seen[:, 4] == images[:, 4]).all()
    turned = np.asarray(masked.apply({}, jnp.rot90(images, 1, (1, 2))))
    np.testing.assert_array_equal(turned, np.rot90(seen, 1, (1, 2)))
    thin = masked.apply({}, images[:, :1])
    np.testing.assert_array_equal(thin, images[:, :1])
