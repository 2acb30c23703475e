"""Learning a density by the evidence: no bonus, no alpha, and no image held out."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import optax

from flowjax_inv.data.pixels import Normalization
from flowjax_inv.distributions.base import ConditionalDistribution
from flowjax_inv.training import laplace
from flowjax_inv.training.losses import copy_keys, row_keys
from flowjax_inv.training.objectives import Objective
from flowjax_inv.training.placement import Placement
from flowjax_inv.training.state import Stream, TrainState
from flowjax_inv.transforms import Transform

__all__ = ["Laplace", "LaplaceState", "make_evidence_step"]


class LaplaceState(flax.struct.PyTreeNode):
    """State of `Laplace`."""

    log_precision: jax.Array  # of the prior of the classifier's weights
    moments: Any  # of both Adams
    evidence: jax.Array  # when last measured, nats per image


@dataclasses.dataclass(frozen=True)
class Laplace:
    """How the evidence teaches: Adam for the density, and for the prior of the weights.

    Attributes:
        rate: first of the density; over `steps` updates it falls to a tenth, by a cosine.
        steps: updates of a run; 0: it stays.
        precision: first delta, of the prior N(0, I / delta) of the classifier's weights, > 0.
        precision_rate: of log delta.
        precision_steps: updates of it, after each of the density.

    Raises:
        ValueError: for numbers out of range.
    Source: LILA's code; there delta is moved first.
    """

    rate: float = 0.05
    steps: int = 0
    precision: float = 1.0
    precision_rate: float = 0.05
    precision_steps: int = 4

    def __post_init__(self) -> None:
        """Refuse a prior that is none."""
        if not (self.precision > 0 and self.rate > 0 and self.precision_rate >= 0):
            raise ValueError(
                f"precision={self.precision}, rate={self.rate}, "
                f"precision_rate={self.precision_rate}; want the first two above 0, no rate below."
            )

    def init(self, params: Any) -> LaplaceState:
        """Return the first state, for a density of such parameters."""
        log_precision = jnp.asarray(math.log(self.precision), jnp.float32)
        moments = self._density.init(params), self._prior.init(log_precision)
        return LaplaceState(log_precision, moments, jnp.zeros((), jnp.float32))

    @property
    def _density(self) -> optax.GradientTransformation:
        fall = optax.cosine_decay_schedule(self.rate, self.steps, 0.1) if self.steps else self.rate
        return optax.adam(fall)

    @property
    def _prior(self) -> optax.GradientTransformation:
        return optax.adam(self.precision_rate)

    def update(
        self,
        state: LaplaceState,
        params: Any,
        slopes: Any,
        evidence: Callable[[jax.Array], jax.Array],
    ) -> tuple[LaplaceState, Any]:
        """Return the next state and the density's parameters.

        Args:
            state: before.
            params: of the density.
            slopes: of the evidence in them.
            evidence: of log delta, nats per image.
        """

        def climb(_: int, at: tuple[jax.Array, Any]) -> tuple[jax.Array, Any]:
            log_precision, moments = at
            down = -jax.grad(evidence)(log_precision)
            change, moments = self._prior.update(down, moments, log_precision)
            found: Any = optax.apply_updates(log_precision, change)
            return found, moments

        of_density, of_prior = state.moments
        down = jax.tree.map(jnp.negative, slopes)
        change, of_density = self._density.update(down, of_density, params)
        log_precision, of_prior = jax.lax.fori_loop(
            0, self.precision_steps, climb, (state.log_precision, of_prior)
        )
        moments = of_density, of_prior
        now = LaplaceState(log_precision, moments, evidence(state.log_precision))
        return now, optax.apply_updates(params, change)


def make_evidence_step(
    classifier: nn.Module,
    distribution: ConditionalDistribution,
    transform: Transform,
    learner: Laplace,
    objective: Objective,
    *,
    normalization: Normalization = Normalization(),  # noqa: B008  # frozen
    placement: Placement | None = None,
) -> Callable[..., TrainState]:
    """Return the compiled step of the density: (state, images, labels, indices) -> state.

    The evidence of `objective.images` images, by those at the indices: their sums are multiplied by
    all over these. The classifier's weights stay as they are, in value and in the gradient. Samples
    hang on the run's key, the step, an image's place and the copy. The state is donated.

    Args:
        classifier: of Dense layers alone, see `laplace.linearize`.
        distribution: whose samples carry a gradient; one without parameters stays as it is, and the
            prior is learned still.
        transform: theta -> views.
        learner: how the evidence teaches.
        objective: with judge="evidence"; its copies are the views of an image.
        normalization: of stored pixels, before the warp.
        placement: devices, under jit; None takes all of them.

    Raises:
        ValueError: under pmap, where a device would see the curvature of its part alone.
    """
    place = placement or Placement()
    if place.parallel == "pmap":
        raise ValueError(
            'parallel is "pmap", and the evidence is of all images together; take jit.'
        )

    def body(
        state: TrainState, images: jax.Array, labels: jax.Array, indices: jax.typing.ArrayLike
    ) -> TrainState:
        images, labels = normalization(images[indices]), labels[indices]
        params, stats = state.params, state.batch_stats["distribution"]
        keys = row_keys(state, Stream.EVIDENCE, len(labels), place)
        scale = objective.images / len(labels)

        def curvature(moved: Any) -> tuple[jax.Array, laplace.Spectrum]:
            variables = {"params": moved, "batch_stats": stats}
            density: Any = distribution.apply(variables, images, train=False)
            seeds = copy_keys(keys, objective.copies)
            theta = density.sample(seed=seeds, sample_shape=(objective.copies,))
            around = laplace.linearize(classifier, params["classifier"], transform(images, theta))
            log_p = jax.nn.log_softmax(around.logits)
            right = jnp.take_along_axis(log_p, labels[:, None], axis=1)
            return scale * jnp.sum(right), laplace.spectrum(around, jnp.exp(log_p), scale=scale)

        def per_image(found: tuple[jax.Array, laplace.Spectrum], log_precision: Any) -> jax.Array:
            fit, curved = found
            total = laplace.evidence(fit, params["classifier"], curved, log_precision)
            return total / objective.images

        def of_density(moved: Any) -> tuple[jax.Array, tuple[jax.Array, laplace.Spectrum]]:
            found = curvature(moved)
            return per_image(found, state.laplace.log_precision), found

        slopes, found = jax.grad(of_density, has_aux=True)(params["distribution"])
        learned, moved = learner.update(
            state.laplace, params["distribution"], slopes, functools.partial(per_image, found)
        )
        return state.replace(laplace=learned, params={**params, "distribution": moved})

    return place.compile(body)
