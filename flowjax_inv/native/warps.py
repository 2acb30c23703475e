"""The four taps by our own C (`taps.c`) on a CPU, by our kernels (`triton`) on CUDA.

The formulas are those of `warps.taps`. XLA's loops read a picture a number at a time, with an index
for each; in C a pixel is read at once (`python -m benchmarks.warp` has the ratios). The library is
compiled when the package is installed; where there was no compiler, "auto" means XLA. On other
platforms, in exported programs and in forward mode the same functions are XLA's.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching

from flowjax_inv.native import foreign
from flowjax_inv.warps import taps

__all__ = ["blend", "change"]


def blend(images: jax.Array, rows: jax.Array, lead: tuple[int, ...], padding: str) -> jax.Array:
    """Equal `taps.blend`; in float32.

    Raises:     ValueError on a CPU without the library.
    """
    images, (rows,) = _arranged(images, [rows], lead)
    return _blend.bind(images, rows, padding=padding).reshape(*lead, *images.shape[1:])


def change(
    images: jax.Array,
    rows: jax.Array,
    d_rows: jax.Array,
    lead: tuple[int, ...],
    padding: str,
) -> jax.Array:
    """Equal `taps.change`; in float32."""
    images, (rows, d_rows) = _arranged(images, [rows, d_rows], lead)
    return _change.bind(images, rows, d_rows, padding=padding).reshape(*lead, *images.shape[1:])


def _arranged(
    images: jax.Array, maps: Sequence[jax.Array], lead: tuple[int, ...]
) -> tuple[jax.Array, list[jax.Array]]:
    """Return images (N, H, W, C) and maps (n, N, 2, 3): n for each image."""
    if jax.default_backend() == "cpu" and not foreign.available():
        raise ValueError(
            'method is "native"; its library was not compiled when flowjax_inv was installed: '
            "install it where there is a C compiler (Linux), or use auto, gather or flat."
        )
    *own, height, width, channels = images.shape
    if tuple(own) != lead[len(lead) - len(own) :]:
        own = lead
        images = jnp.broadcast_to(images, (*lead, height, width, channels))
    shape = (math.prod(lead[: len(lead) - len(own)]), math.prod(own), 2, 3)
    flat = images.reshape(shape[1], height, width, channels).astype(jnp.float32)
    wide = (jnp.broadcast_to(each, (*lead, 2, 3)).astype(jnp.float32) for each in maps)
    return flat, [each.reshape(shape) for each in wide]


# ------------------------------------------------------------------- the maps by XLA's operations
def _blend_xla(images: jax.Array, rows: jax.Array, *, padding: str) -> jax.Array:
    return taps.blend(images, rows, rows.shape[:2], padding)


def _change_xla(
    images: jax.Array, rows: jax.Array, d_rows: jax.Array, *, padding: str
) -> jax.Array:
    return taps.change(images, rows, d_rows, rows.shape[:2], padding, "gather")


def _slopes_xla(images: jax.Array, rows: jax.Array, ct: jax.Array, *, padding: str) -> jax.Array:
    change = functools.partial(_change_xla, images, rows, padding=padding)
    return jax.linear_transpose(change, rows)(ct)[0]


# ------------------------------------------------------------------------------- the maps by C
def _views(images: Any, rows: Any) -> tuple[int, ...]:
    return (*rows.shape[:2], *images.shape[1:])


def _blend_c(images: jax.Array, rows: jax.Array, *, padding: str) -> jax.Array:
    shape, border = _views(images, rows), int(padding == "border")
    # Of one axis for both: XLA copies grey views whose first axis of length 1 a caller drops.
    result = jax.ShapeDtypeStruct((math.prod(shape[:2]), *shape[2:]), jnp.float32)
    out = foreign.call("blend", result, images, rows, border=border)
    return out.reshape(shape)


def _slopes_c(images: jax.Array, rows: jax.Array, ct: jax.Array, *, padding: str) -> jax.Array:
    result = jax.ShapeDtypeStruct(rows.shape, jnp.float32)
    border = int(padding == "border")
    return foreign.call("slopes", result, images, rows, ct, border=border)


# ---------------------------------------------------------------------------- the maps by kernels
def _blend_kernel(images: jax.Array, rows: jax.Array, *, padding: str) -> jax.Array:
    from flowjax_inv.native import triton  # Pallas takes a fifth of a second to import

    return triton.blend(images, rows, padding=padding)


def _slopes_kernel(images: jax.Array, rows: jax.Array, ct: jax.Array, *, padding: str) -> jax.Array:
    from flowjax_inv.native import triton

    return triton.slopes(images, rows, ct, padding=padding)


# ----------------------------------------------------------------------------- primitives of JAX
def _primitive(
    name: str,
    by_xla: Callable[..., jax.Array],
    by_c: Callable[..., jax.Array],
    by_kernel: Callable[..., jax.Array] | None,
    shape: Callable[[Any, Any], tuple[int, ...]],
) -> Any:
    """Return a primitive: images (N, H, W, C), rows (n, N, 2, 3), and a third argument like rows.

    Derivatives and other platforms are XLA's, a new axis is one of images or of maps.
    """
    primitive = Primitive(name)

    @functools.cache
    def compiled(padding: str) -> Any:
        return jax.jit(functools.partial(primitive.bind, padding=padding))

    def abstract(*args: Any, padding: str) -> Any:
        del padding
        return args[0].update(shape=shape(*args[:2]))

    def jvp(primals: Any, tangents: Any, *, padding: str) -> Any:
        full = tuple(map(ad.instantiate_zeros, tangents))
        return jax.jvp(functools.partial(by_xla, padding=padding), primals, full)

    def batch(args: Any, axes: Any, *, padding: str) -> Any:
        images, *maps = args
        (size,) = {x.shape[axis] for x, axis in zip(args, axes, strict=True) if axis is not None}
        maps = [
            jnp.broadcast_to(x, (size, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)
            for x, axis in zip(maps, axes[1:], strict=True)
        ]
        copies, count = maps[0].shape[1:3]
        if axes[0] is None:
            flat = [x.reshape(size * copies, count, *x.shape[3:]) for x in maps]
            out = primitive.bind(images, *flat, padding=padding)
            return out.reshape(size, copies, *out.shape[1:]), 0
        images = jnp.moveaxis(images, axes[0], 0).reshape(size * count, *images.shape[2:])
        maps = [jnp.moveaxis(x, 0, 1) for x in maps]
        flat = [x.reshape(copies, size * count, *x.shape[3:]) for x in maps]
        out = primitive.bind(images, *flat, padding=padding)
        return out.reshape(copies, size, count, *out.shape[2:]), 1

    primitive.def_impl(lambda *args, padding: compiled(padding)(*args))
    primitive.def_abstract_eval(abstract)
    ad.primitive_jvps[primitive] = jvp
    batching.primitive_batchers[primitive] = batch
    foreign.register_lowering(primitive, by_xla, by_c, by_kernel)
    return primitive


_blend = _primitive("warp_blend", _blend_xla, _blend_c, _blend_kernel, _views)
# Forward mode is XLA's; transposed, what training needs, it is ours.
_change = _primitive("warp_change", _change_xla, _change_xla, None, _views)
_slopes = _primitive(
    "warp_slopes", _slopes_xla, _slopes_c, _slopes_kernel, lambda images, rows: rows.shape
)


def _transpose(ct: Any, images: Any, rows: Any, d_rows: Any, *, padding: str) -> Any:
    del d_rows
    return None, None, _slopes.bind(images, rows, ct, padding=padding)


ad.primitive_transposes[_change] = _transpose
