"""What a run is at one step, and the random numbers that hang on it."""

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.core import Tracer

from flowjax_inv.distributions.base import ConditionalDistribution
from flowjax_inv.training.objectives import Objective

__all__ = ["Controller", "Params", "Stream", "TrainState", "init_state", "take_totals"]

Params = Mapping[str, Any]


class Stream:
    """Streams of the run's key: fold_in with one of these; in training then with the step."""

    INIT, COPIES, MIRROR, DROPOUT, TURNS = 0, 1, 4, 5, 8  # training
    DISTORTED, GAP, POSTERIOR, EVIDENCE = 10, 11, 12, 13
    PREDICT, DENSITY, ARCS, STRAIGHTEN, ROBUSTNESS = 2, 3, 6, 7, 9  # measuring what was trained


class Controller(Protocol):
    """What gives alpha: see `controllers.py`."""

    watches: ClassVar[str]

    def init(self) -> Any: ...  # noqa: D102
    def alpha(self, state: Any) -> jax.Array: ...  # noqa: D102
    def update(self, state: Any, value: jax.Array, /) -> Any: ...  # noqa: D102


class Learner(Protocol):
    """What the evidence teaches by: see `evidence.Laplace`."""

    def init(self, params: Any) -> Any: ...  # noqa: D102


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
        laplace: of what learns by the evidence, see `evidence.Laplace`; () where nothing does.
    """

    step: jax.Array
    key: jax.Array
    params: Params
    batch_stats: Params
    opt_state: optax.OptState
    controller: Any
    totals: dict[str, jax.Array]
    laplace: Any = ()

    def stream_key(self, stream: int) -> jax.Array:
        """Return the key of one of the streams at this step."""
        return jax.random.fold_in(jax.random.fold_in(self.key, stream), self.step)


def init_state(
    classifier: nn.Module,
    distribution: ConditionalDistribution,
    optimizer: optax.GradientTransformation,
    controller: Controller,
    images: jax.Array | np.ndarray,
    *,
    key: jax.Array,
    objective: Objective = Objective(),  # noqa: B008  # frozen
    learner: Learner | None = None,
) -> TrainState:
    """Return the state before the first step.

    Args:
        classifier, distribution: Linen modules.
        optimizer: over {"classifier", "distribution"} parameters.
        controller: of alpha.
        images: (N, H, W, C), any batch: only its shape matters.
        key: typed PRNG key of the run.
        objective: of the steps to come: what they add up.
        learner: of a density that the evidence teaches.

    Raises:
        ValueError: if they would take batch statistics of chunks, see `Objective.check_chunks`; or
            what a module says of images that it cannot serve.
    """

    def drawn(key: jax.Array, images: jax.Array) -> dict[str, Any]:
        keys = jax.random.split(jax.random.fold_in(key, Stream.INIT))
        variables: dict[str, Any] = {
            "classifier": classifier.init(keys[0], images, train=False),
            "distribution": distribution.init(keys[1], images, train=False),
        }
        objective.check_chunks(classifier, variables["classifier"].get("batch_stats", {}))
        params = {name: value.get("params", {}) for name, value in variables.items()}
        return {
            "step": jnp.zeros((), jnp.int32),
            "params": params,
            "batch_stats": {n: value.get("batch_stats", {}) for n, value in variables.items()},
            "opt_state": optimizer.init(params),
            "controller": controller.init(),
            "laplace": learner.init(params["distribution"]) if learner else (),
            "totals": {name: jnp.zeros((), jnp.float32) for name in objective.logged},
        }

    # One program, without what networks compute of the images, which nobody asks for. It runs once,
    # so on a CPU it is compiled without optimisation: 4 seconds where 9 (and 13 layer by layer);
    # not where only shapes are asked for, by jax.eval_shape, which takes no such options.
    blank = jnp.zeros(images.shape, jnp.float32)
    once = jax.default_backend() == "cpu" and not isinstance(blank, Tracer)
    options = {"xla_backend_optimization_level": 0} if once else None
    fields = jax.jit(drawn, compiler_options=options)(key, blank)
    # Own buffers: the step donates the state, and the caller's key may not be donated.
    return TrainState(key=key.copy(), **fields)


def take_totals(state: TrainState) -> tuple[dict[str, jax.Array], TrainState]:
    """Return the sums so far and the state with the sums at zero."""
    zeros = {name: jnp.zeros_like(value) for name, value in state.totals.items()}
    return state.totals, state.replace(totals=zeros)
