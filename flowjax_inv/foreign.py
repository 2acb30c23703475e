"""C functions in JAX programs: what XLA calls on a CPU, and its threads to share the work.

XLA calls us through its foreign function interface (`jax.ffi`); from Python we call C functions,
which let other threads run meanwhile. A call costs about 20 microseconds besides its work.

Source: XLA, `xla/ffi/api/c_api.h`, whose structures stand below as far as they are read.
"""

import _thread
import atexit
import contextlib
import ctypes
import functools
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from ctypes import POINTER, Structure, c_char, c_int, c_int64, c_size_t, c_void_p
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import mlir

__all__ = ["Array", "Call", "Compiled", "Share", "Work", "call", "register_lowering"]

Array = tuple[tuple[int, ...], int]  # shape and address of numbers that lie row by row
# Calls a function with 0, 1, ..., up to its second argument, on several of XLA's threads.
Share = Callable[[Callable[[int], None], int], None]


class Call(NamedTuple):
    """What a call reads and writes, and the threads that may share the work."""

    arguments: Sequence[Array]
    result: Array
    options: Mapping[str, int]
    threads: int
    share: Share


Work = Callable[[Call], None]


class Compiled(NamedTuple):
    """A function in C of XLA's interface: it takes the call as it comes, without Python."""

    library: ctypes.CDLL
    function: str


def call(
    name: str, work: Work | Compiled, result: jax.ShapeDtypeStruct, *args: jax.Array, **options: int
) -> jax.Array:
    """Return what `work` writes, inside a program that a CPU runs.

    Args:
        name: of this work in XLA, for the whole process.
        work: called on each run of the program, its errors are XLA's; or a function in C that
            answers XLA itself.
        result: shape and dtype.
        *args: what it reads.
        **options: integers that it is given.
    """
    target = f"flowjax_inv_{name}"
    _register(target, work)
    numbers = {key: np.int32(value) for key, value in options.items()}
    return jax.ffi.ffi_call(target, result)(*args, **numbers)


def register_lowering(
    primitive: Primitive, by_xla: Callable[..., jax.Array], by_call: Callable[..., jax.Array]
) -> None:
    """Let a primitive be a `call` on a CPU, and XLA's operations elsewhere.

    Those, too, in exported programs: other machines have no such function.
    """
    plain, fast = (mlir.lower_fun(f, multiple_results=False) for f in (by_xla, by_call))

    def lower(context: Any, *args: Any, **options: Any) -> Any:
        export = context.module_context.lowering_parameters.for_export
        return (plain if export else fast)(context, *args, **options)

    mlir.register_lowering(primitive, plain)
    mlir.register_lowering(primitive, lower, platform="cpu")


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
_LATER_SECONDS = 0.01
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
            except BaseException as error:  # whatever it is: the others wait for this part
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


class _PutOff:
    """Ctrl-C that waits while XLA is within a call of ours.

    An exception cannot leave a call from C: half of the work would be taken for the whole. Only
    the main thread is interrupted, where XLA makes calls of programs that are small.
    """

    def __init__(self, handler: Callable[[int, Any], Any]) -> None:
        self.handler = handler

    def __call__(self, number: int, frame: Any) -> None:
        at = frame
        while at is not None and at.f_code is not _handle.__code__:
            at = at.f_back
        if at is None:
            self.handler(number, frame)
        else:
            threading.Timer(_LATER_SECONDS, _thread.interrupt_main).start()


def _put_off_interrupts() -> None:
    """Do so for whoever handles them now: notebooks change it with every cell."""
    if threading.current_thread() is threading.main_thread():
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler) and not isinstance(handler, _PutOff):
            signal.signal(signal.SIGINT, _PutOff(handler))


def _handle(work: Work, frame: Any) -> int | None:
    """Answer one call of XLA's: tell the version of the interface, or do the work."""
    try:
        frame = frame.contents
        _put_off_interrupts()
        if frame.extension and frame.extension.contents.kind == _METADATA:
            asked = ctypes.cast(frame.extension, POINTER(_MetadataExtension)).contents
            version, own = asked.metadata.contents.version, frame.api.contents.version
            version.major, version.minor = own.major, own.minor
            return None
        options = {}
        for i in range(frame.attributes.count):
            name = frame.attributes.names[i].contents
            value = frame.attributes.each[i].contents.value[0]
            options[name.text[: name.length].decode()] = value
        arguments = [_array(frame.arguments, i) for i in range(frame.arguments.count)]
        share = functools.partial(_share, frame.api.contents, frame.context)
        threads = _threads(frame.api.contents, frame.context)
        work(Call(arguments, _array(frame.results, 0), options, threads, share))
        return None
    except BaseException as error:  # An exception cannot pass through C: XLA raises it in its turn.
        message = str(error).encode()
        return frame.api.contents.error(_sized(_ErrorArguments(message=message, code=_INTERNAL)))


def _array(buffers: Any, i: int) -> Array:
    buffer = buffers.each[i].contents
    return tuple(buffer.dims[: buffer.rank]), buffer.data


@functools.cache
def _register(target: str, work: Work | Compiled) -> Any:
    """Give XLA a handler, which the cache keeps alive."""
    if isinstance(work, Compiled):
        handler = getattr(work.library, work.function)
    else:
        _wait_at_exit()
        handler = _Handler(functools.partial(_handle, work))
    jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(handler), platform="cpu")
    return handler


@functools.cache
def _wait_at_exit() -> None:
    atexit.register(_finish)


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
