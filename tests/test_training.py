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
from steps import IMAGES, LABELS, ONE, ROTATION, build, changed, copy, small_flow

from flowjax_inv import training
from flowjax_inv.distributions.box import Identity
from flowjax_inv.distributions.flow import Flow
from flowjax_inv.networks import MLP, SimpleConv
from flowjax_inv.training.controllers import Constant, EntropyBand
from flowjax_inv.training.costs import view_cross_entropy
from flowjax_inv.training.objectives import Objective
from flowjax_inv.transforms import Affine


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

    objective = Objective(reject_distorted="burn_in")
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
@pytest.mark.parametrize("chunk", [0, 1])
def test_distorted_images_stay_a_class_beside_views(chunk: int) -> None:
    """The loss is that of views and originals, and of as many distorted images."""
    seen: list[np.ndarray] = []

    class Spy(Affine):
        def __call__(self, images, theta):
            jax.debug.callback(lambda t: seen.append(np.asarray(t)), theta, ordered=True)
            return super().__call__(images, theta)

    objective = Objective(reject_distorted="always", copies=2, copies_per_chunk=chunk)
    classifier, distribution, optimizer = MLP(4, hidden=(8,)), small_flow(), optax.sgd(0.1)
    parts = (classifier, distribution, optimizer, Constant(0.0))
    state = training.init_state(*parts, IMAGES[:4], key=jax.random.key(1), objective=objective)
    step = training.make_step(
        classifier, distribution, Spy("rotation"), *parts[2:], objective, placement=ONE
    )
    params = state.params["classifier"]
    after = step(ONE.replicate(copy(state)), IMAGES, LABELS, np.arange(8))
    jax.block_until_ready(after.step)
    # A chunk is made again for its gradient: its first making is enough here.
    made = [np.moveaxis(theta, 1, 0) for theta in seen if theta.ndim == 3][: 3 if chunk else 1]
    theta = np.concatenate(made)
    assert theta.shape == (3, 8, 1)
    images = IMAGES[:8].astype(jnp.float32) / 255
    views = ROTATION(images, theta).reshape(24, *images.shape[1:])
    logits: Any = classifier.apply({"params": params}, jnp.concatenate([images, views]))
    original, *each = logits.reshape(4, 8, 4)
    costs = [
        view_cross_entropy(x[None], LABELS[:8], "losses").mean() for x in (original, *each[:2])
    ]
    last = view_cross_entropy(each[2][None], jnp.full(8, 3), "losses").mean()
    expected = costs[0] + (costs[1] + costs[2]) / 2 + last
    np.testing.assert_allclose(after.totals["loss"], expected, rtol=1e-5)
    assert objective.answers(logits).shape == (32, 3)


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
