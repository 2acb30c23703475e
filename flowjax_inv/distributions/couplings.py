"""The couplings of a flow as one loop over layers: compiled once, on coordinates side by side."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import distrax
import jax
import jax.numpy as jnp

from flowjax_inv.distributions.bijections import Conditioner, Squash
from flowjax_inv.native.perceptron import perceptron

__all__ = ["Couplings"]


class _Layer(NamedTuple):
    """What one turn of the loop reads; in the bijector every leaf has an axis of layers first."""

    context: jax.Array  # (W, N)
    first: jax.Array  # (K, W)
    later: tuple[tuple[jax.Array, jax.Array], ...]  # (W, W) or (W, 2 M), and biases
    order: jax.Array  # (d,)


class Couplings(distrax.Bijector):
    """RealNVP couplings in a row, each followed by a reordering and a squash.

    With K = (d + 1) // 2 coordinates kept (none of a single one) and M = d - K moved, a layer is

        (t, s_raw) = conditioner(z[:K], embedding),  s = c tanh(s_raw / c)
        y = (z[:K], z[K:] exp(s) + t)[order],  z' = l tanh(y / l)

    and log |dz'/dz| = sum s + the slope of the squash (`bijections.Squash`).

    The loop is one `jax.lax.scan`, whose temporaries are used again by every layer, and coordinates
    come first: all samples of all images go through a conditioner at once (`perceptron`), and
    vectors are as long as there are samples. Masked layers written out, with coordinates last,
    take two to four times as long on two CPU cores, by XLA's operations alone
    (`python -m benchmarks.flow`: "distrax").

    Args:
        conditioners: one per layer, of d inputs and 2 d outputs, shift and log-scale interleaved;
            what belongs to the other half is not read.
        orders: a permutation of 0 .. d-1 per layer: y[i] is the old coordinate order[i].
        log_scale_cap: c, a smooth bound: a clip has no gradient.
        inner_squash: l; 0 leaves the squashes out.

    Source: flow paper section 4 and its code (NFAug), which leaves s unbounded.
    """

    def __init__(
        self,
        conditioners: Sequence[Conditioner],
        orders: Sequence[Sequence[int]],
        *,
        log_scale_cap: float,
        inner_squash: float,
    ):
        super().__init__(event_ndims_in=1, event_ndims_out=1)
        self.dim = len(orders[0])
        self.kept = (self.dim + 1) // 2 if self.dim > 1 else 0
        self.cap = log_scale_cap
        self.squash = Squash(inner_squash, inner_squash, axis=0) if inner_squash else None
        # Each laid out before they are stacked: stacked first, the gradient takes twice as long.
        layers = [self._layer(*each) for each in zip(conditioners, orders, strict=True)]
        self.layers: Any = jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers)

    def _layer(self, conditioner: Conditioner, order: Sequence[int]) -> _Layer:
        def moved(x: jax.Array) -> jax.Array:
            pairs = x.reshape(*x.shape[:-1], self.dim, 2)[..., self.kept :, :]
            return jnp.concatenate([pairs[..., 0], pairs[..., 1]], axis=-1)

        *later, (kernel, bias) = conditioner.layers
        return _Layer(
            conditioner.context.T,
            conditioner.first[: self.kept],
            (*later, (moved(kernel), moved(bias))),
            jnp.asarray(order),
        )

    def _shift_and_log_scale(
        self, layer: _Layer, kept: jax.Array, samples: int
    ) -> tuple[jax.Array, jax.Array]:
        """Map kept (K, N n) to both parameters, (M, N n) each."""
        if not self.kept:  # the same for all samples of an image
            kept = kept[:, : layer.context.shape[1]]
        x = perceptron(layer.context, layer.first, kept, layer.later)
        if not self.kept:
            x = jnp.repeat(x, samples, axis=1)
        shift, raw = jnp.split(x, 2)
        return shift, self.cap * jnp.tanh(raw / self.cap)

    def _forward(self, layer: _Layer, z: jax.Array, samples: int) -> tuple[jax.Array, jax.Array]:
        kept, moved = z[: self.kept], z[self.kept :]
        shift, log_scale = self._shift_and_log_scale(layer, kept, samples)
        y = jnp.concatenate([kept, moved * jnp.exp(log_scale) + shift])[layer.order]
        log_det = jnp.sum(log_scale, axis=0)
        if self.squash is None:
            return y, log_det
        z, slope = self.squash.forward_and_log_det(y)
        return z, log_det + slope

    def _inverse(self, layer: _Layer, z: jax.Array, samples: int) -> tuple[jax.Array, jax.Array]:
        y, slope = (z, 0.0) if self.squash is None else self.squash.inverse_and_log_det(z)
        y = y[jnp.argsort(layer.order)]
        kept, moved = y[: self.kept], y[self.kept :]
        shift, log_scale = self._shift_and_log_scale(layer, kept, samples)
        log_det = jnp.sum(log_scale, axis=0)
        return jnp.concatenate([kept, (moved - shift) * jnp.exp(-log_scale)]), slope - log_det

    def _loop(self, turn: Any, x: Any, *, reverse: bool) -> tuple[jax.Array, jax.Array]:
        """Apply `turn` layer after layer to x (..., N, d)."""
        x = jnp.asarray(x, jnp.result_type(x, self.layers.context))
        lead, images = x.shape[:-2], self.layers.context.shape[-1]
        samples = math.prod(lead)
        x = jnp.broadcast_to(x, (*lead, images, self.dim)).reshape(samples, images, self.dim)

        def body(carry: Any, layer: _Layer) -> Any:
            z, total = carry
            z, log_det = turn(layer, z, samples)
            return (z, total + log_det), None

        # (d, N n): images before samples, so that a batch that devices divide stays divided.
        z = x.transpose(2, 1, 0).reshape(self.dim, images * samples)
        (z, log_det), _ = jax.lax.scan(
            body, (z, jnp.zeros(z.shape[1:], z.dtype)), self.layers, reverse=reverse
        )
        z = z.reshape(self.dim, images, samples).transpose(2, 1, 0)
        log_det = log_det.reshape(images, samples).T
        return z.reshape(*lead, images, self.dim), log_det.reshape(*lead, images)

    def forward_and_log_det(self, x: Any) -> tuple[jax.Array, jax.Array]:
        """Return y and log |dy/dx| of x (..., N, d)."""
        return self._loop(self._forward, x, reverse=False)

    def inverse_and_log_det(self, y: Any) -> tuple[jax.Array, jax.Array]:
        """Return x and log |dx/dy| of y (..., N, d); -inf where y lies outside the image."""
        return self._loop(self._inverse, y, reverse=True)
