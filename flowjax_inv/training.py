"""The train state and the one step body that every method shares.

Named scopes mark the parts of the step; they change no value, and a trace of a run is read by them
(experiments/profiling.py).
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax

from flowjax_inv import chunks
from flowjax_inv.data.pixels import Normalization, mirror_at_random
from flowjax_inv.distributions.base import ConditionalDistribution
from flowjax_inv.objectives import Objective, score_function_term
from flowjax_inv.placement import Placement
from flowjax_inv.transforms import Transform, wrap

__all__ = [
    "Controller",
    "TrainState",
    "edge_share",
    "init_state",
    "make_step",
    "take_totals",
]

# Streams of the run key: fold_in with these constants, then with the step.
# Streams 2 and 3 are those of the evaluation.
_STREAM_INIT, _STREAM_COPIES, _STREAM_MIRROR, _STREAM_DROPOUT, _STREAM_TURNS = 0, 1, 4, 5, 8
_LEAST_LOG_PROB = -20.0  # nats, of a sample that the equivariance term finds outside a density
EDGE = 1e-3  # a coordinate this near to the edge of the box counts as saturated

Params = Mapping[str, Any]


class Controller(Protocol):
    """What gives alpha: see `controllers.py`."""

    def init(self) -> Any: ...  # noqa: D102
    def alpha(self, state: Any) -> jax.Array: ...  # noqa: D102
    def update(self, state: Any, entropy: jax.Array) -> Any: ...  # noqa: D102


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


def init_state(
    classifier: nn.Module,
    distribution: ConditionalDistribution,
    optimizer: optax.GradientTransformation,
    controller: Controller,
    images: jax.Array | np.ndarray,
    *,
    key: jax.Array,
    objective: Objective = Objective(),  # noqa: B008  # frozen
) -> TrainState:
    """Return the state before the first step.

    Args:
        classifier, distribution: Linen modules.
        optimizer: over {"classifier", "distribution"} parameters.
        controller: of alpha.
        images: (N, H, W, C), any batch: only its shape matters.
        key: typed PRNG key of the run.
        objective: of the steps to come: what they add up.
    """
    keys = jax.random.split(jax.random.fold_in(key, _STREAM_INIT))
    blank = jnp.zeros(images.shape, jnp.float32)
    variables: dict[str, Any] = {
        "classifier": classifier.init(keys[0], blank, train=False),
        "distribution": distribution.init(keys[1], blank, train=False),
    }
    params = {name: value.get("params", {}) for name, value in variables.items()}
    state = TrainState(
        step=jnp.zeros((), jnp.int32),
        key=key,
        params=params,
        batch_stats={name: value.get("batch_stats", {}) for name, value in variables.items()},
        opt_state=optimizer.init(params),
        controller=controller.init(),
        totals={name: jnp.zeros((), jnp.float32) for name in objective.logged},
    )
    # Own buffers: the step donates the state, and neither the caller's key nor a constant that two
    # fields share may be donated.
    return jax.tree.map(lambda leaf: leaf.copy(), state)


def take_totals(state: TrainState) -> tuple[dict[str, jax.Array], TrainState]:
    """Return the sums so far and the state with the sums at zero."""
    zeros = {name: jnp.zeros_like(value) for name, value in state.totals.items()}
    return state.totals, state.replace(totals=zeros)


def edge_share(
    theta: jax.Array,
    periodic: tuple[bool, ...],
    discrete: bool = False,  # noqa: FBT001, FBT002  # the name of a class attribute
) -> jax.Array:
    """Share of theta (..., d) within EDGE of the box's edge.

    A circle has no edge and is left out; of discrete theta 0: there the edge is a value like any.
    """
    straight = [index for index, circle in enumerate(periodic) if not circle]
    if not straight or discrete:
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
    normalization: Normalization = Normalization(),  # noqa: B008  # frozen
    mirror: bool = False,
    placement: Placement | None = None,
    resident: bool = True,
) -> Callable[..., TrainState]:
    """Return the compiled step: (state, all images, all labels, indices) -> state, state donated.

    The whole set stays on the device as uint8 and is indexed inside the step; nothing is read
    back. If it is not `resident`, (state, images, labels) of the batch.

    Copies are one axis beside the batch, folded into it for the classifier together with the
    original images, so that batch statistics are over all of them.

    The samples of an example hang on the run's key, the step, the example's place in the batch and
    the number of the copy, on nothing else: not on devices, chunks, or the rest of the batch.

    Args:
        classifier, distribution: Linen modules. Under pmap their batch norms reduce over
            `placement.axis_name`.
        transform: theta -> views.
        optimizer: over {"classifier", "distribution"} parameters.
        controller: of alpha; sees the entropy of the step's own batch.
        objective: how the loss is put together.
        burn_in: no views and no update of the distribution: the classifier alone, on the originals.
        normalization: of stored pixels, before the warp.
        mirror: swap left and right of every image with probability 1/2, before all else.
        placement: devices; None takes all of them under jit.
        resident: see above, and `feed.Feed`.

    Raises:
        ValueError: if the distribution's samples carry no gradient and `objective.average` mixes
            the views: the score function needs a loss per view; if the equivariance term or the
            pose likelihood is asked for with transforms whose order matters, or the latter of
            what has no density; when first called, if there are chunks and batch norm.
    """
    if not distribution.reparameterized and objective.average != "losses":
        raise ValueError(
            f'average is "{objective.average}"; {type(distribution).__name__} has no gradient '
            'through its samples and wants "losses": one loss per view.'
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
    place = placement or Placement()
    copies = objective.copies
    chunk = objective.copies_per_chunk or copies
    frozen = (objective.freeze_classifier or objective.pose_likelihood) and not burn_in
    originals = int(objective.include_original and not frozen)

    def apply(
        module: nn.Module, params: Params, stats: Params, images: jax.Array, key: jax.Array
    ) -> tuple[Any, Params]:
        with jax.named_scope("classifier" if module is classifier else "density"):
            result: Any = module.apply(
                {"params": params, "batch_stats": stats},
                images,
                train=not (frozen and module is classifier),
                mutable=["batch_stats"],
                rngs={"dropout": key},
            )
        output, changed = result
        return output, changed.get("batch_stats", stats)

    @jax.named_scope("warp")
    def warp(images: jax.Array, theta: jax.Array) -> jax.Array:
        return transform(images, theta)

    def row_keys(state: TrainState, stream: int, batch: int) -> jax.Array:
        """Return one key per image, by its place in the whole batch."""
        key = jax.random.fold_in(jax.random.fold_in(state.key, stream), state.step)
        rows = place.global_index(batch) + jnp.arange(batch)
        return jax.vmap(lambda row: jax.random.fold_in(key, row))(rows)

    @jax.named_scope("density")
    def draw(density: Any, keys: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return theta (n, N, d) and log g (n, N)."""

        def of_copy(copy: jax.Array) -> jax.Array:
            return jax.vmap(lambda key: jax.random.fold_in(key, copy))(keys)

        # One key per sample and image: how many copies there are changes none of them.
        each = jax.vmap(of_copy)(jnp.arange(copies))
        return density.sample_and_log_prob(seed=each, sample_shape=(copies,))

    def equivariance(
        propose: Callable[..., Any], images: jax.Array, theta: jax.Array, keys: jax.Array
    ) -> tuple[jax.Array, Any, Params]:
        """Return -mean log g(T - dT; A_dT I), g(.; A_dT I) and its statistics.

        dT is drawn evenly per image; T gets no gradient.
        """
        reach = objective.equivariance_range

        def draw_one(key: jax.Array) -> jax.Array:
            return jax.random.uniform(key, (transform.dim,), minval=-reach, maxval=reach)

        delta = jax.vmap(draw_one)(keys)
        moved, stats = propose(images=warp(images, delta))
        there = wrap(jax.lax.stop_gradient(theta) - delta, transform.periodic)
        # Where the density has no mass the logarithm says nothing to it, and must stay finite.
        with jax.named_scope("density"):
            log_prob = moved.log_prob(there)
        cost = -jnp.mean(jnp.maximum(log_prob, _LEAST_LOG_PROB))
        return cost, moved, stats

    def classify(
        params: Params, stats: Params, images: jax.Array, theta: jax.Array, key: jax.Array
    ) -> tuple[jax.Array, jax.Array, Params]:
        """Return logits of the originals (m, N, C), m = 0 or 1, of the views (n, N, C), statistics.

        Images first, views second: (N, m + n, ...) folds into a batch that devices divide as they
        divide the images.
        """
        if chunk < copies and jax.tree.leaves(stats) and not objective.chunk_statistics:
            raise ValueError(
                f"copies_per_chunk is {chunk} and {type(classifier).__name__} has batch norm: its "
                "statistics would be those of a chunk; allow it by chunk_statistics=True, or take "
                "copies_per_chunk=0."
            )

        def part(
            params: Params, stats: Params, images: jax.Array, theta: jax.Array, originals: int
        ) -> tuple[jax.Array, Params]:
            batch, images = images.shape[0], images[:, None]
            views = warp(images, jnp.moveaxis(theta, 0, 1))
            if originals:
                views = jnp.concatenate([images, views], axis=1)
            seen = views.reshape(-1, *images.shape[2:])
            logits, stats = apply(classifier, params, stats, seen, key)
            return jnp.moveaxis(logits.reshape(batch, views.shape[1], -1), 1, 0), stats

        if chunk == copies:
            logits, stats = part(params, stats, images, theta, originals)
        else:
            made = []
            for start in range(0, copies, chunk):
                block = theta[start : start + chunk]
                here = originals if start == 0 else 0
                remade = chunks.made_again(functools.partial(part, originals=here))
                logits, stats = remade(params, stats, images, block)
                made.append(logits)
                params, images = chunks.after((params, images), logits)
            logits = jnp.concatenate(made)
        return logits[:-copies], logits[-copies:], stats

    def loss_fn(
        params: Params, state: TrainState, images: jax.Array, labels: jax.Array
    ) -> tuple[jax.Array, tuple[dict[str, jax.Array], Params]]:
        batch, stats = images.shape[0], state.batch_stats
        key_dropout = jax.random.fold_in(jax.random.fold_in(state.key, _STREAM_DROPOUT), state.step)
        # Each part of the batch its own; so dropout alone depends on the devices under pmap.
        key_dropout = jax.random.fold_in(key_dropout, place.global_index(1))
        if burn_in:
            seen, right = images, labels
            if objective.reject_distorted:
                keys = row_keys(state, _STREAM_COPIES, batch)
                theta = jax.vmap(lambda k: jax.random.uniform(k, (transform.dim,), minval=-1.0))
                seen = jnp.concatenate([images, warp(images, theta(keys))])
            logits, classifier_stats = apply(
                classifier, params["classifier"], stats["classifier"], seen, key_dropout
            )
            if objective.reject_distorted:
                right = jnp.concatenate([labels, jnp.full_like(labels, logits.shape[-1] - 1)])
            cost = jnp.mean(objective.cost(logits[None], right, "losses"))
            zero = jnp.zeros(())
            metrics = {
                "loss": cost,
                objective.loss: cost,
                f"{objective.loss}_original": cost,
                f"train_{objective.score_name}": jnp.mean(objective.score(logits, right)),
                "entropy": zero,
                "alpha": zero,
                "saturated_share": zero,
            }
            return cost, (metrics, {**stats, "classifier": classifier_stats})

        if objective.pose_likelihood:
            propose = functools.partial(
                apply,
                distribution,
                params["distribution"],
                stats["distribution"],
                key=key_dropout,
            )
            upright = jnp.broadcast_to(transform.identity, (1, batch, transform.dim))
            turns = row_keys(state, _STREAM_TURNS, batch)
            cost, density, density_stats = equivariance(propose, images, upright, turns)
            theta, log_prob = draw(density, row_keys(state, _STREAM_COPIES, batch))
            nothing = jnp.full((), jnp.nan)  # no view is classified
            metrics = {
                "loss": cost,
                objective.loss: nothing,
                f"{objective.loss}_original": nothing,
                f"train_{objective.score_name}": nothing,
                "entropy": -jnp.mean(log_prob),
                "alpha": jnp.zeros(()),
                "saturated_share": edge_share(theta, transform.periodic, distribution.discrete),
            }
            return cost, (metrics, {**stats, "distribution": density_stats})

        if frozen:
            params = {**params, "classifier": jax.lax.stop_gradient(params["classifier"])}
        alpha = controller.alpha(state.controller)
        density, density_stats = apply(
            distribution, params["distribution"], stats["distribution"], images, key_dropout
        )
        theta, log_prob = draw(density, row_keys(state, _STREAM_COPIES, batch))
        original, logits, classifier_stats = classify(
            params["classifier"], stats["classifier"], images, theta, key_dropout
        )
        cost = jnp.mean(objective.cost(logits, labels, objective.average))
        cost_original = jnp.zeros(())
        if originals:
            cost_original = jnp.mean(objective.cost(original, labels, "losses"))
        loss = cost + cost_original + alpha * distribution.regularizer(density, log_prob)
        if objective.equivariance:
            shared = functools.partial(
                apply, distribution, params["distribution"], density_stats, key=key_dropout
            )
            turn, _, _ = equivariance(shared, images, theta, row_keys(state, _STREAM_TURNS, batch))
            loss = loss + objective.equivariance * turn
        value = loss
        if not distribution.reparameterized:
            each = jax.vmap(lambda x: objective.cost(x[None], labels, "losses"))(logits)
            with jax.named_scope("density"):
                score, added = distribution.scored(density, theta, log_prob)
            loss = loss + score_function_term(
                each + alpha * added,
                score,
                baseline=objective.baseline,
                over_devices=place.mean,
                devices=place.shards,
            )
        metrics = {
            "loss": value,
            objective.loss: cost,
            f"{objective.loss}_original": cost_original,
            f"train_{objective.score_name}": jnp.mean(objective.score(logits, labels)),
            "entropy": -jnp.mean(log_prob) if distribution.has_density else jnp.zeros(()),
            "alpha": alpha,
            "saturated_share": edge_share(theta, transform.periodic, distribution.discrete),
        }
        return loss, (metrics, {"classifier": classifier_stats, "distribution": density_stats})

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
                batch = mirror_at_random(batch, row_keys(state, _STREAM_MIRROR, batch.shape[0]))
        (_, (metrics, stats)), gradients = jax.value_and_grad(loss_fn, has_aux=True)(
            state.params, state, batch, labels
        )
        gradients, metrics = place.mean((gradients, metrics))
        metrics |= {"steps": jnp.ones(()), "gradient_norm": optax.tree.norm(gradients)}
        with jax.named_scope("optimizer"):
            updates, opt_state = optimizer.update(gradients, state.opt_state, state.params)
            params: Any = optax.apply_updates(state.params, updates)
        if frozen:  # momentum and weight decay would move it still
            params = {**params, "classifier": state.params["classifier"]}
        follows = not burn_in and distribution.has_density
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
