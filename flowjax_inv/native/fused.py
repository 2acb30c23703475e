"""A convolution and what follows it, in one call of C: `layer.c`.

XLA reads what a convolution gave and writes it again for its bias, its maximum and its ReLU, out of
the cache. In C that is done as soon as a few images are convolved; and two kinds of layers have
convolutions of our own there: pooled 3x3 ones Winograd's (`winograd.c`: 0.5 to 0.9 of the time
that oneDNN takes to convolve alone), and first layers of eight features, two pixels at a time
(`narrow.c`). Averaged predictions take two thirds of the time (`python -m benchmarks.predict`).
Derivatives, other platforms and exported programs are those of the parts.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import batching

from flowjax_inv.native import convolutions, foreign, onednn
from flowjax_inv.networks.convolutions.parts import Options, layer_by_parts
from flowjax_inv.networks.convolutions.plain import convolve

__all__ = ["layer_onednn"]


def layer_onednn(
    images: jax.Array, kernel: jax.Array, bias: jax.Array, options: Options
) -> jax.Array:
    """Equal relu(max_pool_2x2(convolve_onednn(images, kernel, ...) + bias)), as far as wanted.

    Raises:     as `convolve_onednn`.
    """
    window = {"stride": options.stride, "padding": options.padding}
    made = jax.eval_shape(functools.partial(convolutions.convolve_onednn, **window), images, kernel)
    if 0 in (*images.shape, *kernel.shape, *made.shape) or made.shape[1:3] == (1, 1):
        return layer_by_parts(convolutions.convolve_onednn, images, kernel, bias, options)
    return _undifferentiated(images, kernel, bias, options)


@functools.partial(jax.custom_jvp, nondiff_argnums=(3,))
def _undifferentiated(
    images: jax.Array, kernel: jax.Array, bias: jax.Array, options: Options
) -> jax.Array:
    return _layer.bind(images, kernel, bias, options=options)


@_undifferentiated.defjvp
def _differentiated(options: Options, primals: Any, tangents: Any) -> Any:
    return jax.jvp(
        lambda images, kernel, bias: layer_by_parts(
            convolutions.convolve_onednn, images, kernel, bias, options
        ),
        primals,
        tangents,
    )


# ---------------------------------------------------------------------- the primitive
_layer = Primitive("onednn_layer")


def _by_xla(images: Any, kernel: Any, bias: Any, *, options: Options) -> jax.Array:
    return layer_by_parts(convolve, images, kernel, bias, options)


def _shape(*arrays: Any, options: Options) -> tuple[int, ...]:
    return jax.eval_shape(functools.partial(_by_xla, options=options), *arrays).shape


def _by_c(*arrays: jax.Array, options: Options) -> jax.Array:
    onednn.prepare()
    result = jax.ShapeDtypeStruct(_shape(*arrays, options=options), jnp.float32)
    return foreign.call("layer", result, *arrays, **options._asdict())


def _batch(
    args: Sequence[jax.Array], axes: Sequence[int | None], *, options: Options
) -> tuple[jax.Array, int]:
    """Fold a new axis of the images into their batch; else one call after the other."""
    (size,) = {x.shape[axis] for x, axis in zip(args, axes, strict=True) if axis is not None}
    if axes[1] is None and axes[2] is None:
        images = jnp.moveaxis(args[0], axes[0] or 0, 0)
        out = _layer.bind(images.reshape(-1, *images.shape[2:]), *args[1:], options=options)
        return out.reshape(size, -1, *out.shape[1:]), 0
    full = [
        jnp.broadcast_to(x, (size, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)
        for x, axis in zip(args, axes, strict=True)
    ]
    return jax.lax.map(lambda each: _layer.bind(*each, options=options), full), 0


@functools.cache
def _compiled(options: Options) -> Any:
    return jax.jit(functools.partial(_layer.bind, options=options))


_layer.def_impl(lambda *arrays, options: _compiled(options)(*arrays))
_layer.def_abstract_eval(
    lambda *arrays, options: arrays[0].update(shape=_shape(*arrays, options=options))
)
batching.primitive_batchers[_layer] = _batch
foreign.register_lowering(_layer, _by_xla, _by_c)
