"""A classifier that stays as it is: crops by rule, the score function, images of one's own."""

import importlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from crop_cases import TRANSFORM
from laws_distributions import Pixels
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from steps import LABELS, ONE, ROTATION, changed, copy, small_flow

from experiments.report.crop_boxes import crop_boxes
from experiments.report.evaluation import MissingArrayError
from experiments.report.view_counts import accuracies_by_views, accuracy_against_views
from experiments.setup import assembly, build, checks, data_sets
from flowjax_inv import training
from flowjax_inv.data import subsets
from flowjax_inv.data.sets import DataSet, Split
from flowjax_inv.distributions.box import Augerino, Identity, InstaAug
from flowjax_inv.distributions.crop_densities import CropCategorical
from flowjax_inv.distributions.crop_grid import CropGrid
from flowjax_inv.distributions.crops import InstaAugLRP
from flowjax_inv.distributions.gaussian import ConditionalGaussian
from flowjax_inv.distributions.noise import SpreadKey
from flowjax_inv.networks import MLP, Outside
from flowjax_inv.training.controllers import Constant
from flowjax_inv.training.objectives import Objective
from flowjax_inv.transforms import Affine, Crop

IMAGES = jax.random.uniform(jax.random.key(0), (6, 8, 8, 1))


def host_logits(images: Any) -> Any:
    """What no tracer passes."""
    images = np.asarray(images)
    return np.stack([images[:, :4].mean((1, 2, 3)), images[:, 4:].mean((1, 2, 3))], -1) * 5


def traced_logits(images: Any) -> Any:
    return jnp.stack([images[:, :4].mean((1, 2, 3)), images[:, 4:].mean((1, 2, 3))], -1) * 5


@pytest.mark.parametrize("centre", ["room", "picture"])
@pytest.mark.parametrize(("sizes", "count"), [((0.75,), 5), ((0.75, 0.5), 10), ((1.0, 0.5), 6)])
def test_a_grid_is_corners_and_middle_each_as_often(sizes: Any, count: int, centre: str) -> None:
    module = CropGrid(dim=4, sizes=sizes, centre=centre)
    density: Any = module.apply({}, IMAGES)
    np.testing.assert_allclose(density.probs, 1 / count, rtol=1e-6)
    boxes = np.asarray(Crop(0.25, 1.0, centre).boxes(density.atoms))
    for size in sizes:
        there = boxes[np.abs(boxes[:, 2] - size) < 1e-5]
        edges = np.abs(there[:, :2]) + there[:, 2:]
        assert (edges <= 1 + 1e-5).all()
        assert np.isclose(edges, 1).all(1).sum() == (4 if size < 1 else 1)
    key = SpreadKey(jax.random.key(0), "stratified")
    theta = np.asarray(density.sample(seed=key, sample_shape=(2 * count,)))
    for image in range(6):
        _, often = np.unique(theta[:, image].round(5), axis=0, return_counts=True)
        assert often.tolist() == [2] * count
    assert module.regularizer(density, jnp.ones(1)) == 0
    drawn, log_mass = density.sample_and_log_prob(seed=jax.random.key(1), sample_shape=(3,))
    np.testing.assert_allclose(log_mass, -np.log(count), rtol=1e-5)
    assert drawn.shape == (3, 6, 4)


def test_what_is_no_grid_is_refused() -> None:
    for sizes in ((), (0.1,), (1.5,), (0.5, 0.5)):
        with pytest.raises(ValueError, match=r"of CropGrid; want one or more in 0.25 .. 1"):
            CropGrid(dim=4, sizes=sizes)
    with pytest.raises(ValueError, match="CropGrid got a transform with dim 1"):
        CropGrid(dim=1, names=("rotation",))


def test_spread_draws_of_crops_follow_their_masses() -> None:
    logits = jnp.log(jnp.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]))
    density = CropCategorical(logits, jnp.eye(3))
    keys: list[Any] = [SpreadKey(jax.random.key(k), "stratified") for k in range(200)]
    one = np.mean([density.sample(seed=key, sample_shape=(10,)) for key in keys], axis=(0, 1))
    np.testing.assert_allclose(one, np.exp(logits), atol=0.02)
    # Together they differ from them by less than a draw.
    counts = np.sum(np.asarray(density.sample(seed=keys[0], sample_shape=(10,))), axis=0)
    assert np.abs(counts - 10 * np.exp(logits)).max() < 1.5


def test_nothing_is_done_by_a_transform_whose_nothing_is_not_zero() -> None:
    identity = Identity(dim=4, anchor=tuple(TRANSFORM.identity.tolist()))
    density: Any = identity.apply({}, IMAGES)
    theta = density.sample(seed=jax.random.key(0), sample_shape=(1,))
    np.testing.assert_allclose(TRANSFORM(IMAGES, theta)[0], IMAGES, atol=1e-5)


def gradient(objective: Objective, function: str, distribution: Any, key: int) -> Any:
    classifier = Outside(2, f"{__name__}:{function}")
    rate = 1e-3
    parts = (classifier, distribution, ROTATION, optax.sgd(rate), Constant(0.1), objective)
    state = training.init_state(*parts[:2], *parts[3:5], IMAGES[:4], key=jax.random.key(1))
    state = ONE.replicate(state.replace(key=jax.random.key(key)))
    before = copy(state.params["distribution"])
    after = training.make_step(*parts, placement=ONE)(
        state, IMAGES, LABELS[:6] % 2, jnp.arange(6)
    ).params["distribution"]
    return jax.tree.map(lambda a, b: np.asarray(a - b) / rate, before, after)


@pytest.mark.slow
def test_the_score_function_has_the_gradient_of_the_samples() -> None:
    """On average, of a density whose samples carry one; and of a function that has none."""
    density = ConditionalGaussian(dim=1, embed=Pixels())
    through = {"freeze_classifier": True, "copies": 4_000}
    by_samples = gradient(Objective(**through), "traced_logits", density, 0)
    for function in ("traced_logits", "host_logits"):
        scored = gradient(Objective(**through, gradient="score"), function, density, 1)
        a, b = (
            np.concatenate([each.ravel() for each in jax.tree.leaves(tree)])
            for tree in (by_samples, scored)
        )
        assert a @ b > 0.99 * np.linalg.norm(a) * np.linalg.norm(b)
        assert np.linalg.norm(b) == pytest.approx(np.linalg.norm(a), rel=0.1)


@pytest.mark.slow
def test_a_choice_of_crops_learns_by_the_score_alone_where_that_is_asked() -> None:
    """Not by the soft draw besides: of two ways to draw, one gradient."""
    found = []
    for way in ("score", "gumbel_softmax"):
        density = InstaAugLRP(dim=4, levels=(2, -1), gradient=way)  # pyright: ignore[reportArgumentType]
        objective = Objective(freeze_classifier=True, gradient="score", copies=4)
        parts = (
            Outside(2, f"{__name__}:traced_logits"), density, TRANSFORM, optax.sgd(1.0),
            Constant(0.1), objective,
        )  # fmt: skip
        images = jax.random.uniform(jax.random.key(3), (4, 32, 32, 3))
        state = training.init_state(*parts[:2], *parts[3:5], images, key=jax.random.key(1))
        step = training.make_step(*parts, placement=ONE)
        found.append(step(ONE.replicate(state), images, LABELS[:4] % 2, jnp.arange(4)))
    one, other = (jax.tree.leaves(state.params["distribution"]) for state in found)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_what_the_score_function_cannot_serve_is_refused() -> None:
    score = Objective(gradient="score")
    boxes: list[Any] = [Augerino(dim=1), InstaAug(dim=1, embed=Pixels())]
    for density in [*boxes, small_flow(base="box"), small_flow(gumbel="relaxed")]:
        with pytest.raises(ValueError, match='gradient is "score"; where .* has mass hangs on'):
            training.check_objective(density, ROTATION, score)
    training.check_objective(small_flow(), ROTATION, score)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"average": "logits"}, 'gradient is "score", and that wants "losses"'),
        ({"maps": True}, "its views show different pixels"),
    ]
    for fields, words in refused:
        with pytest.raises(ValueError, match=words):
            training.check_objective(small_flow(), ROTATION, Objective(gradient="score", **fields))
    unknown: Any = "both"
    with pytest.raises(ValueError, match="gradient='both' is unknown"):
        Objective(gradient=unknown)


def test_a_function_without_a_gradient_is_refused_before_anything_is_written() -> None:
    made = Outside(2, f"{__name__}:host_logits")
    words = "host_logits is called from the host, which gives no gradient"
    with pytest.raises(ValueError, match=words):
        build.check_gradient(made, small_flow(), Objective(), IMAGES)
    build.check_gradient(made, small_flow(), Objective(gradient="score"), IMAGES)
    build.check_gradient(made, Identity(dim=1), Objective(), IMAGES)
    traced = Outside(2, f"{__name__}:traced_logits")
    build.check_gradient(traced, small_flow(), Objective(), IMAGES)


def noise(each: int) -> Split:
    labels = np.tile(np.arange(10, dtype=np.int32), each)
    pixels = np.random.default_rng(0).integers(0, 256, (len(labels), 32, 32, 3), dtype=np.uint8)
    return Split(pixels, labels)


def smoke(**fields: Any) -> Any:
    config = importlib.import_module("experiments.frozen").get_config("smoke")
    for name, value in fields.items():
        section, _, field = name.partition("__")
        config[section][field] = value
    return config


def test_the_density_learns_by_images_that_the_classifier_never_saw() -> None:
    data = DataSet(noise(10), noise(2), tuple(map(str, range(10))))
    parts = assembly.assemble(smoke(), data)
    assert parts.for_density == 50
    with parts.feed() as feed:
        early, late = (
            {int(i) for step in steps for i in np.asarray(feed(step)[-1])}
            for steps in (
                range(parts.burn_in_steps), range(parts.burn_in_steps, parts.total_steps),
            )
        )  # fmt: skip
    assert early <= set(range(50))
    assert late <= set(range(50, 100))
    # All of them are there, the last ones drawn at random.
    moved, last = subsets.put_last(data, 0.3, seed=1)
    assert last == 30
    order = [int(np.flatnonzero((data.train.images == each).all((1, 2, 3)))[0])
             for each in moved.train.images]  # fmt: skip
    assert sorted(order) == list(range(100))
    assert order[:70] == sorted(order[:70])
    assert order[70:] != list(range(70, 100))
    np.testing.assert_array_equal(moved.train.labels, data.train.labels[order])


def test_images_of_ones_own_are_refused_without_a_frozen_classifier() -> None:
    with pytest.raises(ValueError, match="that wants objective.freeze_classifier=True"):
        checks.check(smoke(objective__freeze_classifier=False))
    data = DataSet(noise(10), noise(2), tuple(map(str, range(10))))
    with pytest.raises(ValueError, match="frozen_share is 0.1: 90 train images for the classifi"):
        data_sets.kept_for_density(smoke(objective__frozen_share=0.1), data)
    with pytest.raises(ValueError, match="spread is stratified with flow_lrp"):
        checks.check(smoke(distribution__name="flow_lrp"))


@pytest.mark.slow
def test_a_frozen_classifier_stays_as_it_is() -> None:
    objective = Objective(freeze_classifier=True, gradient="score", copies=4)
    parts = (MLP(2, hidden=(4,)), small_flow(), Affine("rotation"), optax.adam(1e-2),
             Constant(0.1), objective)  # fmt: skip
    state = training.init_state(*parts[:2], *parts[3:5], IMAGES[:4], key=jax.random.key(1))
    state = ONE.replicate(state)
    before = copy(state)
    after = training.make_step(*parts, placement=ONE)(state, IMAGES, LABELS[:6] % 2, jnp.arange(6))
    assert not changed(before, after, "classifier")
    assert changed(before, after, "distribution")


def test_frames_of_crops_are_drawn_on_their_images() -> None:
    evaluation = {
        "class_names": np.array(["a", "b"]),
        "shown_images": np.zeros((7, 8, 8, 1), np.uint8),
        "shown_labels": np.arange(7) % 2,
        "shown_boxes": np.tile(np.array([0.25, -0.5, 0.5, 0.25]), (7, 3, 1)),
    }
    panels = [axes for axes in crop_boxes(evaluation).axes if axes.patches]
    assert len(panels) == 7
    frame = panels[1].patches[2]
    assert isinstance(frame, Rectangle)
    assert frame.get_bbox().bounds == (-0.25, -0.75, 1.0, 0.5)
    bottom, top = panels[1].get_ylim()
    assert bottom > top  # y points down
    with pytest.raises(MissingArrayError, match="has no shown_boxes"):
        crop_boxes({key: value for key, value in evaluation.items() if key != "shown_boxes"})


def test_accuracies_by_views_are_drawn() -> None:
    found = {"test_accuracy": 0.6, "test_accuracy_views_5": 0.62, "test_accuracy_views_10": 0.61}
    curve = accuracies_by_views(found)
    assert curve == {1: 60.0, 5: 62.0, 10: 61.0}
    assert accuracies_by_views({"test_accuracy": 0.6}) == {}
    panel = accuracy_against_views({"flow": curve, "five": {1: 60.0, 5: 61.0}}).axes[0]
    assert isinstance(panel, Axes)
    assert len(panel.lines) == 2
    assert [label.get_text() for label in panel.get_xticklabels()] == ["as it is", "5", "10"]
