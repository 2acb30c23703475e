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
        ValueError: if there is no such module or function.
    """
    module, colon, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute) if colon else None
    except (ImportError, AttributeError) as error:
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
        """Map images (N, H, W, C) to logits (N, features)."""
        del train
        function = find_function(self.function)
        try:
            return function(images)
        except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError):
            pass  # not JAX
        made = jax.ShapeDtypeStruct((images.shape[0], self.features), jnp.float32)
        return jax.pure_callback(
            lambda x: np.asarray(function(np.asarray(x)), np.float32), made, images
        )
