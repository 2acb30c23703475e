"""Under `jax_enable_x64`: what is float32 stays it, and what is float64 agrees to ten digits."""

from collections.abc import Iterator
from typing import Any

import chex
import jax
import jax.numpy as jnp
import laws_distributions as laws
import numpy as np
import optax
import pytest
from crop_cases import flow_lrp, lrp
from laws_distributions import Pixels
from warp_cases import BOXES, GOLDEN, as_matrices, value_and_gradients

from flowjax_inv import training, warps
from flowjax_inv.distributions.box import InstaAug
from flowjax_inv.distributions.flow import Flow
from flowjax_inv.distributions.gaussian import ConditionalGaussian
from flowjax_inv.inference import make_mean_shift, make_predict
from flowjax_inv.native import foreign
from flowjax_inv.networks import FixupResNet, SimpleConv
from flowjax_inv.training.controllers import EntropyBand
from flowjax_inv.training.objectives import Objective
from flowjax_inv.training.placement import Placement
from flowjax_inv.transforms import Affine

pytestmark = pytest.mark.slow
FLOATS = ("float32", "float64")


@pytest.fixture(autouse=True)
def _double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("of_map", FLOATS)
@pytest.mark.parametrize("of_images", FLOATS)
def test_warps_and_crops(of_images: str, of_map: str) -> None:
    """Every method, value and gradients: those of float64, which float32 comes near."""
    images = GOLDEN["images"].astype(of_images)
    maps = as_matrices(BOXES)[:, None].astype(of_map)
    weights = np.random.default_rng(0).normal(size=(len(BOXES), *images.shape))

    def found(method: str, images: np.ndarray, maps: np.ndarray) -> tuple[jax.Array, ...]:
        def warp(x: jax.Array, m: jax.Array) -> jax.Array:
            return warps.warp(x, m, method=method)

        return value_and_gradients(warp, images, maps, weights)

    wanted = found("map_coordinates", images.astype("float64"), maps.astype("float64"))
    exact = of_images == of_map == "float64"
    for method in warps.METHODS:
        if method == "native" and not foreign.available():
            continue
        got = found(method, images, maps)
        assert [str(x.dtype) for x in got] == [of_images, of_images, of_map]
        near = 1e-10 if exact and method != "native" else 1e-3  # C computes in float32
        for x, y in zip(got[:2], wanted[:2], strict=True):
            np.testing.assert_allclose(x, y, atol=near)
        # The first map is on pixel centres, where the derivative jumps.
        np.testing.assert_allclose(got[2][1:], wanted[2][1:], rtol=near, atol=10 * near)
    cut = warps.crop(images, BOXES[:, None].astype(of_map))
    assert str(cut.dtype) == of_images
    np.testing.assert_allclose(cut, wanted[0], atol=1e-10 if exact else 1e-4)
    assert warps.valid_mask(maps, 7, 11).dtype == bool


@pytest.mark.parametrize("of_images", FLOATS)
@pytest.mark.parametrize("conv", ["auto", "lax", "patches"])
def test_networks_keep_their_parameters_in_float32(
    conv: Any, of_images: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax, "device_count", lambda: 1)  # where "auto" is oneDNN, if it can
    images = np.random.default_rng(1).normal(size=(2, 8, 8, 3)).astype(of_images)
    for network in (SimpleConv(3, width=4, conv=conv), FixupResNet(3, width=4, conv=conv)):
        out, variables = jax.jit(network.init_with_output)(jax.random.key(0), images)
        assert {str(leaf.dtype) for leaf in jax.tree.leaves(variables)} == {"float32"}
        assert str(out.dtype) == of_images


DENSITIES = {
    "coupling_2": lambda: Flow(2, Pixels(), layers=3, width=8, components=3, start_scale=0.5),
    "spline_1": lambda: Flow(1, Pixels(), bijection="spline", base="unit_box", layers=1, width=8),
    "instaaug_2": lambda: InstaAug(2, Pixels()),
    "gaussian_full_2": lambda: ConditionalGaussian(2, Pixels(), covariance="full"),
    "instaaug_lrp": lrp,
    "flow_lrp": flow_lrp,
}


@pytest.mark.parametrize("name", DENSITIES)
def test_samples_have_the_density_they_were_drawn_with(name: str) -> None:
    """What float32 hides by its rounding: log g of a sample is what was found when drawing it."""
    case = laws.case(name, DENSITIES[name]())
    initial = jax.eval_shape(case.module.init, jax.random.key(0), laws.IMAGES)
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(initial)} == {"float32"}

    def as_type(dtype: Any, *trees: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf.astype(dtype), trees)

    @jax.jit
    def drawn(images: jax.Array, variables: Any) -> Any:
        density = case.density(images, variables)
        return density.sample_and_log_prob(seed=jax.random.key(1), sample_shape=(50,))

    @jax.jit
    def log_prob(images: jax.Array, variables: Any, theta: jax.Array) -> Any:
        return case.density(images, variables).log_prob(theta)

    double = as_type(jnp.float64, laws.IMAGES, case.variables)
    theta, found = drawn(*double)
    assert found.dtype == jnp.float64
    np.testing.assert_allclose(log_prob(*double, theta), found, rtol=1e-10, atol=1e-10)
    near = log_prob(*as_type(jnp.float32, laws.IMAGES, case.variables, theta))
    np.testing.assert_allclose(near, found, atol=1e-3)


def test_a_step_a_prediction_and_a_mean_shift() -> None:
    images = jax.random.randint(jax.random.key(0), (8, 8, 8, 1), 0, 256).astype(jnp.uint8)
    labels, place = jnp.arange(8) % 3, Placement(jax.devices()[:1])
    classifier = SimpleConv(3, width=4)
    flow = Flow(1, Pixels(), layers=2, width=8, components=2)
    transform, optimizer = Affine("rotation"), optax.adam(1e-2)
    controller = EntropyBand(low=-1.0, high=0.5)
    parts = (classifier, flow, transform, optimizer, controller)
    state = training.init_state(
        classifier, flow, optimizer, controller, images, key=jax.random.key(1)
    )
    dtypes = jax.tree.map(lambda leaf: leaf.dtype, state)
    state = place.replicate(state)
    step = training.make_step(*parts, Objective(), placement=place)
    state = step(state, images, labels, np.arange(8))
    chex.assert_trees_all_equal(jax.tree.map(lambda leaf: leaf.dtype, state), dtypes)
    chex.assert_tree_all_finite((state.params, state.totals))
    variables = {name: {"params": tree} for name, tree in state.params.items()}
    floats = images.astype(jnp.float32) / 255
    predict = make_predict(classifier, flow, transform, num_samples=4)
    np.testing.assert_allclose(
        jnp.sum(predict(variables, floats, jax.random.key(2)), -1), 1, rtol=1e-6
    )
    shift = make_mean_shift(flow, transform, steps=2)
    shifted = shift(variables["distribution"], floats, jax.random.key(3))
    assert shifted.images.dtype == jnp.float32
    assert bool(jnp.all(jnp.isfinite(shifted.theta)))
    started = make_mean_shift(flow, transform, steps=1, start=jnp.zeros(1, jnp.float32))
    assert jnp.isfinite(started(variables["distribution"], floats, jax.random.key(3)).theta).all()
    theta = jnp.zeros((2, 6), jnp.float32)
    assert Affine().matrix(theta).dtype == jnp.float32
