"""The step: what is updated when, equalities it must keep, and the known optimum."""

from typing import Any, Literal

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from laws_distributions import Pixels
from poses import blobs, pose, upright

from flowjax_inv import training
from flowjax_inv.controllers import Constant, EntropyBand
from flowjax_inv.distributions.base import ConditionalDistribution
from flowjax_inv.distributions.box import Fixed, Identity
from flowjax_inv.distributions.flow import Flow
from flowjax_inv.networks import MLP, SimpleConv
from flowjax_inv.objectives import Objective, view_cross_entropy
from flowjax_inv.placement import Placement
from flowjax_inv.transforms import Affine

IMAGES = jax.random.randint(jax.random.key(0), (24, 8, 8, 1), 0, 256).astype(jnp.uint8)
LABELS = jnp.arange(24) % 3
ROTATION = Affine("rotation")
ONE = Placement(jax.devices()[:1])  # of the four simulated devices


def small_flow(dim: int = 1, **fields) -> Flow:
    return Flow(dim=dim, embed=Pixels(), layers=2, width=8, components=2, **fields)


def build(
    classifier=None, distribution=None, controller=None, objective=None, images=IMAGES,
    rate: Any = 1e-2, optimizer=None, **fields
):  # fmt: skip
    classifier = classifier or MLP(3, hidden=(8,))
    distribution = distribution or small_flow()
    controller, objective = controller or Constant(0.3), objective or Objective()
    optimizer = optimizer or optax.adam(rate)
    state = training.init_state(
        classifier, distribution, optimizer, controller, images[:4], key=jax.random.key(1)
    )
    parts = (classifier, distribution, ROTATION, optimizer, controller, objective)
    return ONE.replicate(state), training.make_step(*parts, placement=ONE, **fields)


def changed(before, after, name: str) -> bool:
    pairs = zip(
        jax.tree.leaves(before.params[name]), jax.tree.leaves(after.params[name]), strict=True
    )
    return any(bool((a != b).any()) for a, b in pairs)


def copy(state):
    return jax.tree.map(lambda x: x.copy(), state)


def test_a_step_moves_both_and_counts() -> None:
    state, step = build()
    after = step(copy(state), IMAGES, LABELS, np.arange(8))
    assert int(after.step) == 1
    assert changed(state, after, "classifier")
    assert changed(state, after, "distribution")
    assert float(after.totals["steps"]) == 1
    totals, cleared = training.take_totals(after)
    assert float(totals["loss"]) != 0
    assert float(cleared.totals["loss"]) == 0


@pytest.mark.slow
def test_burn_in_leaves_the_distribution_and_the_controller_alone() -> None:
    decay = optax.adamw(1e-2, weight_decay=0.5)
    state, step = build(controller=EntropyBand(low=0, high=1), optimizer=decay, burn_in=True)
    after = step(copy(state), IMAGES, LABELS, np.arange(8))
    assert changed(state, after, "classifier")
    assert not changed(state, after, "distribution")
    assert int(after.controller.updates) == 0


@pytest.mark.slow
def test_the_controller_sees_the_train_entropy() -> None:
    state, step = build(controller=EntropyBand(low=0, high=1))
    after = step(copy(state), IMAGES, LABELS, np.arange(8))
    np.testing.assert_allclose(after.controller.entropy, after.totals["entropy"], rtol=1e-6)


@pytest.mark.slow
def test_a_frozen_classifier_stays_whatever_its_optimizer_remembers() -> None:
    objective = Objective(freeze_classifier=True)
    classifier = SimpleConv(3, width=4, batch_norm=True)
    state, burn = build(classifier=classifier, objective=objective, burn_in=True)
    _, step = build(classifier=classifier, objective=objective)
    burnt = burn(copy(state), IMAGES, LABELS, np.arange(8))
    after = step(copy(burnt), IMAGES, LABELS, np.arange(8))
    assert changed(state, burnt, "classifier")
    assert changed(burnt, after, "distribution")
    chex.assert_trees_all_equal(after.params["classifier"], burnt.params["classifier"])
    chex.assert_trees_all_equal(after.batch_stats["classifier"], burnt.batch_stats["classifier"])
    assert float(after.totals["cross_entropy_original"] - burnt.totals["cross_entropy"]) == 0


@pytest.mark.slow
def test_distorted_images_are_one_more_class_in_burn_in() -> None:
    seen = []

    class Spy(Affine):
        def __call__(self, images, theta):
            jax.debug.callback(lambda t: seen.append(np.asarray(t)), theta)
            return super().__call__(images, theta)

    objective = Objective(reject_distorted=True)
    classifier, distribution, optimizer = MLP(4, hidden=(8,)), small_flow(), optax.sgd(0.1)
    parts = (classifier, distribution, optimizer, Constant(0.1))
    state = training.init_state(*parts, IMAGES[:4], key=jax.random.key(1), objective=objective)
    step = training.make_step(
        classifier, distribution, Spy("rotation"), *parts[2:], objective, placement=ONE,
        burn_in=True,
    )  # fmt: skip
    params = state.params["classifier"]
    after = step(ONE.replicate(copy(state)), IMAGES, LABELS, np.arange(8))
    jax.block_until_ready(after.step)
    (theta,) = seen
    assert theta.shape == (8, 1)
    assert np.ptp(theta) > 0.5
    images = IMAGES[:8].astype(jnp.float32) / 255
    both = jnp.concatenate([images, ROTATION(images, theta)])
    logits: Any = classifier.apply({"params": params}, both)
    right = jnp.concatenate([LABELS[:8], jnp.full(8, 3)])
    expected = view_cross_entropy(logits[None], right, "losses").mean()
    np.testing.assert_allclose(after.totals["loss"], expected, rtol=1e-5)


@pytest.mark.slow
def test_a_regression_is_the_same_step() -> None:
    objective = Objective(loss="squared_error", copies=2)
    degrees = jnp.linspace(-90.0, 90.0, 24)
    classifier, distribution, optimizer = MLP(1, hidden=(8,)), small_flow(), optax.adam(1e-2)
    parts = (classifier, distribution, optimizer, Constant(0.3))
    state = training.init_state(*parts, IMAGES[:4], key=jax.random.key(1), objective=objective)
    step = training.make_step(
        classifier, distribution, ROTATION, *parts[2:], objective, placement=ONE
    )
    totals = step(ONE.replicate(state), IMAGES, degrees, np.arange(8)).totals
    assert set(totals) == set(objective.logged)
    parts = totals["squared_error"] + totals["squared_error_original"] - 0.3 * totals["entropy"]
    np.testing.assert_allclose(totals["loss"], parts, rtol=1e-5)
    assert 40 < float(totals["train_error_degrees"]) < 90  # of -90 .. -35 from about 0


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


def test_identity_trains_the_classifier_on_the_originals() -> None:
    """With the point mass, views are the originals, and alpha multiplies nothing."""
    objective = Objective(include_original=False)
    state, step = build(distribution=Identity(dim=1), objective=objective)
    logits: Any = MLP(3, hidden=(8,)).apply(
        {"params": state.params["classifier"]}, IMAGES[:8].astype(jnp.float32) / 255
    )
    after = step(copy(state), IMAGES, LABELS, np.arange(8))
    expected = view_cross_entropy(logits[None], LABELS[:8], "losses").mean()
    np.testing.assert_allclose(after.totals["loss"], expected, rtol=1e-5)


@pytest.mark.slow
def test_the_loss_is_its_terms() -> None:
    objective = Objective(copies=3, average="probs")
    state, step = build(objective=objective, controller=Constant(0.7))
    totals = step(copy(state), IMAGES, LABELS, np.arange(8)).totals
    expected = totals["cross_entropy"] + totals["cross_entropy_original"] - 0.7 * totals["entropy"]
    np.testing.assert_allclose(totals["loss"], expected, rtol=1e-5)


@pytest.mark.slow
def test_a_step_compiles_once() -> None:
    state, step = build()
    traced = chex.assert_max_traces(n=1)(lambda s, i: step(s, IMAGES, LABELS, i))
    jitted = jax.jit(traced)
    for start in (0, 8, 16):
        state = jitted(state, jnp.arange(start, start + 8))
    assert int(state.step) == 3


@pytest.mark.slow
def test_more_copies_keep_the_first_ones() -> None:
    """The samples of a copy do not depend on how many copies there are."""
    seen = []

    class Spy(Affine):
        def __call__(self, images, theta):
            jax.debug.callback(lambda t: seen.append(np.asarray(t)), theta)
            return super().__call__(images, theta)

    for copies in (2, 3):
        classifier, distribution, optimizer = MLP(3, hidden=(4,)), small_flow(), optax.sgd(0.1)
        state = training.init_state(
            classifier, distribution, optimizer, Constant(0.1), IMAGES[:4], key=jax.random.key(1)
        )
        step = training.make_step(
            classifier, distribution, Spy("rotation"), optimizer, Constant(0.1),
            Objective(copies=copies), placement=ONE,
        )  # fmt: skip
        jax.block_until_ready(step(state, IMAGES, LABELS, np.arange(8)))
        jax.effects_barrier()
    np.testing.assert_allclose(seen[0], seen[1][:, :2], atol=1e-6)
    assert np.abs(seen[1][:, 0] - seen[1][:, 1]).max() > 1e-3


@pytest.mark.slow
def test_batch_statistics_are_carried() -> None:
    net = SimpleConv(3, width=2, batch_norm=True)
    state, step = build(classifier=net)
    before = jax.tree.leaves(copy(state).batch_stats["classifier"])
    after = step(state, IMAGES, LABELS, np.arange(8))
    moved = zip(before, jax.tree.leaves(after.batch_stats["classifier"]), strict=True)
    assert all(bool((a != b).any()) for a, b in moved)


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


@pytest.mark.slow
def test_samples_without_gradient_refuse_mixed_views() -> None:
    with pytest.raises(ValueError, match='average is "logits"; Flow has no gradient'):
        build(
            distribution=small_flow(gumbel="score"),
            objective=Objective(average="logits"),
        )


def test_edge_share_leaves_circles_out() -> None:
    theta = jnp.array([[0.9995, 0.9995], [0.0, 0.9995]])
    assert float(training.edge_share(theta, (False, False))) == 0.75
    assert float(training.edge_share(theta, (False, True))) == 0.5
    assert float(training.edge_share(theta, (True, True))) == 0.0
    assert float(training.edge_share(theta, (False, False), discrete=True)) == 0.0


class StepClassifier(nn.Module):
    """Knows the turn of a picture from the place of its one bright corner region."""

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> jax.Array:
        del train
        size = images.shape[1]
        axis = jnp.linspace(-1, 1, size)
        up = -(images[..., 0] * axis[:, None]).sum((1, 2))
        right = (images[..., 0] * axis[None, :]).sum((1, 2))
        # Class 0 while the bright end points within 60 degrees of up: logit of a steep step.
        inside = up / jnp.sqrt(up**2 + right**2 + 1e-9) - jnp.cos(jnp.deg2rad(60.0))
        return jnp.stack([40.0 * inside, jnp.zeros_like(inside)], -1)


@pytest.mark.slow
@pytest.mark.parametrize("bijection", ["coupling", "spline"])
def test_the_known_optimum_of_a_fixed_classifier(bijection: Literal["coupling", "spline"]) -> None:
    """g* is proportional to f^(1/alpha): on a step of +-60 degrees, uniform on that arc.

    The entropy of the optimum is log(60/180 * 2) = log(2/3); its half-range 60 degrees.
    """
    size = 16
    axis = np.linspace(-1, 1, size)
    arrow = np.exp(-((axis[:, None] + 0.5) ** 2 + axis[None, :] ** 2) / 0.05)
    images = jnp.asarray(np.round(arrow * 255), jnp.uint8)[None, :, :, None].repeat(64, 0)
    distribution = Flow(
        dim=1, embed=Pixels(), bijection=bijection, layers=4, width=16, periodic=(True,),
        base="unit_box" if bijection == "spline" else "mixture", components=6, start_scale=0.3,
        temperature=0.5,
    )  # fmt: skip
    optimizer = optax.adam(optax.cosine_decay_schedule(2e-2, 400))
    classifier, controller = StepClassifier(), Constant(0.2)
    objective = Objective(include_original=False, copies=4)
    state = training.init_state(
        classifier, distribution, optimizer, controller, images[:2], key=jax.random.key(0)
    )
    step = training.make_step(
        classifier, distribution, ROTATION, optimizer, controller, objective, placement=ONE
    )
    for _ in range(400):
        state = step(state, images, jnp.zeros(64, jnp.int32), np.arange(64))

    @jax.jit
    def drawn(params: Any) -> Any:
        density: Any = distribution.apply({"params": params}, images[:1] / jnp.float32(255))
        return density.sample_and_log_prob(seed=jax.random.key(2), sample_shape=(4_000,))

    theta, log_prob = drawn(state.params["distribution"])
    degrees = np.abs(np.asarray(theta)[:, 0, 0] * 180)
    assert (degrees > 70).mean() < 0.03
    assert np.percentile(degrees, 98) == pytest.approx(0.98 * 60, abs=5)
    assert float(-log_prob.mean()) == pytest.approx(np.log(2 / 3), abs=0.12)


def test_no_two_streams_draw_the_same_numbers() -> None:
    streams = [value for name, value in vars(training.Stream).items() if name.isupper()]
    assert len(set(streams)) == len(streams) >= 10


class Masks(nn.Module):
    """Dropout's masks as logits: a thousand of 0 or 2."""

    features: int = 1_000

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> jax.Array:
        ones = jnp.ones((images.shape[0], self.features))
        return nn.Dropout(0.5, deterministic=not train)(ones)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [0, 1])
def test_the_views_of_an_image_are_dropped_from_independently(chunk: int) -> None:
    """Means of two masks are 0, 1 or 2: log sum exp 8.15; of one mask twice 0 or 2: 8.34."""
    objective = Objective(
        average="logits", label_smoothing=1.0, copies=2, copies_per_chunk=chunk,
        include_original=False,
    )  # fmt: skip
    state, step = build(classifier=Masks(), objective=objective)
    after = step(copy(state), IMAGES, LABELS, np.arange(8))
    assert float(after.totals["cross_entropy"]) + 1.0 == pytest.approx(8.15, abs=0.05)
