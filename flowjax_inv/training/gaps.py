"""How much worse views are classified than their images, and alpha by it."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from flowjax_inv.data.pixels import Normalization
from flowjax_inv.distributions.base import ConditionalDistribution
from flowjax_inv.training.losses import row_keys
from flowjax_inv.training.objectives import Objective
from flowjax_inv.training.placement import Placement
from flowjax_inv.training.state import Controller, Stream, TrainState
from flowjax_inv.transforms import Transform

__all__ = ["make_alpha_step"]


def make_alpha_step(
    classifier: nn.Module,
    distribution: ConditionalDistribution,
    transform: Transform,
    controller: Controller,
    objective: Objective,
    *,
    normalization: Normalization = Normalization(),  # noqa: B008  # frozen
    placement: Placement | None = None,
) -> Callable[..., TrainState]:
    """Return the compiled step of alpha: (state, all images, all labels, indices) -> state.

    gap = mean over the images of L(A_T I) - L(I), one T ~ g(.; I) each, both networks in evaluation
    mode. Nothing but the controller's state changes. The samples hang on the run's key, the step
    and an image's place in the batch. The state is donated.

    Args:
        classifier, distribution: Linen modules.
        transform: theta -> views.
        controller: that watches the gap.
        objective: whose loss L is.
        normalization: of stored pixels, before the warp.
        placement: devices; None takes all of them under jit.
    """
    place = placement or Placement()

    def body(
        state: TrainState, images: jax.Array, labels: jax.Array, indices: jax.typing.ArrayLike
    ) -> TrainState:
        images, labels = normalization(images[indices]), labels[indices]
        both = {
            name: {"params": state.params[name], "batch_stats": state.batch_stats[name]}
            for name in state.params
        }
        density: Any = distribution.apply(both["distribution"], images, train=False)
        keys = row_keys(state, Stream.GAP, images.shape[0], place)
        theta = density.sample(seed=keys[None], sample_shape=(1,))[0]
        seen = jnp.stack([images, transform(images, theta)])
        logits: Any = classifier.apply(
            both["classifier"], seen.reshape(-1, *images.shape[1:]), train=False
        )
        original, view = (
            jnp.mean(objective.cost(each[None], labels, "losses"))
            for each in logits.reshape(2, images.shape[0], -1)
        )
        gap = place.mean(view - original)
        return state.replace(controller=controller.update(state.controller, gap))

    return place.compile(body)
