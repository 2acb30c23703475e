"""Mean-shift: it ends where the density is centred, by the paper's steps, and stays there."""

from typing import Any

import distrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from poses import blobs, pose, upright

from flowjax_inv.distributions.bases import UniformBox
from flowjax_inv.distributions.box import Fixed
from flowjax_inv.inference import density_modes, make_mean_shift, mean_offset, mean_shift
from flowjax_inv.transforms import Affine, Crop, Decoupled

ROTATION = Affine("rotation")
DEGREES = jnp.array([-170.0, -95.0, -20.0, 0.0, 40.0, 110.0, 178.0, 60.0])
KEY = jax.random.key(0)
QUARTER = upright(0.25)


def _shift(images=None, propose=QUARTER, transform: Any = ROTATION, key=KEY, **fields: Any):
    images = blobs(DEGREES) if images is None else images
    return mean_shift(propose, transform, images, key=key, **fields)


@pytest.mark.slow
def test_common_noise_brings_all_images_to_one_pose() -> None:
    """Wide densities of few samples: each image's own noise leaves it off by its own mean."""
    fields: dict = {"steps": 40, "step_size": 0.5, "num_samples": 10}
    poses = jnp.linspace(-100.0, 100.0, 9)
    spread = [
        np.ptp(poses + 180 * _shift(blobs(poses), common_noise=common, **fields).theta[:, 0])
        for common in (False, True)
    ]
    assert spread[0] > 15
    assert spread[1] < 2


@pytest.mark.parametrize("group", [False, True])
def test_every_pose_ends_upright(group) -> None:
    """Across the seam too; what a step lacks is the samples' own offset, which all share."""
    got = _shift(steps=60, step_size=0.5, group=group, spread="stratified")
    assert np.asarray(got.converged).all()
    assert (np.asarray(got.steps) < 60).all()
    after = 180 * pose(got.images)
    np.testing.assert_allclose(after, 0.0, atol=1.5)
    np.testing.assert_allclose(got.trajectory[0], 0.0)
    np.testing.assert_array_equal(got.trajectory[-1], got.theta)


def test_ten_steps_of_a_tenth_cover_65_percent_of_an_offset() -> None:
    got = _shift(propose=upright(1e-3), tolerance=0.0, steps=10, step_size=0.1)
    expected = -(1 - 0.9**10) * np.where(DEGREES > 179, 180, DEGREES)
    np.testing.assert_allclose(180 * got.theta[:, 0], expected, atol=1.5)
    assert (np.asarray(got.steps) == 10).all()


def test_a_density_round_the_whole_circle_moves_nothing() -> None:
    got = _shift(propose=upright(1.0), steps=20)
    np.testing.assert_array_equal(got.theta, 0.0)
    np.testing.assert_array_equal(got.images, blobs(DEGREES))
    assert np.asarray(got.converged).all()


def test_the_same_noise_comes_to_rest_and_fresh_noise_does_not() -> None:
    same = _shift(steps=80, step_size=0.5, num_samples=20)
    fresh = _shift(steps=80, step_size=0.5, num_samples=20, fresh_noise=True)
    last = lambda got: np.abs(np.diff(got.trajectory[-6:, :, 0], axis=0)).max()  # noqa: E731
    assert np.asarray(same.converged).all()
    assert last(same) == 0.0
    assert last(fresh) > 1e-3


@pytest.mark.slow
def test_a_start_and_a_window_choose_among_modes() -> None:
    """Two directions of half the mass each have no mean; a window follows the nearer one."""

    def both(images: jax.Array) -> distrax.Distribution:
        loc = jnp.concatenate([-pose(images)[:, None]] * 2, axis=-1) + jnp.array([0.0, 1.0])
        return distrax.MixtureSameFamily(
            distrax.Categorical(logits=jnp.zeros((images.shape[0], 2))),
            distrax.MultivariateNormalDiag(loc[..., None], jnp.full((*loc.shape, 1), 0.03)),
        )

    still = _shift(propose=both, steps=5)
    np.testing.assert_array_equal(still.theta, 0.0)
    poses = jnp.array([-20.0, 30.0])
    for start, expected in ((0.0, -poses), (0.9, 180 - poses)):
        got = _shift(
            blobs(poses), both, start=jnp.array([start]), bandwidth=0.2, steps=60, step_size=0.5
        )
        apart = (180 * got.theta[:, 0] - expected + 180) % 360 - 180
        np.testing.assert_allclose(apart, 0.0, atol=2.0)


@pytest.mark.slow
def test_group_steps_compose_where_order_matters() -> None:
    """One whole step from a turned start: the shift is made in the turned picture."""
    transform = Affine("rotation_translation")
    offset = jnp.array([0.2, 0.0, 0.0])

    def propose(images: jax.Array) -> distrax.Distribution:
        loc = jnp.broadcast_to(offset, (images.shape[0], 3))
        return UniformBox(loc, jnp.full_like(loc, -12.0))

    start = jnp.array([0.0, 0.0, 0.5])  # a quarter turn
    fields: dict = {"steps": 1, "step_size": 1.0, "start": start, "transform": transform}
    summed, composed = (_shift(propose=propose, group=group, **fields) for group in (False, True))
    np.testing.assert_allclose(summed.theta[0], [0.2, 0.0, 0.5], atol=1e-4)
    np.testing.assert_allclose(composed.theta[0], transform.compose(offset, start), atol=1e-4)
    np.testing.assert_allclose(composed.theta[0], [0.0, 0.2, 0.5], atol=1e-4)


@pytest.mark.parametrize("group", [False, True])
def test_a_density_at_the_identity_moves_nothing_even_where_that_is_not_zero(group) -> None:
    crop = Crop()

    def propose(images: jax.Array) -> distrax.Distribution:
        loc = jnp.broadcast_to(crop.identity, (images.shape[0], 4))
        return UniformBox(loc, jnp.full_like(loc, -20.0))

    got = _shift(propose=propose, transform=crop, group=group, steps=3)
    np.testing.assert_allclose(got.theta, jnp.broadcast_to(crop.identity, (8, 4)), atol=1e-5)
    assert np.asarray(got.converged).all()


@pytest.mark.slow
def test_what_nothing_brings_back_stays_where_it_is_not_asked_to_move() -> None:
    """A density that is right about turns and a little off in the place, whatever the place."""
    transform = Affine("rotation_translation")
    turn = transform.names.index("rotation")

    def propose(images: jax.Array) -> distrax.Distribution:
        loc = jnp.full((images.shape[0], 3), 0.05).at[:, turn].set(-pose(images))
        return UniformBox(loc, jnp.full_like(loc, -12.0))

    poses = jnp.array([-40.0, 0.0, 30.0])
    fields: dict = {"steps": 30, "step_size": 0.5, "transform": transform}
    moved, turned = (
        _shift(blobs(poses), propose, coordinates=names, **fields)
        for names in (None, ("rotation",))
    )
    assert np.abs(moved.theta[:, 0]).min() > 0.5  # thirty half steps of 0.05
    assert not np.asarray(moved.converged).any()
    np.testing.assert_array_equal(np.delete(turned.theta, turn, axis=-1), 0.0)
    np.testing.assert_allclose(180 * turned.theta[:, turn], -poses, atol=1.5)
    assert np.asarray(turned.converged).all()


@pytest.mark.slow
def test_under_jit_vmap_and_on_many_devices() -> None:
    images, fields = blobs(DEGREES), {"steps": 3, "step_size": 0.5}
    expected = _shift(images, **fields)
    mesh = Mesh(np.array(jax.devices()), ("batch",))
    shared = jax.device_put(images, NamedSharding(mesh, PartitionSpec("batch")))
    got = jax.jit(lambda images: _shift(images, **fields))(shared)
    np.testing.assert_allclose(got.theta, expected.theta, atol=1e-6)
    keys = jax.random.split(KEY, 2)
    both = jax.vmap(lambda key: _shift(images, key=key, **fields).theta)(keys)
    np.testing.assert_allclose(both[1], _shift(images, key=keys[1], **fields).theta, atol=1e-6)


def test_make_mean_shift_compiles_once_for_new_weights() -> None:
    density = Fixed(dim=1, box_low=(0.2,), box_high=(0.4,))
    shifted: Any = make_mean_shift(density, ROTATION, steps=1, step_size=1.0)
    for key in jax.random.split(KEY, 2):
        got = shifted({}, blobs(DEGREES), key)
        np.testing.assert_allclose(got.theta, 0.3, atol=0.03)
    assert shifted._cache_size() == 1


def test_mean_offset_turns_across_the_seam() -> None:
    theta = jnp.array([0.9, -0.9, -0.7])[:, None]
    np.testing.assert_allclose(mean_offset(theta, (False,)), [-0.7 / 3], atol=1e-6)
    many = jnp.tile(theta, (10, 1))
    turned = float(mean_offset(many, (True,))[0])
    assert 0.9 < turned or turned < -0.85


@pytest.mark.slow
def test_modes_and_their_weights() -> None:
    """Three modes, one across the seam."""
    counts, centres = (500, 300, 200), jnp.array([0.98, 0.3, -0.4])
    where = jnp.repeat(centres, jnp.array(counts), total_repeat_length=1_000)
    drawn = where + 0.04 * jax.random.normal(KEY, (1_000,))
    theta = jax.random.permutation(KEY, jnp.mod(drawn + 1, 2) - 1)[:, None]
    modes, weights = jax.jit(lambda x: density_modes(x, (True,), starts=12))(theta)
    np.testing.assert_allclose(weights[:3], [0.5, 0.3, 0.2], atol=1e-6)
    np.testing.assert_allclose(weights[3:], 0.0)
    apart = jnp.mod(modes[:3, 0] - centres + 1, 2) - 1
    np.testing.assert_allclose(apart, 0.0, atol=0.01)
    with pytest.raises(ValueError, match="starts=12, bandwidth=0; want samples"):
        density_modes(theta, (True,), starts=12, bandwidth=0)


REFUSALS: dict[str, tuple[dict, str]] = {
    "no step": ({"steps": 0}, "steps=0, num_samples=100; want at least 1 of each"),
    "no sample": ({"num_samples": 0}, "num_samples=0; want at least 1"),
    "few samples round a circle": (
        {"num_samples": 4},
        "num_samples is 4; along a circle want at least 5, or a bandwidth",
    ),
    "gamma 0": ({"step_size": 0.0}, "step_size is 0.0; want 0 < step_size <= 1"),
    "gamma above 1": ({"step_size": 1.5}, "more overshoots"),
    "tolerance": ({"tolerance": -1.0}, "want tolerance >= 0"),
    "bandwidth": ({"bandwidth": 0.0}, "a bandwidth above 0"),
    "coordinates": (
        {"coordinates": ("turn",)},
        r"coordinates is \('turn',\); want names out of \['rotation'\], as in \(\"rotation\",\)",
    ),
    "a word": ({"coordinates": "rotation"}, "coordinates is 'rotation'; want names out of"),
    "no coordinate": ({"coordinates": ()}, "or None for all"),
    "spread": ({"spread": "even"}, "spread='even' is unknown; did you mean one of independent"),
    "group": (
        {"group": True, "transform": Decoupled(("b", "d"))},
        r"group=True with Decoupled\(b, d\), of which two in a row are none again",
    ),
    "no batch": ({"images": jnp.zeros((5, 5, 1))}, r"images have shape \(5, 5, 1\); want"),
    "empty": ({"images": jnp.zeros((0, 5, 5, 1))}, "none of them 0"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(case) -> None:
    fields, words = REFUSALS[case]
    with pytest.raises(ValueError, match=words):
        _shift(**fields)


def test_integers_are_refused_and_thin_pictures_are_not() -> None:
    with pytest.raises(TypeError, match="images are uint8; a warp wants floats"):
        _shift(jnp.zeros((2, 5, 5, 1), jnp.uint8))
    wide = _shift(
        jnp.ones((2, 1, 7, 3)), Fixed(dim=1, box_low=(0.0,), box_high=(0.5,)).bind({}), steps=2
    )
    assert np.isfinite(np.asarray(wide.theta)).all()


def test_a_picture_of_nan_ends_as_nan_alone() -> None:
    images = blobs(DEGREES).at[0].set(jnp.nan)
    got = _shift(images, steps=4)
    assert np.isnan(got.theta[0]).all()
    assert not bool(got.converged[0])
    assert np.isfinite(np.asarray(got.theta[1:])).all()
