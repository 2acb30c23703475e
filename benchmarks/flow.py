"""The conditional flow against those of other libraries, and against one by hand in PyTorch.

    pip install -e ".[bench]"
    python -m benchmarks.flow [--quick]

normflows and Zuko (PyTorch), Distrax's parts and flowjax (JAX), each with the same parameters.

12 couplings of width 64 on d = 6, an embedding of 32, 256 images x 20 samples: sampling with the
log-density, and that with the gradient of mean log-density + mean sample in every parameter.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import torch

from benchmarks import timing
from benchmarks.torch_models import SquashedFlow, gaussian_base, parameters
from flowjax_inv.distributions.flow import Flow

try:
    from benchmarks import flow_libraries as libraries
except ImportError as error:
    sys.exit(f'benchmarks.flow wants {error.name}: pip install -e ".[bench]"')

IMAGES, SAMPLES, LAYERS = 256, 20, 12
DIM, EMBEDDING, WIDTH = libraries.DIM, libraries.EMBEDDING, libraries.WIDTH
CAP, INNER = libraries.CAP, libraries.INNER
TORCH = ("normflows", "zuko", "torch by hand")
JAX = ("distrax", "flowjax")


class Given(nn.Module):
    """Hands the embedding through: the network before the flow is not what is timed."""

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> jax.Array:
        del train
        return images


def _rows(repeats: int) -> list[timing.Row]:
    flow = Flow(
        DIM,
        embed=Given(),
        layers=LAYERS,
        width=WIDTH,
        log_scale_cap=CAP,
        inner_squash=INNER,
        base="mixture",
        components=1,
    )
    random = np.random.default_rng(0)
    embedding = random.normal(size=(IMAGES, EMBEDDING)).astype(np.float32)
    params: Any = flow.init(jax.random.key(0), embedding)["params"]
    # Away from the start, which is near the identity.
    params = jax.tree.map(
        lambda x: x + 0.05 * random.normal(size=x.shape).astype(np.float32), params
    )

    def density(params: Any, embedding: jax.Array) -> Any:
        return flow.apply({"params": params}, embedding)

    def value(theta: Any, log_prob: Any) -> Any:
        return log_prob.mean() + theta.mean()

    start = parameters(params)
    by_hand = {name: tensor.clone().requires_grad_() for name, tensor in start.items()}
    hand = SquashedFlow(DIM, LAYERS, CAP, INNER)
    orders = [order.tolist() for order in hand.orders]
    context = torch.from_numpy(embedding)
    jax_flows = {
        "distrax": libraries.DistraxFlow(orders),
        "flowjax": libraries.FlowJaxFlow(orders),
    }

    # JAX: parameters, embedding, and normal numbers (n, N, d) or a key to draw them by.
    def ours(params: Any, embedding: jax.Array, noise: jax.Array) -> Any:
        g = density(params, embedding)
        if jnp.issubdtype(noise.dtype, jax.dtypes.prng_key):
            return g.sample_and_log_prob(seed=noise, sample_shape=(SAMPLES,))
        z = g.base.loc[:, 0] + noise * jnp.exp(g.base.log_scale[:, 0])
        theta, log_det = g.bijector.forward_and_log_det(z)
        return theta, g.base.log_prob(z) - log_det

    def theirs(name: str) -> Callable[..., Any]:
        def forward(params: Any, embedding: jax.Array, noise: jax.Array) -> Any:
            base = density(params, embedding).base
            if jnp.issubdtype(noise.dtype, jax.dtypes.prng_key):
                z, log_base = base.sample_and_log_prob(seed=noise, sample_shape=(SAMPLES,))
            else:
                z = base.loc[:, 0] + noise * jnp.exp(base.log_scale[:, 0])
                log_base = base.log_prob(z)
            theta, log_det = jax_flows[name].forward_and_log_det(params, embedding, z)
            return theta, log_base - log_det

        return forward

    # PyTorch: normal numbers, or None to draw them.
    model = libraries.normflows_model(start, hand.orders)
    zuko_forward, zuko_leaves = libraries.zuko_flow(start, hand.orders)

    def of_normflows(normal: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        # One row of context per sample is how the library is told about samples.
        rows = context.repeat(SAMPLES, 1)
        if normal is None:
            return model.sample(SAMPLES * IMAGES, context=rows)
        encoded = model.q0.context_encoder(rows)
        z = encoded[:, :DIM] + torch.exp(encoded[:, DIM:]) * normal.reshape(-1, DIM)
        theta, log_det = model.forward_and_log_det(z, context=rows)
        log_prob = model.q0.log_prob(z, context=rows) - log_det
        return theta.reshape(SAMPLES, IMAGES, DIM), log_prob.reshape(SAMPLES, IMAGES)

    def of_zuko(normal: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        normal = torch.randn(SAMPLES, IMAGES, DIM) if normal is None else normal
        z, log_base = gaussian_base(by_hand, context, normal)
        theta, log_det = zuko_forward(z, context.expand(SAMPLES, -1, -1))
        return theta, log_base - log_det

    def of_hand(normal: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        normal = torch.randn(SAMPLES, IMAGES, DIM) if normal is None else normal
        z, log_base = gaussian_base(by_hand, context, normal)
        theta, log_det = hand.forward(by_hand, z, context)
        return theta, log_base - log_det

    forwards: dict[str, Callable[..., Any]] = {
        timing.OURS: ours,
        **{name: theirs(name) for name in JAX},
        **dict(zip(TORCH, (of_normflows, of_zuko, of_hand), strict=True)),
    }
    base_leaves = [t for name, t in by_hand.items() if name.startswith(("loc", "log_scale"))]
    leaves = {
        "normflows": list(model.parameters()),
        "zuko": zuko_leaves + base_leaves,
        # One component: its logit has no part.
        "torch by hand": [t for name, t in by_hand.items() if not name.startswith("logits")],
    }

    def gradient(name: str) -> Callable[..., Any]:
        def loss(params: Any, embedding: jax.Array, noise: jax.Array) -> jax.Array:
            return value(*forwards[name](params, embedding, noise))

        return jax.jit(jax.value_and_grad(loss))

    # The same parameters and the same normal numbers must give the same values and gradients.
    normal = random.normal(size=(SAMPLES, IMAGES, DIM)).astype(np.float32)
    device_in = jax.device_put((params, embedding))
    theta, log_prob = jax.jit(ours)(*device_in, normal)
    slopes = gradient(timing.OURS)(*device_in, normal)[1]
    in_torch = parameters(slopes)
    differences = dict.fromkeys((*JAX, *TORCH), 0.0)

    def same(name: str, ours: Any, theirs: Any, what: str) -> None:
        theirs = theirs.detach().numpy() if isinstance(theirs, torch.Tensor) else theirs
        d = timing.difference(ours, theirs, 1e-4, f"{name}, {what}")
        differences[name] = max(differences[name], d)

    for name in (*JAX, *TORCH):
        if name in JAX:
            a, b = jax.jit(forwards[name])(*device_in, normal)
            for x, y in zip(
                jax.tree.leaves(slopes),
                jax.tree.leaves(gradient(name)(*device_in, normal)[1]),
                strict=True,
            ):
                if np.any(np.asarray(x)):
                    same(name, x, y, "gradients")
        else:
            a, b = forwards[name](torch.from_numpy(normal))
        same(name, theta, a, "samples")
        same(name, log_prob, b, "log-density")

    def slopes_in_torch(name: str) -> list[torch.Tensor]:
        return list(
            torch.autograd.grad(value(*forwards[name](torch.from_numpy(normal))), leaves[name])
        )

    names = [name for name in by_hand if not name.startswith("logits")]
    for name, slope in zip(names, slopes_in_torch("torch by hand"), strict=True):
        same("torch by hand", in_torch[name], slope, f"gradient of {name}")
    expected = [x for layer in range(LAYERS) for x in libraries.as_linear(in_torch, layer)]
    for name, first in (("normflows", None), ("zuko", 0)):
        slopes_of = dict(zip(map(id, leaves[name]), slopes_in_torch(name), strict=True))
        nets = (
            [model.flows[3 * layer].coupling.param_map.mlp.parameters() for layer in range(LAYERS)]
            if first is None
            else [zuko_leaves]
        )
        for x, leaf in zip(expected, [leaf for net in nets for leaf in net], strict=True):
            same(name, x, slopes_of[id(leaf)], "gradient of a coupling")

    key = jax.random.key(1)

    def call_of(name: str, mode: str) -> tuple[Callable[[], Any], float | None]:
        """Return what is timed, and the seconds it took to compile."""
        if name in TORCH:
            function = forwards[name]

            def values() -> Any:
                with torch.no_grad():
                    return function()

            def with_gradient() -> Any:
                return torch.autograd.grad(value(*function()), leaves[name])

            return (values if mode == "forward" else with_gradient), None
        function = jax.jit(forwards[name]) if mode == "forward" else gradient(name)
        begin = time.perf_counter()
        compiled = function.lower(*device_in, key).compile()
        seconds = time.perf_counter() - begin
        return lambda: jax.block_until_ready(compiled(*device_in, key)), seconds

    work = f"flow {IMAGES} x {SAMPLES}, {LAYERS} couplings:"
    out = []
    for mode, label in (("forward", "sample + log-density"), ("gradient", "and gradient")):
        both = {name: call_of(name, mode) for name in (timing.OURS, *JAX, *TORCH)}
        seconds = timing.measure({name: call for name, (call, _) in both.items()}, repeats=repeats)
        for name in (*TORCH, *JAX):
            pair = {side: seconds[side] for side in (timing.OURS, name)}
            out.append(
                timing.compare(pair)
                | {
                    "work": f"{work} {label}",
                    "difference": differences[name],
                    "compile_seconds": both[timing.OURS][1],
                    "their_compile_seconds": both[name][1],
                }
            )
    return out


if __name__ == "__main__":
    timing.main(
        "flow",
        _rows,
        {"images": IMAGES, "samples": SAMPLES, "dim": DIM, "embedding": EMBEDDING,
         "layers": LAYERS, "width": WIDTH, "base": "one Gaussian", "dtype": "float32"},
        sys.argv[1:],
        about="The conditional flow against other libraries' and a flow by hand in PyTorch.",
        packages=("normflows", "zuko", "distrax", "flowjax"),
        allocators="both",
    )  # fmt: skip
