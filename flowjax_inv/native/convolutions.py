"""oneDNN's convolution in JAX: a primitive, and its rules of differentiation."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching

from flowjax_inv.native import foreign, onednn
from flowjax_inv.networks.convolutions.patches import convolve_banded, convolve_whole
from flowjax_inv.networks.convolutions.plain import convolve

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
            'conv is "onednn"; the package onednn-cpu-gomp is missing or does not run here, or our '
            "own C was not compiled: install both (Linux on x86-64), or use auto, patches or lax."
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
    if stride > 1 and kernel.shape[:2] == (1, 1):
        # oneDNN 3.2's own, for processors without AVX-512, writes beyond its kernel gradient.
        sides = ((0, 0), (padding, padding), (padding, padding), (0, 0))
        images = jnp.pad(images, sides)[:, ::stride, ::stride]
        stride, padding = 1, 0
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
    """Compute a map by XLA's own convolution."""
    name, shape = options["name"], options["shape"]
    window = {"stride": options["stride"], "padding": options["padding"]}
    if name == "forward":
        return convolve(a, b, **window)
    other = jnp.zeros(shape, a.dtype)
    if name == "d_images":
        return jax.linear_transpose(lambda x: convolve(x, b, **window), other)(a)[0]
    return jax.linear_transpose(lambda k: convolve(a, k, **window), other)(b)[0]


def _by_onednn(a: jax.Array, b: jax.Array, **options: Any) -> jax.Array:
    name, window = options["name"], {side: options[side] for side in ("stride", "padding")}
    result = jax.ShapeDtypeStruct(options["shape"], a.dtype)
    onednn.prepare()
    return foreign.call(name, result, a, b, **window)


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
foreign.register_lowering(_convolution, _by_xla, _by_onednn)
