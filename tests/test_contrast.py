"""Two views of an image against all others: the loss, a step, and a probe of what was learned."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from steps import IMAGES, LABELS, ONE, ROTATION, changed, copy, small_flow

from experiments.measuring.probing import fit_probe
from experiments.running import ruins
from flowjax_inv import training
from flowjax_inv.distributions.crops import InstaAugLRP
from flowjax_inv.networks import MLP, Projected
from flowjax_inv.training.controllers import Constant
from flowjax_inv.training.costs import pair_contrast, pairs_found
from flowjax_inv.training.objectives import Objective
from flowjax_inv.transforms import Crop

CONTRAST = Objective(loss="contrast", copies=2, include_original=False)


@pytest.mark.slow
def test_the_contrast_is_that_of_every_view_with_its_partner() -> None:
    outputs = jax.random.normal(jax.random.key(0), (2, 5, 3))
    flat = np.asarray(outputs).reshape(10, 3)
    flat = flat / np.linalg.norm(flat, axis=1, keepdims=True)
    costs, found = np.zeros((2, 5)), np.zeros((2, 5))
    for view, image in np.ndindex(2, 5):
        mine, partner = 5 * view + image, 5 * (1 - view) + image
        cosines = {k: flat[mine] @ flat[k] for k in range(10) if k != mine}
        every = sum(np.exp(c / 0.3) for c in cosines.values())
        costs[view, image] = -np.log(np.exp(cosines[partner] / 0.3) / every)
        found[view, image] = max(cosines, key=cosines.__getitem__) == partner
    np.testing.assert_allclose(pair_contrast(outputs, 0.3), costs.mean(0), rtol=1e-4)
    np.testing.assert_allclose(pairs_found(outputs), found.mean(0))
    np.testing.assert_allclose(pair_contrast(jnp.ones((2, 5, 3)), 0.3), np.log(9), rtol=1e-5)
    slope = jax.grad(lambda x: pair_contrast(x, 0.3).sum())(jnp.zeros((2, 5, 3)))
    assert jnp.isfinite(slope).all()
    apart = jnp.broadcast_to(jnp.eye(5), (2, 5, 5))
    assert pairs_found(apart).min() == 1


@pytest.mark.slow
def test_a_step_learns_by_pairs_and_the_density_rests_in_burn_in() -> None:
    network = Projected(MLP(6, hidden=(8,)), width=8, outputs=4)
    parts = (network, small_flow(), ROTATION, optax.adam(1e-2), Constant(0.1), CONTRAST)
    state = training.init_state(
        *parts[:2], *parts[3:5], IMAGES[:4], key=jax.random.key(1), objective=CONTRAST
    )
    for burn_in in (True, False):
        before = ONE.replicate(copy(state))
        step = training.make_step(*parts, placement=ONE, burn_in=burn_in)
        after = step(copy(before), IMAGES, LABELS, jnp.arange(8))
        assert changed(before, after, "classifier")
        assert changed(before, after, "distribution") != burn_in
        assert 0 <= float(after.totals["train_pairs_found"]) <= 1
        assert 0 < float(after.totals["contrast"]) < 3 * np.log(15)
        # Labels have no part in it.
        again = step(copy(before), IMAGES, LABELS[::-1], jnp.arange(8))
        assert not changed(after, again, "classifier")


def test_a_representation_is_what_is_before_the_head() -> None:
    network = Projected(MLP(6, hidden=(8,)), width=8, outputs=4)
    images = jax.random.uniform(jax.random.key(0), (3, 4, 4, 1))
    variables = network.init(jax.random.key(1), images)
    before: Any = network.apply(variables, images, method="represent")
    assert before.shape == (3, 6)
    encoder: Any = MLP(6, hidden=(8,)).apply({"params": variables["params"]["encoder"]}, images)
    np.testing.assert_array_equal(before, encoder)
    after: Any = network.apply(variables, images)
    assert after.shape == (3, 4)


def test_a_probe_is_the_best_linear_one() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(300) % 3
    features = np.eye(3)[labels] @ rng.normal(size=(3, 5)) * 4 + rng.normal(size=(300, 5)) + 7
    kernel, bias = fit_probe(features.astype(np.float32), labels, 3)
    assert np.mean(np.argmax(features @ kernel + bias, -1) == labels) > 0.95
    # At the optimum the mean residual is 0, whatever the penalty: biases have none.
    logits = features @ kernel + bias
    probs = np.exp(logits - logits.max(1, keepdims=True))
    probs /= probs.sum(1, keepdims=True)
    np.testing.assert_allclose((probs - np.eye(3)[labels]).mean(0), 0.0, atol=2e-3)


def test_views_that_are_told_apart_by_anything_are_named() -> None:
    box = {"log_volume": 3.0, "pixels": [], "burn_in_epochs": 0, "chance": 0.0}
    line = {"epoch": 2.0, "entropy": 1.0, "contrast": 0.1, "train_pairs_found": 0.995}
    assert ruins.ruin(line, **box) == "trivial"
    assert ruins.ruin(line | {"train_pairs_found": 0.9}, **box) == ""
    assert ruins.warning("trivial", 2).startswith(
        "WARNING: in epoch 2 the contrast is trivial: two views of an image are told from all"
    )


def test_what_has_no_part_in_a_contrast_is_refused() -> None:
    wrong: list[dict[str, Any]] = [
        {"copies": 3}, {"include_original": True}, {"average": "logits"}, {"maps": True},
        {"label_smoothing": 0.1}, {"freeze_classifier": True},
    ]  # fmt: skip
    for fields in wrong:
        with pytest.raises(ValueError, match=r"of two views of every image|maps is True"):
            Objective(**{"loss": "contrast", "copies": 2, "include_original": False} | fields)
    with pytest.raises(ValueError, match="loss is contrast; InstaAugLRP has no gradient through"):
        training.check_objective(InstaAugLRP(dim=4), Crop(), CONTRAST)
