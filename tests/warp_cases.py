"""Boxes and matrices of warps, and a value with its gradients in the images and in the map."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

GOLDEN = np.load(Path(__file__).parent / "golden" / "warps.npz")
BOXES = np.array(
    [[0, 0, 1, 1], [0.11, -0.23, 0.53, 0.37], [0.7, 0.6, 0.81, 1.7], [9, 0, 1, 1]], np.float32
)


def as_matrices(boxes):
    x, y, width, height = np.moveaxis(boxes, -1, 0)
    zero, one = np.zeros_like(x), np.ones_like(x)
    rows = [[width, zero, x], [zero, height, y], [zero, zero, one]]
    return np.moveaxis(np.array(rows), (0, 1), (-2, -1))


def value_and_gradients(function, images, guide, weights):
    def weighted(images, guide):
        out = function(images, guide)
        return jnp.sum(weights * out), out

    both = jax.jit(jax.value_and_grad(weighted, argnums=(0, 1), has_aux=True))
    (_, out), gradients = both(images, guide)
    return out, *gradients
