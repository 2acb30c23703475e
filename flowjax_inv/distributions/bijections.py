"""Bijections of the conditional flow: squashes, splines, a circular shift, what conditions them.

All are Distrax bijectors on vectors (event rank 1), to be joined by `distrax.Chain`, which lists
the bijector applied last first. A bijection that is conditioned on an embedding gets it through a
`Conditioner`: plain arrays, so that it outlives the Linen call that made it.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import distrax
import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

__all__ = [
    "CircularShift",
    "Conditioner",
    "ConditionerNet",
    "Squash",
    "spline_coupling",
]

# A jax.Array. Distrax hands its bijectors and conditioners a wider union, which holds NumPy's
# scalars as well, and what takes its place must take no less.
_Array = Any

# How near to its limit a squash is inverted. One float32 step below 1 is 6e-8; 1e-6 keeps the
# inverse and its gradient finite at the very edge, where the exact values are infinite.
_EDGE = 1e-6


class Squash(distrax.Bijector):
    """Squash the real line into (-limit, limit): y = limit tanh(x / width), per coordinate.

    log dy/dx = log(limit / width) + 2 (log 2 - u - softplus(-2u)) with u = x / width: stable for
    every u, where log(1 - tanh(u)^2) is -inf from u = 9 on.

    Args:
        limit: half-width of the image; 1 is the unit box.
        width: where the bend is; the slope at 0 is limit / width.
        axis: of the coordinates, over which log-slopes are added up.

    Raises:
        ValueError: if limit or width is not positive.
    Source: flow paper's code (TanhFlow: limit = width). Its inverse evaluates the derivative at y
        instead of x; this one does not. Outside (-limit, limit) the inverse has log-determinant
        -inf: no point is mapped there.
    """

    def __init__(self, limit: float, width: float, *, axis: int = -1):
        super().__init__(event_ndims_in=1, event_ndims_out=1)
        if not (limit > 0 and width > 0):
            raise ValueError(f"Squash(limit={limit}, width={width}): both must be positive.")
        self.limit, self.width, self.axis = limit, width, axis

    def _log_slope(self, u: jax.Array) -> jax.Array:
        return jnp.sum(_log_slope_of_tanh(u) + math.log(self.limit / self.width), axis=self.axis)

    def forward_and_log_det(self, x: _Array) -> tuple[jax.Array, jax.Array]:
        """Return y and log |dy/dx|, summed over coordinates."""
        u = x / self.width
        return self.limit * jnp.tanh(u), self._log_slope(u)

    def inverse_and_log_det(self, y: _Array) -> tuple[jax.Array, jax.Array]:
        """Return x and log |dx/dy|; -inf where y lies outside the image."""
        inside = jnp.all(jnp.abs(y) <= self.limit, axis=self.axis)
        u = jnp.arctanh(jnp.clip(y / self.limit, -1.0 + _EDGE, 1.0 - _EDGE))
        return u * self.width, jnp.where(inside, -self._log_slope(u), -jnp.inf)


@jax.custom_jvp
def _log_slope_of_tanh(u: jax.Array) -> jax.Array:
    u = jnp.abs(u)
    return 2.0 * (math.log(2.0) - u - jnp.log1p(jnp.exp(-2.0 * u)))


@_log_slope_of_tanh.defjvp
def _(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    """The derivative is -2 tanh(u): the forward pass has it already."""
    (u,), (du,) = primals, tangents
    return _log_slope_of_tanh(u), -2.0 * jnp.tanh(u) * du


class CircularShift(distrax.Bijector):
    """Turn periodic coordinates of the box: y = x + s, wrapped into [-1, 1); log-determinant 0.

    s = atan2(v1, v0) / pi for a vector v per coordinate, so that it runs around the circle without
    a jump while v moves smoothly. Ours: it takes the seam at +-1 out of the density's way.

    Args:
        direction: v, (..., d, 2).
        periodic: (d,) which coordinates are turned; the others are left alone.
    """

    def __init__(self, direction: jax.Array, periodic: Sequence[bool]):
        super().__init__(event_ndims_in=1, event_ndims_out=1, is_constant_jacobian=True)
        self.periodic = np.asarray(periodic)
        # atan2 has no gradient at the origin: a vector that small means "no turn".
        tiny = jnp.sum(direction**2, axis=-1) < 1e-12
        safe = jnp.where(tiny[..., None], jnp.array([1.0, 0.0]), direction)
        self.shift = jnp.arctan2(safe[..., 1], safe[..., 0]) / jnp.pi

    def _turn(self, x: jax.Array, shift: jax.Array) -> jax.Array:
        return jnp.where(self.periodic, jnp.mod(x + shift + 1.0, 2.0) - 1.0, x)

    def forward_and_log_det(self, x: _Array) -> tuple[jax.Array, jax.Array]:
        """Return x turned by s and 0."""
        return self._turn(x, self.shift), jnp.zeros(x.shape[:-1], x.dtype)

    def inverse_and_log_det(self, y: _Array) -> tuple[jax.Array, jax.Array]:
        """Return y turned back by s and 0."""
        return self._turn(y, -self.shift), jnp.zeros(y.shape[:-1], y.dtype)


def _product(x: jax.Array, kernel: jax.Array) -> jax.Array:
    # The highest precision: a density must be the same forwards and backwards on accelerators too.
    return jnp.matmul(x, kernel, precision="highest")


class Conditioner(flax.struct.PyTreeNode):
    """An MLP of (coordinates, embedding), with the embedding's share already added up.

    Attributes:
        context: (N, width) first layer's output before its ReLU, from the embedding alone.
        first: (inputs, width) weights of the first layer for the coordinates.
        layers: weights and biases of the later layers.
    """

    context: jax.Array
    first: jax.Array
    layers: tuple[tuple[jax.Array, jax.Array], ...]

    def __call__(self, features: jax.Array) -> jax.Array:
        """Map features (..., N, inputs) to parameters (..., N, outputs)."""
        x = _product(features, self.first) + self.context
        for kernel, bias in self.layers:
            x = _product(nn.relu(x), kernel) + bias
        return x


class ConditionerNet(nn.Module):
    """Parameters of a `Conditioner`: Linen makes them, the conditioner uses them anywhere.

    Attributes:
        inputs: number of features of the coordinates; 0 conditions on the embedding alone.
        outputs: number of parameters it returns.
        width: of the hidden layers. Paper 64, its code 32.
        hidden_layers: number of hidden layers, >= 1.
        start_scale: factor on weights and bias of the last layer at the start: near identity.

    Source: flow paper section 4 and its code (NFAug).
    """

    inputs: int
    outputs: int
    width: int = 64
    hidden_layers: int = 1
    start_scale: float = 0.01

    @nn.compact
    def __call__(self, embedding: jax.Array) -> Conditioner:
        """Take the embedding (N, E) once per image; copies only add their coordinates."""
        start = nn.initializers.lecun_normal()
        total = self.inputs + embedding.shape[-1]
        kernel = self.param("kernel0", start, (total, self.width), jnp.float32)
        bias = self.param("bias0", nn.initializers.zeros, (self.width,), jnp.float32)
        context = _product(embedding, kernel[self.inputs :]) + bias
        layers = []
        for layer in range(1, self.hidden_layers + 1):
            last = layer == self.hidden_layers
            size = (self.width, self.outputs if last else self.width)
            scale = self.start_scale if last else 1.0

            def scaled(key: jax.Array, shape: tuple[int, ...], scale: float = scale) -> jax.Array:
                return scale * start(key, shape, jnp.float32)

            kernel_l = self.param(f"kernel{layer}", scaled, size)
            bias_l = self.param(f"bias{layer}", nn.initializers.zeros, size[-1:], jnp.float32)
            layers.append((kernel_l, bias_l))
        return Conditioner(context, kernel[: self.inputs], tuple(layers))


def spline_coupling(
    kept: np.ndarray,
    conditioner: Callable[[_Array], jax.Array],
    bins: int,
    periodic: Sequence[bool],
) -> distrax.Bijector:
    """Rational-quadratic spline of the unit box onto itself, conditioned on the kept coordinates.

    On a periodic coordinate the slopes at both ends are one parameter, so that the density has no
    step at the seam; a kept periodic coordinate x enters the conditioner as cos(pi x), sin(pi x).

    Args:
        kept: (d,) bool; none kept makes it an elementwise map conditioned on the embedding alone.
        conditioner: features (..., 2d) to parameters (..., d (3 bins + 1)); zeros: the identity.
        bins: number of bins per coordinate.
        periodic: (d,) bool.

    Source: Durkan et al., Neural Spline Flows, arXiv:1906.04032; circular: arXiv:2002.02428.
    """
    circular = np.asarray(periodic)

    def featured(x: _Array) -> jax.Array:
        # Coordinates that are not kept arrive as 0: mask again, since cos 0 is 1, not 0.
        angle = jnp.pi * x
        first = jnp.where(circular, jnp.cos(angle), x) * kept
        second = jnp.where(circular, jnp.sin(angle), 0.0) * kept
        return conditioner(jnp.concatenate([first, second], axis=-1))

    def bijector(parameters: jax.Array) -> distrax.Bijector:
        each = parameters.reshape(*parameters.shape[:-1], kept.size, 3 * bins + 1)
        # Slopes are the last bins + 1 entries; a circle's last one is its first.
        last = jnp.where(circular, each[..., 2 * bins], each[..., -1])
        each = jnp.concatenate([each[..., :-1], last[..., None]], axis=-1)
        return distrax.RationalQuadraticSpline(each, range_min=-1.0, range_max=1.0)

    return distrax.MaskedCoupling(mask=kept, conditioner=featured, bijector=bijector)
