"""What a coupling asks of its conditioner, for all samples of all images: the formula, and C.

A hidden layer is many times the numbers that go in and out. XLA writes them all, and keeps those
of every coupling for the backward pass; in C (`perceptron.c`), for conditioners of one hidden
layer, they stay in registers and are computed again (`python -m benchmarks.flow`). On other
platforms, on several devices, in exported programs and in forward mode all is XLA's.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching

from flowjax_inv import foreign

__all__ = ["perceptron", "perceptron_xla"]

Layers = Sequence[tuple[jax.Array, jax.Array]]
# Coordinates kept and parameters of the others, as perceptron.c was compiled for: 2 to 8 in all.
_SIZES = {((dim + 1) // 2, 2 * (dim // 2)) for dim in range(2, 9)}


def perceptron(context: jax.Array, first: jax.Array, kept: jax.Array, later: Layers) -> jax.Array:
    """Return the parameters of a coupling, all layers after a ReLU.

    Args:
        context: (W, N) what the first layer gets from the embedding, and its bias.
        first: (K, W) its weights for coordinates.
        kept: (K, N n) coordinates, image after image, n samples of each.
        later: weights (W, W) or (W, O), and biases, of the other layers.

    Returns:
        (O, N n).
    """
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


# ---------------------------------------------------------------------------- the formula
def perceptron_xla(
    context: jax.Array, first: jax.Array, kept: jax.Array, later: Layers
) -> jax.Array:
    """Equal `perceptron`, by XLA's operations alone."""
    x = context
    if len(kept):  # else the same for all samples of an image: there is one
        rows, images = kept.shape[1], context.shape[1]
        kept = kept.reshape(len(kept), images, rows // max(images, 1))
        x = _first_layer(first, kept, context).reshape(len(context), rows)
    for kernel, bias in later:
        x = _times(kernel, _relu(x)) + bias[:, None]
    return x


def _times(kernel: jax.Array, x: jax.Array) -> jax.Array:
    """Return kernel.T x: (K, W), (K, n) -> (W, n).

    Its gradient in x is then kernel g, without a transpose: XLA gives such products to its faster
    library.
    """
    return jax.lax.dot_general(kernel, x, (((0,), (0,)), ((), ())), precision="highest")


@jax.custom_jvp
def _first_layer(first: jax.Array, kept: jax.Array, context: jax.Array) -> jax.Array:
    """Return first.T kept + context: (K, W), (K, N, n), (W, N) -> (W, N, n).

    The embedding's share is the same for all samples of an image. So few coordinates are summed
    where the sum is used, in one pass: by a product the loop takes 1.1 times as long, 1.15 with
    the gradient.
    """
    out = context[..., None]
    for weights, coordinate in zip(first, kept, strict=True):
        out = out + weights[:, None, None] * coordinate
    return out


@_first_layer.defjvp
def _(primals: tuple[jax.Array, ...], tangents: tuple[jax.Array, ...]) -> Any:
    """Be transposed into products: the transposed sums would be one reduction per weight."""
    (first, kept, _), (d_first, d_kept, d_context) = primals, tangents
    rows, d_rows = (each.reshape(len(kept), -1) for each in (kept, d_kept))
    d_sum = (_times(d_first, rows) + _times(first, d_rows)).reshape(first.shape[1], *kept.shape[1:])
    return _first_layer(*primals), d_sum + d_context[..., None]


@jax.custom_jvp
def _relu(x: jax.Array) -> jax.Array:
    return jnp.maximum(x, 0.0)


@_relu.defjvp
def _(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Keep the output for the backward pass, which the next product wants too, and no mask.

    With `_times` in place of kernel.T @ x, value and gradient take 0.92 of the time.
    """
    out = _relu(*primals)
    masked = jax.checkpoint(lambda y, d: jnp.where(y > 0, d, 0.0), prevent_cse=False)
    return out, masked(out, *tangents)


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
