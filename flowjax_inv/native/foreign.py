"""C functions in JAX programs: what XLA calls on a CPU.

XLA calls them through its foreign function interface (`jax.ffi`), and they share their work among
its threads (`foreign.c`). The library is compiled when the package is installed, by a C compiler
for Linux; without it everything is XLA's.
"""

import ctypes
import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import mlir

__all__ = ["available", "call", "library", "register_lowering"]


@functools.cache
def available() -> bool:
    """Return whether the library is there and runs here."""
    try:
        library()
    except (ImportError, OSError):
        return False
    return True


@functools.cache
def library() -> ctypes.CDLL:
    """Return the library.

    Raises:     ImportError where it was not compiled, OSError where it was not tried.
    """
    if sys.platform != "linux":
        raise OSError("XLA's calls were tried on Linux alone")
    return ctypes.CDLL(str(importlib.import_module("flowjax_inv.native._library").__file__))


def call(name: str, result: Any, *args: jax.Array, **options: int) -> Any:
    """Return what a function of the library writes, inside a program that a CPU runs.

    Args:
        name: of the function, without flowjax_inv_call_.
        result: what has its shape and dtype; or several.
        *args: what it reads.
        **options: integers that it is given.
    """
    target = f"flowjax_inv_call_{name}"
    _register(target)
    numbers = {key: np.int32(value) for key, value in options.items()}
    return jax.ffi.ffi_call(target, result)(*args, **numbers)


@functools.cache
def _register(target: str) -> None:
    handler = jax.ffi.pycapsule(getattr(library(), target))
    jax.ffi.register_ffi_target(target, handler, platform="cpu")


def register_lowering(
    primitive: Primitive,
    by_xla: Callable[..., Any],
    by_call: Callable[..., Any],
    by_kernel: Callable[..., Any] | None = None,
) -> None:
    """Let a primitive be a `call` on a CPU, a kernel on CUDA, and XLA's operations elsewhere.

    Those, too, in exported programs: other machines have no such function.
    """

    def lowered(by: Callable[..., Any]) -> Callable[..., Any]:
        return mlir.lower_fun(by, multiple_results=primitive.multiple_results)

    def at_home(fast: Callable[..., Any]) -> Callable[..., Any]:
        def lower(context: Any, *args: Any, **options: Any) -> Any:
            export = context.module_context.lowering_parameters.for_export
            return (plain if export else fast)(context, *args, **options)

        return lower

    plain = lowered(by_xla)
    mlir.register_lowering(primitive, plain)
    mlir.register_lowering(primitive, at_home(lowered(by_call)), platform="cpu")
    if by_kernel is not None:
        mlir.register_lowering(primitive, at_home(lowered(by_kernel)), platform="cuda")
