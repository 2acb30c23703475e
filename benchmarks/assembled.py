"""The train step of an experiment with its first state, from the config alone."""

from typing import Any, NamedTuple

import jax
import numpy as np

from experiments import build
from flowjax_inv import training
from flowjax_inv.placement import Placement

__all__ = ["Assembled", "assemble"]


class Assembled(NamedTuple):
    """A compiled step's parts: step(state, images, labels, indices) -> state."""

    step: Any
    state: training.TrainState
    place: Placement
    classifier: Any
    transform: Any
    objective: Any


def assemble(config: Any, shape: tuple[int, ...], classes: int) -> Assembled:
    """Return the step on pictures of `shape` and what it is made of; the state is placed."""
    transform, place = build.transform(config), build.placement(config)
    classifier = build.network(config, "classifier", classes=classes)
    distribution = build.distribution(config, transform, classes=classes)
    objective = build.objective(config, distribution)
    optimizer = build.optimizer(config, total_steps=100, steps_per_epoch=10)
    controller = build.controller(config, total_steps=100, steps_per_epoch=100)
    blank = np.zeros((1, *shape), np.uint8)
    state = training.init_state(
        classifier, distribution, optimizer, controller, blank, key=jax.random.key(0)
    )
    step = training.make_step(
        classifier, distribution, transform, optimizer, controller, objective, placement=place
    )
    return Assembled(step, place.replicate(state), place, classifier, transform, objective)
