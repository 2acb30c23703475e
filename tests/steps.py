"""A small step for tests: its images, parts and state, and what it changed."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from laws_distributions import Pixels

from flowjax_inv import training
from flowjax_inv.distributions.flow import Flow
from flowjax_inv.networks import MLP
from flowjax_inv.training.controllers import Constant
from flowjax_inv.training.objectives import Objective
from flowjax_inv.training.placement import Placement
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
