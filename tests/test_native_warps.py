"""Warps by our C library: the same numbers as XLA's operations, and no memory but their own."""

import ctypes
import subprocess
import sys
from functools import partial

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from warp_cases import BOXES, GOLDEN, as_matrices, value_and_gradients

from flowjax_inv import warps
from flowjax_inv.native import foreign
from flowjax_inv.warps import sampling

pytestmark = pytest.mark.cpu("the C of flowjax_inv/native is called on CPUs")
compiled = pytest.mark.skipif(not foreign.available(), reason="taps.c is not compiled")


@pytest.mark.slow
@compiled
def test_native_has_second_derivatives_and_batches_of_both_kinds() -> None:
    rng = np.random.default_rng(6)
    images = rng.normal(size=(3, 5, 7, 1)).astype(np.float32)
    matrices = (np.eye(3) + 0.3 * rng.normal(size=(3, 3, 3))).astype(np.float32)

    def results(method: str) -> list[jax.Array]:
        warp = partial(warps.warp, method=method)
        value = jax.jit(lambda image, matrix: jnp.sum(jnp.sin(warp(image, matrix))))
        return [
            jax.jit(jax.hessian(value, argnums=1))(images[0], matrices[0]),
            jax.vmap(jax.grad(value, argnums=1))(images, matrices),
            jax.vmap(jax.grad(value, argnums=1), (None, 0))(images[0], matrices),
            jax.vmap(jax.grad(value, argnums=1), (0, None))(images, matrices[0]),
            jax.vmap(value, (None, 0))(images, matrices),
        ]

    for ours, wanted in zip(results("native"), results("gather"), strict=True):
        np.testing.assert_allclose(ours, wanted, atol=1e-4, rtol=1e-4)


@compiled
def test_exported_native_is_xla() -> None:
    images, matrices = GOLDEN["images"], GOLDEN["matrices"][:, None]
    warp = jax.jit(partial(warps.warp, method="native"))
    exported = jax.export.export(warp, platforms=("cpu", "cuda", "tpu"))(images, matrices)
    assert "custom_call" not in exported.mlir_module()
    np.testing.assert_allclose(exported.call(images, matrices), warp(images, matrices), atol=1e-5)


def test_without_the_library_warps_are_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    fastest, few = sampling._fastest, jnp.zeros((2, 4, 5, 3))
    many, half = jnp.zeros((2, 4, 5, 32)), few.astype(jnp.bfloat16)
    monkeypatch.setattr(foreign, "available", lambda: True)
    assert [fastest(x, x) for x in (few, half, many)] == ["native", "flat", None]
    monkeypatch.setattr(foreign, "available", lambda: False)
    assert [fastest(x, x) for x in (few, half, many)] == ["flat", "flat", None]
    with pytest.raises(ValueError, match=r"\"native\"; its library was not compiled.*C compiler"):
        warps.warp(few, jnp.eye(3), method="native")


@compiled
@pytest.mark.parametrize("padding", warps.PADDINGS)
@pytest.mark.parametrize(
    "shape",
    [
        (9, 18, 1),
        pytest.param((9, 18, 2), marks=pytest.mark.slow),
        pytest.param((3, 519, 3), marks=pytest.mark.slow),
        pytest.param((519, 6, 1), marks=pytest.mark.slow),
    ],
)
def test_native_lines_of_crops_are_the_taps(shape: tuple[int, ...], padding: str) -> None:
    """Of maps that leave x and y apart, at any width and height: C goes by lines of 128.

    Values are those in double precision, no farther away than XLA's in single precision are.
    """
    rng = np.random.default_rng(7)
    images, weights = rng.normal(size=(2, len(BOXES), *shape)).astype(np.float32)
    # All at pixels, or at least 3e-4 beside them: there the derivative jumps, and rounding decides.
    clear = BOXES + np.array([[0], [0.0023], [0.0023], [0]], np.float32)
    for boxes in (clear, clear * np.array([1, 1, -1, 1], np.float32)):
        ours, wanted = (
            value_and_gradients(
                partial(warps.warp, method=method, padding=padding),
                images,
                as_matrices(boxes),
                weights,
            )
            for method in ("native", "gather")
        )
        with jax.enable_x64(True):
            wide = (np.asarray(x, np.float64) for x in (images, as_matrices(boxes)))
            exact = np.asarray(warps.warp(*wide, method="gather", padding=padding))
        rounding = np.finfo(np.float32).eps * max(shape) * np.ptp(images)  # of positions
        np.testing.assert_allclose(ours[0], exact, rtol=0, atol=rounding)
        errors = [np.sqrt(np.mean((np.asarray(each[0]) - exact) ** 2)) for each in (ours, wanted)]
        assert errors[0] < 1.1 * errors[1]
        np.testing.assert_allclose(ours[2], wanted[2], rtol=1e-3, atol=1e-3 * shape[0] * shape[1])


@compiled
@pytest.mark.parametrize("shear", [0.0, 1e-3])
def test_native_writes_its_part_alone(shear: float) -> None:
    """Colours are written four numbers at a time, but not the last of a part."""
    images, maps = np.ones((2, 16, 16, 3), np.float32), np.zeros((2, 6), np.float32)
    maps[:, [0, 4]] = 0.5  # all taps within
    maps[:, 1] = shear
    out, shape = np.full(images.size, 7, np.float32), (ctypes.c_int64 * 5)(*images.shape, 0)
    pointers = (ctypes.c_void_p(array.ctypes.data) for array in (images, maps, out))
    foreign.library().flowjax_inv_blend(*pointers, shape, ctypes.c_int64(0), ctypes.c_int64(1))
    np.testing.assert_array_equal(out, np.repeat([1, 7], images[0].size))


AT_THE_END_OF_MEMORY = """
import ctypes, itertools, mmap
import numpy as np
from flowjax_inv.native import foreign

def at_the_end(count):
    size = -(-4 * count // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, size + mmap.PAGESIZE)
    after = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory)) + size)
    assert ctypes.CDLL(None).mprotect(after, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    return np.frombuffer(memory, np.float32, count, size - 4 * count)

sizes = ((8, 32), (1, 5), (5, 1), (1, 1), (2, 2), (3, 3))
for count, (height, width), channels in itertools.product((1, 2), sizes, (1, 2, 3)):
    images, out, found = map(at_the_end, (count * height * width * channels,) * 2 + (6 * count,))
    # The whole picture, a part; lines that fall, that rise.
    for scale, shear in itertools.product((1, 0.5), (0, 1e-3, -0.1, 0.1)):
        rows = np.float32([[scale, shear, 0, shear, scale, 0]] * count)
        every = (images, rows, out, found)
        one, two, three, four = (ctypes.c_void_p(x.ctypes.data) for x in every)
        for border in (0, 1):
            shape = (ctypes.c_int64 * 5)(count, height, width, channels, border)
            ends = ctypes.c_int64(0), ctypes.c_int64(count)
            foreign.library().flowjax_inv_blend(one, two, three, shape, *ends)
            foreign.library().flowjax_inv_slopes(one, two, three, four, shape, *ends)
"""


@compiled
def test_native_touches_nothing_beyond_its_arrays() -> None:
    """Colours are read four numbers at a time; a page that none may touch lies after each array."""
    done = subprocess.run([sys.executable, "-c", AT_THE_END_OF_MEMORY], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


_INTERRUPTED = """
import signal, threading, time
import jax, jax.numpy as jnp, numpy as np
from flowjax_inv.warps import warp
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore it
images = jax.random.normal(jax.random.key(0), (64, 32, 32, 3))
matrices = jnp.tile(0.9 * jnp.eye(3), (64, 1, 1))
warped = jax.jit(lambda: warp(images, matrices, method="native"))
wanted, caught = np.asarray(warped()), 0
for number in range(60):
    later = threading.Timer(0.001 + 0.00005 * number, signal.raise_signal, (signal.SIGINT,))
    try:
        later.start()
        for _ in range(60):
            assert np.array_equal(np.asarray(warped()), wanted)
        time.sleep(0.1)  # until it comes, if the warps were faster
    except KeyboardInterrupt:
        caught += 1
print(caught)
"""


@pytest.mark.slow
def test_an_interrupt_waits_for_the_work_and_is_not_lost() -> None:
    """Ctrl-C within the C code left results half written, and XLA took them for whole."""
    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 50
    assert "ignored" not in done.stderr
