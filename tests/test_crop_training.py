"""Crops learned by the train step: by the score function, by Gumbel-softmax, with a flow."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from crop_cases import TRANSFORM, flow_lrp, lrp

from flowjax_inv import training
from flowjax_inv.distributions.crops import InstaAugLRP
from flowjax_inv.networks import MLP
from flowjax_inv.training.controllers import Constant
from flowjax_inv.training.objectives import Objective
from flowjax_inv.training.placement import Placement

STEP_IMAGES = jax.random.randint(jax.random.key(0), (8, 16, 16, 1), 0, 256).astype(jnp.uint8)
ONE = Placement(jax.devices()[:1])  # of the four simulated devices


def build(distribution: Any, classifier: nn.Module, rate: float = 1e-2, **fields: Any) -> Any:
    optimizer, controller = optax.adam(rate), Constant(0.1)
    state = training.init_state(
        classifier, distribution, optimizer, controller, STEP_IMAGES[:2], key=jax.random.key(1)
    )
    parts = (classifier, distribution, TRANSFORM, optimizer, controller)
    return ONE.replicate(state), training.make_step(*parts, Objective(**fields), placement=ONE)


@pytest.mark.slow
@pytest.mark.parametrize(
    "module",
    [
        pytest.param(lrp(), id="score"),
        pytest.param(lrp(gradient="gumbel_softmax"), id="gumbel"),
        pytest.param(flow_lrp(), id="flow"),
    ],
)
def test_a_step_moves_every_head(module: Any) -> None:
    state, step = build(module, MLP(3, hidden=(8,)), copies=2)
    before = jax.tree.map(jnp.copy, state)
    after = step(state, STEP_IMAGES, jnp.arange(8) % 3, np.arange(8))
    for old, new in (
        (before.params["distribution"], after.params["distribution"]),
        (before.batch_stats["distribution"], after.batch_stats["distribution"]),
    ):
        heads = [key for key in old if key.startswith(("head", "block0_norm"))]
        for key in heads:
            moved = jax.tree.map(lambda a, b: bool((a != b).any()), old[key], new[key])
            assert all(jax.tree.leaves(moved)), key
    assert np.isfinite(float(after.totals["loss"]))


@pytest.mark.slow
def test_only_samples_without_gradient_want_a_loss_per_view() -> None:
    with pytest.raises(ValueError, match='average is "logits"; InstaAugLRP has no gradient'):
        build(lrp(), MLP(3, hidden=(8,)), average="logits")
    build(lrp(gradient="gumbel_softmax"), MLP(3, hidden=(8,)), average="logits")


class Brightness(nn.Module):
    """Class 0 as far as the picture is bright."""

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> jax.Array:
        del train
        mean = 8.0 * jnp.mean(images, (1, 2, 3)) - 2.0
        return jnp.stack([mean, jnp.zeros_like(mean)], -1)


@pytest.mark.slow
@pytest.mark.parametrize("gradient", ["score", "gumbel_softmax"])
def test_the_bright_quarter_is_found(gradient: str) -> None:
    """A frozen classifier sees brightness: crops inside the bright quarter must win."""
    images = jnp.zeros((64, 16, 16, 1), jnp.uint8).at[:, :8, 8:].set(255)
    fields: Any = {"levels": (2, 3, -1), "sizes": (0.25, 0.5, 1.0), "gradient": gradient}
    module = InstaAugLRP(dim=4, temperature=0.5, **fields)
    state, step = build(module, Brightness(), 2e-2, include_original=False, copies=4)
    for _ in range(100):
        state = step(state, images, jnp.zeros(64, jnp.int32), np.arange(64))
    variables = {
        "params": state.params["distribution"],
        "batch_stats": state.batch_stats["distribution"],
    }

    @jax.jit
    def learned(variables: Any) -> tuple[jax.Array, jax.Array]:
        density: Any = module.apply(variables, images[:1] / jnp.float32(255))
        return density.probs[0], TRANSFORM.boxes(density.atoms)

    probs, boxes = (np.asarray(array) for array in learned(variables))
    right, up = boxes[:, 0] - boxes[:, 2], -boxes[:, 1] - boxes[:, 3]
    inside = (right > -1e-5) & (up > -1e-5)
    assert int(inside.sum()) == 4 + 1  # of 21
    # From 0.04; straight-through, which moves centres and sizes by themselves, gets less far.
    assert probs @ inside > {"score": 0.8, "gumbel_softmax": 0.25}[gradient]
