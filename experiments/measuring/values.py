"""Values of clouds of points: how far off, and whether they turn as they should."""

from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from experiments.measuring.evaluate import Judge
from experiments.measuring.maps import VIEWS
from flowjax_inv.data.batches import padded_batches
from flowjax_inv.distributions.base import ConditionalDistribution
from flowjax_inv.inference import view_values
from flowjax_inv.training import Stream
from flowjax_inv.transforms import Points, Transform

__all__ = ["measure_values"]


def measure_values(
    judge: Judge,
    classifier: nn.Module,
    distribution: ConditionalDistribution,
    transform: Transform,
    variables: Mapping[str, Any],
    *,
    key: jax.Array,
) -> dict[str, Any]:
    """Score values of the test split, of clouds as they are and averaged over views.

    The equivariance error is the mean over turns g, rotation vectors evenly from their box, of
    |f(g x) - g f(x)|, of vectors; of other values |f(g x) - f(x)|. Views are drawn anew for each
    side.

    Returns:
        test_error_averaged; equivariance_error of the network alone, and equivariance_error_K of
        the first K of some views.
    """
    section, vectors = judge.section, judge.objective.vectors
    key = jax.random.fold_in(key, Stream.PREDICT)
    count = section.num_samples if distribution.has_density else 1
    turn = Points("rotation")

    def plain(variables: Any, clouds: jax.Array) -> jax.Array:
        made: Any = classifier.apply(variables["classifier"], clouds, train=False)
        return made

    def views(variables: Any, clouds: jax.Array, key: jax.Array, number: int) -> jax.Array:
        def propose(clouds: jax.Array) -> Any:
            return distribution.apply(variables["distribution"], clouds, train=False)

        return view_values(
            lambda x: plain(variables, x), propose, transform, clouds, key=key, num_samples=number,
            vectors=vectors,
        )  # fmt: skip

    @jax.jit
    def errors(
        variables: Any, clouds: jax.Array, values: jax.Array, key: jax.Array
    ) -> list[jax.Array]:
        keys = jax.random.split(key, 4)
        theta = jax.random.uniform(keys[0], (len(clouds), turn.dim), minval=-1.0)
        moved = turn(clouds, theta)

        def apart(there: jax.Array, here: jax.Array) -> jax.Array:
            back = turn.undo_vectors(there, theta) if vectors else there
            return jnp.mean(jnp.abs(back - here), axis=-1)

        averaged = jnp.mean(views(variables, clouds, keys[1], count), axis=0)
        found = [judge.objective.correct(averaged, values)]
        found.append(apart(plain(variables, moved), plain(variables, clouds)))
        if distribution.has_density:
            there, here = (
                views(variables, each, key, VIEWS[-1])
                for each, key in ((moved, keys[2]), (clouds, keys[3]))
            )
            found += [apart(there[:k].mean(axis=0), here[:k].mean(axis=0)) for k in VIEWS]
        return found

    made = []
    for number, (index, mask) in enumerate(padded_batches(len(judge.targets), section.batch_size)):
        some = errors(
            variables, judge.images[index], judge.targets[index], jax.random.fold_in(key, number)
        )
        made.append([np.asarray(each)[np.asarray(mask) > 0] for each in some])
    means = [float(np.concatenate(each).mean()) for each in zip(*made, strict=True)]
    names = ["test_error_averaged", "equivariance_error"]
    names += [f"equivariance_error_{k}" for k in VIEWS]
    results: dict[str, Any] = dict(zip(names, means, strict=False))  # without views the first two
    return results | {
        "evaluation_rule": "plain", "evaluation_average": "logits", "evaluation_samples": count,
    }  # fmt: skip
