"""Maps of labels: brought back, averaged, learned, and measured."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from steps import ONE, ROTATION, changed, copy, small_flow

from experiments.measuring.maps import mean_iou
from flowjax_inv import training
from flowjax_inv.distributions.box import Augerino, Fixed, Identity
from flowjax_inv.distributions.crops import InstaAugLRP
from flowjax_inv.inference import average_maps, predict_map
from flowjax_inv.networks import UNet
from flowjax_inv.training.controllers import Constant
from flowjax_inv.training.costs import map_cross_entropy
from flowjax_inv.training.objectives import Objective
from flowjax_inv.transforms import Affine, Chain, Colour

TURNS = jnp.array([0.0, 0.5, -1.0, -0.5])[:, None, None]  # the four quarter turns
SHIFTS = Affine("translation", half_range=(1.0, 1.0))


def pictures(count: int = 3, height: int = 8, width: int = 8) -> jax.Array:
    return jax.random.uniform(jax.random.key(2), (count, height, width, 2))


def net(shape: tuple[int, ...], classes: int = 3) -> Any:
    """A U-Net of random weights, which turns nothing along by itself."""
    network = UNet(classes, width=4, levels=2)
    params = network.init(jax.random.key(1), jnp.zeros((1, *shape)))
    return lambda images: network.apply(params, images)


def proposed_by(density: Any) -> Any:
    return lambda images: density.apply({}, images)


@pytest.mark.slow
def test_the_average_over_quarter_turns_moves_with_the_image() -> None:
    """Exactly: over the whole group, of any network. Of one view it does not."""
    images = pictures()
    classify = net(images.shape[1:])

    def answer(images: jax.Array, theta: jax.Array) -> jax.Array:
        theta = jnp.broadcast_to(theta, (len(theta), len(images), 1))
        views = ROTATION(images, theta)
        logits = classify(views.reshape(-1, *images.shape[1:]))
        return average_maps(logits.reshape(*views.shape[:-1], -1), theta, ROTATION).probs

    turned = jnp.rot90(images, axes=(1, 2))
    expected = jnp.rot90(answer(images, TURNS), axes=(1, 2))
    np.testing.assert_allclose(answer(turned, TURNS), expected, atol=2e-5)
    alone = jnp.rot90(answer(images, TURNS[:1]), axes=(1, 2))
    assert float(jnp.abs(answer(turned, TURNS[:1]) - alone).max()) > 0.01


@pytest.mark.slow
def test_a_map_of_the_view_comes_back_to_its_image_on_pictures_that_are_not_square() -> None:
    """Whole pixels: what the view does not show is no vote, and what no view shows is open."""
    images = pictures(2, 5, 9)
    theta = jnp.array([[0.5, 0.5], [-0.5, 0.0]])[None]  # 2 of 9 columns, 1 of 5 rows
    views = SHIFTS(images, theta)
    found = average_maps(jnp.log(views + 1e-3), theta, SHIFTS)
    there = SHIFTS.undone_mask(theta, 5, 9)[0]
    np.testing.assert_allclose(found.seen, there.astype(float), atol=1e-6)
    assert 0 < float(found.seen.mean()) < 1
    expected = jax.nn.softmax(jnp.log(images + 1e-3))
    np.testing.assert_allclose(found.probs[there], expected[there], atol=1e-4)
    np.testing.assert_allclose(found.probs[~there], 0.5)


@pytest.mark.slow
def test_predictions_are_the_average_over_the_density() -> None:
    images = pictures()
    classify, density = net(images.shape[1:]), Identity(dim=1)
    found = predict_map(
        classify, proposed_by(density), ROTATION, images, key=jax.random.key(0), num_samples=3
    )
    np.testing.assert_allclose(found.probs, jax.nn.softmax(classify(images)), atol=1e-5)
    assert (found.seen == 1).all()


def test_colours_beside_moves_come_back_by_the_moves() -> None:
    both = Chain(SHIFTS, Colour(colours="exposure"))
    maps = jax.random.normal(jax.random.key(0), (1, 2, 5, 5, 4))
    theta = jax.random.uniform(jax.random.key(1), (1, 2, both.dim), minval=-0.5, maxval=0.5)
    np.testing.assert_allclose(
        average_maps(maps, theta, both).probs,
        average_maps(maps, theta[..., :2], SHIFTS).probs,
        atol=1e-6,
    )


def test_what_makes_no_maps_is_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(1, 2, 3\); want maps, \(K, N, H, W, classes\)"):
        average_maps(jnp.zeros((1, 2, 3)), jnp.zeros((1, 2, 1)), ROTATION)
    density = Fixed(dim=1)
    arguments = (proposed_by(density), ROTATION, pictures())
    with pytest.raises(ValueError, match=r"made \(6, 3\) of images .*; want a map of logits"):
        predict_map(
            lambda views: jnp.zeros((len(views), 3)), *arguments,
            key=jax.random.key(0), num_samples=2,
        )  # fmt: skip
    with pytest.raises(ValueError, match="num_samples is 0"):
        predict_map(net((8, 8, 2)), *arguments, key=jax.random.key(0), num_samples=0)
    with pytest.raises(ValueError, match="UNet of 3 levels wants .* divisible by 4"):
        UNet(2).init(jax.random.key(0), jnp.zeros((1, 8, 6, 3)))


@pytest.mark.slow
@pytest.mark.parametrize("average", ["losses", "logits", "probs"])
def test_the_loss_of_maps_is_that_of_pixels_where_they_are_shown(average: Any) -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(3, 2, 4, 5, 6)).astype(np.float32)
    maps = rng.integers(6, size=(2, 4, 5))
    shown = rng.uniform(size=(3, 2, 4, 5)) < 0.6
    shown[:, 1, 0] = False  # a row that no view shows
    probs = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    for image in range(2):
        costs = []
        for y, x in np.ndindex(4, 5):
            seen, right = shown[:, image, y, x], maps[image, y, x]
            here, p = logits[seen, image, y, x], probs[seen, image, y, x, right]
            if not seen.any():
                continue
            if average == "losses":
                costs += list(-np.log(p))
            elif average == "probs":
                costs.append(-np.log(p.mean()))
            else:
                mean = here.mean(0)
                costs.append(np.log(np.exp(mean).sum()) - mean[right])
        found = map_cross_entropy(
            jnp.asarray(logits), jnp.asarray(maps), jnp.asarray(shown), average
        )
        assert float(found[image]) == pytest.approx(np.mean(costs), rel=1e-5)
    nothing = jnp.zeros((1, 1, 2, 2), bool)
    value, slope = jax.value_and_grad(
        lambda x: map_cross_entropy(x, jnp.zeros((1, 2, 2), int), nothing, average).sum()
    )(jnp.ones((1, 1, 2, 2, 3)))
    assert value == 0
    assert (slope == 0).all()
    unknown: Any = "sum"
    with pytest.raises(ValueError, match='average is "sum"; allowed: losses, logits, probs'):
        map_cross_entropy(jnp.ones((1, 1, 2, 2, 3)), jnp.zeros((1, 2, 2), int), None, unknown)


@pytest.mark.slow
@pytest.mark.parametrize(("average", "chunk"), [("losses", 1), ("probs", 0)])
def test_a_step_learns_maps_and_range(average: Any, chunk: int) -> None:
    images = jax.random.randint(jax.random.key(0), (24, 8, 8, 1), 0, 256).astype(jnp.uint8)
    maps = (images[..., 0] > 128).astype(jnp.int32)
    network, density = UNet(2, width=4, levels=2), Augerino(dim=1, start_half_range=(0.3,))
    objective = Objective(maps=True, copies=2, average=average, copies_per_chunk=chunk)
    parts = (network, density, ROTATION, optax.adam(1e-2), Constant(0.1), objective)
    state = training.init_state(*parts[:2], *parts[3:5], images[:4], key=jax.random.key(1))
    state = ONE.replicate(state)
    step = training.make_step(*parts, placement=ONE)
    before = copy(state)
    for _ in range(20):
        state = step(state, images, maps, jnp.arange(8))
    assert changed(before, state, "classifier")
    assert changed(before, state, "distribution")
    totals = {name: float(value) / 20 for name, value in state.totals.items()}
    assert 0.4 < totals["train_accuracy"] <= 1
    assert 0 < totals["cross_entropy"] < 1


@pytest.mark.slow
def test_a_step_is_the_same_chunked_or_not() -> None:
    images = jax.random.randint(jax.random.key(0), (24, 8, 8, 1), 0, 256).astype(jnp.uint8)
    maps = (images[..., 0] > 128).astype(jnp.int32)
    found = []
    for chunk in (0, 1):
        objective = Objective(maps=True, copies=2, copies_per_chunk=chunk)
        parts = (UNet(2, 4, 2), small_flow(), ROTATION, optax.sgd(0.1), Constant(0.1), objective)
        state = training.init_state(*parts[:2], *parts[3:5], images[:4], key=jax.random.key(1))
        after = training.make_step(*parts, placement=ONE)(
            ONE.replicate(state), images, maps, jnp.arange(8)
        )
        found.append(after)
    one, other = (jax.tree.leaves(state.params) for state in found)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_maps_have_no_part_of_what_is_for_labels_of_images() -> None:
    cases: list[dict[str, Any]] = [
        {"loss": "squared_error"}, {"label_smoothing": 0.1}, {"reject_distorted": "always"},
    ]  # fmt: skip
    for fields in cases:
        with pytest.raises(ValueError, match="maps is True, a label for every pixel; that wants"):
            Objective(maps=True, **fields)
    crops = InstaAugLRP(dim=4)
    with pytest.raises(ValueError, match="maps is True; InstaAugLRP has no gradient"):
        training.check_objective(crops, ROTATION, Objective(maps=True))


def test_mean_iou_is_over_classes_that_are_there() -> None:
    counts = np.array([[6, 2, 0], [1, 3, 0], [0, 0, 0]])
    assert mean_iou(counts) == pytest.approx((6 / 9 + 3 / 6) / 2)
    assert mean_iou(np.diag([3, 4])) == 1.0
