"""The train state and the one step body that every method shares."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import optax

from flowjax_inv.distributions.base import ConditionalDistribution
from flowjax_inv.objectives import Average, score_function_term, view_cross_entropy
from flowjax_inv.transforms import Transform

__all__ = [
    "Controller",
    "Objective",
    "TrainState",
    "edge_share",
    "init_state",
    "make_step",
    "take_totals",
    "to_float",
]

# Streams of the run key: fold_in with these constants, then with the step.
_STREAM_INIT, _STREAM_COPIES = 0, 1
EDGE = 1e-3  # a coordinate this near to the edge of the box counts as saturated

Params = Mapping[str, Any]


class Controller(Protocol):
    """What gives alpha: see `controllers.py`."""

    def init(self) -> Any: ...  # noqa: D102
    def alpha(self, state: Any) -> jax.Array: ...  # noqa: D102
    def update(self, state: Any, entropy: jax.Array) -> Any: ...  # noqa: D102


@dataclasses.dataclass(frozen=True)
class Objective:
    """How the loss is put together.

    loss = CE of views [+ CE of the original images] + alpha * regularizer

    Attributes:
        copies: n, sampled views per image.
        average: where the views are averaged, see `objectives.view_cross_entropy`.
        include_original: add the cross-entropy of the untransformed images.
    """

    copies: int = 1
    average: Average = "losses"
    include_original: bool = True


class TrainState(flax.struct.PyTreeNode):
    """Everything a run is at one step; a pytree that a checkpoint stores whole.

    Attributes:
        step: number of updates made.
        key: the run's key; each step folds its number in.
        params: {"classifier": ..., "distribution": ...}.
        batch_stats: the same two names; empty for networks without batch norm.
        opt_state: of the optimizer over `params`.
        controller: of alpha.
        totals: sums of the metrics of the steps since they were last taken, and their count.
    """

    step: jax.Array
    key: jax.Array
    params: Params
    batch_stats: Params
    opt_state: optax.OptState
    controller: Any
    totals: dict[str, jax.Array]


def to_float(images: jax.Array) -> jax.Array:
    """Return uint8 images as float32 in [0, 1]; float images unchanged."""
    return images.astype(jnp.float32) / 255.0 if images.dtype == jnp.uint8 else images


def init_state(
    classifier: nn.Module,
    distribution: ConditionalDistribution,
    optimizer: optax.GradientTransformation,
    controller: Controller,
    images: jax.Array,
    *,
    key: jax.Array,
) -> TrainState:
    """Return the state before the first step.

    Args:
        classifier, distribution: Linen modules.
        optimizer: over {"classifier", "distribution"} parameters.
        controller: of alpha.
        images: (N, H, W, C), any batch: only its shape matters.
        key: typed PRNG key of the run.
    """
    keys = jax.random.split(jax.random.fold_in(key, _STREAM_INIT))
    images = to_float(images)
    variables: dict[str, Any] = {
        "classifier": classifier.init(keys[0], images, train=False),
        "distribution": distribution.init(keys[1], images, train=False),
    }
    params = {name: value.get("params", {}) for name, value in variables.items()}
    state = TrainState(
        step=jnp.zeros((), jnp.int32),
        key=key,
        params=params,
        batch_stats={name: value.get("batch_stats", {}) for name, value in variables.items()},
        opt_state=optimizer.init(params),
        controller=controller.init(),
        totals={name: jnp.zeros((), jnp.float32) for name in _METRICS},
    )
    # Own buffers: the step donates the state, and neither the caller's key nor a constant that two
    # fields share may be donated.
    return jax.tree.map(lambda leaf: leaf.copy(), state)


_METRICS = (
    "steps",
    "loss",
    "cross_entropy",
    "cross_entropy_original",
    "train_accuracy",
    "entropy",
    "alpha",
    "saturated_share",
    "gradient_norm",
)


def take_totals(state: TrainState) -> tuple[dict[str, jax.Array], TrainState]:
    """Return the sums so far and the state with the sums at zero."""
    zeros = {name: jnp.zeros_like(value) for name, value in state.totals.items()}
    return state.totals, state.replace(totals=zeros)


def edge_share(theta: jax.Array, periodic: tuple[bool, ...]) -> jax.Array:
    """Share of theta (..., d) within EDGE of the box's edge; a circle has none and is left out."""
    straight = [index for index, circle in enumerate(periodic) if not circle]
    if not straight:
        return jnp.zeros(())
    return jnp.mean(jnp.abs(theta[..., jnp.array(straight)]) > 1.0 - EDGE)


def make_step(
    classifier: nn.Module,
    distribution: ConditionalDistribution,
    transform: Transform,
    optimizer: optax.GradientTransformation,
    controller: Controller,
    objective: Objective,
    *,
    burn_in: bool = False,
) -> Callable[[TrainState, jax.Array, jax.Array, jax.typing.ArrayLike], TrainState]:
    """Return the jitted step: (state, all images, all labels, indices) -> state, state donated.

    The whole set stays on the device as uint8 and is indexed inside the step; nothing is read
    back. Copies are one leading axis, folded into the batch for the classifier together with the
    original images, so that batch statistics are over all of them.

    Args:
        classifier, distribution: Linen modules.
        transform: theta -> views.
        optimizer: over {"classifier", "distribution"} parameters.
        controller: of alpha; sees the entropy of the step's own batch.
        objective: how the loss is put together.
        burn_in: no views and no update of the distribution: the classifier alone, on the originals.

    Raises:
        ValueError: if the distribution's samples carry no gradient and `objective.average` mixes
            the views: the score function needs a loss per view.
    """
    if not distribution.reparameterized and objective.average != "losses":
        raise ValueError(
            f'average is "{objective.average}"; {type(distribution).__name__} has no gradient '
            'through its samples and wants "losses": one loss per view.'
        )

    def apply(
        module: nn.Module, name: str, params: Params, stats: Params, images: jax.Array
    ) -> tuple[Any, Params]:
        result: Any = module.apply(
            {"params": params[name], "batch_stats": stats[name]},
            images,
            train=True,
            mutable=["batch_stats"],
        )
        output, changed = result
        return output, changed.get("batch_stats", stats[name])

    def draw(density: Any, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        # One key per copy, and rows by their place in the batch: samples depend neither on the
        # number of copies nor, with JAX's partitionable random bits, on the rows behind them.
        keys = jax.vmap(lambda copy: jax.random.fold_in(key, copy))(jnp.arange(objective.copies))
        return jax.vmap(lambda k: density.sample_and_log_prob(seed=k))(keys)

    def loss_fn(
        params: Params, state: TrainState, images: jax.Array, labels: jax.Array
    ) -> tuple[jax.Array, tuple[dict[str, jax.Array], Params]]:
        batch, n = images.shape[0], objective.copies
        if burn_in:
            logits, stats = apply(classifier, "classifier", params, state.batch_stats, images)
            ce = jnp.mean(view_cross_entropy(logits[None], labels, "losses"))
            zero = jnp.zeros(())
            metrics = {
                "loss": ce,
                "cross_entropy": ce,
                "cross_entropy_original": ce,
                "train_accuracy": jnp.mean(jnp.argmax(logits, -1) == labels),
                "entropy": zero,
                "alpha": zero,
                "saturated_share": zero,
            }
            return ce, (metrics, {**state.batch_stats, "classifier": stats})

        alpha = controller.alpha(state.controller)
        key = jax.random.fold_in(jax.random.fold_in(state.key, _STREAM_COPIES), state.step)
        density, density_stats = apply(
            distribution, "distribution", params, state.batch_stats, images
        )
        theta, log_prob = draw(density, key)
        views = transform(images, theta)
        seen = views.reshape(n * batch, *images.shape[1:])
        if objective.include_original:
            seen = jnp.concatenate([images, seen])
        logits, classifier_stats = apply(classifier, "classifier", params, state.batch_stats, seen)
        original, logits = logits[: -n * batch], logits[-n * batch :].reshape(n, batch, -1)
        ce = jnp.mean(view_cross_entropy(logits, labels, objective.average))
        ce_original = jnp.zeros(())
        if objective.include_original:
            ce_original = jnp.mean(view_cross_entropy(original[None], labels, "losses"))
        loss = ce + ce_original + alpha * distribution.regularizer(density, log_prob)
        value = loss
        if not distribution.reparameterized:
            each = jax.vmap(lambda x: view_cross_entropy(x[None], labels, "losses"))(logits)
            loss = loss + score_function_term(each + alpha * log_prob, log_prob)
        metrics = {
            "loss": value,
            "cross_entropy": ce,
            "cross_entropy_original": ce_original,
            "train_accuracy": jnp.mean(jnp.argmax(logits, -1) == labels),
            "entropy": -jnp.mean(log_prob) if distribution.has_density else jnp.zeros(()),
            "alpha": alpha,
            "saturated_share": edge_share(theta, transform.periodic),
        }
        return loss, (metrics, {"classifier": classifier_stats, "distribution": density_stats})

    def step(
        state: TrainState, images: jax.Array, labels: jax.Array, indices: jax.typing.ArrayLike
    ) -> TrainState:
        batch = to_float(images[indices])
        (_, (metrics, stats)), gradients = jax.value_and_grad(loss_fn, has_aux=True)(
            state.params, state, batch, labels[indices]
        )
        metrics |= {"steps": jnp.ones(()), "gradient_norm": optax.tree.norm(gradients)}
        updates, opt_state = optimizer.update(gradients, state.opt_state, state.params)
        follows = not burn_in and distribution.has_density
        return state.replace(
            step=state.step + 1,
            params=optax.apply_updates(state.params, updates),
            batch_stats=stats,
            opt_state=opt_state,
            controller=controller.update(state.controller, metrics["entropy"])
            if follows
            else state.controller,
            totals={name: state.totals[name] + metrics[name] for name in _METRICS},
        )

    return jax.jit(step, donate_argnums=0)
