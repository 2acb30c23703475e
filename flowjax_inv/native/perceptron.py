"""The conditioners of couplings in C (`perceptron.c`); the formula is `distributions.perceptron`.

A hidden layer is many times the numbers that go in and out. XLA writes them all, and keeps those
of every coupling for the backward pass; in C (`perceptron.c`), for conditioners of one hidden
layer, they stay in registers and are computed again (`python -m benchmarks.flow`). On other
platforms, on several devices, in exported programs and in forward mode all is XLA's.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching

from flowjax_inv.distributions.perceptron import Layers, perceptron_xla
from flowjax_inv.native import foreign

__all__ = ["perceptron"]

# Coordinates kept and parameters of the others, as perceptron.c was compiled for: 2 to 8 in all.
_SIZES = {((dim + 1) // 2, 2 * (dim // 2)) for dim in range(2, 9)}


def perceptron(context: jax.Array, first: jax.Array, kept: jax.Array, later: Layers) -> jax.Array:
    """Equal `perceptron_xla`, in C where it can be."""
    inputs = (context, first, kept, *later[0])
    if len(later) == 1 and _in_c(*inputs):
        return _values.bind(*inputs)
    return perceptron_xla(context, first, kept, later)


def _in_c(context: jax.Array, first: jax.Array, kept: jax.Array, *last: jax.Array) -> bool:
    return (
        jax.default_backend() == "cpu"
        and jax.device_count() == 1
        and foreign.available()
        and (len(kept), last[1].size) in _SIZES
        and all(x.dtype == jnp.float32 for x in (context, first, kept, *last))
        # Else there is nothing to compute, or any number of images, in an exported program.
        and all(isinstance(n, int) and n for n in (*context.shape, *kept.shape))
    )


# ---------------------------------------------------------------------------- primitives of JAX
# Arguments are context, first, kept, the last layer's kernel and bias; then their tangents, or a
# cotangent.
_INPUTS = 5


def _values_xla(*args: Any) -> jax.Array:
    return perceptron_xla(*args[:3], later=[args[3:]])


def _change_xla(*args: Any) -> jax.Array:
    return jax.jvp(_values_xla, args[:_INPUTS], args[_INPUTS:])[1]


def _slopes_xla(*args: Any) -> list[jax.Array]:
    return list(jax.vjp(_values_xla, *args[:_INPUTS])[1](args[_INPUTS]))


def _shape(*args: Any) -> Any:
    return args[2].update(shape=(args[4].shape[0], args[2].shape[1]))


def _shapes(*args: Any) -> list[Any]:
    return list(args[:_INPUTS])


def _primitive(
    name: str, by_xla: Callable[..., Any], by_c: Callable[..., Any], shape: Callable[..., Any]
) -> Primitive:
    """Return a primitive whose derivatives and batches are XLA's."""
    primitive = Primitive(name)
    primitive.multiple_results = shape is _shapes

    def jvp(primals: Any, tangents: Any) -> Any:
        return jax.jvp(by_xla, primals, tuple(map(ad.instantiate_zeros, tangents)))

    def batch(args: Any, axes: Any) -> Any:
        out = jax.vmap(by_xla, axes)(*args)
        return out, [0] * len(out) if primitive.multiple_results else 0

    primitive.def_impl(jax.jit(primitive.bind))
    primitive.def_abstract_eval(shape)
    ad.primitive_jvps[primitive] = jvp
    batching.primitive_batchers[primitive] = batch
    foreign.register_lowering(primitive, by_xla, by_c)
    return primitive


def _values_c(*args: Any) -> Any:
    return foreign.call("perceptron", _shape(*map(jax.typeof, args)), *args)


def _slopes_c(*args: Any) -> Any:
    return foreign.call("perceptron_slopes", _shapes(*map(jax.typeof, args)), *args)


_values = _primitive("perceptron", _values_xla, _values_c, _shape)
# Forward mode is XLA's; transposed, what training needs, it is C.
_change = _primitive("perceptron_change", _change_xla, _change_xla, _shape)
_slopes = _primitive("perceptron_slopes", _slopes_xla, _slopes_c, _shapes)


def _jvp(primals: Any, tangents: Any) -> Any:
    full = map(ad.instantiate_zeros, tangents)
    return _values.bind(*primals), _change.bind(*primals, *full)


def _transpose(ct: Any, *args: Any) -> list[Any]:
    slopes = _slopes.bind(*args[:_INPUTS], ct)
    wanted = map(ad.is_undefined_primal, args[_INPUTS:])
    return [None] * _INPUTS + [s if w else None for s, w in zip(slopes, wanted, strict=True)]


ad.primitive_jvps[_values] = _jvp
ad.primitive_transposes[_change] = _transpose
