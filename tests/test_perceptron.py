"""Conditioners in C: the same numbers and derivatives as XLA's operations, on a CPU alone."""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from flowjax_inv.distributions.perceptron import perceptron_xla
from flowjax_inv.native import foreign
from flowjax_inv.native.perceptron import perceptron

pytestmark = pytest.mark.cpu("the C of flowjax_inv/native is called on CPUs")
compiled = pytest.mark.skipif(not foreign.available(), reason="perceptron.c is not compiled")


@pytest.fixture(autouse=True)
def one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "device_count", lambda: 1)


def _case(dim: int, images: int, samples: int, width: int) -> tuple[Any, ...]:
    """Return the arguments, half of all hidden units at rest, and a cotangent."""
    kept, outputs, random = (dim + 1) // 2, 2 * (dim // 2), np.random.default_rng(dim)
    shapes = (
        (width, images),
        (kept, width),
        (kept, images * samples),
        (width, outputs),
        (outputs,),
        (outputs, images * samples),
    )
    return tuple(random.normal(size=shape).astype(np.float32) for shape in shapes)


def _number(function: Callable[..., jax.Array], weights: Any) -> Callable[..., Any]:
    """Return a function of the arguments whose second derivatives are not zero."""
    return lambda *args: jnp.sum(jnp.sin(function(*args[:3], later=[args[3:]])) * weights)


@compiled
@pytest.mark.parametrize(
    ("dim", "images", "samples", "width"),
    [
        (6, 20, 20, 64),
        (2, 3, 2, 5),  # fewer rows than a vector has places
        (3, 70, 1, 64),
        pytest.param(4, 33, 5, 21, marks=pytest.mark.slow),
        pytest.param(5, 5, 100, 64, marks=pytest.mark.slow),
        pytest.param(7, 17, 15, 8, marks=pytest.mark.slow),
        pytest.param(8, 300, 3, 16, marks=pytest.mark.slow),
    ],
)
def test_value_and_gradient_are_those_of_xla(
    dim: int, images: int, samples: int, width: int
) -> None:
    *args, weights = _case(dim, images, samples, width)
    ours, wanted = (
        jax.jit(jax.value_and_grad(_number(function, weights), argnums=range(5)))
        for function in (perceptron, perceptron_xla)
    )
    assert "perceptron_slopes" in ours.lower(*args).as_text()
    for a, b in zip(jax.tree.leaves(ours(*args)), jax.tree.leaves(wanted(*args)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * np.abs(b).max())


@compiled
def test_a_gradient_is_that_of_a_difference() -> None:
    """Central differences in double precision: neither by our rules nor by XLA's."""
    *args, weights = _case(6, 3, 4, 8)

    def value(*args: np.ndarray) -> np.ndarray:
        context, first, kept, kernel, bias = args
        h = np.maximum(first.T @ kept + np.repeat(context, 4, axis=1), 0)
        return np.sum(weights * (kernel.T @ h + bias[:, None]))

    slopes = jax.grad(
        lambda *args: jnp.sum(perceptron(*args[:3], later=[args[3:]]) * weights), range(5)
    )
    wide = [np.asarray(x, np.float64) for x in args]
    for n, slope in enumerate(slopes(*args)):
        step = np.random.default_rng(n).normal(size=slope.shape) * 1e-6
        up, down = (value(*wide[:n], wide[n] + s, *wide[n + 1 :]) for s in (step, -step))
        np.testing.assert_allclose(np.sum(slope * step), (up - down) / 2, rtol=1e-4, atol=1e-10)


@compiled
def test_a_row_has_the_same_bits_among_others() -> None:
    context, first, kept, kernel, bias, _ = _case(6, 37, 5, 64)
    value = jax.jit(lambda c, k: perceptron(c, first, k, [(kernel, bias)]))
    whole = np.asarray(value(context, kept))
    for images in (slice(0, 1), slice(30, 37), slice(3, 20)):
        rows = slice(5 * images.start, 5 * images.stop)
        np.testing.assert_array_equal(value(context[:, images], kept[:, rows]), whole[:, rows])
    alone = value(context, kept[:, 2::5])  # one sample of each image
    np.testing.assert_array_equal(alone, whole[:, 2::5])


@compiled
def test_nan_and_a_unit_at_zero_are_as_in_xla() -> None:
    *args, weights = _case(4, 2, 3, 8)
    args[0][0, 0] = np.nan  # of the first image, one unit
    args[0][1], args[1][:, 1] = 0.0, 0.0  # of every image, a unit at its bend
    for function in (perceptron, perceptron_xla):
        value, slopes = jax.value_and_grad(
            lambda *args: jnp.sum(function(*args[:3], later=[args[3:]]) * weights),  # noqa: B023
            argnums=range(5),
        )(*args)
        assert np.isnan(value)
        np.testing.assert_array_equal(slopes[0][1], 0.0)
        np.testing.assert_array_equal(np.isnan(slopes[3]), np.arange(8)[:, None] == [0] * 4)
        assert np.isfinite(slopes[2]).all()


@pytest.mark.slow
@compiled
def test_forward_mode_second_derivatives_and_batches_are_those_of_xla() -> None:
    *args, weights = _case(3, 2, 3, 6)
    args = tuple(args)

    def results(function: Callable[..., jax.Array]) -> list[Any]:
        value = _number(function, weights)
        batch = tuple(np.stack([x, 2 * x]) for x in args)
        return [
            jax.jit(lambda: jax.jvp(value, args, args))(),
            jax.jit(jax.hessian(value, argnums=2))(*args),
            jax.jit(jax.hessian(value, argnums=3))(*args),
            jax.jit(jax.vmap(jax.grad(value, argnums=(0, 2))))(*batch),
            jax.jit(jax.vmap(value, (None, None, 0, None, None)))(*args[:2], batch[2], *args[3:]),
        ]

    ours, wanted = (jax.tree.leaves(results(f)) for f in (perceptron, perceptron_xla))
    for a, b in zip(ours, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_where_it_is_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other types and numbers of coordinates, several devices, exports, no library."""

    def in_c(*args: Any) -> bool:
        lowered = jax.jit(lambda *args: perceptron(*args[:3], later=[args[3:]])).lower(*args)
        return "custom_call" in lowered.as_text()

    *args, _ = _case(2, 3, 2, 8)
    assert in_c(*args) == foreign.available()
    assert not in_c(*(x.astype(jnp.float16) for x in args))
    assert not in_c(*_case(9, 3, 2, 8)[:5])
    assert not in_c(*_case(2, 3, 2, 8)[:3], *_case(6, 3, 2, 8)[3:5])  # one kept, three moved
    function = jax.jit(lambda *args: perceptron(*args[:3], later=[args[3:]]))
    exported = jax.export.export(function, platforms=("cpu", "cuda", "tpu"))(*args)
    assert "custom_call" not in exported.mlir_module()
    np.testing.assert_allclose(exported.call(*args), function(*args), atol=1e-5)
    monkeypatch.setattr(jax, "device_count", lambda: 2)
    assert not in_c(*args)
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    monkeypatch.setattr(foreign, "available", lambda: False)
    assert not in_c(*args)


ON_SOME_PROCESSORS = """
import os, sys
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[1])])
import jax, numpy as np
from flowjax_inv.native.perceptron import perceptron
random = np.random.default_rng(0)
shapes = ((64, 100), (3, 64), (3, 2000), (64, 6), (6,))
args = [random.normal(size=shape).astype(np.float32) for shape in shapes]
value = lambda *args: (perceptron(*args[:3], later=[args[3:]]) ** 2).sum()
slopes = jax.jit(jax.grad(value, argnums=range(5)))
assert "perceptron_slopes" in slopes.lower(*args).as_text()
for slope in slopes(*args):
    print(np.asarray(slope).tobytes().hex())
"""


@pytest.mark.slow
@compiled
def test_sums_are_the_same_for_any_number_of_threads() -> None:
    def bits(processors: str) -> bytes:
        command = [sys.executable, "-c", ON_SOME_PROCESSORS, processors]
        environment = os.environ | {"XLA_FLAGS": ""}  # one device
        return subprocess.run(command, env=environment, capture_output=True, check=True).stdout

    assert bits("1") == bits("99")
