"""A classifier from outside: a function somebody else wrote, as a module without weights."""

import importlib
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["Outside", "find_function"]


def find_function(name: str) -> Callable[[Any], Any]:
    """Import MODULE:FUNCTION.

    Raises:
        ValueError: if there is no such module or function, or the module fails.
    """
    module, colon, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute) if colon else None
    except Exception as error:  # whatever somebody else's module does
        raise ValueError(f"{name} cannot be imported ({error}); write MODULE:FUNCTION.") from error
    if not callable(found):
        raise ValueError(f"{name} is no function; write MODULE:FUNCTION.")
    return found


class Outside(nn.Module):
    """A function of images to logits as a network: nothing of it is trained.

    A function of JAX is traced; any other, of NumPy or PyTorch say, is called from the host, and
    has no gradient.

    Attributes:
        features: number of its logits.
        function: MODULE:FUNCTION, images (N, H, W, C) float -> logits (N, features).
    """

    features: int
    function: str

    def __call__(self, images: jax.Array, *, train: bool = False) -> jax.Array:
        """Map images (N, H, W, C) to logits (N, features).

        Raises:
            ValueError: if the function takes neither JAX's nor NumPy's images; if a gradient is
                asked for that there is not.
        """
        del train
        function = find_function(self.function)
        try:
            return function(images)
        except Exception:  # not JAX: NumPy writes into arrays, PyTorch wants NumPy's, and so on
            blank = np.zeros((1, *images.shape[1:]), np.float32)
        try:
            with jax.ensure_compile_time_eval():  # what calls JAX inside is not traced here
                function(blank)
        except Exception as error:  # whatever somebody else's function does
            raise ValueError(
                f"{self.function} failed on images of shape {blank.shape}: {error}"
            ) from error

        @jax.custom_jvp
        def called(images: jax.Array) -> jax.Array:
            made = jax.ShapeDtypeStruct((images.shape[0], self.features), jnp.float32)
            return jax.pure_callback(
                lambda x: np.asarray(function(np.array(x)), np.float32), made, images
            )

        @called.defjvp
        def _refuse(*_: Any) -> Any:
            raise ValueError(
                f"{self.function} is called from the host, which gives no gradient, and the "
                'density asks for one through its samples; take the objective\'s gradient="score".'
            )

        return called(images)
