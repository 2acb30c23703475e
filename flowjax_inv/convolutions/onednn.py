"""oneDNN's convolutions on arrays in memory, called through its C interface.

XLA's own convolutions reach a third of what a CPU can do; oneDNN's reach nearly all of it, and are
what PyTorch calls. The package `onednn-cpu-gomp` brings the library alone, for Linux on x86-64.

Convention: pictures (N, H, W, C), kernels (K, L, C, D), float32; `padding` zeros on each side.
Source: oneDNN 3, `dnnl.h`, `dnnl_types.h` (where the numbers below have their names).
"""

import collections
import contextlib
import ctypes
import functools
import importlib.metadata
import math
from collections.abc import Iterator, Sequence
from ctypes import Structure, byref, c_float, c_int, c_int64, c_size_t, c_void_p
from typing import Any, Literal

import numpy as np

from flowjax_inv.foreign import Array, Share

__all__ = ["Map", "available", "run"]

# The three maps of a convolution, each linear in both of its arguments:
# "forward" (images, kernel) -> outputs, "d_images" (outputs, kernel) -> images, and "d_kernel"
# (images, outputs) -> kernel.
Map = Literal["forward", "d_images", "d_kernel"]

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
    """Return whether the library is installed and runs here."""
    try:
        _library()
    except (importlib.metadata.PackageNotFoundError, OSError):
        return False
    return True


@functools.cache
def _library() -> ctypes.CDLL:
    files = importlib.metadata.files(_PACKAGE) or []
    paths = [file.locate() for file in files if file.name == "libdnnl.so.3"]
    if not paths:
        raise OSError(f"{_PACKAGE} has no libdnnl.so.3")
    # Python's lock is kept through all calls but those that compute: they are shorter than handing
    # it over to the other threads and back.
    library = ctypes.PyDLL(str(paths[0]))
    library.dnnl_primitive_desc_query_md.restype = c_void_p
    return library


@functools.cache
def _execute() -> Any:
    return ctypes.CDLL(_library()._name).dnnl_primitive_execute


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


class _Operation:
    """A map for certain shapes, compiled by oneDNN; kernels are brought to the order it likes."""

    def __init__(
        self,
        name: Map,
        shapes: tuple[tuple[int, ...], ...],
        stride: int,
        padding: int,
    ) -> None:
        images, kernel, outputs = shapes
        rows, columns, channels, features = kernel
        sizes = (features, channels, rows, columns)
        x, y, liked = _pictures(images), _pictures(outputs), _layout(sizes, None)
        steps = (1, features, columns * channels * features, channels * features)
        given = _layout(sizes, steps)
        sides = _numbers((padding, padding))
        window = (_numbers((stride, stride)), _numbers((0, 0)), sides, sides)
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
        self._run = _make("primitive_create", plan)
        self._stream = _make("stream_create", engine, _IN_ORDER)
        # The addresses are of one call.
        self._handles = [_make("memory_create", each, engine, None) for each in (x, given, y)]
        inner = self._handles[1]
        self._before = self._after = None
        if not _library().dnnl_memory_desc_equal(chosen, given):
            inner = _make("memory_create", chosen, engine, _ALLOCATE)
            ends = [(given, self._handles[1]), (chosen, inner)]
            if name == "d_kernel":
                ends.reverse()
            (source, start), (target, end) = ends
            both = (source, engine, target, engine)
            made = _make("reorder_primitive_desc_create", *both, _attributes())
            reorder = _make("primitive_create", made)
            arguments = (_Argument * 3)(
                _Argument(_FROM, start), _Argument(_TO, end), _Argument(_SCRATCH, _scratch(made))
            )
            if name == "d_kernel":
                self._after = (reorder, arguments)
            else:
                self._before = (reorder, arguments)
        memories = (self._handles[0], inner, self._handles[2])
        pairs = zip(_ARGUMENTS[name], memories, strict=True)
        arguments = [*(_Argument(*pair) for pair in pairs), _Argument(_SCRATCH, _scratch(plan))]
        self._arguments = (_Argument * 4)(*arguments)

    def __call__(self, addresses: tuple[int, ...]) -> None:
        """Read and write images, kernel and outputs at these addresses."""
        for handle, address in zip(self._handles, addresses, strict=True):
            _library().dnnl_memory_set_data_handle(handle, c_void_p(address))
        for step in (self._before, (self._run, self._arguments), self._after):
            if step is not None:
                primitive, arguments = step
                status = _execute()(primitive, self._stream, len(arguments), arguments)
                _check(status, "convolve")


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Let this thread of XLA's work by itself, and leave it as it was.

    OpenMP's own threads wait by spinning, on cores that XLA needs; and where PyTorch shares the
    process, its threads count as the same, and as too many to spin: it would be slower.
    """
    before = _library().omp_get_max_threads()
    _library().omp_set_num_threads(1)
    try:
        yield
    finally:
        _library().omp_set_num_threads(before)


# Compiled operations by what they were compiled for; one is taken out while it runs, as its memory
# is for one call at a time, so there are as many as ever ran at once.
_idle: collections.defaultdict[Any, list[_Operation]] = collections.defaultdict(list)


def run(
    name: Map,
    arrays: Sequence[Array],
    stride: int,
    padding: int,
    parts: int,
    share: Share,
) -> None:
    """Apply a map to arrays in memory: its images in parts, the sums of a kernel's gradient apart.

    Args:
        name: the map.
        arrays: images, kernel and outputs, none of them empty.
        stride, padding: of the convolution.
        parts: how many, at most.
        share: calls a function with 0, 1, ..., up to its second argument, on several threads.

    Convention: the same parts give the same numbers, whatever thread does them.
    Raises:     RuntimeError if the library refuses, for example shapes that do not fit.
    """
    images, kernel, outputs = arrays
    batch = images[0][0]
    parts = min(parts, batch)
    starts = [batch * part // parts for part in range(parts + 1)]
    sums = np.empty((parts if name == "d_kernel" else 0, *kernel[0]), np.float32)

    def work(part: int) -> None:
        start, end = starts[part : part + 2]

        def own(array: Array) -> Array:
            (_, *rest), address = array
            return (end - start, *rest), address + 4 * start * math.prod(rest)

        sum_ = (kernel[0], sums[part].ctypes.data) if name == "d_kernel" and part else kernel
        places = (own(images), sum_, own(outputs))
        key = (name, tuple(shape for shape, _ in places), stride, padding)
        with _alone():
            try:
                operation = _idle[key].pop()
            except IndexError:
                operation = _Operation(*key)
            operation(tuple(address for _, address in places))
        _idle[key].append(operation)

    share(work, parts)
    if name == "d_kernel":
        size = math.prod(kernel[0])
        total = np.ctypeslib.as_array((c_float * size).from_address(kernel[1]))
        for part in sums[1:]:
            total += part.reshape(-1)
