"""Networks: equal to PyTorch's, counted, and with parameters that start where they should."""

import zlib
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.setup import build
from flowjax_inv.native import onednn
from flowjax_inv.networks import (
    MLP,
    Blind,
    FixupResNet,
    Layer13,
    LeNet,
    Outside,
    PairNet,
    PolarConv,
    PreActResNet18,
    Shallow,
    SimpleConv,
    UNet,
)
from flowjax_inv.networks.convolutions.pooling import max_pool_2x2

GOLDEN = np.load(Path(__file__).parent / "golden" / "networks.npz")


def formula(path: str, shape: tuple[int, ...]) -> np.ndarray:
    """The numbers of golden/make_networks.py: from the name alone, in [-1, 1] before scaling."""
    i = np.arange(np.prod(shape), dtype=np.int64)
    u = (7 * i * i + 13 * i + zlib.crc32(path.encode())) % 1009 / 504 - 1
    kind = path.rpartition("/")[2]
    if kind == "kernel":
        u = u * np.sqrt(3 / np.prod(shape[:-1]))
    elif kind.endswith("scale") or kind == "var":
        u = 1 + 0.2 * u
    elif kind not in ("images", "pull"):
        u = 0.2 * u
    return u.reshape(shape).astype(np.float32)


def filled(network: nn.Module, shape: tuple[int, ...]) -> dict[str, Any]:
    """Variables of a network with every leaf replaced by its formula."""
    key = jax.random.key(0)
    shapes = jax.eval_shape(lambda: network.init(key, jnp.zeros((1, *shape))))

    def fill(path: Any, leaf: Any) -> jax.Array:
        return jnp.asarray(formula("/".join(entry.key for entry in path[1:]), leaf.shape))

    return jax.tree_util.tree_map_with_path(fill, shapes)


GOLDEN_CASES: list[tuple[str, nn.Module, tuple[int, ...]]] = [
    ("simple_conv_28", SimpleConv(32, 8), (28, 28, 1)),
    ("simple_conv_32", SimpleConv(32, 8), (32, 32, 3)),
    ("lenet_28", LeNet(10), (28, 28, 1)),
    ("lenet_32", LeNet(10, "relu"), (32, 32, 3)),
    ("fixup_resnet", FixupResNet(10), (32, 32, 3)),
    ("layer13", Layer13(10, 8, dropout_rate=0.0), (16, 16, 3)),
    ("preact_resnet18", PreActResNet18(4), (32, 32, 3)),
    ("mlp", MLP(10, (20,), "tanh"), (12, 12, 1)),
]


@pytest.mark.slow
@pytest.mark.parametrize("conv", ["lax", "onednn", "patches"])
@pytest.mark.parametrize(("name", "network", "shape"), GOLDEN_CASES, ids=lambda c: str(c)[:15])
def test_networks_equal_pytorchs(name: str, network: Any, shape: tuple, conv: str) -> None:
    """Outputs in evaluation and in training, and the norms of both gradients, by both paths."""
    if conv == "onednn" and not onednn.available():
        pytest.skip("onednn-cpu-gomp is missing")
    if hasattr(network, "conv"):
        network = network.clone(conv=conv)
    variables = filled(network, shape)
    images = jnp.asarray(formula("images", (4, *shape)))

    def train(params: Any, images: jax.Array) -> tuple[jax.Array, jax.Array]:
        rest = variables | {"params": params}
        logits, _ = network.apply(rest, images, train=True, mutable=["batch_stats"])
        return jnp.sum(logits * formula("pull", logits.shape)), logits

    @jax.jit
    def both(params: Any, images: jax.Array) -> Any:
        evaluated = network.apply(variables | {"params": params}, images)
        return evaluated, jax.grad(train, argnums=(0, 1), has_aux=True)(params, images)

    evaluated, (gradients, logits) = both(variables["params"], images)
    np.testing.assert_allclose(evaluated, GOLDEN[f"{name}/logits"], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(logits, GOLDEN[f"{name}/train_logits"], rtol=1e-3, atol=3e-4)
    norms = [np.sqrt(sum(np.sum(np.square(x)) for x in jax.tree.leaves(g))) for g in gradients]
    wanted = [GOLDEN[f"{name}/gradient_norm"], GOLDEN[f"{name}/image_gradient_norm"]]
    np.testing.assert_allclose(norms, wanted, rtol=2e-4)


@pytest.mark.parametrize(("name", "network", "shape"), GOLDEN_CASES, ids=lambda c: str(c)[:15])
def test_forward_mode_is_there(name: str, network: Any, shape: tuple) -> None:
    """Lowered, not run: a rule for reverse mode alone is refused no earlier."""
    if hasattr(network, "conv"):
        network = network.clone(conv="patches")
    variables = filled(network, shape)

    @jax.jit
    def push(x: jax.Array) -> Any:
        return jax.jvp(lambda x: network.apply(variables, x), (x,), (x,))

    logits, pushed = push.lower(jnp.zeros((2, *shape))).out_info
    assert logits.shape == pushed.shape, name


COUNTS: list[tuple[nn.Module, tuple[int, ...], int]] = [
    (SimpleConv(32, 8), (28, 28, 1), 26_464),
    (SimpleConv(32, 8), (32, 32, 3), 26_608),
    (SimpleConv(4, 32, batch_norm=True), (32, 32, 3), 390_404),
    (LeNet(10), (28, 28, 1), 60_170),
    (LeNet(10, "relu"), (32, 32, 3), 62_006),
    (FixupResNet(10), (32, 32, 3), 74_827),
    (FixupResNet(10, 8), (32, 32, 3), 18_995),
    (Layer13(10), (32, 32, 3), 3_993_482),
    (PreActResNet18(200), (64, 64, 3), 11_268_616),
    (PreActResNet18(4), (64, 64, 3), 11_168_068),
    (PreActResNet18(20, width=16), (64, 64, 3), 702_052),
    (MLP(10, (1000,), "tanh"), (28, 28, 1), 795_010),
]


def test_every_network_is_counted() -> None:
    """But ours, which no paper counts, and functions from outside, which have none."""
    counted = {type(network) for network, _, _ in COUNTS}
    ours = {PolarConv, Outside, Shallow, UNet, PairNet, Blind}
    assert set(build.NETWORKS.values()) == counted | ours


def test_blind_sees_nothing_and_learns() -> None:
    network: Any = Blind(4)
    images = jax.random.normal(jax.random.key(0), (3, 8, 6, 1))
    variables = network.init(jax.random.key(1), images)
    vectors = network.apply(variables, images)
    np.testing.assert_array_equal(vectors, np.tile(variables["params"]["vector"], (3, 1)))
    slope = jax.grad(lambda v: network.apply(v, images).sum())(variables)["params"]["vector"]
    np.testing.assert_array_equal(slope, np.full(4, 3.0))


@pytest.mark.parametrize(("network", "shape", "expected"), COUNTS, ids=lambda c: str(c)[:12])
def test_parameter_counts_are_the_papers(network: Any, shape: tuple, expected: int) -> None:
    variables = jax.eval_shape(lambda: network.init(jax.random.key(0), jnp.zeros((1, *shape))))
    assert sum(x.size for x in jax.tree.leaves(variables["params"])) == expected


@pytest.mark.slow
def test_fixup_scalars_are_seventeen_parameters_of_one_number() -> None:
    """The recipe finds them by their shape (1,): no other parameter has it."""
    params: Any = jax.jit(FixupResNet(10).init)(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))[
        "params"
    ]
    scalars = {name: leaf for name, leaf in params.items() if not isinstance(leaf, dict)}
    assert len(scalars) == 17
    assert all(leaf.shape == (1,) for leaf in scalars.values())
    assert sum(leaf.shape == (1,) for leaf in jax.tree.leaves(params)) == 17
    for name, leaf in scalars.items():
        assert leaf == (1.0 if name.endswith("scale") else 0.0), name


@pytest.mark.slow
def test_fixup_starts_as_its_paper_says() -> None:
    params: Any = jax.jit(FixupResNet(10).init)(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))[
        "params"
    ]
    for block, std in enumerate((0.0680, 0.0481, 0.0340)):
        assert abs(np.std(params[f"block{block}_conv1"]["kernel"]) / std - 1) < 0.05
        assert not np.any(params[f"block{block}_conv2"]["kernel"])
    assert not np.any(params["head"]["kernel"])
    first = np.abs(params["conv"]["kernel"]).max() * np.sqrt(27)
    assert 0.95 < first <= 1


@pytest.mark.slow
def test_preact_resnet18_starts_as_its_code_says() -> None:
    """Truncated at two standard deviations of sqrt(2 / fan_in) / 0.8796; a small linear layer."""
    network = PreActResNet18(200)
    params: Any = jax.jit(network.init)(jax.random.key(0), jnp.zeros((1, 16, 16, 3)))["params"]
    kernel = params["block2_conv2"]["kernel"]
    std = np.sqrt(2 / (9 * 128))
    assert abs(np.std(kernel) / std - 1) < 0.01
    assert 1.95 < np.abs(kernel).max() / (std / 0.8796) <= 2.001
    assert abs(np.std(params["head"]["kernel"]) / 0.01 - 1) < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("network", [LeNet(10), Layer13(10, 8)], ids=["lenet", "layer13"])
def test_pytorchs_uniform_start(network: Any) -> None:
    """Weights and biases fill U(-1/sqrt(fan_in), 1/sqrt(fan_in)), layer by layer."""
    params = jax.jit(network.init)(jax.random.key(0), jnp.zeros((1, 28, 28, 1)))["params"]
    for name, layer in params.items():
        if "kernel" in layer:
            bound = 1 / np.sqrt(np.prod(layer["kernel"].shape[:-1]))
            assert 0.8 < np.abs(layer["kernel"]).max() / bound <= 1, name
            assert 0.4 < np.abs(layer["bias"]).max() / bound <= 1, name


REFUSALS: list[tuple[Any, tuple[int, ...], str]] = [
    (SimpleConv(4), (1, 4, 32, 3), r"images have shape \(1, 4, 32, 3\); SimpleConv wants"),
    (LeNet(4), (1, 64, 64, 3), r"shape \(1, 64, 64, 3\); LeNet wants \(N, 28, 28, C\) or"),
    (LeNet(4), (1, 28, 32, 1), r"shape \(1, 28, 32, 1\); LeNet wants"),
    (Layer13(4), (1, 2, 8, 3), r"shape \(1, 2, 8, 3\); Layer13 wants .* H, W >= 4"),
    (FixupResNet(4), (8, 8, 3), r"shape \(8, 8, 3\); FixupResNet wants \(N, H, W, C\)"),
    (PreActResNet18(4), (8, 8, 3), r"shape \(8, 8, 3\); PreActResNet18 wants \(N, H, W, C\)"),
    (MLP(4).clone(activation="gelu"), (1, 4), 'activation is "gelu"; allowed: relu, tanh'),
]


@pytest.mark.parametrize(("network", "shape", "text"), REFUSALS, ids=lambda c: str(c)[:14])
def test_networks_refuse_what_they_cannot_take(network: Any, shape: tuple, text: str) -> None:
    with pytest.raises(ValueError, match=text) as caught:
        jax.jit(network.init)(jax.random.key(0), jnp.zeros(shape))
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("size", [28, 32])
def test_simple_conv_is_the_papers_network(size: int) -> None:
    """Layer by layer from public operations, at both sizes the paper's pooling was made for."""
    images = jax.random.uniform(jax.random.key(0), (2, size, size, 3))
    net = SimpleConv(5, width=4)
    variables: Any = jax.jit(net.init)(jax.random.key(1), images)
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


NORMALIZED = [
    ("norm0", SimpleConv(4, 2, batch_norm=True)),
    ("norm0", Layer13(4, 2)),
    ("block0_norm1", PreActResNet18(4)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("norm", "network"), NORMALIZED, ids=lambda c: str(c)[:12])
def test_batch_norm_updates_in_training_alone(norm: str, network: Any) -> None:
    images = jax.random.normal(jax.random.key(0), (8, 8, 8, 1)) + 3
    variables: Any = jax.jit(network.init)(jax.random.key(1), images)
    rngs = {"dropout": jax.random.key(2)}
    result: Any = network.apply(variables, images, train=True, mutable=["batch_stats"], rngs=rngs)
    before, after = (v["batch_stats"][norm]["mean"] for v in (variables, result[1]))
    assert np.abs(after - before).max() > 1e-3
    network.apply(variables, images, train=False)  # needs neither a key nor anything mutable


@pytest.mark.slow
def test_running_statistics_move_a_tenth() -> None:
    """PyTorch's momentum 0.1: new = 0.9 old + 0.1 batch."""
    network: Any = Layer13(4, 2, dropout_rate=0.0)
    images = jax.random.normal(jax.random.key(0), (8, 8, 8, 1)) + 3
    variables = jax.jit(network.init)(jax.random.key(1), images)
    _, changed = network.apply(variables, images, train=True, mutable=["batch_stats"])
    p = variables["params"]["conv0"]
    x: Any = nn.Conv(2, (3, 3)).apply({"params": p}, images)
    stats = changed["batch_stats"]["norm0"]
    np.testing.assert_allclose(stats["mean"], 0.1 * x.mean((0, 1, 2)), rtol=1e-4)
    np.testing.assert_allclose(stats["var"], 0.9 + 0.1 * x.var((0, 1, 2)), rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("norm", "network"), NORMALIZED, ids=lambda c: str(c)[:12])
def test_statistics_under_pmap_are_those_of_the_whole_batch(norm: str, network: Any) -> None:
    if isinstance(network, Layer13):
        network = network.clone(dropout_rate=0.0)
    images = (
        jax.random.normal(jax.random.key(0), (8, 8, 8, 3)) * jnp.arange(1, 9)[:, None, None, None]
    )
    variables = jax.jit(network.init)(jax.random.key(1), images)

    def stats(network: Any, images: jax.Array) -> Any:
        return network.apply(variables, images, train=True, mutable=["batch_stats"])

    logits, whole = stats(network, images)
    spread = network.clone(axis_name="batch")
    parts, shared = jax.pmap(lambda x: stats(spread, x), axis_name="batch")(
        images.reshape(4, 2, 8, 8, 3)
    )
    np.testing.assert_allclose(parts.reshape(8, 4), logits, rtol=1e-3, atol=1e-4)
    for part in range(4):
        np.testing.assert_allclose(
            shared["batch_stats"][norm]["var"][part], whole["batch_stats"][norm]["var"], rtol=1e-4
        )


@pytest.mark.slow
def test_dropout_removes_whole_maps_by_its_own_key() -> None:
    """The first dropout sees the same maps under every key: each is dropped or divided by 0.7."""
    images = jax.random.normal(jax.random.key(0), (8, 8, 8, 3))
    variables = jax.jit(Layer13(4, 4).init)(jax.random.key(1), images)

    def first_dropout(rate: float, key: int) -> np.ndarray:
        _, kept = Layer13(4, 4, dropout_rate=rate).apply(
            variables,
            images,
            train=True,
            rngs={"dropout": jax.random.key(key)},
            mutable=["batch_stats", "intermediates"],
            capture_intermediates=lambda module, _: isinstance(module, nn.Dropout),
        )
        return np.asarray(kept["intermediates"]["Dropout_0"]["__call__"][0])

    whole, dropped = first_dropout(0.0, 0), first_dropout(0.3, 0)
    gone = np.all(dropped == 0, axis=(1, 2), keepdims=True)
    assert 0.1 < gone.mean() < 0.6
    np.testing.assert_allclose(dropped, np.where(gone, 0, whole / 0.7), rtol=1e-5)
    assert np.any(first_dropout(0.3, 1) != dropped)


@pytest.mark.slow
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
    push = jax.random.normal(jax.random.key(2), x.shape)
    pushed = jax.jvp(max_pool_2x2, (x,), (push,))[1]
    np.testing.assert_allclose(jnp.vdot(pull, pushed), jnp.vdot(our_pull(pull)[0], push), rtol=1e-5)


def test_mlp_shapes() -> None:
    net = MLP(4, hidden=(6,))
    variables: Any = jax.jit(net.init)(jax.random.key(0), jnp.zeros((3, 5, 4, 2)))
    logits: Any = net.apply(variables, jnp.zeros((3, 5, 4, 2)))
    assert variables["params"]["dense0"]["kernel"].shape == (40, 6)
    assert logits.shape == (3, 4)
