"""The conditional Gaussian, squashed into the box: what a probabilistic spatial transformer has."""

from typing import Literal

import distrax
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from flowjax_inv.distributions import bijections
from flowjax_inv.distributions.base import (
    ConditionalDistribution,
    bounded,
    free_plus_projection,
    unbounded,
)
from flowjax_inv.distributions.bases import Gaussian
from flowjax_inv.distributions.flow import FlowDistribution
from flowjax_inv.naming import check_name

__all__ = ["ConditionalGaussian"]

_SCALES = (-6.0, 3.0)  # log standard deviations before the squash


class ConditionalGaussian(ConditionalDistribution):
    """theta = tanh(z / tanh_width), z ~ N(loc(e), L(e) L(e)^T), e = embed(I).

    Attributes:
        embed: network of images to the embedding (N, E).
        covariance: "diagonal" or "full": L diagonal or lower triangular.
        start_scale: first standard deviation of z.
        tanh_width: w of the squash.
        base_projection_scale: factor on the start of the projections of e.
        pathwise_entropy: train by `log_prob_along_samples`.

    Source: Schwöbel et al., Probabilistic spatial transformer networks, 2022; the squash is ours.
    """

    embed: nn.Module
    covariance: Literal["diagonal", "full"] = "diagonal"
    start_scale: float = 0.1
    tanh_width: float = 1.0
    base_projection_scale: float = 0.01
    pathwise_entropy: bool = False

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> distrax.Distribution:
        """Return the density of every image in (N, H, W, C)."""
        check_name("covariance", self.covariance, ("diagonal", "full"))
        embedding = self.embed(images, train=train).astype(jnp.float32)

        def parameter(name: str, free: jax.Array) -> jax.Array:
            return free_plus_projection(self, name, free, embedding, self.base_projection_scale)

        log_scale = np.clip(np.log(self.start_scale), _SCALES[0] + 0.01, _SCALES[1] - 0.01)
        free = unbounded(jnp.full((self.dim,), log_scale), *_SCALES)
        scale = jnp.exp(bounded(parameter("log_scale", free), *_SCALES))
        lower = scale[..., None] * jnp.eye(self.dim)
        if self.covariance == "full" and self.dim > 1:
            row, column = np.tril_indices(self.dim, -1)
            # In units of the row's own deviation: as the diagonal shrinks so does the rest.
            mixed = parameter("correlation", jnp.zeros((len(row),)))
            lower = lower.at[:, row, column].set(jnp.tanh(mixed) * scale[:, row])
        base = Gaussian(parameter("loc", jnp.zeros((self.dim,))), lower)
        return FlowDistribution(base, bijections.Squash(1.0, self.tanh_width))
