"""Colours and chains of two transforms: what the laws of all transforms do not say."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import mnist
from experiments.setup import build, defaults
from experiments.setup.assembly import assemble
from flowjax_inv.data.digits import printed_digits
from flowjax_inv.data.pixels import Normalization
from flowjax_inv.transforms import Affine, Chain, Colour, Crop, Gains, Light, Transform

RED, GREEN, BLUE, GREY = np.eye(3)[0], np.eye(3)[1], np.eye(3)[2], np.full(3, 0.25)


def coloured(transform: Transform, colour: np.ndarray, **theta: float) -> np.ndarray:
    """One pixel's colour after a transform, theta by name."""
    image = jnp.asarray(colour, jnp.float32).reshape(1, 1, 3)
    given = jnp.asarray([theta.get(name, 0.0) for name in transform.names])
    return np.asarray(transform(image, given))[0, 0]


def test_colours_go_where_their_names_say() -> None:
    every = Colour(colours="all")
    third = 2 / 3  # of half a circle
    for before, after in ((RED, GREEN), (GREEN, BLUE), (BLUE, RED)):
        np.testing.assert_allclose(coloured(every, before, hue=third), after, atol=1e-6)
    np.testing.assert_allclose(coloured(every, GREY, brightness=0.5), GREY + 0.25, atol=1e-6)
    np.testing.assert_allclose(coloured(every, GREY, contrast=1.0), 0.0 * GREY, atol=1e-6)
    for name in ("saturation", "hue"):  # grey has neither
        np.testing.assert_allclose(coloured(every, GREY, **{name: 0.7}), GREY, atol=1e-6)
    pale, full = (coloured(every, RED, saturation=s) for s in (-1.0, 1.0))
    assert np.ptp(pale) < 1.0 < np.ptp(full)
    warm, tinted = coloured(every, GREY, warmth=1.0), coloured(every, GREY, tint=1.0)
    assert warm[0] > warm[1] > warm[2]
    assert tinted[1] > tinted[0] == pytest.approx(tinted[2])
    np.testing.assert_allclose([warm.mean(), tinted.mean()], 0.25, atol=1e-6)  # grey stays


@pytest.mark.slow
def test_normalised_images_take_the_same_colours() -> None:
    normalization = Normalization((0.4, 0.5, 0.6), (0.2, 0.3, 0.25))
    plain, normalised = (
        Colour(colours="all"),
        Colour(normalization.mean, normalization.std, colours="all"),
    )
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (4, 5, 6, 3)).astype(np.uint8)
    theta = jnp.asarray(random.uniform(-1, 1, (4, 6)), jnp.float32)
    expected = jnp.clip(plain(images / np.float32(255), theta), 0.0, 1.0)  # as `undo` does
    got = normalization.undo(normalised(normalization(jnp.asarray(images)), theta))
    np.testing.assert_allclose(got, expected, atol=2e-6)
    # And by the matrix, which leads from the view back to the image.
    view = np.concatenate([normalised(normalization(jnp.asarray(images)), theta),
                           np.ones((4, 5, 6, 1))], -1)  # fmt: skip
    back = np.einsum("nij,nhwj->nhwi", np.asarray(normalised.matrix(theta)), view)[..., :3]
    np.testing.assert_allclose(back, normalization(jnp.asarray(images)), atol=1e-4)


def test_light_is_gains_by_how_bright_warm_and_green() -> None:
    light, gains = Light(half_range=(0.6, 0.4, 0.2)), Gains(half_range=(0.6, 0.4, 0.2))
    for name, logs in (
        ("brightness", (0.6, 0.6, 0.6)), ("warmth", (0.4, 0.0, -0.4)), ("tint", (-0.1, 0.2, -0.1))
    ):  # fmt: skip
        seen = coloured(light, GREY, **{name: 1.0})
        np.testing.assert_allclose(seen, 0.25 * np.exp(logs), rtol=1e-6)
        theta = gains.coordinates(
            light.matrix(jnp.asarray([float(n == name) for n in light.names]))
        )
        # Matrices are output to input: gains that give the same light.
        np.testing.assert_allclose(theta * jnp.asarray(gains.half_range), logs, atol=1e-6)


@pytest.mark.slow
def test_a_chain_is_colours_then_positions() -> None:
    spatial, colour = Affine("rotation_translation"), Colour(colours="exposure")
    chain = Chain(spatial, colour)
    images = jnp.asarray(np.random.default_rng(1).random((3, 7, 9, 3)), jnp.float32)
    theta = jnp.asarray(np.random.default_rng(2).uniform(-0.5, 0.5, (3, 5)), jnp.float32)
    expected = spatial(colour(images, theta[:, 3:]), theta[:, :3])
    np.testing.assert_array_equal(chain(images, theta), expected)
    # What is outside is padded after it was brightened: it stays zero.
    bright = chain(images, jnp.asarray([1.0, 0.0, 0.0, 0.5, 0.0]))
    outside = ~np.asarray(spatial.valid_mask(jnp.asarray([1.0, 0.0, 0.0]), 7, 9))
    assert outside.any()
    assert not np.asarray(bright)[:, outside].any()


def test_what_is_refused() -> None:
    theta = jnp.zeros(4)
    with pytest.raises(ValueError, match=r"wants \(\.\.\., H, W, 3\): grey pictures have no hue"):
        Colour()(jnp.zeros((2, 5, 5, 1)), theta)
    with pytest.raises(TypeError, match="dtype uint8; want floating point"):
        Colour()(np.zeros((2, 5, 5, 3), np.uint8), theta)
    with pytest.raises(ValueError, match="vivid"):
        Colour(colours="vivid")
    with pytest.raises(ValueError, match=r"std=\(0.2, 0.0, 0.1\).*three.*positive"):
        Colour(std=(0.2, 0.0, 0.1))
    with pytest.raises(ValueError, match=r"want \(\.\.\., 4, 4\)"):
        Colour().coordinates(jnp.eye(3))
    for pair in ((Affine(), Crop()), (Colour(), Affine()), (Colour(), Colour(colours="exposure"))):
        with pytest.raises(ValueError, match=r"want one that moves pixels .*, then one that does"):
            Chain(*pair)


def test_colours_of_a_config() -> None:
    config = defaults.get_config()
    config.transform.colours, config.transform.colour_half_range = "grey_world", (0.1, 0.2)
    config.data.std = (0.5,)
    chain = build.transform(config)
    assert chain == Chain(
        Affine("rotation_translation"),
        Colour((0.0,), (0.5,), colours="grey_world", half_range=(0.1, 0.2)),
    )
    assert build.distribution(config, chain, classes=2).dim == 5
    config.transform.name, config.transform.colours = "colour", "gains"
    config.transform.colour_half_range = (0.1, 0.2, 0.3)
    gains = build.transform(config)
    assert gains == Gains((0.0,), (0.5,), half_range=(0.1, 0.2, 0.3))
    np.testing.assert_allclose(coloured(gains, GREY, green=1.0)[1], 0.25 * math.exp(0.2), rtol=1e-6)
    config.transform.colours = "light"
    assert build.transform(config) == Light((0.0,), (0.5,), half_range=(0.1, 0.2, 0.3))
    config.transform.half_range = (0.1, 0.2)
    with pytest.raises(ValueError, match=r"give those of colours as transform\.colour_half_range"):
        assemble(config)
    config = mnist.get_config("smoke")
    config.transform.colours = "jitter"
    with pytest.raises(ValueError, match="grey pictures have no hue"):
        assemble(config, printed_digits(train_size=64, test_size=32, seed=0))


@pytest.mark.slow
def test_gradients_reach_images_and_theta() -> None:
    transform = Colour(colours="all")
    image = jnp.full((2, 2, 3), 0.4).at[..., 0].set(0.7)

    def loss(theta: jax.Array) -> jax.Array:
        return jnp.sum(transform(image, theta) ** 2)

    slopes = jax.grad(loss)(jnp.zeros(6))
    step = 1e-2 * jnp.eye(6)
    wanted = [(loss(s) - loss(-s)) / 2e-2 for s in step]
    np.testing.assert_allclose(slopes, wanted, rtol=2e-3, atol=2e-3)
