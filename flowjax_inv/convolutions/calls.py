"""oneDNN's convolution in JAX: what XLA calls, and the rules of differentiation.

XLA calls us through its foreign function interface (`jax.ffi`). A call costs about 20 microseconds
besides its work.

Source: XLA, `xla/ffi/api/c_api.h`, whose structures stand below as far as they are read.
"""

import atexit
import contextlib
import ctypes
import functools
import threading
import time
from collections.abc import Callable, Sequence
from ctypes import POINTER, Structure, c_char, c_int, c_int64, c_size_t, c_void_p
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from flowjax_inv.convolutions import onednn
from flowjax_inv.convolutions.patches import convolve_banded, convolve_whole
from flowjax_inv.convolutions.plain import convolve

__all__ = ["convolve_onednn"]


def convolve_onednn(
    images: jax.Array, kernel: jax.Array, stride: int = 1, padding: int = 0
) -> jax.Array:
    """Equal `convolve`, computed by oneDNN on a CPU and by XLA elsewhere.

    Kernels as large as the picture are one matrix product, which is faster (forward 1.3 times, the
    gradients 4 to 6 times: LeNet's last layer).

    Raises:     ValueError without the library, or if an argument is not float32.
    """
    if not onednn.available():
        raise ValueError(
            'conv is "onednn"; the package onednn-cpu-gomp is missing or does not run here: '
            "install it (Linux on x86-64), or use auto, patches or lax."
        )
    for name, array in (("images", images), ("kernel", kernel)):
        if array.dtype != jnp.float32:
            raise ValueError(
                f"{name} are {array.dtype}; oneDNN is called with float32: use auto or patches."
            )
    if 0 in (*images.shape, *kernel.shape):
        return convolve(images, kernel, stride, padding)
    if padding == 0 and images.shape[1:3] == kernel.shape[:2]:
        return convolve_whole(images, kernel)
    out = jax.eval_shape(lambda x, k: convolve(x, k, stride, padding), images, kernel)
    return _map("forward", images, kernel, out.shape, stride, padding)


# ---------------------------------------------------------------------- the maps in JAX
# One primitive for the three: the derivatives of each are the other two.
_convolution = Primitive("onednn_convolution")


def _map(
    name: onednn.Map,
    a: jax.Array,
    b: jax.Array,
    shape: tuple[int, ...],
    stride: int,
    padding: int,
) -> jax.Array:
    options = {"name": name, "shape": tuple(shape), "stride": stride, "padding": padding}
    return _convolution.bind(a, b, **options)


def _by_xla(a: jax.Array, b: jax.Array, **options: Any) -> jax.Array:
    """Compute a map by XLA's own convolution, for other platforms."""
    name, shape = options["name"], options["shape"]
    window = {"stride": options["stride"], "padding": options["padding"]}
    if name == "forward":
        return convolve(a, b, **window)
    other = jnp.zeros(shape, a.dtype)
    if name == "d_images":
        return jax.linear_transpose(lambda x: convolve(x, b, **window), other)(a)[0]
    return jax.linear_transpose(lambda k: convolve(a, k, **window), other)(b)[0]


def _by_onednn(a: jax.Array, b: jax.Array, **options: Any) -> jax.Array:
    _register()
    window = {side: np.int32(options[side]) for side in ("stride", "padding")}
    result = jax.ShapeDtypeStruct(options["shape"], a.dtype)
    return jax.ffi.ffi_call(_target(options["name"]), result)(a, b, **window)


def _transpose_first(ct: Any, a: Any, b: jax.Array, **options: Any) -> jax.Array:
    """Return the cotangent of the first argument; `a` has its shape."""
    window = (a.aval.shape, options["stride"], options["padding"])
    if options["name"] == "forward":
        if a.aval.shape[3] == options["stride"] == 1:
            # oneDNN fills its vectors with 15 channels that are not there: 3 times slower.
            banded = functools.partial(convolve_banded, kernel=b, padding=options["padding"])
            return jax.linear_transpose(banded, a.aval)(ct)[0]
        return _map("d_images", ct, b, *window)
    if options["name"] == "d_images":
        return _map("forward", ct, b, *window)
    return _map("d_images", b, ct, *window)


def _transpose_second(ct: Any, a: jax.Array, b: Any, **options: Any) -> jax.Array:
    window = (b.aval.shape, options["stride"], options["padding"])
    if options["name"] == "forward":
        return _map("d_kernel", a, ct, *window)
    if options["name"] == "d_images":
        return _map("d_kernel", ct, a, *window)
    return _map("forward", a, ct, *window)


def _batch(
    args: Sequence[jax.Array], axes: Sequence[int | None], **options: Any
) -> tuple[jax.Array, int]:
    """Fold a new axis of the pictures into their batch; else one call after the other."""
    a, b = (
        x if axis is None else jnp.moveaxis(x, axis, 0) for x, axis in zip(args, axes, strict=True)
    )
    name, shape = options["name"], options["shape"]
    window = (options["stride"], options["padding"])
    if axes[1] is None and name != "d_kernel":
        count, each = a.shape[:2]
        flat = a.reshape(count * each, *a.shape[2:])
        out = _map(name, flat, b, (count * each, *shape[1:]), *window)
        return out.reshape(count, *shape), 0
    if axes[0] is None:
        return jax.lax.map(lambda b: _map(name, a, b, shape, *window), b), 0
    if axes[1] is None:
        return jax.lax.map(lambda a: _map(name, a, b, shape, *window), a), 0
    return jax.lax.map(lambda ab: _map(name, ab[0], ab[1], shape, *window), (a, b)), 0


@functools.cache
def _compiled(options: tuple[tuple[str, Any], ...]) -> Any:
    return jax.jit(functools.partial(_convolution.bind, **dict(options)))


_convolution.def_impl(lambda a, b, **options: _compiled(tuple(options.items()))(a, b))
_convolution.def_abstract_eval(lambda a, b, *, shape, **_: a.update(shape=shape))
ad.defbilinear(_convolution, _transpose_first, _transpose_second)
batching.primitive_batchers[_convolution] = _batch
mlir.register_lowering(_convolution, mlir.lower_fun(_by_xla, multiple_results=False))
mlir.register_lowering(
    _convolution, mlir.lower_fun(_by_onednn, multiple_results=False), platform="cpu"
)


# ------------------------------------------------------------------------ XLA's calls
class _Extension(Structure):
    pass


_Extension._fields_ = [("size", c_size_t), ("kind", c_int), ("next", POINTER(_Extension))]
_HEAD = [("size", c_size_t), ("extension", POINTER(_Extension))]


class _Version(Structure):
    _fields_ = [*_HEAD, ("major", c_int), ("minor", c_int)]


class _Metadata(Structure):
    _fields_ = [("size", c_size_t), ("version", _Version)]


class _MetadataExtension(Structure):
    _fields_ = [("base", _Extension), ("metadata", POINTER(_Metadata))]


class _ErrorArguments(Structure):
    _fields_ = [*_HEAD, ("message", ctypes.c_char_p), ("code", c_int)]


_Task = ctypes.CFUNCTYPE(None, c_void_p)


class _TaskArguments(Structure):
    _fields_ = [*_HEAD, ("context", c_void_p), ("task", _Task), ("data", c_void_p)]


class _ThreadsArguments(Structure):
    _fields_ = [*_HEAD, ("context", c_void_p), ("threads", POINTER(c_int64))]


def _function(arguments: type[Structure]) -> Any:
    return ctypes.CFUNCTYPE(c_void_p, POINTER(arguments))


class _Api(Structure):
    _fields_ = [
        *_HEAD,
        ("version", _Version),
        ("internal", c_void_p),
        ("error", _function(_ErrorArguments)),
        ("others", c_void_p * 10),
        ("schedule", _function(_TaskArguments)),
        ("threads", _function(_ThreadsArguments)),
    ]


class _Buffer(Structure):
    _fields_ = [
        *_HEAD,
        ("dtype", c_int),
        ("data", c_void_p),
        ("rank", c_int64),
        ("dims", POINTER(c_int64)),
    ]


class _Buffers(Structure):
    _fields_ = [
        *_HEAD,
        ("count", c_int64),
        ("types", POINTER(c_int)),
        ("each", POINTER(POINTER(_Buffer))),
    ]


class _Scalar(Structure):
    _fields_ = [("dtype", c_int), ("value", POINTER(ctypes.c_int32))]


class _Name(Structure):
    _fields_ = [("text", POINTER(c_char)), ("length", c_size_t)]


class _Attributes(Structure):
    _fields_ = [
        *_HEAD,
        ("count", c_int64),
        ("types", POINTER(c_int)),
        ("names", POINTER(POINTER(_Name))),
        ("each", POINTER(POINTER(_Scalar))),
    ]


class _Frame(Structure):
    _fields_ = [
        *_HEAD,
        ("api", POINTER(_Api)),
        ("context", c_void_p),
        ("stage", c_int),
        ("arguments", _Buffers),
        ("results", _Buffers),
        ("attributes", _Attributes),
    ]


_Handler = ctypes.CFUNCTYPE(c_void_p, POINTER(_Frame))
_METADATA, _INTERNAL = 1, 13
_QUIET_SECONDS, _PATIENCE_SECONDS = 0.02, 10.0  # at exit


def _sized(arguments: Any) -> Any:
    """Return a pointer to arguments that say how long they are."""
    arguments.size = ctypes.sizeof(arguments)
    return ctypes.pointer(arguments)


def _threads(api: _Api, context: int) -> int:
    """Return how many threads XLA has."""
    count = c_int64(1)
    api.threads(_sized(_ThreadsArguments(context=context, threads=ctypes.pointer(count))))
    return count.value


class _Shared:
    """Work in parts, which any of XLA's threads may take."""

    def __init__(self, work: Callable[[int], None], parts: int) -> None:
        self.work, self.parts = work, list(range(parts))
        self.left, self.done, self.error = parts, threading.Event(), None

    def take(self) -> None:
        """Do the parts that nobody has begun."""
        while self.parts:
            try:
                part = self.parts.pop()
            except IndexError:  # another thread took the last one
                return
            try:
                self.work(part)
            except Exception as error:
                self.error = error
            with _counting:
                self.left -= 1
            if not self.left:
                self.done.set()


_counting = threading.Lock()
_current: dict[int, _Shared] = {}


@_Task
def _help(key: int) -> None:
    shared = _current.get(key)
    if shared:
        shared.take()


def _share(api: _Api, context: int, work: Callable[[int], None], parts: int) -> None:
    """Do work in parts on XLA's threads, this one included.

    This thread takes what others have not begun: should all be busy, as with other convolutions,
    or wait as this one, it does everything.
    """
    shared = _Shared(work, parts)
    _current[id(shared)] = shared
    task = _sized(_TaskArguments(context=context, task=_help, data=id(shared)))
    for _ in range(parts - 1):
        api.schedule(task)
    shared.take()
    shared.done.wait()
    del _current[id(shared)]
    if shared.error:
        raise shared.error


def _handle(name: onednn.Map, frame: Any) -> int | None:
    """Answer one call of XLA's: tell the version of the interface, or convolve."""
    frame = frame.contents
    try:
        if frame.extension and frame.extension.contents.kind == _METADATA:
            asked = ctypes.cast(frame.extension, POINTER(_MetadataExtension)).contents
            version, own = asked.metadata.contents.version, frame.api.contents.version
            version.major, version.minor = own.major, own.minor
            return None
        first, second = (frame.arguments.each[i].contents for i in (0, 1))
        result = frame.results.each[0].contents
        places = {
            "forward": (first, second, result),
            "d_images": (result, second, first),
            "d_kernel": (first, result, second),
        }[name]
        options = {}
        for i in range(frame.attributes.count):
            option = frame.attributes.names[i].contents
            options[option.text[: option.length]] = frame.attributes.each[i].contents.value[0]
        arrays = [(tuple(buffer.dims[: buffer.rank]), buffer.data) for buffer in places]
        share = functools.partial(_share, frame.api.contents, frame.context)
        parts = _threads(frame.api.contents, frame.context)
        onednn.run(name, arrays, options[b"stride"], options[b"padding"], parts, share)
        return None
    except Exception as error:  # An exception cannot pass through C: XLA raises it in its turn.
        message = str(error).encode()
        return frame.api.contents.error(_sized(_ErrorArguments(message=message, code=_INTERNAL)))


@functools.cache
def _register() -> tuple[Any, ...]:
    """Give XLA the handlers, which the cache keeps alive."""
    names: tuple[onednn.Map, ...] = ("forward", "d_images", "d_kernel")
    handlers = tuple(_Handler(functools.partial(_handle, name)) for name in names)
    for name, handler in zip(names, handlers, strict=True):
        jax.ffi.register_ffi_target(_target(name), jax.ffi.pycapsule(handler), platform="cpu")
    atexit.register(_finish)
    return handlers


def _finish() -> None:
    """Wait for what still computes: once Python has gone its calls would never return.

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


def _target(name: str) -> str:
    return f"flowjax_inv_convolution_{name}"
