"""Terms of the step's loss: equivariance, the pose likelihood, the entropy along samples."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from poses import blobs, pose, upright
from steps import IMAGES, LABELS, build, changed, copy, small_flow

from flowjax_inv import training
from flowjax_inv.distributions.base import ConditionalDistribution
from flowjax_inv.distributions.box import Fixed, Identity
from flowjax_inv.distributions.flow import Flow
from flowjax_inv.networks import MLP
from flowjax_inv.training.controllers import Constant
from flowjax_inv.training.objectives import Objective
from flowjax_inv.transforms import Affine


@pytest.mark.slow
def test_the_equivariance_term_of_an_even_density_is_its_entropy() -> None:
    """Whatever is moved how far, log g is -log 2: the loss is more by the weight times log 2."""
    loss = []
    for weight in (0.0, 0.7):
        objective = Objective(equivariance=weight)
        state, step = build(distribution=Fixed(dim=1), objective=objective)
        loss.append(float(step(state, IMAGES, LABELS, np.arange(8)).totals["loss"]))
    np.testing.assert_allclose(loss[1] - loss[0], 0.7 * np.log(2.0), rtol=1e-4)


class Upright(ConditionalDistribution):
    """Half a circle about what rights the image: it moves with its image."""

    def __call__(self, images, *, train=False):
        return upright(0.5)(images)


@pytest.mark.slow
def test_the_equivariance_term_tells_who_moves_with_the_image() -> None:
    """log 1 for half the circle that moves along. Still, half of it is lost, at 20 nats each."""
    images = blobs(jnp.linspace(-180.0, 180.0, 24), size=15)
    still = Fixed(dim=1, box_low=(-0.5,), box_high=(0.5,))
    for distribution, expected in ((Upright(dim=1), 0.0), (still, 10.0)):
        loss = []
        for weight in (0.0, 1.0):
            objective = Objective(copies=100, equivariance=weight)
            state, step = build(distribution=distribution, objective=objective, images=images)
            loss.append(float(step(state, images, LABELS, np.arange(24)).totals["loss"]))
        # Standard error of 24 turns: 1.2 (each loses |dT| of its mass).
        np.testing.assert_allclose(loss[1] - loss[0], expected, atol=0.1 if expected == 0 else 4)


@pytest.mark.slow
def test_the_pose_likelihood_teaches_the_density_alone() -> None:
    objective = Objective(pose_likelihood=True)
    state, step = build(objective=objective)
    after = step(copy(state), IMAGES, LABELS, np.arange(8))
    assert changed(state, after, "distribution")
    assert not changed(state, after, "classifier")
    assert np.isfinite(after.totals["loss"])
    assert np.isnan(after.totals["cross_entropy"])  # no view was classified


@pytest.mark.slow
@pytest.mark.parametrize(("propose", "expected"), [(Upright(dim=1), 0.0), (Fixed(dim=1), None)])
def test_the_pose_likelihood_of_known_densities(propose, expected) -> None:
    """0 = -log 1 for half the circle about upright, whatever the turn; log 2 for the whole."""
    images = blobs(jnp.zeros(24), size=15)
    state, step = build(
        distribution=propose, objective=Objective(pose_likelihood=True), images=images
    )
    loss = float(step(state, images, LABELS, np.arange(24)).totals["loss"])
    np.testing.assert_allclose(loss, np.log(2.0) if expected is None else expected, atol=1e-4)


@pytest.mark.slow
def test_the_pose_likelihood_finds_which_way_is_up() -> None:
    """Blobs turned by any angle: 95 % of the learned density within 40 degrees of what rights it.

    Chance would be 22 %.
    """
    images = blobs(jnp.zeros(64), size=15)
    flow = Flow(
        dim=1, periodic=(True,), embed=MLP(8, hidden=(32,)), bijection="spline", base="unit_box",
        layers=1, width=16, bins=8,
    )  # fmt: skip
    steps = 400
    state, step = build(
        distribution=flow, objective=Objective(pose_likelihood=True), images=images,
        rate=optax.cosine_decay_schedule(1e-2, steps),  # it swings at a constant rate
    )  # fmt: skip
    for _ in range(steps):
        state = step(state, images, jnp.zeros(64, int), np.arange(64))
    turned = blobs(jnp.linspace(-170.0, 170.0, 9), size=15)

    @jax.jit
    def drawn(params: Any) -> jax.Array:
        density: Any = flow.apply({"params": params}, turned)
        return density.sample(seed=jax.random.key(0), sample_shape=(200,))[..., 0]

    theta = drawn(state.params["distribution"])
    off = jnp.abs((theta + pose(turned) + 1.0) % 2.0 - 1.0)
    assert float(jnp.mean(off < 40 / 180)) > 0.95


def test_refusals_of_the_pose_likelihood() -> None:
    objective = Objective(pose_likelihood=True)
    parts = (MLP(3), small_flow(3), Affine("rotation_translation"), optax.adam(1e-2), Constant(0.3))
    with pytest.raises(
        ValueError, match=r"pose_likelihood is True, but with Affine\(transl.*order"
    ):
        training.make_step(*parts, objective)
    with pytest.raises(ValueError, match="pose_likelihood is True, but Identity has no density"):
        build(distribution=Identity(dim=1), objective=objective)
    with pytest.raises(ValueError, match="equivariance is 0.5 with pose_likelihood=True"):
        Objective(pose_likelihood=True, equivariance=0.5)


def test_equivariance_refuses_transforms_whose_order_matters() -> None:
    parts = (MLP(3), small_flow(3), Affine("rotation_translation"), optax.adam(1e-2), Constant(0.3))
    with pytest.raises(
        ValueError, match=r"equivariance is 0.5, but with Affine\(translation_x, .*tr"
    ):
        training.make_step(*parts, Objective(equivariance=0.5))


@pytest.mark.slow
def test_the_entropy_along_samples_is_the_same_loss() -> None:
    """Another gradient of the same values, from the same samples."""
    sides = []
    for pathwise in (False, True):
        flow = small_flow(gumbel="score", pathwise_entropy=pathwise)
        state, step = build(distribution=flow, objective=Objective(copies=3))
        sides.append(step(copy(state), IMAGES, LABELS, np.arange(8)))
    whole, along = sides
    for name in ("loss", "entropy"):
        np.testing.assert_allclose(along.totals[name], whole.totals[name], rtol=1e-4)
    assert changed(whole, along, "distribution")
