"""Parts of a step that hold memory one after the other: made again for the gradient, in order."""

from collections.abc import Callable
from typing import Any

import jax

__all__ = ["after", "made_again"]


def after(tree: Any, value: jax.Array) -> Any:
    """Return a tree as it is, but not before `value` is there; its gradient waits likewise.

    Adds 0 times a number of `value`, which XLA does not know to be 0. It removes optimization
    barriers before it schedules, and would then hold the activations of all chunks at once; a
    loop (lax.scan) orders them too, but on a CPU a step of Fixup ResNet-8 then takes twelve times
    as long.
    """
    nothing = 0.0 * value.ravel()[0]
    return jax.tree.map(lambda leaf: leaf + nothing, tree)


def made_again(part: Callable[..., Any]) -> Callable[..., Any]:
    """Return part(params, stats, images, theta) -> (logits, stats) that stores no activations.

    Its gradient, to params and theta, runs it a second time, and not before the cotangent is there:
    `jax.checkpoint` would leave a scheduler free to make all chunks again at once.
    """

    @jax.custom_vjp
    def remade(params: Any, stats: Any, images: jax.Array, theta: jax.Array) -> Any:
        return part(params, stats, images, theta)

    def forward(*arguments: Any) -> Any:
        return part(*arguments), arguments

    def backward(arguments: Any, cotangent: Any) -> Any:
        params, stats, images, theta = arguments
        images = after(images, cotangent[0])
        _, transpose = jax.vjp(lambda p, t: part(p, stats, images, t)[0], params, theta)
        to_params, to_theta = transpose(cotangent[0])
        return to_params, None, None, to_theta

    remade.defvjp(forward, backward)
    return remade
