"""Functions from outside as networks: called as they are, or refused by name."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flowjax_inv.networks import Outside, find_function


def jax_logits(images):
    return jnp.stack([jnp.mean(images, (1, 2, 3)), jnp.max(images, (1, 2, 3))], axis=-1)


def numpy_logits(images):
    """What no tracer passes: NumPy."""
    images = np.asarray(images)
    return np.stack([images.mean((1, 2, 3)), images.max((1, 2, 3))], axis=-1)


def writing_logits(images):
    """What writes into its images, as NumPy may."""
    images[..., 0] += 0.0
    return numpy_logits(images)


def torch_logits(images):
    """What asks for NumPy's arrays by name, as torch.from_numpy does."""
    if not isinstance(images, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(images).__name__})")
    return numpy_logits(images)


def fails(images):
    raise RuntimeError("I want 224 pixels")


@pytest.mark.parametrize("name", ["jax_logits", "numpy_logits", "writing_logits", "torch_logits"])
def test_a_function_from_outside_is_a_network(name) -> None:
    images = jax.random.uniform(jax.random.key(0), (3, 5, 5, 1))
    net = Outside(2, f"{__name__}:{name}")
    assert not jax.jit(net.init)(jax.random.key(0), images)
    for apply in (net.apply, jax.jit(net.apply)):
        logits: Any = apply({}, images)
        np.testing.assert_allclose(logits, numpy_logits(images), rtol=1e-6)


def test_a_function_that_fails_is_named() -> None:
    net = Outside(2, f"{__name__}:fails")
    with pytest.raises(ValueError, match=r"fails failed on images of shape \(1, 5, 5, 1\): I want"):
        net.apply({}, jnp.zeros((3, 5, 5, 1)))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_such_module:f", "cannot be imported"),
        ("math:no_such", "cannot be imported"),
        (".math:f", "cannot be imported"),
        ("math", "math is no function; write MODULE:FUNCTION"),
        ("math:pi", "math:pi is no function"),
    ],
)
def test_what_is_no_function_is_refused(name, words) -> None:
    with pytest.raises(ValueError, match=words):
        find_function(name)
