"""The kernels for CUDA: computed step by step they are XLA's numbers, and they lower from a CPU."""

import math
import re
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from warp_cases import GOLDEN

from benchmarks.random_pictures import random_pictures
from experiments import cifar10
from experiments.setup.assembly import assemble
from flowjax_inv import warps
from flowjax_inv.native import triton
from flowjax_inv.native import warps as native
from flowjax_inv.warps import taps
from flowjax_inv.warps.positions import pixel_rows

_close = partial(np.testing.assert_allclose, atol=1e-5, rtol=1e-5)


def _case(height: int, width: int, channels: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Images (3, H, W, C), maps (2, 3, 2, 3) that leave the picture too, and pulls."""
    rng = np.random.default_rng(height)
    images = rng.normal(size=(3, height, width, channels)).astype(np.float32)
    matrices = np.eye(3) + 0.4 * rng.normal(size=(2, 3, 3, 3))
    rows = pixel_rows(jnp.asarray(matrices, jnp.float32), height, width, align_corners=True)
    ct = rng.normal(size=(2, 3, height, width, channels)).astype(np.float32)
    return jnp.asarray(images), rows, jnp.asarray(ct)


@pytest.mark.parametrize("padding", warps.PADDINGS)
@pytest.mark.parametrize("size", [(5, 7, 3), pytest.param((20, 17, 1), marks=pytest.mark.slow)])
def test_values_and_slopes_are_those_of_the_taps(size: tuple[int, ...], padding: str) -> None:
    """In one block of pixels, and in several whose last is not full."""
    images, rows, ct = _case(*size)
    values = triton.blend(images, rows, padding=padding, interpret=True)
    _close(values, taps.blend(images, rows, (2, 3), padding))
    slopes = triton.slopes(images, rows, ct, padding=padding, interpret=True)
    wanted = native._slopes_xla(images, rows, ct, padding=padding)
    scale = float(jnp.abs(wanted).max())
    _close(slopes / scale, wanted / scale)


def test_they_meet_the_golden_file() -> None:
    images = jnp.asarray(GOLDEN["images"], jnp.float32)
    matrices = jnp.asarray(GOLDEN["matrices"], jnp.float32)
    height, width = images.shape[1:3]
    rows = pixel_rows(matrices, height, width, align_corners=True)[:, None]
    rows = jnp.broadcast_to(rows, (len(matrices), len(images), 2, 3))
    values = triton.blend(images, rows, padding="zeros", interpret=True)
    wanted = warps.warp(images, matrices[:, None], method="gather", padding="zeros")
    _close(values, wanted)


def test_the_identity_is_exact_and_nan_is_seen() -> None:
    images, rows, _ = _case(5, 7, 2)
    same = jnp.broadcast_to(jnp.eye(2, 3), rows.shape)
    values = triton.blend(images, same, padding="zeros", interpret=True)
    np.testing.assert_array_equal(values[0], images)
    lost = triton.blend(images, same.at[0, 1].set(jnp.nan), padding="border", interpret=True)
    assert jnp.isnan(lost[0, 1]).all()
    assert not jnp.isnan(lost[1]).any()


def _lowered(call, *arguments) -> str:
    """The program for CUDA, made without a card."""
    return jax.jit(call).trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()


def _moved(program: str) -> list[int]:
    """Bytes that each of our kernels reads and writes."""
    kernels = [line for line in program.splitlines() if "xla.gpu.triton" in line]
    shapes = [re.findall(r"tensor<([\dx]+)xf32>", line.rpartition(" : ")[2]) for line in kernels]
    return [sum(4 * math.prod(map(int, shape.split("x"))) for shape in each) for each in shapes]


def test_a_warp_for_cuda_is_one_kernel_and_its_derivative_one_more(monkeypatch) -> None:
    monkeypatch.setattr(native.jax, "default_backend", lambda: "gpu")
    images = jnp.asarray(GOLDEN["images"], jnp.float32)
    matrices = jnp.broadcast_to(jnp.eye(3), (len(images), 3, 3))
    warp = partial(warps.warp, method="native")
    values = _lowered(warp, images, matrices)
    assert "stablehlo.gather" not in values
    size, maps = images.size, 6 * len(images)
    # What memory sees: pictures and maps read, views written; then those, their pulls, six sums.
    assert _moved(values) == [4 * (size + maps + size)]
    derivative = jax.value_and_grad(lambda m, i: jnp.sum(warp(i, m) ** 2))
    both = _lowered(derivative, matrices, images)
    assert "stablehlo.gather" not in both
    assert sorted(_moved(both)) == sorted(
        [4 * (size + maps + size), 4 * (size + maps + size + maps)]
    )


@pytest.mark.slow
def test_a_train_step_for_cuda_is_two_kernels_for_the_warp_and_two_loops_for_the_flow(
    monkeypatch,
) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    config = cifar10.get_config("smoke")
    config.transform.warp = "native"
    config.classifier.conv = config.embedding.conv = "lax"
    parts = assemble(config, random_pictures(64, (32, 32, 3), 10))
    step: Any = parts.make_step(resident=True)
    state = jax.eval_shape(parts.init_state)
    images, labels = parts.data.train.images, parts.data.train.labels
    traced = step.trace(state, images, labels, np.arange(16))
    program = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert len(_moved(program)) == 2
    assert program.count("stablehlo.while") == 2  # the couplings, there and back
    others = program.replace("custom_call @__gpu$xla.gpu.triton", "")
    assert "custom_call @" not in others  # nothing of a CPU's library
