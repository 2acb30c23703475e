"""A classifier in bfloat16, all around it in float32; products of densities never round."""

import functools
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from laws_distributions import Pixels

from experiments.setup import build, checks, defaults
from flowjax_inv import export, training
from flowjax_inv.distributions.flow import Flow
from flowjax_inv.export import with_plain_convolutions
from flowjax_inv.inference import make_predict
from flowjax_inv.networks import (
    MLP,
    Bfloat16,
    FixupResNet,
    Layer13,
    LeNet,
    PolarConv,
    PreActResNet18,
    SimpleConv,
)
from flowjax_inv.training.controllers import Constant
from flowjax_inv.training.objectives import Objective
from flowjax_inv.training.placement import Placement
from flowjax_inv.transforms import Affine

NETWORKS = [
    (SimpleConv(4, 4, batch_norm=True), 16),
    (LeNet(4), 28),
    (FixupResNet(4, 4), 16),
    (Layer13(4, 4, dropout_rate=0.0), 16),
    (PreActResNet18(4), 32),
    (PolarConv(4, 4), 16),
    (MLP(4, (20,)), 8),
]
ROUNDING = 2.0**-8  # between neighbouring numbers of bfloat16, relative
ONE = Placement(jax.devices()[:1])
ROTATION = Affine("rotation")


def moved(variables: Any, scale: float = 0.1) -> Any:
    """Weights away from their start: some layers begin with zeros."""
    noise = np.random.RandomState(0)
    return jax.tree.map(
        lambda leaf: leaf + scale * np.abs(noise.normal(size=leaf.shape)).astype("f4"), variables
    )


def products(jaxpr: Any) -> list[Any]:
    """All matrix products and convolutions, in inner programs as well."""
    found = []
    for equation in jaxpr.eqns:
        if equation.primitive.name in ("conv_general_dilated", "dot_general"):
            found.append(equation)
        for inner in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")
        ):
            if hasattr(inner, "eqns"):
                found += products(getattr(inner, "jaxpr", inner))
    return found


@pytest.mark.parametrize(("network", "size"), NETWORKS, ids=lambda c: str(c)[:12])
def test_products_are_in_bfloat16_and_all_around_them_in_float32(network: Any, size: int) -> None:
    """Traced, not compiled: forward and backward."""
    if hasattr(network, "conv"):
        network = network.clone(conv="lax")
    half, images = Bfloat16(network), jnp.zeros((2, size, size, 3))

    def train(params: Any, rest: Any) -> Any:
        out, kept = half.apply(rest | {"params": params}, images, train=True, mutable=True)
        return jnp.sum(out), (out, kept)

    def both(variables: Any) -> Any:
        return jax.grad(train, has_aux=True)(variables["params"], variables)

    variables = jax.eval_shape(half.init, jax.random.key(0), images)
    chex.assert_trees_all_equal(variables, jax.eval_shape(network.init, jax.random.key(0), images))
    traced, shapes = jax.make_jaxpr(both, return_shape=True)(variables)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(shapes)} == {"float32"}
    seen = products(traced.jaxpr)
    assert len(seen) >= 3
    assert {variable.aval.dtype.name for each in seen for variable in each.invars} == {"bfloat16"}


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("instaaug", {}),
        ("gaussian", {}),
        ("flow", {"hidden_layers": 2}),
        ("flow", {"bijection": "spline", "base": "box"}),
    ],
)
def test_products_of_a_density_are_of_the_highest_precision(name: str, fields: Any) -> None:
    """Accelerators round those of float32 to TF32 or bfloat16, forwards unlike backwards."""
    config = defaults.get_config()
    config.transform.subgroup, config.distribution.name = "rotation", name
    config.distribution.update(fields)
    distribution: Any = build.distribution(config, build.transform(config), classes=2)
    distribution = distribution.clone(embed=Pixels())

    def value(variables: Any, images: Any) -> jax.Array:
        density = distribution.apply(variables, images)
        theta, log_prob = density.sample_and_log_prob(seed=jax.random.key(1), sample_shape=(3,))
        there = jax.lax.stop_gradient(theta)
        return jnp.sum(theta) + jnp.sum(log_prob) + jnp.sum(density.log_prob(there))

    images = jnp.zeros((2, 8, 8, 3))
    variables = jax.eval_shape(distribution.init, jax.random.key(0), images)
    seen = products(jax.make_jaxpr(jax.grad(value))(variables, images).jaxpr)
    assert seen
    assert {each.params["precision"] for each in seen} == {(jax.lax.Precision.HIGHEST,) * 2}


@pytest.mark.slow
@pytest.mark.parametrize("conv", ["lax", "patches"])
def test_it_computes_what_the_network_does(conv: Any) -> None:
    """As near as the rounding allows, with the very same weights; gradients point the same way."""
    network = SimpleConv(4, 4, conv=conv)
    half, images = Bfloat16(network), jax.random.uniform(jax.random.key(1), (8, 16, 16, 3))
    variables = moved(jax.jit(network.init)(jax.random.key(0), images))

    @functools.partial(jax.jit, static_argnums=1)
    @functools.partial(jax.grad, has_aux=True)
    def slopes(variables: Any, network: Any) -> Any:
        out = network.apply(variables, images)
        return jnp.sum(jnp.square(out)), out

    (theirs, wanted), (ours, got) = (slopes(variables, which) for which in (network, half))
    assert 0 < np.abs(got - wanted).max() < 4 * ROUNDING * np.abs(wanted).max()
    a, b = (np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(g)]) for g in (theirs, ours))
    assert a @ b > 0.99 * np.linalg.norm(a) * np.linalg.norm(b)


@pytest.mark.slow
def test_densities_and_small_updates_stay_float32() -> None:
    """The first step samples the same views to the bit; updates below the rounding add up."""
    images = jax.random.randint(jax.random.key(0), (8, 8, 8, 1), 0, 256).astype(jnp.uint8)
    flow = Flow(dim=1, embed=Pixels(), layers=2, width=8, components=2)
    network, rate = MLP(3, hidden=(8,)), 1e-5

    def after(classifier: Any) -> tuple[Any, Any]:
        parts = (optax.sgd(rate), Constant(0.3))
        state = training.init_state(classifier, flow, *parts, images[:4], key=jax.random.key(1))
        step = training.make_step(classifier, flow, ROTATION, *parts, Objective(), placement=ONE)
        started = jax.tree.map(jnp.copy, state.params["classifier"])
        return started, step(ONE.replicate(state), images, jnp.arange(8) % 3, np.arange(8))

    (_, full), (started, half) = after(network), after(Bfloat16(network))
    for name in ("entropy", "saturated_share"):
        assert float(full.totals[name]) == float(half.totals[name])
    assert float(full.totals["loss"]) == pytest.approx(float(half.totals["loss"]), rel=0.02)
    assert float(full.totals["loss"]) != float(half.totals["loss"])
    before, now = started["head"]["kernel"], half.params["classifier"]["head"]["kernel"]
    change = np.abs(now - before) / np.abs(before)
    assert 0 < np.median(change) < ROUNDING / 4


@pytest.mark.slow
def test_it_is_exported(tmp_path) -> None:
    """The program on disk computes in bfloat16 as well: it equals the library's to the rounding."""
    images = jax.random.randint(jax.random.key(0), (5, 16, 16, 3), 0, 256).astype(jnp.uint8)
    flow = Flow(dim=1, embed=Pixels(), layers=2, width=4, components=2)
    modules = (Bfloat16(SimpleConv(3, 2)), flow, ROTATION)
    weights = {
        name: moved(jax.jit(module.init)(jax.random.key(0), images / 255.0))
        for name, module in zip(("classifier", "distribution"), modules[:2], strict=True)
    }
    plain: Any = with_plain_convolutions(modules[0])
    assert plain.inner.conv == "lax"
    export.write_predictor(
        tmp_path / "x", *modules, weights, image_shape=images.shape[1:], class_names="abc",
        num_samples=2,
    )  # fmt: skip
    got = export.load(tmp_path / "x")(images, jax.random.key(2))
    wanted = make_predict(*modules, num_samples=2)(
        weights, images / jnp.float32(255), jax.random.key(2)
    )
    np.testing.assert_allclose(got["probabilities"], wanted, atol=4 * ROUNDING)


def test_one_field_asks_for_it() -> None:
    config = defaults.get_config()
    assert isinstance(build.network(config, "classifier", classes=2), SimpleConv)
    config.classifier.dtype = "bfloat16"
    assert isinstance(build.network(config, "classifier", classes=2), Bfloat16)
    assert isinstance(build.network(config, "embedding", classes=2), SimpleConv)
    config.classifier.name, config.classifier.function = "outside", "math:sqrt"
    with pytest.raises(ValueError, match="dtype is bfloat16, but outside holds its own weights"):
        checks.check(config)
