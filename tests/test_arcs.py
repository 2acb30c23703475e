"""How far images are turned, and whether turns count as found, of known densities."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import three_modes
from experiments.measuring.densities import Subject, make_arc_shares
from experiments.measuring.posed_densities import by_pose
from experiments.setup import data_sets, defaults
from flowjax_inv.data.pixels import Normalization
from flowjax_inv.data.sets import DataSet, Split
from flowjax_inv.distributions.base import ConditionalDistribution
from flowjax_inv.transforms import Affine


class Arc(NamedTuple):
    """Even turns of up to as much of the half circle as the image is bright."""

    brightness: jax.Array

    def sample(self, *, seed: Any, sample_shape: tuple[int, ...]) -> jax.Array:
        shape = (*sample_shape, len(self.brightness), 1)
        return jax.random.uniform(seed, shape, minval=-1.0) * self.brightness[:, None]


class Bright(ConditionalDistribution):
    def __call__(self, images, *, train=False) -> Any:
        return Arc(jnp.mean(images, axis=(1, 2, 3)))


def shares(arc_images: int, subgroup: str = "rotation", **known: Any) -> dict[str, float] | None:
    """Class a: images of 0.2 and 0.8 of the circle, one of each; class b: of 0.4, three."""
    share, labels = np.array([0.2, 0.4, 0.8, 0.4, 0.4]), np.array([0, 1, 0, 1, 1], np.int32)
    images = np.broadcast_to(np.round(255 * share)[:, None, None, None], (5, 8, 8, 1))
    split = Split(images.astype(np.uint8), labels)
    config = defaults.get_config()
    config.evaluation.arc_images = arc_images
    measure = make_arc_shares(
        Subject(
            Bright(dim=1), Affine(subgroup), DataSet(split, split, ("a", "b", "none"), **known),
            Normalization(), config, jax.random.key(0),
        )
    )  # fmt: skip
    return measure and {name: float(share) for name, share in measure({}).items()}


@pytest.mark.parametrize(("arc_images", "of_a"), [(1, 0.2), (2, 0.5), (9, 0.5)])
def test_the_share_is_the_mean_over_the_first_images_of_a_class(
    arc_images: int, of_a: float
) -> None:
    """A class without a test image is left out."""
    found = shares(arc_images)
    assert found is not None
    assert set(found) == {"arc_share_a", "arc_share_b"}
    np.testing.assert_allclose([found["arc_share_a"], found["arc_share_b"]], [of_a, 0.4], atol=0.02)


def test_where_there_are_no_turns_or_poses_are_known_there_is_no_share() -> None:
    assert shares(2, "translation") is None
    assert shares(2, centres_degrees=np.zeros((3, 1))) is None


class Points(NamedTuple):
    """The same turns for every image, in half circles, one after the other."""

    turns: tuple[float, ...]
    images: int

    def sample_and_log_prob(self, *, seed: Any, sample_shape: tuple[int]) -> tuple[jax.Array, ...]:
        theta = jnp.resize(jnp.array(self.turns), sample_shape)[:, None, None]
        theta = jnp.broadcast_to(theta, (*sample_shape, self.images, 1))
        return theta, jnp.zeros(theta.shape[:-1])


class Turned(ConditionalDistribution):
    turns: tuple[float, ...] = (0.0,)

    def __call__(self, images, *, train=False) -> Any:
        return Points(self.turns, len(images))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("turns", "found"), [((0.0, 2 / 3, -2 / 3), True), ((0.0, 2 / 3), True), ((0.0,), False)]
)
def test_modes_without_a_width_are_turns_all_the_same(
    turns: tuple[float, ...], *, found: bool
) -> None:
    config = three_modes.get_config("smoke")
    config.evaluation.poses = 5
    results, _ = by_pose(
        Subject(
            Turned(dim=1, turns=turns), Affine("rotation"), data_sets.data_set(config),
            Normalization(), config, jax.random.key(0),
        ),
        {},
    )  # fmt: skip
    assert results["half_range_degrees"] == pytest.approx(0.0, abs=1e-3)
    assert results["invariance_found"] is found
