"""Small distributions over crops, and a law of both: their gradients are those of exact sums."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from laws_distributions import Case, Pixels

from flowjax_inv.distributions.crops import FlowLRP, InstaAugLRP
from flowjax_inv.training.costs import score_function_term
from flowjax_inv.transforms import Crop

PICTURE = jnp.zeros((1, 64, 64, 3))
TRANSFORM = Crop(centre="picture", align_corners=False)
# Four crops of half the picture and the whole of it, from the 4x3 images of the laws.
FEW: dict[str, Any] = {"dim": 4, "levels": (1, -1), "sizes": (0.5, 1.0)}


def lrp(**fields: Any) -> InstaAugLRP:
    return InstaAugLRP(**FEW | fields)


def flow_lrp(**fields: Any) -> FlowLRP:
    few: dict[str, Any] = {"layers": 2, "width": 8, "start_scale": 0.5, "components": 1}
    all_fields: dict[str, Any] = FEW | few | {"embed": Pixels()} | fields
    return FlowLRP(**all_fields)


def fresh(module: Any, images: jax.Array = PICTURE) -> Any:
    return module.init_with_output(jax.random.key(0), images)[0]


def h(theta: jax.Array) -> jax.Array:
    return jnp.sum(jnp.sin(2.0 * theta + 0.3) + theta**2, axis=-1)


ALPHA = 0.7


def gradient_is_that_of_exact_sums(
    chosen: Case, exact: Callable[[Any], float], step: float, count: int
) -> None:
    """d / d parameters of E[h] + alpha E[regularizer] along one direction, as the step has it."""
    module, variables = chosen.module, chosen.variables
    leaves, tree = jax.tree.flatten(variables["params"])
    keys = jax.random.split(jax.random.key(11), len(leaves))
    noise = [0.3 * jax.random.normal(k, x.shape) for k, x in zip(keys, leaves, strict=True)]

    def moved(t: jax.Array | float) -> Any:
        params = [x + t * d for x, d in zip(leaves, noise, strict=True)]
        return {**variables, "params": jax.tree.unflatten(tree, params)}

    expected = (exact(moved(step)) - exact(moved(-step))) / (2 * step)

    @jax.jit
    def by_samples(key: jax.Array) -> jax.Array:
        def value(t: jax.Array) -> jax.Array:
            density: Any = chosen.density(variables=moved(t))
            theta, log_prob = density.sample_and_log_prob(seed=key, sample_shape=(count,))
            score, cost = module.scored(density, theta, log_prob)
            pathwise = jnp.mean(h(theta)) + ALPHA * module.regularizer(density, log_prob)
            return pathwise + score_function_term(h(theta) + ALPHA * cost, score)

        return jax.jvp(value, (0.0,), (1.0,))[1]

    draws = np.array([by_samples(jax.random.key(s)) for s in range(16)])
    error = draws.std(ddof=1) / np.sqrt(len(draws))
    assert error < 0.1 * abs(expected), "too noisy to tell"
    assert abs(draws.mean() - expected) < 4 * error + 0.01 * abs(expected), (
        f"samples {draws.mean():.4f} +- {error:.4f}, exact {expected:.4f}"
    )
