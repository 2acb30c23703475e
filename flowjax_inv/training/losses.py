"""What a step minimises: of the originals (burn-in), of their poses, or of sampled views.

Named scopes mark the parts of the step; they change no value, and a trace of a run is read by them
(experiments/running/profiling.py).
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from flowjax_inv.distributions.base import ConditionalDistribution, log_prob_along_samples
from flowjax_inv.training import chunks, laplace
from flowjax_inv.training.costs import pairs_found, score_function_term
from flowjax_inv.training.objectives import Objective
from flowjax_inv.training.placement import Placement
from flowjax_inv.training.state import Controller, Params, Stream, TrainState
from flowjax_inv.transforms import Transform, wrap

__all__ = ["EDGE", "StepLoss", "copy_keys", "edge_share", "row_keys"]

EDGE = 1e-3  # a coordinate this near to the edge of the box counts as saturated
_LEAST_LOG_PROB = -20.0  # nats, of a sample that the equivariance term finds outside a density

Metrics = dict[str, jax.Array]
Rngs = dict[str, jax.Array]  # keys of dropout, and of draws of a network's weights
Loss = tuple[jax.Array, tuple[Metrics, Params]]  # value, (metrics, batch statistics)


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


def row_keys(state: TrainState, stream: int, batch: int, place: Placement) -> jax.Array:
    """Return one key per image of the step's batch, by its place in the whole batch.

    It hangs on the run's key, the step and that place, on nothing else: not on devices, chunks, or
    the rest of the batch.
    """
    key = state.stream_key(stream)
    rows = place.global_index(batch) + jnp.arange(batch)
    return jax.vmap(lambda row: jax.random.fold_in(key, row))(rows)


def copy_keys(keys: jax.Array, copies: int) -> jax.Array:
    """Return one key per copy and image, (copies, N): how many copies there are changes none."""
    return jax.vmap(lambda copy: jax.vmap(lambda key: jax.random.fold_in(key, copy))(keys))(
        jnp.arange(copies)
    )


@dataclasses.dataclass(frozen=True)
class StepLoss:
    """The loss of one step, its metrics and the batch statistics it leaves.

    A call maps (params, state, images, labels) to (loss, (metrics, statistics)).

    Copies are one axis beside the batch, folded into it for the classifier together with the
    original images, so that batch statistics are over all of them.

    Attributes:
        classifier, distribution: Linen modules.
        transform: theta -> views.
        controller: of alpha.
        objective: how the loss is put together.
        place: devices.
        burn_in: no views: the classifier alone, on the originals. Of a contrast, which is nothing
            without views, by the density as it is.
    """

    classifier: nn.Module
    distribution: ConditionalDistribution
    transform: Transform
    controller: Controller
    objective: Objective
    place: Placement
    burn_in: bool

    @property
    def frozen(self) -> bool:
        """Whether the classifier stays as it is, in evaluation mode."""
        objective = self.objective
        return (objective.freeze_classifier or objective.pose_likelihood) and not self.burn_in

    @property
    def rests(self) -> bool:
        """Whether the density stays as it is: in burn-in, and where the evidence teaches it."""
        return self.burn_in or self.objective.judge == "evidence"

    def __call__(
        self, params: Params, state: TrainState, images: jax.Array, labels: jax.Array
    ) -> Loss:
        """Return loss, metrics and statistics of a batch: images (N, H, W, C), labels (N,)."""
        # Each part of the batch its own; so these two alone depend on the devices under pmap.
        part = self.place.global_index(1)
        rngs = {
            name: jax.random.fold_in(state.stream_key(stream), part)
            for name, stream in (("dropout", Stream.DROPOUT), ("posterior", Stream.POSTERIOR))
        }
        if self.burn_in and not self.objective.pairs:
            return self._of_originals(params, state, images, labels, rngs)
        if self.objective.pose_likelihood:
            return self._of_poses(params, state, images, rngs)
        return self._of_views(params, state, images, labels, rngs)

    def _of_originals(
        self,
        params: Params,
        state: TrainState,
        images: jax.Array,
        labels: jax.Array,
        rngs: Rngs,
    ) -> Loss:
        """Burn-in: the images as they are and, if asked for, distorted ones as one more class."""
        seen, right, batch = images, labels, images.shape[0]
        reject = self.objective.reject_distorted != "no"
        if reject:
            theta = self._even(row_keys(state, Stream.COPIES, batch, self.place))
            seen = jnp.concatenate([images, self._warp(images, theta)])
        logits, stats = self._apply(
            self.classifier,
            params["classifier"],
            state.batch_stats["classifier"],
            seen,
            rngs,
        )
        if reject:
            right = jnp.concatenate([labels, jnp.full_like(labels, logits.shape[-1] - 1)])
        cost = jnp.mean(self.objective.cost(logits[None], right, "losses"))
        loss = cost + self._divergence(params, state)
        metrics = self._metrics(
            loss=loss,
            cost=cost,
            cost_original=cost,
            score=jnp.mean(self.objective.score(logits, right)),
            entropy=jnp.zeros(()),
            alpha=jnp.zeros(()),
            saturated_share=jnp.zeros(()),
        )
        return loss, (metrics, {**state.batch_stats, "classifier": stats})

    def _of_poses(self, params: Params, state: TrainState, images: jax.Array, rngs: Rngs) -> Loss:
        """The pose likelihood: how well the density finds the turn of images taken as upright."""
        batch = images.shape[0]
        propose = functools.partial(
            self._apply,
            self.distribution,
            params["distribution"],
            state.batch_stats["distribution"],
            rngs=rngs,
        )
        upright = jnp.broadcast_to(self.transform.identity, (1, batch, self.transform.dim))
        turns = row_keys(state, Stream.TURNS, batch, self.place)
        cost, density, stats = self._equivariance(propose, images, upright, turns)
        keys = row_keys(state, Stream.COPIES, batch, self.place)
        theta, log_prob = self._draw(density, keys)
        nothing = jnp.full((), jnp.nan)  # no view is classified
        metrics = self._metrics(
            loss=cost,
            cost=nothing,
            cost_original=nothing,
            score=nothing,
            entropy=-jnp.mean(log_prob),
            alpha=jnp.zeros(()),
            saturated_share=self._edge_share(theta),
        )
        return cost, (metrics, {**state.batch_stats, "distribution": stats})

    def _of_views(
        self,
        params: Params,
        state: TrainState,
        images: jax.Array,
        labels: jax.Array,
        rngs: Rngs,
    ) -> Loss:
        """The paper's: views by samples of the density, with alpha times its regularizer."""
        if self.frozen:
            params = {**params, "classifier": jax.lax.stop_gradient(params["classifier"])}
        if self.rests:
            params = {**params, "distribution": jax.lax.stop_gradient(params["distribution"])}
        objective, distribution, place = self.objective, self.distribution, self.place
        batch, stats = images.shape[0], state.batch_stats
        alpha = self.controller.alpha(state.controller)
        density, density_stats = self._apply(
            distribution, params["distribution"], stats["distribution"], images, rngs
        )
        keys = row_keys(state, Stream.COPIES, batch, place)
        theta, log_prob = self._draw(density, keys)
        seen, reject = theta, objective.reject_distorted == "always" and not self.frozen
        if reject:
            even = self._even(row_keys(state, Stream.DISTORTED, batch, place))
            seen = jnp.concatenate([theta, even[None]])
        original, logits, classifier_stats = self._classify(
            params["classifier"], stats["classifier"], images, seen, rngs
        )
        logits, distorted = logits[: len(theta)], logits[len(theta) :]
        shown = None
        if objective.maps:
            logits, shown = self._back(logits, theta)
        if objective.vectors:
            logits = self.transform.undo_vectors(logits, theta)
        cost = jnp.mean(objective.cost(logits, labels, objective.average, shown))
        cost_original = jnp.zeros(())
        if len(original):
            cost_original = jnp.mean(objective.cost(original, labels, "losses"))
        loss = cost + cost_original + alpha * distribution.regularizer(density, log_prob)
        loss = loss + self._divergence(params, state)
        if reject:
            last = jnp.full_like(labels, logits.shape[-1] - 1)
            loss = loss + jnp.mean(objective.cost(distorted, last, "losses"))
        if objective.equivariance:
            propose = functools.partial(
                self._apply, distribution, params["distribution"], density_stats, rngs=rngs
            )
            turns = row_keys(state, Stream.TURNS, batch, place)
            turn, _, _ = self._equivariance(propose, images, theta, turns)
            loss = loss + objective.equivariance * turn
        metrics = self._metrics(
            loss=loss,
            cost=cost,
            cost_original=cost_original,
            score=jnp.mean(
                pairs_found(logits) if objective.pairs else objective.score(logits, labels)
            ),
            entropy=-jnp.mean(log_prob) if distribution.has_density else jnp.zeros(()),
            alpha=alpha,
            saturated_share=self._edge_share(theta),
        )
        if objective.gradient == "score" or not distribution.reparameterized:
            each = jax.vmap(lambda x: objective.cost(x[None], labels, "losses"))(logits)
            score = added = log_prob
            if objective.gradient == "samples" or distribution.discrete:
                with jax.named_scope("density"):
                    score, added = distribution.scored(density, theta, log_prob)
            loss = loss + score_function_term(
                each + alpha * added,
                score,
                baseline=objective.baseline,
                over_devices=place.mean,
                devices=place.shards,
            )
        return loss, (metrics, {"classifier": classifier_stats, "distribution": density_stats})

    def _apply(
        self,
        module: nn.Module,
        params: Params,
        stats: Params,
        images: jax.Array,
        rngs: Rngs,
        **moved: Any,
    ) -> tuple[Any, Params]:
        """Return a module's output and the batch statistics after it."""
        is_classifier = module is self.classifier
        with jax.named_scope("classifier" if is_classifier else "density"):
            result: Any = module.apply(
                {"params": params, "batch_stats": stats},
                images,
                train=not (self.frozen and is_classifier),
                mutable=["batch_stats"],
                rngs=rngs,
                **moved,
            )
        output, changed = result
        return output, changed.get("batch_stats", stats)

    def _divergence(self, params: Params, state: TrainState) -> jax.Array:
        """Return what a prior of the classifier's weights costs, nats per image; 0 without one.

        KL / N of a posterior; of weights that are points -log p / N.
        """
        divergence = getattr(self.classifier, "divergence", None)
        if divergence is not None:
            return divergence(params["classifier"]) / self.objective.images
        if self.objective.judge == "loss":
            return jnp.zeros(())
        log_precision = jax.lax.stop_gradient(state.laplace.log_precision)
        return -laplace.prior(params["classifier"], log_precision) / self.objective.images

    def _warp(self, images: jax.Array, theta: jax.Array) -> jax.Array:
        with jax.named_scope("warp"):
            return self.transform(images, theta)

    def _back(self, maps: jax.Array, theta: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return maps of views (n, N, H, W, C) as they lie in the images, and where views are."""
        with jax.named_scope("warp"):
            back = self.transform.undo(maps, theta)
            return back, self.transform.undone_mask(theta, *maps.shape[2:4])

    def _even(self, keys: jax.Array) -> jax.Array:
        """Return one theta a key, even over the box: (N, d)."""
        dim = self.transform.dim
        return jax.vmap(lambda key: jax.random.uniform(key, (dim,), minval=-1.0))(keys)

    def _draw(self, density: Any, keys: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return theta (n, N, d) and log g (n, N)."""
        copies = self.objective.copies
        with jax.named_scope("density"):
            each = copy_keys(keys, copies)
            if self.objective.gradient == "score":
                theta = jax.lax.stop_gradient(density.sample(seed=each, sample_shape=(copies,)))
                return theta, density.log_prob(theta)
            if self.distribution.pathwise_entropy:
                theta = density.sample(seed=each, sample_shape=(copies,))
                return theta, log_prob_along_samples(density, theta)
            return density.sample_and_log_prob(seed=each, sample_shape=(copies,))

    def _equivariance(
        self, propose: Callable[..., Any], images: jax.Array, theta: jax.Array, keys: jax.Array
    ) -> tuple[jax.Array, Any, Params]:
        """Return -mean log g(T - dT; A_dT I), g(.; A_dT I) and its statistics.

        dT is drawn evenly per image; T gets no gradient.
        """
        reach = self.objective.equivariance_range

        def draw_one(key: jax.Array) -> jax.Array:
            return jax.random.uniform(key, (self.transform.dim,), minval=-reach, maxval=reach)

        delta = jax.vmap(draw_one)(keys)
        moved, stats = propose(images=self._warp(images, delta))
        there = wrap(jax.lax.stop_gradient(theta) - delta, self.transform.periodic)
        # Where the density has no mass the logarithm says nothing to it, and must stay finite.
        with jax.named_scope("density"):
            log_prob = moved.log_prob(there)
        cost = -jnp.mean(jnp.maximum(log_prob, _LEAST_LOG_PROB))
        return cost, moved, stats

    def _classify(
        self,
        params: Params,
        stats: Params,
        images: jax.Array,
        theta: jax.Array,
        rngs: Rngs,
    ) -> tuple[jax.Array, jax.Array, Params]:
        """Return logits of the originals (m, N, C), m = 0 or 1, of the views (n, N, C), statistics.

        Maps are (m, N, H, W, C) and (n, N, H, W, C).

        Images first, views second: (N, m + n, ...) folds into a batch that devices divide as they
        divide the images.
        """
        objective, copies = self.objective, len(theta)
        originals = int(objective.include_original and not self.frozen)
        chunk = objective.copies_per_chunk or copies
        objective.check_chunks(self.classifier, stats)

        def part(
            params: Params, stats: Params, images: jax.Array, theta: jax.Array, start: int
        ) -> tuple[jax.Array, Params]:
            originals_here = originals and not start
            # Views are dropped from independently, whichever chunk they are in.
            dropout = rngs["dropout"]
            keys = rngs | {"dropout": jax.random.fold_in(dropout, start) if start else dropout}
            if getattr(self.classifier, "moves_filters", False):
                # One theta a view for the whole batch: that of its first image.
                seen = theta[:, 0]
                if originals_here:
                    seen = jnp.concatenate([self.transform.identity[None], seen])
                moved = {"theta": seen, "transform": self.transform}
                return self._apply(self.classifier, params, stats, images, keys, **moved)
            batch, images = images.shape[0], images[:, None]
            views = self._warp(images, jnp.moveaxis(theta, 0, 1))
            if originals_here:
                views = jnp.concatenate([images, views], axis=1)
            seen = views.reshape(-1, *images.shape[2:])
            # A network that draws its weights draws them once an image.
            drawn = {"views": views.shape[1]} if hasattr(self.classifier, "divergence") else {}
            logits, stats = self._apply(self.classifier, params, stats, seen, keys, **drawn)
            logits = logits.reshape(batch, views.shape[1], *logits.shape[1:])
            return jnp.moveaxis(logits, 1, 0), stats

        if chunk == copies:
            logits, stats = part(params, stats, images, theta, 0)
        else:
            made = []
            for start in range(0, copies, chunk):
                block = theta[start : start + chunk]
                remade = chunks.made_again(functools.partial(part, start=start))
                logits, stats = remade(params, stats, images, block)
                made.append(logits)
                params, images = chunks.after((params, images), logits)
            logits = jnp.concatenate(made)
        return logits[:-copies], logits[-copies:], stats

    def _edge_share(self, theta: jax.Array) -> jax.Array:
        return edge_share(theta, self.transform.periodic, self.distribution.discrete)

    def _metrics(
        self, *, cost: jax.Array, cost_original: jax.Array, score: jax.Array, **rest: jax.Array
    ) -> Metrics:
        """Return the figures by the names that `Objective.logged` lists."""
        name = self.objective.loss
        return {
            name: cost,
            f"{name}_original": cost_original,
            f"train_{self.objective.score_name}": score,
            **rest,
        }
