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
    calibrated: bool = False,
    normalization: Normalization = Normalization(),  # noqa: B008  # frozen
    placement: Placement | None = None,
) -> Callable[..., TrainState]:
    """Return the compiled step of alpha: (state, all images, all labels, indices) -> state.

    gap = mean over the images of L(A_T I) - L(I), one T ~ g(.; I) each, both networks in evaluation
    mode; of logits / t, with t = 1 or, where it is `calibrated`, the t in [1, 8] at which the mean
    of L(I) is least: a classifier may be so sure of what it gets wrong that every view is cheaper
    than its image, and no alpha too large. Nothing but the controller's state changes. The
    samples hang on the run's key, the step and an image's place in the batch. The state is donated.

    Args:
        classifier, distribution: Linen modules.
        transform: theta -> views.
        controller: that watches the gap.
        objective: whose loss L is.
        calibrated: compare at that t.
        normalization: of stored pixels, before the warp.
        placement: devices; None takes all of them under jit.

    Source: t as in Guo et al., On calibration of modern neural networks, 2017.
    """
    place = placement or Placement()
    temperatures = jnp.geomspace(1.0, 8.0, 31) if calibrated else jnp.ones(1)

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

        def costs(logits: jax.Array) -> jax.Array:  # at every temperature
            return jax.vmap(
                lambda t: jnp.mean(objective.cost((logits / t)[None], labels, "losses"))
            )(temperatures)

        pair = jax.vmap(costs)(logits.reshape(2, images.shape[0], -1))
        original, view = place.mean(pair)
        gap = (view - original)[jnp.argmin(original)]
        return state.replace(controller=controller.update(state.controller, gap))

    return place.compile(body)
