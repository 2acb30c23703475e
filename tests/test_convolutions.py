"""The fast convolutions equal XLA's, in value and in derivatives, and pad as PyTorch does."""

import re
from typing import Any

import flax.linen as nn
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from flowjax_inv.native import convolutions, onednn
from flowjax_inv.native.convolutions import convolve_onednn
from flowjax_inv.networks.convolutions import (
    Conv,
    convolve,
    convolve_patches,
    layer,
    patches,
    uniform_fan_in,
)

needs_onednn = pytest.mark.skipif(not onednn.available(), reason="onednn-cpu-gomp is missing")

SHAPES = [  # batch, height, width, channels, features, kernel, stride, padding
    (5, 28, 28, 1, 6, 5, 1, 0),  # LeNet; one patch per row
    (3, 12, 15, 3, 4, 3, 1, 1),  # blocks of a row
    (3, 9, 7, 4, 5, 3, 1, 1),  # a width that no block divides
    (70, 9, 7, 6, 4, 3, 1, 1),  # slices, the last one short
    (9, 10, 12, 8, 8, 3, 1, 0),  # pairs of outputs forward, fours for the input gradient
    (9, 8, 8, 6, 16, 3, 1, 1),  # pairs and fours, padded
    (7, 9, 8, 8, 16, 3, 1, 1),  # pairs of columns, of the input too
    (5, 6, 6, 5, 6, 3, 1, 3),  # padding as wide as the kernel
    (35, 8, 8, 5, 6, 3, 2, 1),
    (35, 8, 9, 3, 6, 3, 2, 1),  # few channels, stride 2: slices
    (9, 8, 8, 6, 4, 1, 2, 0),  # 1x1
    (9, 7, 7, 6, 4, 1, 1, 0),
    (9, 5, 5, 6, 4, 5, 1, 0),  # the kernel is the picture
]


# One patch per row, pairs of columns, a stride and 1x1, for the fast loop.
FAST = (SHAPES[0], SHAPES[6], SHAPES[8], SHAPES[10])


@pytest.mark.parametrize(
    "shape",
    [pytest.param(s, marks=() if s in FAST else pytest.mark.slow) for s in SHAPES],
    ids=str,
)
@pytest.mark.parametrize(
    "fast", [convolve_patches, pytest.param(convolve_onednn, marks=needs_onednn)]
)
def test_fast_ones_equal_lax(fast: Any, shape: tuple[int, ...]) -> None:
    batch, height, width, channels, features, side, stride, padding = shape
    x = jax.random.normal(jax.random.key(0), (batch, height, width, channels))
    kernel = jax.random.normal(jax.random.key(1), (side, side, channels, features))

    def results(f):
        """The value, both gradients, and in forward mode along the images, the kernel and both."""
        primals, tangents = (x, kernel), (jnp.cos(3.0 * x), jnp.cos(3.0 * kernel))
        value, pull = jax.vjp(lambda x, k: f(x, k, stride, padding), *primals)
        pushed = [
            jax.jvp(lambda x: f(x, kernel, stride, padding), primals[:1], tangents[:1])[1],
            jax.jvp(lambda k: f(x, k, stride, padding), primals[1:], tangents[1:])[1],
            jax.jvp(lambda x, k: f(x, k, stride, padding), primals, tangents)[1],
        ]
        return value, *pull(jnp.cos(value)), *pushed

    for got, wanted in zip(results(fast), results(convolve), strict=True):
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.slow
def test_every_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shapes above reach the banded patches and the slices, and not only by name."""
    seen = []
    for name in ("convolve_banded", "_sliced", "_widened", "_paired"):
        own = getattr(patches, name)
        monkeypatch.setattr(
            patches, name, lambda *args, own=own, name=name: (seen.append(name), own(*args))[1]
        )
    for batch, height, width, channels, features, side, stride, padding in SHAPES:
        x = jnp.zeros((batch, height, width, channels))
        convolve_patches(x, jnp.zeros((side, side, channels, features)), stride, padding)
    wide = ["_sliced", "_widened"]
    assert seen == ["convolve_banded"] * 3 + wide * 4 + ["_paired"] + wide + ["_sliced"] * 2


def test_gradients_are_wide_and_in_slices() -> None:
    """Transposing the tangents gives them: equal numbers from slow kernels would go unnoticed."""

    def loss(x: jax.Array, kernel: jax.Array) -> jax.Array:
        return jnp.sum(jnp.square(convolve_patches(x, kernel, 1, 1)))

    x, kernel = jnp.zeros((70, 8, 8, 6)), jnp.zeros((3, 3, 6, 4))
    text = jax.jit(jax.grad(loss, (0, 1))).lower(x, kernel).as_text()
    made = re.findall(r"stablehlo\.convolution.* -> tensor<(\w+)xf32>", text)
    # Forward four outputs as one and the input gradient two; the kernel's of 32, 32 and 6 pictures.
    assert sorted(made) == ["3x3x6x4"] * 3 + ["70x8x2x16", "70x8x4x12"]


@pytest.mark.parametrize(
    ("batch", "numbers", "expected"),
    [
        (320, 1, 32),
        (320, 2 * 32 * 32 * 16, 16),
        (32, 2 * 32 * 32 * 64, 4),
        (32, 10**9, 4),
        (1280, 2 * 32 * 32 * 16, 40),  # 32 slices at most: each costs time to compile
    ],
)
def test_slices_fit_the_cache_and_are_few(batch: int, numbers: int, expected: int) -> None:
    assert patches._slice_length(batch, numbers) == expected


@pytest.mark.parametrize(("height", "stride", "padding"), [(8, 2, 1), (7, 2, 1), (8, 1, 0)])
def test_padding_is_pytorchs(height: int, stride: int, padding: int) -> None:
    """Output i sees the padded inputs i * stride .. i * stride + 2."""
    x = jax.random.normal(jax.random.key(0), (1, height, height, 1))
    kernel = jax.random.normal(jax.random.key(1), (3, 3, 1, 1))
    padded = np.pad(x[0, :, :, 0], padding)
    side = (height + 2 * padding - 3) // stride + 1
    expected = [
        [
            np.sum(
                padded[i * stride : i * stride + 3, j * stride : j * stride + 3] * kernel[..., 0, 0]
            )
            for j in range(side)
        ]
        for i in range(side)
    ]
    np.testing.assert_allclose(convolve(x, kernel, stride, padding)[0, ..., 0], expected, atol=1e-5)


@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize(
    "conv", ["auto", "lax", pytest.param("onednn", marks=needs_onednn), "patches"]
)
def test_conv_is_flax_conv(conv: Any, use_bias: bool) -> None:
    """Parameters of one fit the other; the bias starts away from zero here."""
    x = jax.random.normal(jax.random.key(0), (2, 6, 5, 7))
    ours = Conv(4, padding=1, use_bias=use_bias, conv=conv, bias_init=nn.initializers.ones)
    variables: Any = jax.jit(ours.init)(jax.random.key(1), x)
    theirs = nn.Conv(4, (3, 3), use_bias=use_bias).apply(variables, x)
    np.testing.assert_allclose(np.asarray(ours.apply(variables, x)), np.asarray(theirs), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("there", [False, pytest.param(True, marks=needs_onednn)])
def test_auto_is_fast_on_one_device_in_both_modes(
    there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests run on four devices, where it is lax."""
    seen = []
    monkeypatch.setattr(onednn, "available", lambda: there)
    for room, name in ((convolutions, "convolve_onednn"), (layer, "convolve_patches")):
        own = getattr(room, name)
        monkeypatch.setattr(
            room, name, lambda *args, own=own, name=name: (seen.append(name), own(*args))[1]
        )
    x = jax.random.normal(jax.random.key(0), (2, 6, 6, 8))
    variables = jax.jit(Conv(4).init)(jax.random.key(1), x)

    def jacobians() -> list[jax.Array]:
        def total(x: jax.Array) -> jax.Array:
            out: Any = Conv(4).apply(variables, x)
            return jnp.sum(jnp.square(out), axis=(1, 2, 3))

        return jax.jit(lambda x: [jax.jacfwd(total)(x), jax.jacrev(total)(x)])(x)

    wanted = jacobians()
    assert not seen
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    got = jacobians()
    assert set(seen) == {"convolve_onednn" if there else "convolve_patches"}
    for one in got:
        np.testing.assert_allclose(one, wanted[0], atol=1e-4)
    seen.clear()
    half = x.astype(jnp.bfloat16)
    layer._implementation("auto", half)(half, jnp.zeros((3, 3, 8, 4), jnp.bfloat16))
    assert seen == ["convolve_patches"]


def test_uniform_fan_in_fills_its_interval() -> None:
    x = uniform_fan_in(25)(jax.random.key(0), (100, 100), jnp.float32)
    assert -0.2 <= x.min() < -0.199
    assert 0.199 < x.max() <= 0.2
    assert abs(x.mean()) < 0.01


def test_unknown_conv_is_refused() -> None:
    layer: Any = Conv(4).clone(conv="sliced")
    with pytest.raises(ValueError, match='conv is "sliced"; allowed: auto, lax, onednn, patches.'):
        jax.jit(layer.init)(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
