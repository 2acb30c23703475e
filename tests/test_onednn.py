"""oneDNN's convolutions within XLA's programs: its maps, threads, interrupts and refusals."""

import importlib.metadata
import os
import subprocess
import sys
import threading
from ctypes import c_int64, c_void_p, create_string_buffer
from functools import partial
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from flowjax_inv.native import convolutions, foreign, onednn
from flowjax_inv.native.convolutions import convolve_onednn
from flowjax_inv.networks.convolutions import convolve

pytestmark = pytest.mark.cpu("the C of flowjax_inv/native is called on CPUs")
needs_onednn = pytest.mark.skipif(not onednn.available(), reason="onednn-cpu-gomp is missing")


@pytest.mark.slow
@needs_onednn
@pytest.mark.parametrize(("stride", "padding"), [(1, 1), (2, 0)])
def test_onednn_differentiates_twice_and_maps(stride: int, padding: int) -> None:
    """The three maps are each other's derivatives; new axes of one or both arguments."""
    x = jax.random.normal(jax.random.key(0), (3, 7, 8, 5))
    kernel = jax.random.normal(jax.random.key(1), (3, 3, 5, 4))

    def results(f: Any) -> list[jax.Array]:
        def loss(x: jax.Array, k: jax.Array) -> jax.Array:
            return jnp.sum(jnp.sin(f(x, k, stride, padding)))

        both, kernels = jax.grad(loss, (0, 1)), jnp.stack([kernel, 2 * kernel])
        return [
            *jax.jvp(both, (x, kernel), (jnp.cos(x), jnp.cos(kernel)))[1],
            *jax.grad(lambda x, k: jnp.sum(jnp.sin(both(x, k)[1])), (0, 1))(x, kernel),
            *jax.vmap(lambda x: both(x[None], kernel))(x),
            *jax.vmap(lambda k: both(x, k))(kernels),
            *jax.vmap(both)(jnp.stack([x, -x]), kernels),
        ]

    got_and_wanted = (jax.jit(lambda f=f: results(f))() for f in (convolve_onednn, convolve))
    for got, wanted in zip(*got_and_wanted, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())


@needs_onednn
@pytest.mark.parametrize("batch", [1, 2, 7])
def test_parts_of_the_images_are_done_apart(batch: int) -> None:
    """By XLA's threads, and more of these than images too; gradients of a kernel are summed."""
    arrays = [
        jax.random.normal(jax.random.key(0), (batch, *size) if size[0] > 3 else size)
        for size in ((6, 7, 3), (3, 3, 3, 4), (6, 7, 4))
    ]
    x, kernel, pull = arrays

    @partial(jax.jit, static_argnums=0)
    def all_maps(convolve: Any, x: jax.Array, kernel: jax.Array, pull: jax.Array) -> Any:
        value, back = jax.vjp(lambda x, k: convolve(x, k, 1, 1), x, kernel)
        return value, *back(pull)

    wanted = all_maps(convolve, x, kernel, pull)
    for _ in range(20):  # whoever takes a part
        for ours, theirs in zip(all_maps(convolve_onednn, x, kernel, pull), wanted, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)


@needs_onednn
def test_nothing_of_nothing() -> None:
    """No images: no outputs, and gradients of zero."""
    x, kernel = jnp.zeros((0, 6, 6, 8)), jnp.ones((3, 3, 8, 4))
    value, back = jax.vjp(lambda x, k: convolve_onednn(x, k, 1, 1), x, kernel)
    assert value.shape == (0, 6, 6, 4)
    assert not np.any(back(value)[1])


LEAVE = """
import jax, jax.numpy as jnp
from flowjax_inv.networks.convolutions import Conv
x = jnp.ones((256, 32, 32, 16))
layer = Conv(16, padding=1, conv="onednn")
variables = jax.jit(layer.init)(jax.random.key(0), x)
apply = jax.jit(layer.apply)
def run(x):
    for _ in range(10):
        x = apply(variables, x)
    return x
kept = run(x) if {keep} else None
if not {keep}: run(x)
raise SystemExit(3)
"""


@pytest.mark.slow
@needs_onednn
@pytest.mark.parametrize("keep", [True, False])
def test_a_process_may_leave_while_it_computes(keep: bool) -> None:
    """Calls that come when Python has gone never return: the process would hang."""
    environment = os.environ | {"XLA_FLAGS": ""}
    command = [sys.executable, "-c", LEAVE.format(keep=keep)]
    assert subprocess.run(command, env=environment, timeout=120, check=False).returncode == 3


THREADS = """
import os, jax, jax.numpy as jnp
from flowjax_inv.networks.convolutions import Conv
x = jnp.ones((64, 32, 32, 16))
counts = []
for conv in ("lax", "onednn"):
    layer = Conv(16, padding=1, conv=conv)
    variables = jax.jit(layer.init)(jax.random.key(0), x)
    gradient = jax.jit(jax.grad(lambda v, x: layer.apply(v, x).sum(), (0, 1)))
    jax.block_until_ready(gradient(variables, x))
    counts.append(len(os.listdir("/proc/self/task")))
print(*counts)
"""


@pytest.mark.slow
@needs_onednn
def test_onednn_computes_on_the_threads_of_xla() -> None:
    """OpenMP's own spin while they wait, on cores that XLA needs: a step took twice as long."""
    environment = os.environ | {"XLA_FLAGS": ""}
    command = [sys.executable, "-c", THREADS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    before, after = map(int, done.stdout.split())
    assert after == before


@needs_onednn
def test_exported_onednn_is_xla() -> None:
    x, kernel = jax.random.normal(jax.random.key(0), (2, 6, 6, 8)), jnp.ones((3, 3, 8, 4))
    gradients = jax.jit(jax.grad(lambda *args: jnp.sum(convolve_onednn(*args) ** 2), (0, 1)))
    exported = jax.export.export(gradients, platforms=("cpu", "cuda", "tpu"))(x, kernel)
    assert "custom_call" not in exported.mlir_module()
    for a, b in zip(exported.call(x, kernel), gradients(x, kernel), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3)


@needs_onednn
def test_single_pixels_by_strides_are_not_left_to_the_library(monkeypatch) -> None:
    """Its kernel gradient writes beyond its array there, on processors without AVX-512."""
    seen = []
    own = convolutions._map

    def watched(name: Any, a: Any, b: Any, shape: Any, stride: int, padding: int) -> jax.Array:
        seen.append(stride)
        return own(name, a, b, shape, stride, padding)

    monkeypatch.setattr(convolutions, "_map", watched)
    x, kernel = jnp.ones((2, 7, 7, 3)), jnp.ones((1, 1, 3, 4))
    jax.grad(lambda k: jnp.sum(convolve_onednn(x, k, stride=2, padding=1)))(kernel)
    assert seen
    assert set(seen) == {1}


@needs_onednn
@pytest.mark.parametrize("name", ["forward", "d_images", "d_kernel"])
def test_an_operation_made_on_one_thread_runs_on_another(name: onednn.Map) -> None:
    """XLA's threads take what is idle: the memory it works in may not be its maker's."""
    onednn.prepare()
    random = np.random.default_rng(0)
    for channels, features, size, pad in (
        (1, 1, 1, 1),
        (3, 24, 3, 1),
        (17, 24, 5, 2),
        (6, 8, 1, 0),
    ):
        side = 9 + 2 * pad - size + 1
        shapes = (
            (2, 9, 9, channels), (size, size, channels, features), (2, side, side, features),
        )  # fmt: skip
        arrays = [random.normal(size=shape).astype(np.float32) for shape in shapes]
        result = arrays[{"forward": 2, "d_images": 0, "d_kernel": 1}[name]]
        sizes = np.array(shapes).ravel().tolist()
        key = (c_int64 * 15)(onednn.MAPS.index(name), *sizes, 1, pad)
        places = (c_void_p * 3)(*(array.ctypes.data for array in arrays))
        message, found = create_string_buffer(256), []
        for _ in range(3):
            result[:] = np.nan
            args = (key, places, message)
            thread = threading.Thread(target=foreign.library().flowjax_inv_convolve, args=args)
            thread.start()
            thread.join()
            found.append(result.copy())
        assert not message.value
        assert np.isfinite(found[0]).all()
        np.testing.assert_array_equal(found[1:], [found[0]] * 2)


@needs_onednn
def test_what_the_library_refuses_is_an_error_of_jax() -> None:
    x, kernel = jnp.zeros((2, 6, 6, 8)), jnp.zeros((3, 3, 8, 4))
    with pytest.raises(jax.errors.JaxRuntimeError, match="oneDNN could not convolution_forward"):
        convolutions._map("forward", x, kernel, (2, 9, 9, 4), 1, 1).block_until_ready()


def test_onednn_refuses_what_it_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    x, kernel = jnp.zeros((2, 6, 6, 8)), jnp.zeros((3, 3, 8, 4))
    monkeypatch.setattr(onednn, "available", lambda: True)
    with pytest.raises(ValueError, match="images are bfloat16; oneDNN is called with float32"):
        convolve_onednn(x.astype(jnp.bfloat16), kernel)
    monkeypatch.setattr(onednn, "available", lambda: False)
    with pytest.raises(ValueError, match="onednn-cpu-gomp is missing or .*: install both"):
        convolve_onednn(x, kernel)


@pytest.mark.parametrize("found", [[], None])
def test_a_package_without_its_library_is_no_library(
    found: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "files", lambda name: found)
    with pytest.raises(OSError, match=r"onednn-cpu-gomp has no libdnnl\.so\.3"):
        onednn._library.__wrapped__()


INTERRUPTED = """
import signal, time
import jax, jax.numpy as jnp, numpy as np
from flowjax_inv.native import onednn
from flowjax_inv.native.convolutions import convolve_onednn
from flowjax_inv.networks.convolutions import convolve
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore it
own, calls = onednn._build, []
def build(*args):
    calls.append(args)
    if len(calls) == 1: raise KeyboardInterrupt
    own(*args)
onednn._build = build
x, kernel = jnp.ones((2, 6, 6, 8)), jnp.ones((3, 3, 8, 4))
wanted = convolve(x, kernel, 1, 1)
try:
    out = np.asarray(convolve_onednn(x, kernel, 1, 1))
    time.sleep(5)
except KeyboardInterrupt:
    print(np.array_equal(out, wanted))
"""


@pytest.mark.slow
@needs_onednn
def test_an_interrupt_while_an_operation_is_made_comes_later() -> None:
    command = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout == "True\n", done.stderr
