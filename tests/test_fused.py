"""A layer in one call of C equals its parts: convolution, bias, pooling, ReLU."""

import itertools
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from flowjax_inv.native import fused, onednn
from flowjax_inv.native.fused import layer_onednn
from flowjax_inv.networks.convolutions import Conv, convolve
from flowjax_inv.networks.convolutions.parts import Options
from flowjax_inv.networks.convolutions.pooling import max_pool_2x2

pytestmark = pytest.mark.cpu("the C of flowjax_inv/native is called on CPUs")
needs_onednn = pytest.mark.skipif(not onednn.available(), reason="onednn-cpu-gomp is missing")
EITHER = list(itertools.product([False, True], repeat=2))  # pool, relu
SHAPES = [  # batch, height, width, channels, features, kernel, stride, padding
    (3, 9, 7, 4, 5, 3, 1, 1),  # odd sides; fewer features than C takes at once
    (2, 8, 6, 3, 1, 3, 1, 1),
    (70, 32, 32, 3, 8, 3, 1, 1),  # more images than at a time
    (5, 28, 28, 1, 6, 5, 1, 0),
    (4, 8, 8, 5, 19, 3, 2, 1),
    (3, 5, 5, 6, 4, 5, 1, 0),  # the kernel is the picture
    (0, 6, 6, 3, 4, 3, 1, 1),
]
NARROW = [  # not pooled, two halves of a picture at a time
    (2, 9, 11, 3, 8, 3, 1, 1),  # the lower half has a row less; columns that fill no block
    (3, 6, 5, 1, 8, 5, 1, 2),  # fewer columns than are computed at once
    (2, 3, 20, 3, 8, 3, 1, 0),  # a single row, and no lower half
    (2, 4, 9, 1, 8, 3, 1, 3),  # more padding than the kernel is wide
]
TILED = [  # pooled, Winograd's
    (5, 16, 16, 16, 32, 3, 1, 1),
    (3, 8, 8, 32, 64, 3, 1, 1),
    (2, 5, 4, 8, 16, 3, 1, 1),  # fewer tiles than are multiplied at once; an odd side
    (1, 9, 13, 24, 48, 3, 1, 0),  # tiles that fill no block; no padding
    (7, 6, 5, 8, 16, 3, 1, 3),  # more padding than the kernel is wide: rows without a pixel
    (2, 4, 150, 8, 16, 3, 1, 1),  # more tiles in a row than are made at a time
]


def arrays_of(shape: tuple[int, ...]) -> list[jax.Array]:
    """Return images, a kernel and a bias, from the shape alone."""
    batch, height, width, channels, features, side, *_ = shape
    keys = jax.random.split(jax.random.key(0), 3)
    sizes = [(batch, height, width, channels), (side, side, channels, features), (features,)]
    return [jax.random.normal(key, size) for key, size in zip(keys, sizes, strict=True)]


def parts(images: Any, kernel: Any, bias: Any, options: Options) -> jax.Array:
    """The layer by XLA."""
    x = convolve(images, kernel, options.stride, options.padding) + bias
    x = max_pool_2x2(x) if options.pool else x
    return jax.nn.relu(x) if options.relu else x


LAYERS: Any = (layer_onednn, parts)


@needs_onednn
@pytest.mark.parametrize(("pool", "relu"), EITHER)
@pytest.mark.parametrize("shape", SHAPES + NARROW + TILED, ids=str)
def test_a_layer_equals_its_parts(shape: tuple[int, ...], pool: bool, relu: bool) -> None:
    arrays, options = arrays_of(shape), Options(shape[6], shape[7], pool, relu)
    got, wanted = (layer(*arrays, options) for layer in LAYERS)
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-4)


@pytest.mark.slow
@needs_onednn
@pytest.mark.parametrize(("pool", "relu"), EITHER)
def test_its_derivatives_and_new_axes_are_those_of_its_parts(pool: bool, relu: bool) -> None:
    shape = SHAPES[0]
    arrays, options = arrays_of(shape), Options(shape[6], shape[7], pool, relu)
    others = [jnp.cos(3.0 * array) for array in arrays]
    stacked = [jnp.stack(pair) for pair in zip(arrays, others, strict=True)]

    def results(layer: Any) -> list[jax.Array]:
        value, pull = jax.vjp(lambda *arrays: layer(*arrays, options), *arrays)
        pushed = jax.jvp(lambda *arrays: layer(*arrays, options), arrays, others)[1]
        mapped = []
        for new in ((0, None, None), (None, 0, None), (0, None, 0), (1, 0, 0)):
            given = [
                x if axis is None else jnp.moveaxis(xs, 0, axis)
                for x, xs, axis in zip(arrays, stacked, new, strict=True)
            ]
            mapped.append(jax.vmap(lambda *arrays: layer(*arrays, options), new)(*given))
        return [*pull(jnp.cos(value)), pushed, *mapped]

    for got, wanted in zip(*map(results, LAYERS), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())


@needs_onednn
@pytest.mark.parametrize("features", [3, 8, 20])
@pytest.mark.parametrize("pool", [False, True])
def test_what_is_no_number_stays_none(features: int, pool: bool) -> None:
    """Where XLA's maximum and ReLU keep it: whichever pixel of four it is."""
    images, kernel, bias = arrays_of((4, 6, 6, 2, features, 1, 1, 0))
    for n in range(4):
        images = images.at[n, 2 + n // 2, 2 + n % 2].set(jnp.nan)
    options = Options(1, 0, pool, relu=True)
    got, wanted = layer_onednn(images, kernel, bias, options), parts(images, kernel, bias, options)
    assert np.isnan(wanted).any()
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))


@needs_onednn
@pytest.mark.parametrize("shape", [(2, 8, 8, 8, 16, 3, 1, 1), (2, 8, 8, 3, 8, 3, 1, 1)], ids=str)
@pytest.mark.parametrize("pixel", list(itertools.product([0, 3, 4, 7], repeat=2)))
def test_what_is_no_number_stays_none_in_ours(
    pixel: tuple[int, int], shape: tuple[int, ...]
) -> None:
    images, kernel, bias = arrays_of(shape)
    images = images.at[0, pixel[0], pixel[1], -1].set(jnp.nan)
    options = Options(1, 1, pool=shape[3] == 8, relu=True)
    got, wanted = layer_onednn(images, kernel, bias, options), parts(images, kernel, bias, options)
    assert np.isnan(wanted).any()
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))


@needs_onednn
@pytest.mark.parametrize("shape", NARROW + TILED, ids=str)
def test_ours_rounds_no_worse_than_sums(shape: tuple[int, ...]) -> None:
    """To a few parts in ten million of the largest, as XLA's sums in float32."""
    arrays, options = arrays_of(shape), Options(shape[6], shape[7], shape in TILED, relu=False)
    with jax.enable_x64():
        images, kernel, bias = (np.asarray(x, np.float64) for x in arrays)
        exact = np.asarray(parts(images, kernel, bias, options))
    errors = [
        np.abs(np.asarray(layer(*arrays, options)) - exact).max() / np.abs(exact).max()
        for layer in LAYERS
    ]
    assert errors[0] < max(2.0 * errors[1], 1e-6)


@needs_onednn
@pytest.mark.parametrize("shape", [NARROW[0], TILED[0]], ids=str)
def test_an_image_is_the_same_among_others(shape: tuple[int, ...]) -> None:
    """Bit for bit, whichever thread and block its pixels fall to."""
    (images, kernel, bias), options = arrays_of(shape), Options(1, 1, shape in TILED, relu=True)
    together = layer_onednn(images, kernel, bias, options)
    for n in range(len(together)):
        alone = layer_onednn(images[n : n + 1], kernel, bias, options)
        np.testing.assert_array_equal(alone[0], together[n])


@needs_onednn
def test_undifferentiated_layers_are_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """And exported ones none."""
    layer, images = Conv(4, padding=1, pool=True, relu=True, conv="onednn"), jnp.ones((2, 8, 8, 3))
    variables: Any = jax.jit(layer.init)(jax.random.key(0), images)
    apply: Any = layer.apply
    called = []
    own = fused.foreign.call
    monkeypatch.setattr(
        fused.foreign, "call", lambda name, *a, **k: (called.append(name), own(name, *a, **k))[1]
    )
    value = jax.jit(apply)(variables, images)
    assert called == ["layer"]
    jax.jit(jax.grad(lambda v: apply(v, images).sum()))(variables)
    assert called == ["layer", "forward", "d_kernel"]
    exported = jax.export.export(jax.jit(apply), platforms=("cpu", "cuda"))(variables, images)
    assert "custom_call" not in exported.mlir_module()
    np.testing.assert_allclose(exported.call(variables, images), value, atol=1e-5)


@pytest.mark.parametrize(("pool", "relu"), EITHER)
@pytest.mark.parametrize("use_bias", [False, True])
@pytest.mark.parametrize("conv", ["lax", "patches", pytest.param("onednn", marks=needs_onednn)])
def test_conv_pools_and_rectifies(conv: Any, use_bias: bool, pool: bool, relu: bool) -> None:
    images, kernel, bias = arrays_of((2, 8, 6, 3, 4, 3, 1, 1))
    variables: Any = {"params": {"kernel": kernel} | ({"bias": bias} if use_bias else {})}
    layer = Conv(4, padding=1, use_bias=use_bias, pool=pool, relu=relu, conv=conv)
    wanted = parts(images, kernel, bias * use_bias, Options(1, 1, pool, relu))
    np.testing.assert_allclose(np.asarray(layer.apply(variables, images)), wanted, atol=1e-5)
