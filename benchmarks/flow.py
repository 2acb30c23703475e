"""The conditional flow against normflows, and against the same flow by hand in PyTorch.

    pip install --no-deps normflows==1.7.3
    python -m benchmarks.flow [--quick]

12 couplings of width 64 on d = 6, an embedding of 32, 256 images x 20 samples: sampling with the
log-density, and that with the gradient of mean log-density + mean sample in every parameter.
"""

import sys
import time
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import torch

from benchmarks import timing
from benchmarks.torch_models import (
    SquashedFlow,
    gaussian_base,
    gaussian_parameters,
    parameters,
    squash,
)
from flowjax_inv.distributions.flow import Flow

try:
    import normflows
except ImportError:
    sys.exit("benchmarks.flow wants normflows: pip install --no-deps normflows==1.7.3")

IMAGES, SAMPLES, DIM, EMBEDDING = 256, 20, 6, 32
LAYERS, WIDTH = 12, 64
CAP, INNER = 3.0, 6.0
KEPT = (DIM + 1) // 2


class Given(nn.Module):
    """Hands the embedding through: the network before the flow is not what is timed."""

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> jax.Array:
        del train
        return images


class CappedMLP(torch.nn.Module):
    """normflows' MLP with its log-scales (odd outputs) bounded as ours are."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = normflows.nets.MLP([KEPT + EMBEDDING, WIDTH, 2 * (DIM - KEPT)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shift, log_scale = self.mlp(x).unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack([shift, CAP * torch.tanh(log_scale / CAP)], dim=-1).flatten(-2)


class Coupling(normflows.flows.Flow):
    """normflows' affine coupling with the context beside the coordinates that are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.coupling = normflows.flows.AffineCoupling(CappedMLP())

    def forward(self, z: torch.Tensor, context: torch.Tensor) -> Any:
        kept, moved = z[:, :KEPT], z[:, KEPT:]
        (_, moved), log_det = self.coupling([torch.cat([kept, context], dim=1), moved])
        return torch.cat([kept, moved], dim=1), log_det


class Squash(normflows.flows.Flow):
    """The smooth bound after every coupling, and the last one into the box."""

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit = limit

    def forward(self, z: torch.Tensor, context: torch.Tensor) -> Any:
        del context
        return squash(z, self.limit, self.limit)


class BaseNet(torch.nn.Module):
    """Context -> mean and log standard deviation, for normflows' ConditionalDiagGaussian."""

    def __init__(self, start: dict[str, torch.Tensor]) -> None:
        super().__init__()
        names = ("loc", "log_scale")
        self.names = [n for n in start if n.partition("_projection")[0].split("/")[0] in names]
        self.values = torch.nn.ParameterList([start[name].clone() for name in self.names])

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        p = dict(zip(self.names, self.values, strict=True))
        return torch.cat(gaussian_parameters(p, context), dim=-1)


def _normflows_model(start: dict[str, torch.Tensor], orders: list[torch.Tensor]) -> Any:
    """Return the flow of normflows' blocks, with our parameters."""
    flows: list[Any] = []
    for layer, order in enumerate(orders):
        coupling = Coupling()
        first, _, last = coupling.coupling.param_map.mlp.net
        with torch.no_grad():
            for parameter, value in zip(
                (first.weight, first.bias, last.weight, last.bias),
                _as_linear(start, layer),
                strict=True,
            ):
                parameter.copy_(value)
        permutation = normflows.flows.Permute(DIM)
        permutation.perm.copy_(order)
        flows += [coupling, permutation, Squash(INNER)]
    base = normflows.distributions.base.ConditionalDiagGaussian(DIM, BaseNet(start))
    return normflows.ConditionalNormalizingFlow(base, [*flows, Squash(1.0)])


def _as_linear(p: dict[str, torch.Tensor], layer: int) -> list[torch.Tensor]:
    """Return weight, bias, weight, bias of a coupling's MLP: only the entries that are used."""
    kernel0, kernel1 = p[f"coupling{layer}/kernel0"], p[f"coupling{layer}/kernel1"]
    first = torch.cat([kernel0[:KEPT], kernel0[DIM:]]).T
    return [
        first,
        p[f"coupling{layer}/bias0"],
        kernel1[:, 2 * KEPT :].T,
        p[f"coupling{layer}/bias1"][2 * KEPT :],
    ]


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

    @jax.jit
    def forward(params: Any, embedding: jax.Array, key: jax.Array) -> Any:
        return density(params, embedding).sample_and_log_prob(seed=key, sample_shape=(SAMPLES,))

    @jax.jit
    def gradient(params: Any, embedding: jax.Array, key: jax.Array) -> Any:
        def loss(params: Any) -> jax.Array:
            return value(*forward(params, embedding, key))

        return jax.value_and_grad(loss)(params)

    start = parameters(params)
    by_hand = {name: tensor.clone().requires_grad_() for name, tensor in start.items()}
    hand = SquashedFlow(DIM, LAYERS, CAP, INNER)
    model = _normflows_model(start, hand.orders)
    context = torch.from_numpy(embedding)

    def hand_forward(normal: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        normal = torch.randn(SAMPLES, IMAGES, DIM) if normal is None else normal
        z, log_base = gaussian_base(by_hand, context, normal)
        theta, log_det = hand.forward(by_hand, z, context)
        return theta, log_base - log_det

    def library_forward() -> tuple[torch.Tensor, torch.Tensor]:
        # One row of context per sample is how the library is told about samples.
        rows = context.repeat(SAMPLES, 1)
        return model.sample(SAMPLES * IMAGES, context=rows)

    # The same parameters and the same normal numbers must give the same values and gradients.
    normal = random.normal(size=(SAMPLES, IMAGES, DIM)).astype(np.float32)

    def ours_given(params: Any) -> Any:
        g = density(params, jnp.asarray(embedding))
        base: Any = g.base
        z = base.loc[:, 0] + normal * jnp.exp(base.log_scale[:, 0])
        theta, log_det = g.bijector.forward_and_log_det(z)
        log_prob = base.log_prob(z) - log_det
        return value(theta, log_prob), (theta, log_prob)

    (_, (theta, log_prob)), slopes = jax.jit(jax.value_and_grad(ours_given, has_aux=True))(params)
    hand_theta, hand_log_prob = hand_forward(torch.from_numpy(normal))
    value(hand_theta, hand_log_prob).backward()
    rows = context.repeat(SAMPLES, 1)
    flat = torch.from_numpy(normal).reshape(-1, DIM)
    encoded = model.q0.context_encoder(rows)
    z = encoded[:, :DIM] + torch.exp(encoded[:, DIM:]) * flat
    library_theta, library_log_det = model.forward_and_log_det(z, context=rows)
    library_log_prob = model.q0.log_prob(z, context=rows) - library_log_det
    value(library_theta, library_log_prob).backward()
    differences = {"normflows": 0.0, "torch by hand": 0.0}

    def same(name: str, ours: Any, theirs: torch.Tensor, what: str) -> None:
        d = timing.difference(ours, theirs.detach().numpy(), 1e-4, f"{name}, {what}")
        differences[name] = max(differences[name], d)

    for name, a, b in (
        ("torch by hand", hand_theta, hand_log_prob),
        ("normflows", library_theta, library_log_prob),
    ):
        same(name, theta, a.reshape(theta.shape), "samples")
        same(name, log_prob, b.reshape(log_prob.shape), "log-density")
    gradients = parameters(slopes)
    for name, tensor in by_hand.items():
        if tensor.grad is not None:  # one component: its logit has no part
            same("torch by hand", gradients[name], tensor.grad, f"gradient of {name}")
    for layer in range(LAYERS):
        mlp = model.flows[3 * layer].coupling.param_map.mlp.net
        theirs = (mlp[0].weight, mlp[0].bias, mlp[2].weight, mlp[2].bias)
        for ours_slope, theirs_slope in zip(_as_linear(gradients, layer), theirs, strict=True):
            same("normflows", ours_slope, theirs_slope.grad, f"gradient of coupling {layer}")

    key = jax.random.key(1)
    ours_in = jax.device_put((params, embedding, key))
    compiled = {}
    for name, function in (("forward", forward), ("gradient", gradient)):
        begin = time.perf_counter()
        function.lower(*ours_in).compile()
        compiled[name] = time.perf_counter() - begin

    def no_gradient(function: Any) -> Any:
        def call() -> Any:
            with torch.no_grad():
                return function()

        return call

    def with_gradient(function: Any, leaves: list[torch.Tensor]) -> Any:
        def call() -> Any:
            return torch.autograd.grad(value(*function()), leaves)

        return call

    hand_leaves = [tensor for tensor in by_hand.values() if tensor.grad is not None]
    sides = {
        "normflows": (library_forward, list(model.parameters())),
        "torch by hand": (hand_forward, hand_leaves),
    }
    work = f"flow {IMAGES} x {SAMPLES}, {LAYERS} couplings:"
    out = []
    ours = {"forward": forward, "gradient": gradient}
    seconds = {}
    for mode, label in (("forward", "sample + log-density"), ("gradient", "and gradient")):
        calls: dict[str, Any] = {
            timing.OURS: lambda mode=mode: jax.block_until_ready(ours[mode](*ours_in))
        }
        for name, (function, leaves) in sides.items():
            calls[name] = (
                no_gradient(function) if mode == "forward" else with_gradient(function, leaves)
            )
        seconds = timing.measure(calls, repeats=repeats)
        for name in sides:
            pair = {side: seconds[side] for side in (timing.OURS, name)}
            out.append(
                timing.compare(pair)
                | {
                    "work": f"{work} {label}",
                    "difference": differences[name],
                    "compile_seconds": compiled[mode],
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
        about="The conditional flow against normflows and a flow by hand in PyTorch.",
        packages=("normflows",),
    )  # fmt: skip
