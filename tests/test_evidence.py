"""The evidence: exact where it is known, with the right slope, and a density learned by it."""

import json
import math
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.scipy.stats import multivariate_normal
from laws_distributions import Pixels
from smoke_runs import smoke, train_until_the_eighth
from steps import IMAGES, LABELS, ONE, ROTATION, changed, copy, small_flow

from experiments.report.tables import headline
from experiments.run import train_and_evaluate
from experiments.setup import checks
from flowjax_inv import training
from flowjax_inv.distributions.box import Augerino, Identity, InstaAug
from flowjax_inv.networks import MLP, SimpleConv
from flowjax_inv.networks.convolutions import Conv
from flowjax_inv.training import laplace
from flowjax_inv.training.controllers import Constant
from flowjax_inv.training.evidence import Laplace, make_evidence_step
from flowjax_inv.training.objectives import Objective
from flowjax_inv.training.placement import Placement

LOG_PRECISION = jnp.asarray(0.3)


class Linear(nn.Module):
    """One layer on flattened images."""

    features: int

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> jax.Array:
        """Return W x + b."""
        del train
        return nn.Dense(self.features)(images.reshape(images.shape[0], -1))


def _views(copies: int, count: int, side: int = 3) -> jax.Array:
    """Views (n, N, H, W, 1) whose mean over both is 0: weights and biases then do not mix."""
    views = jax.random.normal(jax.random.key(0), (copies, count, side, side, 1))
    return views - jnp.mean(views, axis=(0, 1))


def _dense_curvature(net: nn.Module, params: Any, views: jax.Array, weight: jax.Array) -> Any:
    """H of all weights at once, (P, P), by the Jacobian of the mean logits."""
    flat, unravel = jax.flatten_util.ravel_pytree(params)

    def logits(flat: jax.Array) -> jax.Array:
        each: Any = net.apply({"params": unravel(flat)}, views.reshape(-1, *views.shape[2:]))
        return jnp.mean(each.reshape(*views.shape[:2], -1), axis=0)

    jacobian = jax.jacobian(logits)(flat)  # (N, C, P)
    return jnp.einsum("ncp,ncd,ndq->pq", jacobian, weight, jacobian)


@pytest.mark.slow
def test_one_linear_layer_is_exact_against_the_dense_matrix() -> None:
    net, views = Linear(2), _views(3, 7)
    params = net.init(jax.random.key(1), views[0])["params"]
    found = laplace.spectrum(laplace.linearize(net, params, views))
    unit = jnp.broadcast_to(jnp.eye(2), (7, 2, 2))
    dense = _dense_curvature(net, params, views, unit)
    for precision in (0.1, 3.0):
        wanted = jnp.linalg.slogdet(dense + precision * jnp.eye(len(dense)))[1]
        np.testing.assert_allclose(
            laplace.log_determinant(found, jnp.asarray(precision)), wanted, rtol=1e-4
        )


@pytest.mark.slow
def test_the_evidence_of_a_linear_gaussian_model_is_the_closed_form() -> None:
    """At the best weights Laplace is exact there: y ~ N(0, X X^T / delta + 1 1^T / delta + I)."""
    net, views = Linear(1), _views(2, 6)
    x = jnp.mean(views, axis=0).reshape(6, -1)
    y = jax.random.normal(jax.random.key(2), (6,))
    precision = jnp.exp(LOG_PRECISION)
    design = jnp.concatenate([x, jnp.ones((6, 1))], axis=1)
    best = jnp.linalg.solve(design.T @ design + precision * jnp.eye(10), design.T @ y)
    params = {"Dense_0": {"kernel": best[:-1, None], "bias": best[-1:]}}
    around = laplace.linearize(net, params, views)
    fit = -0.5 * jnp.sum((y - around.logits[:, 0]) ** 2) - 3 * math.log(2 * math.pi)
    got = laplace.evidence(fit, params, laplace.spectrum(around), LOG_PRECISION)
    covariance = design @ design.T / precision + jnp.eye(6)
    np.testing.assert_allclose(
        got, multivariate_normal.logpdf(y, jnp.zeros(6), covariance), rtol=1e-4
    )


@pytest.mark.slow
def test_the_error_of_the_factors_on_a_small_network() -> None:
    """Without what layers share a determinant can but grow (Fischer): here by a fifth."""
    net, views = MLP(3, hidden=(6,), activation="tanh"), _views(4, 40)
    params = net.init(jax.random.key(3), views[0])["params"]
    around = laplace.linearize(net, params, views)
    p = jax.nn.softmax(around.logits)
    weight = jax.vmap(jnp.diag)(p) - p[:, :, None] * p[:, None, :]
    dense = _dense_curvature(net, params, views, weight)
    wanted = jnp.linalg.slogdet(dense + jnp.eye(len(dense)))[1]
    got = laplace.log_determinant(laplace.spectrum(around, p), jnp.asarray(1.0))
    assert 1.0 < float(got / wanted) < 1.25  # 1.18


class Filter(nn.Module):
    """One convolution over the whole picture: one position."""

    features: int

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> jax.Array:
        """Return what `Linear` does."""
        del train
        return Conv(self.features, kernel_size=3)(images)[:, 0, 0]


def test_a_convolution_of_the_whole_picture_is_a_linear_layer() -> None:
    views, p = _views(3, 7), jax.nn.softmax(jax.random.normal(jax.random.key(8), (7, 2)))
    net = Filter(2)
    params: Any = net.init(jax.random.key(1), views[0])["params"]
    kernel, bias = (params["Conv_0"][name] for name in ("kernel", "bias"))
    flat = {"Dense_0": {"kernel": kernel.reshape(9, 2), "bias": bias}}
    of_filter, of_linear = (
        laplace.spectrum(laplace.linearize(each, weights, views), p)
        for each, weights in ((net, params), (Linear(2), flat))
    )
    for one, other in zip(of_filter, of_linear, strict=True):
        np.testing.assert_allclose(one["Conv_0"], other["Dense_0"], atol=1e-5)


@pytest.mark.slow
def test_convolutions_have_exact_biases_and_kernels_of_the_right_size() -> None:
    """Against the dense matrix."""
    net, views = SimpleConv(2, width=1), jax.random.normal(jax.random.key(9), (1, 12, 8, 8, 1))
    params: Any = net.init(jax.random.key(10), views[0])["params"]
    params = jax.tree.map(lambda w: w + 0.1, params)
    around = laplace.linearize(net, params, views)
    p = jax.nn.softmax(around.logits)
    weight = jax.vmap(jnp.diag)(p) - p[:, :, None] * p[:, None, :]
    dense, found = _dense_curvature(net, params, views, weight), laplace.spectrum(around, p)
    flat, unravel = jax.flatten_util.ravel_pytree(params)
    places = unravel(jnp.arange(len(flat)) + 0.0)
    for name in ("conv0", "conv3", "head"):
        at = np.asarray(places[name]["bias"], int)
        exact = jnp.linalg.eigvalsh(dense[np.ix_(at, at)])
        np.testing.assert_allclose(found.biases[name], exact, rtol=1e-3, atol=1e-3)
    exact = jnp.linalg.slogdet(dense + 0.1 * jnp.eye(len(dense)))[1]
    none = len(dense) * math.log(0.1)  # without any curvature
    ratio = float((laplace.log_determinant(found, jnp.asarray(0.1)) - none) / (exact - none))
    assert 1.0 < ratio < 5.0  # of so few images; of 150 it is 2.5


def _minus_evidence(net: nn.Module, params: Any) -> Any:
    images = jax.random.normal(jax.random.key(4), (5, 8, 8, 1))
    u = jax.random.uniform(jax.random.key(5), (3, 5, 1), minval=-1.0)
    labels = jnp.arange(5) % 3

    def of_range(half_range: jax.Array) -> jax.Array:
        around = laplace.linearize(net, params, ROTATION(images, half_range * u))
        log_p = jax.nn.log_softmax(around.logits)
        fit = jnp.sum(jnp.take_along_axis(log_p, labels[:, None], axis=1))
        found = laplace.spectrum(around, jnp.exp(log_p))
        return -laplace.evidence(fit, params, found, LOG_PRECISION)

    return of_range


@pytest.mark.slow
def test_the_slope_in_the_range_is_that_of_finite_differences() -> None:
    net = MLP(3, hidden=(6,), activation="tanh")
    params = net.init(jax.random.key(6), jnp.zeros((1, 8, 8, 1)))["params"]
    params = jax.tree.map(lambda w: 3.0 * w, params)
    of_range, at, step = _minus_evidence(net, params), jnp.asarray(0.3), 2e-3
    wanted = (of_range(at + step) - of_range(at - step)) / (2 * step)
    np.testing.assert_allclose(jax.grad(of_range)(at), wanted, rtol=2e-2)


def _learn(distribution: Any, learner: Laplace, **fields: Any) -> tuple[Any, Any, Any]:
    """The state, its step, and the step of the evidence, of the images of `steps`."""
    net = MLP(3, hidden=(8,), activation="tanh")
    objective = Objective(
        judge="evidence", average="logits", include_original=False, copies=4, images=24, **fields
    )
    optimizer, controller = optax.adam(1e-2), Constant(0.0)
    state = training.init_state(
        net, distribution, optimizer, controller, IMAGES[:4], key=jax.random.key(1),
        learner=learner,
    )  # fmt: skip
    parts = (net, distribution, ROTATION)
    step = training.make_step(*parts, optimizer, controller, objective, placement=ONE)
    evidence_step = make_evidence_step(*parts, learner, objective, placement=ONE)
    return ONE.replicate(state), step, evidence_step


@pytest.mark.slow
def test_the_step_moves_the_classifier_and_the_evidence_the_density() -> None:
    state, step, evidence_step = _learn(Augerino(dim=1), Laplace())
    everything = jnp.arange(24)
    after = step(copy(state), IMAGES, LABELS, everything)
    assert changed(state, after, "classifier")
    assert not changed(state, after, "distribution")
    assert float(after.laplace.log_precision) == 0.0
    learned = evidence_step(copy(after), IMAGES, LABELS, everything)
    assert not changed(after, learned, "classifier")
    assert changed(after, learned, "distribution")
    assert float(learned.laplace.log_precision) != 0.0
    assert float(learned.laplace.evidence) < 0.0
    assert int(learned.step) == int(after.step)


def test_the_loss_has_the_prior_of_the_weights() -> None:
    strong, weak = (_learn(Identity(dim=1), Laplace(precision=p))[:2] for p in (200.0, 2.0))
    losses = [
        float(step(copy(state), IMAGES, LABELS, jnp.arange(24)).totals["loss"])
        for state, step in (strong, weak)
    ]
    squares = sum(float(jnp.sum(w**2)) for w in jax.tree.leaves(strong[0].params["classifier"]))
    size = sum(w.size for w in jax.tree.leaves(strong[0].params["classifier"]))
    wanted = 198.0 * squares / 48 - size * math.log(100.0) / 48
    assert losses[0] - losses[1] == pytest.approx(wanted, rel=1e-4)


def test_a_part_of_the_images_stands_for_all() -> None:
    """Twice the same images are the images: sums are scaled to all of them."""
    state, _, evidence_step = _learn(Identity(dim=1), Laplace(precision_steps=0))
    twice = evidence_step(copy(state), IMAGES, LABELS, jnp.tile(jnp.arange(12), 2))
    half = evidence_step(copy(state), IMAGES, LABELS, jnp.arange(12))
    np.testing.assert_allclose(half.laplace.evidence, twice.laplace.evidence, rtol=1e-4)


def test_the_precision_climbs_to_the_best() -> None:
    state, _, evidence_step = _learn(
        Identity(dim=1), Laplace(precision_rate=0.05, precision_steps=200)
    )
    state = evidence_step(state, IMAGES, LABELS, jnp.arange(24))
    before = float(state.laplace.evidence)
    state = evidence_step(state, IMAGES, LABELS, jnp.arange(24))
    best = float(state.laplace.evidence)
    state = evidence_step(state, IMAGES, LABELS, jnp.arange(24))
    assert best > before
    assert float(state.laplace.evidence) == pytest.approx(best, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("distribution", [small_flow(), InstaAug(dim=1, embed=Pixels())])
def test_any_density_with_a_pathwise_gradient_learns_by_it(distribution: Any) -> None:
    state, _, evidence_step = _learn(distribution, Laplace())
    learned = evidence_step(copy(state), IMAGES, LABELS, jnp.arange(24))
    assert changed(state, learned, "distribution")
    assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(learned.params))


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_run_that_was_stopped_learns_on_bit_for_bit(tmp_path: Path, monkeypatch) -> None:
    config = smoke(
        objective__judge="evidence",
        objective__average="logits",
        objective__include_original=False,
        classifier__name="mlp",
        classifier__hidden=(8,),
        distribution__name="augerino",
        controller__name="constant",
        controller__value=0.0,
        laplace__images=16,
        laplace__every_steps=2,
        train__checkpoint_every=3,
    )
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    train_and_evaluate(config, whole)
    train_until_the_eighth(config, stopped, monkeypatch)
    train_and_evaluate(config, stopped)
    lines = (stopped / "metrics.jsonl").read_text()
    assert lines == (whole / "metrics.jsonl").read_text()
    learned = [json.loads(line) for line in lines.splitlines()]
    assert all(line["evidence"] < 0 for line in learned if "evidence" in line)
    one, other = (json.loads((run / "results.json").read_text()) for run in (whole, stopped))
    assert one["evidence"] == other["evidence"] == learned[-1]["evidence"]
    assert one["prior_precision"] == other["prior_precision"] != config.laplace.precision
    [row] = [row for row in headline(one) if row.name.startswith("Evidence")]
    assert row.value.endswith(" nats")
    assert row.target.startswith("prior precision ")


def test_refusals() -> None:
    with pytest.raises(ValueError, match=r"parallel is pmap with objective.judge=evidence, .* jit"):
        checks.check(smoke(objective__judge="evidence", parallel="pmap"))
    normed, views = SimpleConv(3, width=1, batch_norm=True), jnp.zeros((1, 2, 8, 8, 1))
    params = normed.init(jax.random.key(0), views[0])["params"]
    with pytest.raises(ValueError, match=r"SimpleConv has weights beside .*norm.* take mlp"):
        laplace.linearize(normed, params, views)
    with pytest.raises(ValueError, match=r"want the first two above 0"):
        Laplace(precision=0.0)
    with pytest.raises(ValueError, match=r'judge is "evidence", .* take average="logits"'):
        Objective(judge="evidence")
    objective = Objective(judge="evidence", average="logits", include_original=False, images=4)
    with pytest.raises(ValueError, match=r'parallel is "pmap", .* take jit'):
        make_evidence_step(
            MLP(3), Augerino(dim=1), ROTATION, Laplace(), objective,
            placement=Placement(jax.devices()[:1], "pmap"),
        )  # fmt: skip
