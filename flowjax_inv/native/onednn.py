"""oneDNN's convolutions for XLA: operations are made here, kept and run by `onednn.c`.

XLA's own convolutions reach a third of what a CPU can do; oneDNN's reach nearly all of it, and are
what PyTorch calls. The package `onednn-cpu-gomp` brings the library alone, for Linux on x86-64.

Convention: pictures (N, H, W, C), kernels (K, L, C, D), float32; `padding` zeros on each side.
Source: oneDNN 3, `dnnl.h`, `dnnl_types.h` (where the numbers below have their names).
"""

import _thread
import atexit
import contextlib
import ctypes
import functools
import importlib.metadata
import threading
import time
import typing
from ctypes import POINTER, Structure, byref, c_char, c_int, c_int64, c_size_t, c_void_p
from typing import Any, Literal

import jax

from flowjax_inv.native import foreign

__all__ = ["MAPS", "Map", "available", "prepare"]

# The three maps of a convolution, each linear in both of its arguments:
# "forward" (images, kernel) -> outputs, "d_images" (outputs, kernel) -> images, and "d_kernel"
# (images, outputs) -> kernel.
Map = Literal["forward", "d_images", "d_kernel"]
MAPS: tuple[Map, ...] = typing.get_args(Map)

_PACKAGE = "onednn-cpu-gomp"
_CPU, _FLOAT32, _ANY, _TRAINING, _DIRECT, _IN_ORDER = 1, 3, 1, 64, 1, 1
_WEIGHTS, _DIFF_WEIGHTS, _SCRATCHPAD = 131, 132, 136  # queries
_FROM, _TO, _SCRATCH = 1, 17, 80
_OURS = 1  # who owns the memory an operation works in
_ARGUMENTS = {  # of images, kernel and outputs
    "forward": (1, 33, 17),
    "d_images": (129, 33, 145),
    "d_kernel": (1, 161, 145),
}
_ALLOCATE = c_void_p(-1)


@functools.cache
def available() -> bool:
    """Return whether the library is installed and runs here, and our own C with it."""
    try:
        _library()
    except (importlib.metadata.PackageNotFoundError, OSError):
        return False
    return foreign.available()


@functools.cache
def _library() -> ctypes.CDLL:
    files = importlib.metadata.files(_PACKAGE) or []
    paths = [file.locate() for file in files if file.name == "libdnnl.so.3"]
    if not paths:
        raise OSError(f"{_PACKAGE} has no libdnnl.so.3")
    # Python's lock is kept through all calls: they are shorter than handing it over and back.
    library = ctypes.PyDLL(str(paths[0]))
    library.dnnl_primitive_desc_query_md.restype = c_void_p
    return library


def _check(status: int, what: str) -> None:
    if status:
        raise RuntimeError(f"oneDNN could not {what}: status {status}.")


def _make(name: str, *args: Any) -> c_void_p:
    """Return the object that a constructor of the library makes."""
    made = c_void_p()
    _check(getattr(_library(), f"dnnl_{name}")(byref(made), *args), name)
    return made


@functools.cache
def _engine() -> c_void_p:
    return _make("engine_create", _CPU, c_size_t(0))


@functools.cache
def _attributes() -> c_void_p:
    """Let every operation have memory of its own to work in.

    Else it is that of the thread which made the operation, and others would write beyond theirs.
    """
    attributes = _make("primitive_attr_create")
    _check(_library().dnnl_primitive_attr_set_scratchpad_mode(attributes, _OURS), "own memory")
    return attributes


def _scratch(plan: c_void_p) -> c_void_p:
    described = c_void_p(_library().dnnl_primitive_desc_query_md(plan, _SCRATCHPAD, 0))
    return _make("memory_create", described, _engine(), _ALLOCATE)


def _numbers(values: tuple[int, ...]) -> Any:
    return (c_int64 * 12)(*values)


def _layout(sizes: tuple[int, ...], strides: tuple[int, ...] | None) -> c_void_p:
    """Describe an array by oneDNN's order of axes; without strides in the order it likes best."""
    if strides is None:
        args = (len(sizes), _numbers(sizes), _FLOAT32, _ANY)
        return _make("memory_desc_create_with_tag", *args)
    args = (len(sizes), _numbers(sizes), _FLOAT32, _numbers(strides))
    return _make("memory_desc_create_with_strides", *args)


def _pictures(shape: tuple[int, ...]) -> c_void_p:
    n, h, w, c = shape
    return _layout((n, c, h, w), (h * w * c, 1, w * c, c))


class _Argument(Structure):
    _fields_ = [("index", c_int), ("memory", c_void_p)]


# As in onednn.c.
class _Key(Structure):
    _fields_ = [
        ("map", c_int64),
        ("sizes", c_int64 * 4 * 3),
        ("stride", c_int64),
        ("padding", c_int64),
    ]


class _Step(Structure):
    _fields_ = [("primitive", c_void_p), ("arguments", POINTER(_Argument)), ("count", c_int64)]


class _Operation(Structure):
    _fields_ = [("stream", c_void_p), ("memories", c_void_p * 3), ("steps", _Step * 3)]


def _step(primitive: c_void_p, *arguments: _Argument) -> _Step:
    kept = (_Argument * len(arguments))(*arguments)
    _kept.append(kept)
    return _Step(primitive, kept, len(arguments))


_kept: list[Any] = []  # what C points to; operations are never thrown away


def _build(operation: _Operation, key: _Key) -> None:
    """Let oneDNN compile a map for certain shapes; kernels are brought to the order it likes."""
    name: Map = MAPS[key.map]
    images, kernel, outputs = (tuple(sizes) for sizes in key.sizes)
    rows, columns, channels, features = kernel
    sizes = (features, channels, rows, columns)
    x, y, liked = _pictures(images), _pictures(outputs), _layout(sizes, None)
    given = _layout(sizes, (1, features, columns * channels * features, channels * features))
    sides = _numbers((key.padding,) * 2)
    window = (_numbers((key.stride,) * 2), _numbers((0, 0)), sides, sides)
    convolution, engine = "convolution_{}_primitive_desc_create", _engine()
    plan = _make(
        convolution.format("forward"),
        *(engine, _TRAINING, _DIRECT, x, liked, None, y, *window, _attributes()),
    )
    if name == "d_images":
        maps = (engine, _DIRECT, x, liked, y, *window, plan, _attributes())
        plan = _make(convolution.format("backward_data"), *maps)
    elif name == "d_kernel":
        maps = (engine, _DIRECT, x, liked, None, y, *window, plan, _attributes())
        plan = _make(convolution.format("backward_weights"), *maps)
    query = _DIFF_WEIGHTS if name == "d_kernel" else _WEIGHTS
    chosen = c_void_p(_library().dnnl_primitive_desc_query_md(plan, query, 0))
    # The addresses are of one call.
    memories = [_make("memory_create", each, engine, None) for each in (x, given, y)]
    inner = memories[1]
    before = after = _Step()
    if not _library().dnnl_memory_desc_equal(chosen, given):
        inner = _make("memory_create", chosen, engine, _ALLOCATE)
        ends = [(given, memories[1]), (chosen, inner)]
        if name == "d_kernel":
            ends.reverse()
        (source, start), (target, end) = ends
        both = (source, engine, target, engine)
        made = _make("reorder_primitive_desc_create", *both, _attributes())
        reorder = _step(
            _make("primitive_create", made),
            _Argument(_FROM, start),
            _Argument(_TO, end),
            _Argument(_SCRATCH, _scratch(made)),
        )
        before, after = (before, reorder) if name == "d_kernel" else (reorder, after)
    pairs = zip(_ARGUMENTS[name], (memories[0], inner, memories[2]), strict=True)
    arguments = (*(_Argument(*pair) for pair in pairs), _Argument(_SCRATCH, _scratch(plan)))
    operation.stream = _make("stream_create", engine, _IN_ORDER)
    operation.memories[:] = [memory.value for memory in memories]
    operation.steps[:] = [before, _step(_make("primitive_create", plan), *arguments), after]


_LATER_SECONDS = 0.01
_Maker = ctypes.CFUNCTYPE(c_int, POINTER(_Key), POINTER(_Operation), POINTER(c_char * 256))


@_Maker
def _maker(key: Any, operation: Any, message: Any) -> int:
    """Answer C, which has no operation for a key."""
    try:
        _build(operation.contents, key.contents)
        return 0
    except KeyboardInterrupt:  # Ctrl-C, on the main thread: later, when XLA has returned.
        threading.Timer(_LATER_SECONDS, _thread.interrupt_main).start()
        return _maker(key, operation, message)
    except BaseException as error:  # An exception cannot pass through C: XLA raises it in its turn.
        message.contents.value = (str(error) or type(error).__name__).encode()[:255]
        return 1


@functools.cache
def prepare() -> None:
    """Tell C how operations are made and run."""
    library = ctypes.CDLL(_library()._name)
    functions = (
        _maker,
        library.dnnl_memory_set_data_handle,
        library.dnnl_primitive_execute,
        library.omp_get_max_threads,
        library.omp_set_num_threads,
    )
    addresses = (ctypes.cast(function, c_void_p).value for function in functions)
    foreign.library().flowjax_inv_onednn((c_void_p * len(functions))(*addresses))
    atexit.register(_finish)


_QUIET_SECONDS, _PATIENCE_SECONDS = 0.02, 10.0


def _finish() -> None:
    """Wait for what still computes: once Python has gone it makes no operation, and never returns.

    Programs whose results nobody holds cannot be asked; as long as they run the process is busy.
    """
    for array in jax.live_arrays():
        with contextlib.suppress(Exception):  # deleted, or the error of its program
            array.block_until_ready()
    patience = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < patience:
        before = time.process_time()
        time.sleep(_QUIET_SECONDS)
        if time.process_time() - before < 0.1 * _QUIET_SECONDS:
            return
