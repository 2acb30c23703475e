"""The compiled step: the loss's gradient, the optimizer, the controller, the sums of metrics."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from flowjax_inv.data.pixels import Normalization, mirror_at_random
from flowjax_inv.distributions.base import ConditionalDistribution
from flowjax_inv.training.losses import StepLoss, row_keys
from flowjax_inv.training.objectives import Objective
from flowjax_inv.training.placement import Placement
from flowjax_inv.training.state import Controller, Stream, TrainState
from flowjax_inv.transforms import Transform

__all__ = ["check_objective", "make_step"]


def make_step(
    classifier: nn.Module,
    distribution: ConditionalDistribution,
    transform: Transform,
    optimizer: optax.GradientTransformation,
    controller: Controller,
    objective: Objective,
    *,
    burn_in: bool = False,
    normalization: Normalization = Normalization(),  # noqa: B008  # frozen
    mirror: bool = False,
    placement: Placement | None = None,
    resident: bool = True,
) -> Callable[..., TrainState]:
    """Return the compiled step: (state, all images, all labels, indices) -> state, state donated.

    The whole set stays on the device as uint8 and is indexed inside the step; nothing is read
    back. If it is not `resident`, (state, images, labels) of the batch.

    The samples of an example hang on the run's key, the step, the example's place in the batch and
    the number of the copy, on nothing else: not on devices, chunks, or the rest of the batch.

    Args:
        classifier, distribution: Linen modules. Under pmap their batch norms reduce over
            `placement.axis_name`.
        transform: theta -> views.
        optimizer: over {"classifier", "distribution"} parameters. In burn-in the distribution's
            gradients are 0: what counts steps, as Adam does, should rest there by
            `optax.conditionally_mask`.
        controller: of alpha; sees the entropy of the step's own batch, if that is what it watches.
        objective: how the loss is put together.
        burn_in: no views and no update of the distribution: the classifier alone, on the originals.
        normalization: of stored pixels, before the warp.
        mirror: swap left and right of every image with probability 1/2, before all else.
        placement: devices; None takes all of them under jit.
        resident: see above, and `feed.Feed`.

    Raises:
        ValueError: if the distribution's samples carry no gradient and `objective.average` mixes
            the views, or there are maps: the score function needs a loss per view; if the
            equivariance term or the pose likelihood is asked for with transforms whose order
            matters, or the latter of what has no density; if the classifier has a prior and the
            objective no number of images; when first called, if there are chunks and batch norm.
    """
    check_objective(distribution, transform, objective)
    has_prior = hasattr(classifier, "divergence") or objective.judge == "evidence"
    if has_prior and not objective.images:
        raise ValueError(
            f"{type(classifier).__name__} has a prior on its weights, and the objective does not "
            "say for how many images; give Objective(images=N)."
        )
    place = placement or Placement()
    loss = StepLoss(
        classifier, distribution, transform, controller, objective, place, burn_in=burn_in
    )

    def body(
        state: TrainState,
        images: jax.Array,
        labels: jax.Array,
        indices: jax.typing.ArrayLike | None = None,
    ) -> TrainState:
        with jax.named_scope("batch"):
            if indices is not None:
                images, labels = images[indices], labels[indices]
            batch = normalization(images)
            if mirror:
                keys = row_keys(state, Stream.MIRROR, batch.shape[0], place)
                batch = mirror_at_random(batch, keys)
        (_, (metrics, stats)), gradients = jax.value_and_grad(loss, has_aux=True)(
            state.params, state, batch, labels
        )
        gradients, metrics = place.mean((gradients, metrics))
        metrics |= {"steps": jnp.ones(()), "gradient_norm": optax.tree.norm(gradients)}
        # As the state has them, whatever the precision that JAX is set to.
        metrics = {name: jnp.asarray(each, jnp.float32) for name, each in metrics.items()}
        with jax.named_scope("optimizer"):
            updates, opt_state = optimizer.update(gradients, state.opt_state, state.params)
            params: Any = optax.apply_updates(state.params, updates)
        if loss.frozen:  # momentum and weight decay would move it still
            params = {**params, "classifier": state.params["classifier"]}
        if loss.rests:
            params = {**params, "distribution": state.params["distribution"]}
        follows = not burn_in and distribution.has_density and controller.watches == "entropy"
        return state.replace(
            step=state.step + 1,
            params=params,
            batch_stats=stats,
            opt_state=opt_state,
            controller=controller.update(state.controller, metrics["entropy"])
            if follows
            else state.controller,
            totals={name: state.totals[name] + metrics[name] for name in objective.logged},
        )

    return place.compile(body, resident=resident)


def check_objective(
    distribution: ConditionalDistribution, transform: Transform, objective: Objective
) -> None:
    """Refuse an objective that the distribution or the transform cannot serve."""
    if objective.vectors and not transform.turns_vectors:
        raise ValueError(
            f"vectors is True, but {type(transform).__name__}({', '.join(transform.names)}) turns "
            "no vectors of space; take points."
        )
    name = type(distribution).__name__
    asked = objective.gradient == "score"
    if asked and not distribution.scorable:
        raise ValueError(
            f'gradient is "score"; where {name} has mass hangs on what it learns, or its log g is '
            "not that of its samples, and the score function is not its gradient; take gaussian, "
            "flow with a mixture, or a choice of crops."
        )
    if asked or not distribution.reparameterized:
        why = 'gradient is "score"' if asked else f"{name} has no gradient through its samples"
        if objective.pairs:
            raise ValueError(
                f"loss is contrast; {why}, and what one view costs hangs on all others; take "
                'another distribution, or gradient="samples".'
            )
        if objective.average != "losses":
            raise ValueError(
                f'average is "{objective.average}"; {why}, and that wants "losses": one loss per '
                "view."
            )
        if objective.maps:
            raise ValueError(
                f"maps is True; {why}, and its views show different pixels, so that their losses "
                "cannot be compared; take another distribution."
            )
    if (objective.equivariance or objective.pose_likelihood) and not transform.commutative:
        term = "pose_likelihood" if objective.pose_likelihood else "equivariance"
        raise ValueError(
            f"{term} is {getattr(objective, term)}, but with {type(transform).__name__}"
            f"({', '.join(transform.names)}) the order of two transforms matters; take rotations "
            "alone or translations alone."
        )
    if objective.pose_likelihood and not distribution.has_density:
        raise ValueError(
            f"pose_likelihood is True, but {type(distribution).__name__} has no density; take "
            "another distribution."
        )
