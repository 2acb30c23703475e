"""The conditional flow against those of other libraries, and against one by hand in PyTorch.

    pip install -e ".[bench]"
    python -m benchmarks.flow [--quick]

normflows and Zuko (PyTorch), Distrax's parts and flowjax (JAX), each with the same parameters.

12 couplings of width 64 on d = 6, an embedding of 32, 256 images x 20 samples: sampling with the
log-density, and that with the gradient of mean log-density + mean sample in every parameter.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import torch

from benchmarks import timing
from benchmarks.torch_device import DEVICE, exact, finished, tensor
from benchmarks.torch_models import SquashedFlow, gaussian_base, parameters
from flowjax_inv.distributions.flow import Flow
from flowjax_inv.native import foreign

try:
    from benchmarks import flow_libraries as libraries
except ImportError as error:
    sys.exit(f'benchmarks.flow wants {error.name}: pip install -e ".[bench]"')

IMAGES, SAMPLES, LAYERS = 256, 20, 12
DIM, EMBEDDING, WIDTH = libraries.DIM, libraries.EMBEDDING, libraries.WIDTH
CAP, INNER = libraries.CAP, libraries.INNER
TORCH = ("normflows", "zuko", "torch by hand")
JAX = ("distrax", "flowjax")
WITHOUT = "without the library"  # ours, where our C is missing


class Given(nn.Module):
    """Hands the embedding through: the network before the flow is not what is timed."""

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> jax.Array:
        del train
        return images


def _value(theta: Any, log_prob: Any) -> Any:
    return log_prob.mean() + theta.mean()


class JaxFlows:
    """Ours, and other libraries' couplings on our base, as functions of the same arrays.

    Noise is normal numbers (n, N, d), or a key to draw them by.

    Args:
        random: gives the parameters and the embedding.
        orders: of the coordinates, one per coupling.
    """

    def __init__(self, random: np.random.Generator, orders: list[list[int]]):
        self.flow = Flow(
            DIM,
            embed=Given(),
            layers=LAYERS,
            width=WIDTH,
            log_scale_cap=CAP,
            inner_squash=INNER,
            base="mixture",
            components=1,
        )
        self.others = {
            "distrax": libraries.DistraxFlow(orders),
            "flowjax": libraries.FlowJaxFlow(orders),
        }
        self.embedding = random.normal(size=(IMAGES, EMBEDDING)).astype(np.float32)
        params: Any = self.flow.init(jax.random.key(0), self.embedding)["params"]
        # Away from the start, which is near the identity.
        self.params = jax.tree.map(
            lambda x: x + 0.05 * random.normal(size=x.shape).astype(np.float32), params
        )

    def forward(self, name: str) -> Callable[..., Any]:
        """Return (params, embedding, noise) -> theta (n, N, d), log-density (n, N)."""

        def ours(params: Any, embedding: jax.Array, noise: jax.Array) -> Any:
            g: Any = self.flow.apply({"params": params}, embedding)
            if jnp.issubdtype(noise.dtype, jax.dtypes.prng_key):
                return g.sample_and_log_prob(seed=noise, sample_shape=(SAMPLES,))
            z = g.base.loc[:, 0] + noise * jnp.exp(g.base.log_scale[:, 0])
            theta, log_det = g.bijector.forward_and_log_det(z)
            return theta, g.base.log_prob(z) - log_det

        def theirs(params: Any, embedding: jax.Array, noise: jax.Array) -> Any:
            g: Any = self.flow.apply({"params": params}, embedding)
            if jnp.issubdtype(noise.dtype, jax.dtypes.prng_key):
                z, log_base = g.base.sample_and_log_prob(seed=noise, sample_shape=(SAMPLES,))
            else:
                z = g.base.loc[:, 0] + noise * jnp.exp(g.base.log_scale[:, 0])
                log_base = g.base.log_prob(z)
            theta, log_det = self.others[name].forward_and_log_det(params, embedding, z)
            return theta, log_base - log_det

        return jax.jit(ours if name in (timing.OURS, WITHOUT) else theirs)

    def gradient(self, name: str) -> Callable[..., Any]:
        """Return (params, embedding, noise) -> value, gradient in params."""
        forward = self.forward(name)
        return jax.jit(jax.value_and_grad(lambda *arguments: _value(*forward(*arguments))))

    def timed(self, name: str, mode: str) -> tuple[Callable[[], Any], float]:
        """Return what is timed, and the seconds it took to compile."""
        function: Any = self.forward(name) if mode == "forward" else self.gradient(name)
        arguments = jax.device_put((self.params, self.embedding, jax.random.key(1)))
        begin = time.perf_counter()
        there = foreign.available() and name != WITHOUT
        with mock.patch.object(foreign, "available", return_value=there):
            compiled = function.lower(*arguments).compile()
        seconds = time.perf_counter() - begin
        return lambda: jax.block_until_ready(compiled(*arguments)), seconds


class TorchFlows:
    """PyTorch's libraries and a flow by hand, with our parameters.

    Args:
        start: our parameters, by path.
        embedding: (N, E).
    """

    def __init__(self, start: dict[str, torch.Tensor], embedding: np.ndarray):
        self.context = tensor(embedding)
        self.hand = SquashedFlow(DIM, LAYERS, CAP, INNER)
        self.by_hand = {name: tensor.clone().requires_grad_() for name, tensor in start.items()}
        self.model = libraries.normflows_model(start, self.hand.orders).to(DEVICE)
        self.zuko_forward, self.zuko_leaves = libraries.zuko_flow(start, self.hand.orders)
        base = [t for name, t in self.by_hand.items() if name.startswith(("loc", "log_scale"))]
        self.leaves = {
            "normflows": list(self.model.parameters()),
            "zuko": self.zuko_leaves + base,
            # One component: its logit has no part.
            "torch by hand": [self.by_hand[name] for name in self.names_by_hand],
        }

    @property
    def names_by_hand(self) -> list[str]:
        """Paths of the parameters that have a gradient."""
        return [name for name in self.by_hand if not name.startswith("logits")]

    def forward(self, name: str, normal: torch.Tensor | None = None) -> Any:
        """Return theta (n, N, d), log-density (n, N) at normal numbers, which are drawn if None."""
        if name == "normflows":
            return self._of_normflows(normal)
        normal = torch.randn(SAMPLES, IMAGES, DIM, device=DEVICE) if normal is None else normal
        z, log_base = gaussian_base(self.by_hand, self.context, normal)
        if name == "zuko":
            theta, log_det = self.zuko_forward(z, self.context.expand(SAMPLES, -1, -1))
        else:
            theta, log_det = self.hand.forward(self.by_hand, z, self.context)
        return theta, log_base - log_det

    def _of_normflows(self, normal: torch.Tensor | None) -> Any:
        model = self.model
        # One row of context per sample is how the library is told about samples.
        rows = self.context.repeat(SAMPLES, 1)
        if normal is None:
            return model.sample(SAMPLES * IMAGES, context=rows)
        encoded = model.q0.context_encoder(rows)
        z = encoded[:, :DIM] + torch.exp(encoded[:, DIM:]) * normal.reshape(-1, DIM)
        theta, log_det = model.forward_and_log_det(z, context=rows)
        log_prob = model.q0.log_prob(z, context=rows) - log_det
        return theta.reshape(SAMPLES, IMAGES, DIM), log_prob.reshape(SAMPLES, IMAGES)

    def gradient(self, name: str, normal: torch.Tensor | None = None) -> list[torch.Tensor]:
        """Return the gradient in `leaves[name]`."""
        return list(torch.autograd.grad(_value(*self.forward(name, normal)), self.leaves[name]))

    def couplings_gradient(self, name: str, slopes: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return of a library's gradient the part of its couplings, as `libraries.as_linear`."""
        nets = [self.zuko_leaves]
        if name == "normflows":
            flows = self.model.flows
            nets = [flows[3 * layer].coupling.param_map.mlp.parameters() for layer in range(LAYERS)]
        slope_of = dict(zip(map(id, self.leaves[name]), slopes, strict=True))
        return [slope_of[id(leaf)] for net in nets for leaf in net]

    def timed(self, name: str, mode: str) -> tuple[Callable[[], Any], None]:
        """Return what is timed; nothing is compiled."""

        def values() -> Any:
            with torch.no_grad():
                return self.forward(name)

        return finished(values if mode == "forward" else lambda: self.gradient(name)), None


def _differences(ours: JaxFlows, theirs: TorchFlows, normal: np.ndarray) -> dict[str, float]:
    """Compare values and gradients at the same parameters and normal numbers.

    Returns:
        The largest difference to ours, by the name of the library.
    """
    device_in = jax.device_put((ours.params, ours.embedding))
    theta, log_prob = ours.forward(timing.OURS)(*device_in, normal)
    slopes = ours.gradient(timing.OURS)(*device_in, normal)[1]
    differences = dict.fromkeys((*JAX, *TORCH), 0.0)

    def same(name: str, x: Any, y: Any, what: str) -> None:
        y = y.detach().cpu().numpy() if isinstance(y, torch.Tensor) else y
        d = timing.difference(x, y, 1e-4, f"{name}, {what}")
        differences[name] = max(differences[name], d)

    for name in JAX:
        a, b = ours.forward(name)(*device_in, normal)
        same(name, theta, a, "samples")
        same(name, log_prob, b, "log-density")
        found = ours.gradient(name)(*device_in, normal)[1]
        for x, y in zip(jax.tree.leaves(slopes), jax.tree.leaves(found), strict=True):
            if np.any(np.asarray(x)):
                same(name, x, y, "gradients")
    in_torch, numbers = parameters(slopes), tensor(normal)
    expected = [x for layer in range(LAYERS) for x in libraries.as_linear(in_torch, layer)]
    for name in TORCH:
        a, b = theirs.forward(name, numbers)
        same(name, theta, a, "samples")
        same(name, log_prob, b, "log-density")
        found = theirs.gradient(name, numbers)
        if name == "torch by hand":
            for path, slope in zip(theirs.names_by_hand, found, strict=True):
                same(name, in_torch[path], slope, f"gradient of {path}")
        else:
            couplings = theirs.couplings_gradient(name, found)
            for x, slope in zip(expected, couplings, strict=True):
                same(name, x, slope, "gradient of a coupling")
    return differences


def _rows(repeats: int) -> Iterator[timing.Row]:
    random = np.random.default_rng(0)
    orders = [order.tolist() for order in SquashedFlow(DIM, LAYERS, CAP, INNER).orders]
    ours = JaxFlows(random, orders)
    theirs = TorchFlows(parameters(ours.params), ours.embedding)
    normal = random.normal(size=(SAMPLES, IMAGES, DIM)).astype(np.float32)
    with exact():
        differences = _differences(ours, theirs, normal)

    work = f"flow {IMAGES} x {SAMPLES}, {LAYERS} couplings:"
    for mode, label in (("forward", "sample + log-density"), ("gradient", "and gradient")):
        both = {name: ours.timed(name, mode) for name in (timing.OURS, WITHOUT, *JAX)}
        both |= {name: theirs.timed(name, mode) for name in TORCH}
        seconds = timing.measure({name: call for name, (call, _) in both.items()}, repeats=repeats)
        for name in (*TORCH, *JAX):
            pair = {side: seconds[side] for side in (timing.OURS, name)}
            yield timing.compare(pair) | {
                "work": f"{work} {label}",
                "difference": differences[name],
                "compile_seconds": both[timing.OURS][1],
                "without_ms": statistics.median(seconds[WITHOUT]) * 1e3,
                "their_compile_seconds": both[name][1],
            }


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
