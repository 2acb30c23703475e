"""Networks, pooling and the fast convolution."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flowjax_inv.convolutions import Conv3x3, convolve, convolve_sliced
from flowjax_inv.networks import MLP, SimpleConv, max_pool_2x2


@pytest.mark.parametrize("size", [28, 32])
def test_simple_conv_is_the_papers_network(size: int) -> None:
    """Layer by layer from public operations, at both sizes the paper's pooling was made for."""
    images = jax.random.uniform(jax.random.key(0), (2, size, size, 3))
    net = SimpleConv(5, width=4)
    variables: Any = net.init(jax.random.key(1), images)
    x = images
    for stage, pool in enumerate((1, 2, 2, 2)):
        p = variables["params"][f"conv{stage}"]
        x = nn.Conv(4 * 2**stage, (3, 3)).apply({"params": p}, x)
        assert isinstance(x, jax.Array)
        x = nn.max_pool(nn.relu(x), (pool, pool), (pool, pool))
    last = size // 8
    x = nn.max_pool(x, (last, last), (last, last)).reshape(2, -1)
    head = variables["params"]["head"]
    logits: Any = net.apply(variables, images)
    np.testing.assert_allclose(logits, x @ head["kernel"] + head["bias"], rtol=1e-4, atol=1e-5)


def test_simple_conv_counts() -> None:
    """SimpleConv(8, 32) on RGB: weights and biases of four convolutions and the head."""
    variables = SimpleConv(32, width=8).init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    expected = (27 * 8 + 8) + (72 * 16 + 16) + (144 * 32 + 32) + (288 * 64 + 64) + (64 * 32 + 32)
    assert sum(x.size for x in jax.tree.leaves(variables)) == expected


def test_simple_conv_refuses_tiny_pictures() -> None:
    with pytest.raises(ValueError, match=r"images have shape \(1, 4, 32, 3\); SimpleConv wants"):
        SimpleConv(4).init(jax.random.key(0), jnp.zeros((1, 4, 32, 3)))


def test_batch_norm_updates_in_training_alone() -> None:
    net = SimpleConv(4, width=2, batch_norm=True)
    images = jax.random.normal(jax.random.key(0), (8, 8, 8, 1)) + 3
    variables: Any = net.init(jax.random.key(1), images)
    result: Any = net.apply(variables, images, train=True, mutable=["batch_stats"])
    before, after = (v["batch_stats"]["norm0"]["mean"] for v in (variables, result[1]))
    assert np.abs(after - before).max() > 1e-3
    net.apply(variables, images, train=False)  # needs nothing mutable


@pytest.mark.parametrize("shape", [(4, 6), (5, 7)])
def test_pooling_equals_flax_in_value_and_gradient(shape: tuple[int, int]) -> None:
    """Ties included: rounding to quarters makes many; both give the first entry the gradient."""
    x = jnp.round(jax.random.normal(jax.random.key(0), (2, *shape, 3)) * 2) / 4

    def both(pool):
        return jax.vjp(pool, x)

    ours, our_pull = both(max_pool_2x2)
    theirs, their_pull = both(lambda x: nn.max_pool(x, (2, 2), (2, 2)))
    np.testing.assert_array_equal(ours, theirs)
    pull = jax.random.normal(jax.random.key(1), ours.shape)
    np.testing.assert_array_equal(our_pull(pull)[0], their_pull(pull)[0])


def test_mlp_shapes() -> None:
    net = MLP(4, hidden=(6,))
    variables: Any = net.init(jax.random.key(0), jnp.zeros((3, 5, 4, 2)))
    logits: Any = net.apply(variables, jnp.zeros((3, 5, 4, 2)))
    assert variables["params"]["dense0"]["kernel"].shape == (40, 6)
    assert logits.shape == (3, 4)


@pytest.mark.parametrize("batch", [5, 32, 70])
def test_sliced_convolution_equals_lax(batch: int) -> None:
    """Value bit for bit; both gradients to float32 sums in another order."""
    x = jax.random.normal(jax.random.key(0), (batch, 9, 7, 3))
    kernel = jax.random.normal(jax.random.key(1), (3, 3, 3, 4))
    np.testing.assert_array_equal(convolve_sliced(x, kernel), convolve(x, kernel))

    def gradients(f):
        return jax.grad(lambda x, k: jnp.sum(jnp.sin(f(x, k))), argnums=(0, 1))(x, kernel)

    for sliced, plain in zip(gradients(convolve_sliced), gradients(convolve), strict=True):
        np.testing.assert_allclose(sliced, plain, rtol=1e-4, atol=1e-4)


def test_conv3x3_is_flax_conv() -> None:
    x = jax.random.normal(jax.random.key(0), (2, 6, 5, 3))
    variables = Conv3x3(4).init(jax.random.key(1), x)
    expected: Any = nn.Conv(4, (3, 3)).apply(variables, x)
    for gradient in ("auto", "lax", "sliced"):
        ours: Any = Conv3x3(4, gradient).apply(variables, x)
        np.testing.assert_allclose(ours, expected, atol=1e-6)
