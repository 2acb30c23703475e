"""The couplings of `benchmarks.flow` assembled from the parts of other libraries, one class each.

Blocks are the library's own wherever it has them: coupling, permutation, conditioner, chain. What
none has, the bound of the log-scale and the squash, is written as the library asks for a bijection.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import distrax
import equinox
import flowjax.bijections
import jax
import jax.numpy as jnp
import normflows
import numpy as np
import torch
import zuko

from benchmarks.torch_device import DEVICE
from benchmarks.torch_models import gaussian_parameters, squash
from flowjax_inv.distributions import bijections

__all__ = [
    "CAP",
    "DIM",
    "EMBEDDING",
    "INNER",
    "WIDTH",
    "DistraxFlow",
    "FlowJaxFlow",
    "as_linear",
    "normflows_model",
    "zuko_flow",
]

DIM, EMBEDDING, WIDTH = 6, 32, 64
CAP, INNER = 3.0, 6.0
KEPT = (DIM + 1) // 2


def as_linear(p: Mapping[str, Any], layer: int) -> list[Any]:
    """Return weight, bias, weight, bias of a coupling's MLP: only the entries that are used."""
    kernel0, kernel1 = p[f"coupling{layer}/kernel0"], p[f"coupling{layer}/kernel1"]
    join = torch.cat if isinstance(kernel0, torch.Tensor) else jnp.concatenate
    return [
        join([kernel0[:KEPT], kernel0[DIM:]]).T,
        p[f"coupling{layer}/bias0"],
        kernel1[:, 2 * KEPT :].T,
        p[f"coupling{layer}/bias1"][2 * KEPT :],
    ]


# normflows


class _CappedMLP(torch.nn.Module):
    """normflows' MLP with its log-scales (odd outputs) bounded as ours are."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = normflows.nets.MLP([KEPT + EMBEDDING, WIDTH, 2 * (DIM - KEPT)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shift, log_scale = self.mlp(x).unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack([shift, CAP * torch.tanh(log_scale / CAP)], dim=-1).flatten(-2)


class _Coupling(normflows.flows.Flow):
    """normflows' affine coupling with the context beside the coordinates that are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.coupling = normflows.flows.AffineCoupling(_CappedMLP())

    def forward(self, z: torch.Tensor, context: torch.Tensor) -> Any:
        kept, moved = z[:, :KEPT], z[:, KEPT:]
        (_, moved), log_det = self.coupling([torch.cat([kept, context], dim=1), moved])
        return torch.cat([kept, moved], dim=1), log_det


class _Squash(normflows.flows.Flow):
    """The smooth bound after every coupling, and the last one into the box."""

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit = limit

    def forward(self, z: torch.Tensor, context: torch.Tensor) -> Any:
        del context
        return squash(z, self.limit, self.limit)


class _BaseNet(torch.nn.Module):
    """Context -> mean and log standard deviation, for normflows' ConditionalDiagGaussian."""

    def __init__(self, start: dict[str, torch.Tensor]) -> None:
        super().__init__()
        names = ("loc", "log_scale")
        self.names = [n for n in start if n.partition("_projection")[0].split("/")[0] in names]
        self.values = torch.nn.ParameterList([start[name].clone() for name in self.names])

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        p = dict(zip(self.names, self.values, strict=True))
        return torch.cat(gaussian_parameters(p, context), dim=-1)


def normflows_model(start: dict[str, torch.Tensor], orders: Sequence[torch.Tensor]) -> Any:
    """Return the flow of normflows' blocks, with our parameters."""
    flows: list[Any] = []
    for layer, order in enumerate(orders):
        coupling = _Coupling()
        first, _, last = coupling.coupling.param_map.mlp.net
        with torch.no_grad():
            for parameter, value in zip(
                (first.weight, first.bias, last.weight, last.bias),
                as_linear(start, layer),
                strict=True,
            ):
                parameter.copy_(value)
        permutation = normflows.flows.Permute(DIM)
        permutation.perm.copy_(order)
        flows += [coupling, permutation, _Squash(INNER)]
    base = normflows.distributions.base.ConditionalDiagGaussian(DIM, _BaseNet(start))
    return normflows.ConditionalNormalizingFlow(base, [*flows, _Squash(1.0)])


# Zuko


class _ZukoSquash(torch.distributions.Transform):
    domain = torch.distributions.constraints.real_vector
    codomain = torch.distributions.constraints.real_vector
    bijective = True

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit = limit

    def call_and_ladj(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return squash(x, self.limit, self.limit)


class _ZukoAffine(torch.distributions.Transform):
    domain = torch.distributions.constraints.real_vector
    codomain = torch.distributions.constraints.real_vector
    bijective = True

    def __init__(self, shift: torch.Tensor, log_scale: torch.Tensor) -> None:
        super().__init__()
        self.shift, self.log_scale = shift, log_scale

    def call_and_ladj(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * torch.exp(self.log_scale) + self.shift, self.log_scale.sum(-1)


def zuko_flow(start: dict[str, torch.Tensor], orders: Sequence[torch.Tensor]) -> Any:
    """Return (z, context) -> theta, log-determinant of Zuko's blocks; and its parameters."""
    mask = torch.arange(DIM, device=DEVICE) < KEPT
    nets = []
    for layer in range(len(orders)):
        net = zuko.nn.MLP(KEPT + EMBEDDING, 2 * (DIM - KEPT), hidden_features=(WIDTH,))
        net.to(DEVICE)
        with torch.no_grad():
            for parameter, value in zip(net.parameters(), as_linear(start, layer), strict=True):
                parameter.copy_(value)
        nets.append(net)

    def forward(z: torch.Tensor, context: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        def meta(net: Any) -> Any:
            def of(kept: torch.Tensor) -> _ZukoAffine:
                shift, raw = net(torch.cat([kept, context], -1)).unflatten(-1, (-1, 2)).unbind(-1)
                return _ZukoAffine(shift, CAP * torch.tanh(raw / CAP))

            return of

        steps: list[Any] = []
        for net, order in zip(nets, orders, strict=True):
            steps.append(zuko.transforms.CouplingTransform(meta(net), mask))
            steps += [zuko.transforms.PermutationTransform(order), _ZukoSquash(INNER)]
        chain = zuko.transforms.ComposedTransform(*steps, _ZukoSquash(1.0))
        return chain.call_and_ladj(z)

    return forward, [parameter for net in nets for parameter in net.parameters()]


# Distrax


class DistraxFlow:
    """Distrax's masked couplings in a chain, layer after layer, on our parameters."""

    def __init__(self, orders: Sequence[Sequence[int]]) -> None:
        self.orders = [np.asarray(order) for order in orders]

    def forward_and_log_det(self, p: Any, embedding: jax.Array, z: jax.Array) -> Any:
        """Map z (n, N, d) to theta and the log-determinant."""
        mask = np.arange(DIM) < KEPT
        chain: list[Any] = []
        for layer, order in enumerate(self.orders):
            net = p[f"coupling{layer}"]

            def conditioner(x: Any, net: Any = net) -> jax.Array:
                seen = jnp.broadcast_to(embedding, (*x.shape[:-1], EMBEDDING))
                x = jnp.concatenate([x, seen], axis=-1)
                return (
                    jax.nn.relu(x @ net["kernel0"] + net["bias0"]) @ net["kernel1"] + net["bias1"]
                )

            def affine(parameters: jax.Array) -> distrax.Bijector:
                pairs = parameters.reshape(*parameters.shape[:-1], DIM, 2)
                log_scale = CAP * jnp.tanh(pairs[..., 1] / CAP)
                return distrax.ScalarAffine(shift=pairs[..., 0], log_scale=log_scale)

            chain += [
                distrax.MaskedCoupling(mask=mask, conditioner=conditioner, bijector=affine),
                distrax.Lambda(
                    forward=lambda x, order=order: x[..., order],
                    forward_log_det_jacobian=lambda x: jnp.zeros(x.shape[:-1]),
                    event_ndims_in=1,
                    is_constant_jacobian=True,
                ),
                bijections.Squash(INNER, INNER),
            ]
        chain.append(bijections.Squash(1.0, 1.0))
        return distrax.Chain(chain[::-1]).forward_and_log_det(z)


# flowjax


class _FlowJaxAffine(flowjax.bijections.AbstractBijection):
    shift: jax.Array
    raw: jax.Array
    shape: tuple[int, ...] = ()
    cond_shape: ClassVar[None] = None

    def transform_and_log_det(self, x: Any, condition: Any = None) -> Any:
        del condition
        log_scale = CAP * jnp.tanh(self.raw / CAP)
        return x * jnp.exp(log_scale) + self.shift, log_scale

    def inverse_and_log_det(self, y: Any, condition: Any = None) -> Any:
        raise NotImplementedError


class _FlowJaxSquash(flowjax.bijections.AbstractBijection):
    limit: float
    shape: tuple[int, ...] = (DIM,)
    cond_shape: ClassVar[None] = None

    def transform_and_log_det(self, x: Any, condition: Any = None) -> Any:
        del condition
        return bijections.Squash(self.limit, self.limit).forward_and_log_det(x)

    def inverse_and_log_det(self, y: Any, condition: Any = None) -> Any:
        raise NotImplementedError


class FlowJaxFlow:
    """flowjax's couplings in its loop over layers, for every sample, on our parameters."""

    def __init__(self, orders: Sequence[Sequence[int]]) -> None:
        self.blank = flowjax.bijections.Coupling(
            jax.random.key(0),
            transformer=_FlowJaxAffine(jnp.zeros(()), jnp.zeros(())),
            untransformed_dim=KEPT,
            dim=DIM,
            cond_dim=EMBEDDING,
            nn_width=WIDTH,
            nn_depth=1,
        )
        self.orders = [flowjax.bijections.Permute(np.asarray(order)) for order in orders]

    def forward_and_log_det(self, p: Any, embedding: jax.Array, z: jax.Array) -> Any:
        """Map z (n, N, d) to theta and the log-determinant."""
        flat = {f"{name}/{leaf}": x for name, net in p.items() if "coupling" in name
                for leaf, x in net.items()}  # fmt: skip

        def weights(coupling: Any) -> list[Any]:
            return [x for layer in coupling.conditioner.layers for x in (layer.weight, layer.bias)]

        layers = [
            flowjax.bijections.Chain(
                [
                    equinox.tree_at(weights, self.blank, as_linear(flat, layer)),
                    order,
                    _FlowJaxSquash(INNER),
                ]
            )
            for layer, order in enumerate(self.orders)
        ]
        stacked = jax.tree.map(lambda *x: jnp.stack(x) if equinox.is_array(x[0]) else x[0], *layers)
        flow = flowjax.bijections.Chain([flowjax.bijections.Scan(stacked), _FlowJaxSquash(1.0)])
        return jax.vmap(jax.vmap(flow.transform_and_log_det), (0, None))(z, embedding)
