"""Laws that every conditional density keeps; `test_distributions.py` lists who must keep them.

Each law takes a `Case`: a module with parameters moved away from where they start, so that nothing
passes by being the identity. Keys and levels are fixed: a law never flakes.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any

import distrax
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from flowjax_inv.distributions.base import ConditionalDistribution, log_prob_along_samples

IMAGES = jax.random.uniform(jax.random.key(5), (3, 4, 3, 1))
COUNT = 8_000  # samples
# Midpoint grids of the box by dimension, as fine as a test may pay for.
POINTS = {1: 4_000, 2: 300, 3: 80}


class Pixels(nn.Module):
    """An embedding without parameters: the first pixels, centred."""

    features: int = 4

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> jax.Array:
        del train
        return images.reshape(images.shape[0], -1)[:, : self.features] - 0.5


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """A density to be tested: its name, module and parameters."""

    name: str
    module: ConditionalDistribution
    variables: Any

    def density(self, images: jax.Array = IMAGES, variables: Any = None) -> distrax.Distribution:
        chosen = self.variables if variables is None else variables
        density: Any = self.module.apply(chosen, images)
        return density

    def drawn(self, key: Any, shape: tuple[int, ...] = (), images: Any = IMAGES) -> Any:
        """Return samples and their log-density, compiled: much faster than one by one."""
        return _drawn(self, self.variables, images, key, shape)

    def log_prob(self, theta: Any) -> Any:
        """Return the log-density of every image at theta (..., 3, d), compiled."""
        return _log_prob(self, self.variables, jnp.asarray(theta))

    def of(self, f: Callable[[Any], Any]) -> Any:
        """Return what a function makes of the density, compiled."""
        return jax.jit(lambda variables: f(self.density(variables=variables)))(self.variables)


# What is an argument is not folded into constants, which takes XLA seconds.
@functools.partial(jax.jit, static_argnums=(0, 4))
def _drawn(case: Case, variables: Any, images: Any, key: Any, shape: tuple[int, ...]) -> Any:
    return case.density(images, variables).sample_and_log_prob(seed=key, sample_shape=shape)


@functools.partial(jax.jit, static_argnums=0)
def _log_prob(case: Case, variables: Any, theta: jax.Array) -> Any:
    return case.density(IMAGES, variables).log_prob(theta)


def case(name: str, module: ConditionalDistribution, spread: float = 0.25) -> Case:
    """Initialise a module and move every parameter by normal noise of standard deviation spread."""

    @jax.jit  # one program
    def moved() -> Any:
        leaves, tree = jax.tree.flatten(module.init(jax.random.key(0), IMAGES))
        keys = jax.random.split(jax.random.key(1), max(len(leaves), 1))
        pairs = zip(leaves, keys, strict=False)
        noisy = [x + spread * jax.random.normal(k, x.shape) for x, k in pairs]
        return jax.tree.unflatten(tree, noisy)

    return Case(name, module, moved())


def _grid(dim: int) -> tuple[np.ndarray, float]:
    count = POINTS[dim]
    axis = (np.arange(count) + 0.5) / count * 2 - 1
    points = np.stack(np.meshgrid(*[axis] * dim, indexing="ij"), -1).reshape(-1, dim)
    return points.astype(np.float32), (2 / count) ** dim


@functools.lru_cache(maxsize=1)
def _own_log_prob_on_grid(case: Case) -> tuple[np.ndarray, np.ndarray, float]:
    """Keep the grid of the last case: several laws ask for it, and it is what they cost."""
    return _log_prob_on_grid(case, case.variables)


def _log_prob_on_grid(case: Case, variables: Any) -> tuple[np.ndarray, np.ndarray, float]:
    points, cell = _grid(case.module.dim)
    blocks = np.array_split(points, max(len(points) // 60_000, 1))
    longest = max(len(block) for block in blocks)
    values = [
        np.asarray(_log_prob(case, variables, np.resize(b, (longest, 1, b.shape[1]))))[: len(b)]
        for b in blocks
    ]
    return points, np.concatenate(values), cell


def integrates_to_one(case: Case) -> None:
    _, log_prob, cell = _own_log_prob_on_grid(case)
    total = np.exp(log_prob.astype(np.float64)).sum(0) * cell
    np.testing.assert_allclose(total, 1.0, atol=0.03 if case.module.dim == 3 else 0.01)


def samples_follow_the_density(case: Case) -> None:
    """Binned chi-square at level 1e-4 per image: bins with an expectation below 20 are joined."""
    from scipy import stats

    dim, count = case.module.dim, COUNT
    sides = {1: 40, 2: 10, 3: 5}[dim]
    theta = np.asarray(case.drawn(jax.random.key(7), (count,))[0])
    points, log_prob, cell = _own_log_prob_on_grid(case)
    edges = [np.linspace(-1, 1, sides + 1)] * dim
    for image in range(theta.shape[1]):
        weights = np.exp(log_prob[:, image].astype(np.float64)) * cell
        expected = np.histogramdd(points, edges, weights=weights)[0].ravel() * count
        observed = np.histogramdd(theta[:, image], edges)[0].ravel()
        assert observed.sum() == count, "samples left the box"
        joined, sums = [[0.0, 0.0]], np.stack([expected, observed], -1)
        for pair in sums[np.argsort(expected)]:
            if joined[-1][0] >= 20:
                joined.append([0.0, 0.0])
            joined[-1] = [a + b for a, b in zip(joined[-1], pair, strict=True)]
        e, o = np.array(joined).T
        e = e * o.sum() / e.sum()
        assert stats.chisquare(o, e).pvalue > 1e-4, f"image {image}: {o} against {e.round(1)}"


def log_prob_agrees_with_samples(case: Case) -> None:
    theta, returned = (array[:500] for array in case.drawn(jax.random.key(3), (COUNT,)))
    assert theta.shape == (500, 3, case.module.dim)
    inner = np.asarray(jnp.all(jnp.abs(theta) < 0.99, axis=-1))
    again = np.asarray(case.log_prob(theta))
    np.testing.assert_allclose(again[inner], np.asarray(returned)[inner], atol=5e-3)


def nothing_outside_the_box(case: Case) -> None:
    outside = [
        jnp.zeros((3, case.module.dim)).at[:, axis].set(value)
        for axis, value in itertools.product(range(case.module.dim), (1.0001, -1.0001, 30.0))
    ]
    # As many as the law above asks for: one program for both.
    repeated = np.resize(np.stack(outside), (500, 3, case.module.dim))
    np.testing.assert_array_equal(np.asarray(case.log_prob(repeated)), -np.inf)


def finite_at_the_edge_and_for_extreme_embeddings(case: Case) -> None:
    """No NaN anywhere; samples, their density and its gradients finite for embeddings of 1e4."""

    def of_edge(variables: Any) -> tuple[jax.Array, jax.Array]:
        corners = jnp.array([1.0, -1.0])[:, None, None] * jnp.ones((3, case.module.dim))
        values = case.density(IMAGES, variables).log_prob(corners)
        return jnp.sum(jnp.where(jnp.isfinite(values), values, 0.0)), jnp.asarray(values)

    def of_extreme(variables: Any) -> tuple[jax.Array, jax.Array]:
        density = case.density(IMAGES * 1e4, variables)
        theta, log_prob = density.sample_and_log_prob(seed=jax.random.key(2), sample_shape=(50,))
        return jnp.mean(log_prob) + jnp.mean(theta), theta

    @jax.jit  # one program for both
    def slopes(variables: Any) -> Any:
        return [jax.value_and_grad(f, has_aux=True)(variables) for f in (of_edge, of_extreme)]

    ((_, values), edge), ((value, theta), extreme) = slopes(case.variables)
    assert not np.isnan(np.asarray(values)).any()
    assert np.isfinite(value)
    assert np.abs(theta).max() <= 1
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((edge, extreme)))


def gradient_is_that_of_the_expectation(
    case: Case, step: float, *, of_log_prob: bool = False
) -> None:
    """d E[h] / d parameters along one direction: samples against differences of quadrature.

    h is a fixed function or, with `of_log_prob`, log g as `log_prob_along_samples` has it.
    `step` of the difference: small where the density bends sharply, but the edge of a density that
    has one must move by several cells of the grid.
    """
    leaves, tree = jax.tree.flatten(case.variables)
    keys = jax.random.split(jax.random.key(11), len(leaves))
    direction = jax.tree.unflatten(
        tree, [jax.random.normal(k, x.shape) * 0.3 for x, k in zip(leaves, keys, strict=True)]
    )

    def h(theta: jax.Array) -> jax.Array:
        return jnp.sum(jnp.sin(2.0 * theta + 0.3) + theta**2, axis=-1)

    def moved(t: float) -> Any:
        return jax.tree.map(lambda x, d: x + t * d, case.variables, direction)

    def quadrature(t: float) -> float:
        points, log_prob, cell = _log_prob_on_grid(case, moved(t))
        weights = np.exp(log_prob.astype(np.float64))
        weights /= weights.sum(0)  # the grid's own error cancels in the difference
        values = log_prob if of_log_prob else np.asarray(h(jnp.asarray(points)))[:, None]
        return float(np.sum(np.where(weights > 0, values, 0.0) * weights, axis=0).mean())

    expected = (quadrature(step) - quadrature(-step)) / (2 * step)

    @jax.jit
    def by_samples(variables: Any, direction: Any, key: jax.Array) -> jax.Array:
        def value(t: jax.Array) -> jax.Array:
            density = case.density(IMAGES, jax.tree.map(lambda x, d: x + t * d, variables,
                                                        direction))  # fmt: skip
            drawn: Any = density.sample_and_log_prob(seed=key, sample_shape=(4_000,))
            each = log_prob_along_samples(density, drawn[0]) if of_log_prob else h(drawn[0])
            if not case.module.reparameterized:
                score, _ = case.module.scored(density, *drawn)
                centred = jax.lax.stop_gradient(each - jnp.mean(each, axis=0))
                each += centred * (score - jax.lax.stop_gradient(score))
            return each.mean(1)

        return jax.jvp(value, (0.0,), (1.0,))[1]

    draws = np.concatenate(
        [by_samples(case.variables, direction, jax.random.key(s)) for s in range(8)]
    )
    error = draws.std() / np.sqrt(len(draws))
    assert abs(draws.mean() - expected) < 4 * error + 0.01 * abs(expected) + 1e-3, (
        f"samples {draws.mean():.4f} +- {error:.4f}, quadrature {expected:.4f}"
    )


def rows_are_independent(case: Case) -> None:
    """A row depends on its own image and place alone; equal images still draw differently."""
    key = jax.random.key(4)
    same = jnp.repeat(IMAGES[:1], 3, axis=0)
    full, _ = case.drawn(key)
    changed, _ = case.drawn(key, images=IMAGES.at[1:].set(0.1))
    longer, _ = case.drawn(key, images=jnp.concatenate([IMAGES, IMAGES]))
    np.testing.assert_allclose(changed[0], full[0], atol=1e-6)
    np.testing.assert_allclose(longer[:3], full, atol=1e-6)
    twins = np.asarray(case.drawn(key, images=same)[0])
    assert np.abs(np.diff(twins, axis=0)).max(axis=-1).min() > 1e-4


def a_key_per_row_is_that_rows_alone(case: Case) -> None:
    """With one key per image, samples move with the image and its key, whatever the batch."""
    keys, order = jax.random.split(jax.random.key(5), 3), np.array([2, 0, 1])
    theta, log_prob = (np.asarray(array) for array in case.drawn(keys, (4,)))
    assert theta.shape == (4, 3, case.module.dim)
    moved, moved_log_prob = case.drawn(keys[order], (4,), IMAGES[order])
    np.testing.assert_allclose(moved, theta[:, order], atol=1e-6)
    np.testing.assert_allclose(moved_log_prob, log_prob[:, order], atol=1e-4)
    assert np.abs(np.diff(theta, axis=0)).min() > 0, "copies of one image must differ"
    # And with one per sample and image, a sample is that of its key, whatever the others are.
    each = jax.random.split(jax.random.key(6), (4, 3))
    others = each.at[1:3].set(keys)
    one, other = case.drawn(each, (4,)), case.drawn(others, (4,))
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a[::3], b[::3], atol=1e-6)
    assert np.abs(one[0] - other[0])[1:3].min() > 0


def entropy_is_at_most_the_log_volume(case: Case) -> None:
    _, log_prob = case.drawn(jax.random.key(6), (COUNT,))
    assert np.max(-np.mean(log_prob, axis=0)) <= case.module.dim * np.log(2.0) + 0.02


LAWS = (
    integrates_to_one,
    samples_follow_the_density,
    log_prob_agrees_with_samples,
    nothing_outside_the_box,
    finite_at_the_edge_and_for_extreme_embeddings,
    rows_are_independent,
    a_key_per_row_is_that_rows_alone,
    entropy_is_at_most_the_log_volume,
)
