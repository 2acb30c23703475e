"""One hidden layer whose last weights have a posterior: a bound on the marginal likelihood."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import flax.linen as nn
import jax
import jax.numpy as jnp

from flowjax_inv.naming import check_name
from flowjax_inv.transforms.base import Transform

__all__ = ["Shallow", "warped_filters"]

Acts = Literal["images", "filters", "filters_exactly"]


class Shallow(nn.Module):
    """W2 phi(W1 x + b1) with a normal posterior over W2, and the divergence from its prior.

        q(W2) = prod_c N(mu_c, L_c L_c^T),  p(W2) = prod_c N(0, variance I),  c a class

    each of width + 1 numbers, the last a bias. In training each image has a draw of W2, for all of
    its views, by the stream "posterior"; after it the mean mu predicts. (One draw for a whole step,
    the paper's, has the same mean and a noisier gradient.) With a step that adds
    `divergence` / N to the mean cross-entropy, N the train images, the loss is minus a lower bound,
    per image, on the marginal likelihood of all that has no posterior: the range of the transforms,
    W1, b1, the variance.

    "cos": phi(z) = sqrt(2 / width) cos z, W1 ~ N(0, frequency^2), b1 ~ U(0, 2 pi), both drawn for
    good: random Fourier features, whose kernel is exp(-frequency^2 |x - y|^2 / 2). "relu": phi(z) =
    max(z, 0), W1 and b1 learned, from Xavier's uniform and 0.

    Attributes:
        features: classes.
        width: hidden units. L has features * (width + 1)^2 / 2 numbers.
        activation: see above.
        frequency: standard deviation of the Fourier features.
        variance: first of the prior.
        learn_prior: the variance, and the frequency, by the bound too.
        point: no posterior: W2 is one learned matrix, and there is no divergence. The paper's
            control, where its range does not grow.
        acts: what a transform moves in training: the images, or the rows of W1 ("filters", read at
            inverse positions; "filters_exactly", see `warped_filters`), by one theta a view for the
            whole batch.

    Raises:
        ValueError: for a name or number that is none of those.
    Source: van der Ouderaa and van der Wilk, Learning invariant weights in neural networks, 2022.
        Without its blur of the filters, whose width of 0.1 pixels changes nothing.
    """

    features: int
    width: int = 1024
    activation: Literal["cos", "relu"] = "cos"
    frequency: float = 0.3
    variance: float = 1.0
    learn_prior: bool = False
    point: bool = False
    acts: Acts = "images"

    def __post_init__(self) -> None:
        """Refuse what is no such network."""
        check_name("activation", self.activation, ("cos", "relu"))
        check_name("acts", self.acts, get_args(Acts))
        if not (self.variance > 0 and self.frequency > 0):
            raise ValueError(
                f"variance={self.variance}, frequency={self.frequency}; want both above 0."
            )
        super().__post_init__()

    @property
    def moves_filters(self) -> bool:
        """Whether a train step gives theta and transform to the network instead of views."""
        return self.acts != "images"

    @nn.compact
    def __call__(
        self,
        images: jax.Array,
        *,
        train: bool = False,
        theta: jax.Array | None = None,
        transform: Transform | None = None,
        views: int = 1,
    ) -> jax.Array:
        """Map images (N, H, W, C) to logits (N, features).

        Args:
            images: as they are, or views.
            train: draw W2, see the class.
            theta: (n, d), moves the filters: then logits are (n, N, features).
            transform: of theta.
            views: how many of the images that follow each other are views of one.
        """
        shape = images.shape[1:]
        filters, bias = self._first(shape)
        if theta is None:
            hidden = images.reshape(images.shape[0], -1) @ filters.reshape(self.width, -1).T
        else:
            rows = filters.reshape(self.width, *shape)
            given: Any = transform
            moved = warped_filters(rows, theta, given, exactly=self.acts == "filters_exactly")
            flat = moved.reshape(len(theta), self.width, -1)
            hidden = jnp.einsum("nk,sdk->snd", images.reshape(images.shape[0], -1), flat)
        hidden = hidden + bias
        if self.activation == "cos":
            phi = math.sqrt(2.0 / self.width) * jnp.cos(hidden)
        else:
            phi = nn.relu(hidden)
        phi = jnp.concatenate([phi, jnp.ones((*phi.shape[:-1], 1), phi.dtype)], axis=-1)
        mean, factor = self._last()
        logits = phi @ mean.T
        if not train or factor is None or self.is_initializing():
            return logits
        of_image = phi.reshape(*phi.shape[:-2], -1, views, phi.shape[-1])
        noise = jax.random.normal(self.make_rng("posterior"), (of_image.shape[-3], *mean.shape))
        drawn = jnp.einsum("cij,ncj->nci", factor, noise)
        return logits + jnp.einsum("...nvi,nci->...nvc", of_image, drawn).reshape(logits.shape)

    def _first(self, shape: Sequence[int]) -> tuple[jax.Array, jax.Array]:
        """Return W1 (width, H W C) and b1 (width,)."""
        size = (self.width, math.prod(shape))
        if self.activation == "relu":
            start = nn.initializers.xavier_uniform(in_axis=-1, out_axis=-2)
            return self.param("filters", start, size), self.param(
                "bias", nn.initializers.zeros, (self.width,)
            )
        filters = self.param("filters", nn.initializers.normal(self.frequency), size)
        bias = self.param("bias", nn.initializers.uniform(2.0 * math.pi), (self.width,))
        log_factor = self.param("log_factor", nn.initializers.zeros, ())  # of the frequency
        if not self.learn_prior:
            log_factor = jax.lax.stop_gradient(log_factor)
        filters = jax.lax.stop_gradient(filters) * jnp.exp(log_factor)
        return filters, jax.lax.stop_gradient(bias)

    def _last(self) -> tuple[jax.Array, jax.Array | None]:
        """Return mu (features, width + 1), the bias its last column, and L; None of a point."""
        size = (self.features, self.width + 1)
        if self.point:  # from a draw of the prior: from 0 nothing would reach W1 and the transforms
            return self.param("mean", nn.initializers.normal(math.sqrt(self.variance)), size), None
        start = nn.initializers.zeros
        # The prior's variance is of the divergence alone.
        self.param("log_variance", nn.initializers.constant(math.log(self.variance)), ())
        raw = self.param("factor", start, (*size, self.width + 1))
        return self.param("mean", start, size), self._factor(raw)

    def _factor(self, raw: jax.Array) -> jax.Array:
        """Return L: lower triangles whose diagonals are positive, the prior's at 0.

        Divided by the root of K, the entries of a row add up to what one is: Adam moves all of them
        by its rate at first, and K times the variance would drown the step.
        """
        scale = math.sqrt(self.variance)
        diagonal = jnp.diagonal(raw, axis1=-2, axis2=-1)
        below = jnp.tril(raw, -1) / math.sqrt(raw.shape[-1])
        return below + jax.vmap(jnp.diag)(scale * jnp.exp(diagonal))

    def divergence(self, params: Mapping[str, Any]) -> jax.Array:
        """Return KL[q(W2) || p(W2)], nats; 0 at the start.

        sum_c (||L_c||^2 + ||mu_c||^2) / (2 v) - K (1 - log v) / 2 - sum_d log L_c,dd; K = width + 1

        Args:
            params: of this network.
        """
        if self.point:
            return jnp.zeros(())
        log_variance = params["log_variance"]
        if not self.learn_prior:
            log_variance = jax.lax.stop_gradient(log_variance)
        factor, mean = self._factor(params["factor"]), params["mean"]
        logs = jnp.diagonal(params["factor"], axis1=-2, axis2=-1) + 0.5 * math.log(self.variance)
        squares = (jnp.sum(factor**2) + jnp.sum(mean**2)) * jnp.exp(-log_variance)
        return 0.5 * (squares - mean.size * (1.0 - log_variance)) - jnp.sum(logs)


def warped_filters(
    filters: jax.Array, theta: jax.Array, transform: Transform, *, exactly: bool
) -> jax.Array:
    """Return rows W1 T, (n, D, H, W, C): what they say of images is what W1 says of views.

    Args:
        filters: (D, H, W, C), the rows as pictures.
        theta: (n, d).
        transform: whose views A_theta I are meant.
        exactly: by the transpose of the warp: then w . (A_theta I) is the same to rounding. Else
            filters are read at inverse positions, as pictures are; the two differ by interpolation,
            at the border, and by det(M) where areas change.
    """
    if not exactly:
        return transform(filters, transform.inverse(theta)[:, None])

    def of_view(theta: jax.Array) -> jax.Array:
        _, back = jax.vjp(lambda images: transform(images, theta), jnp.zeros_like(filters))
        return back(filters)[0]

    return jnp.stack([of_view(each) for each in theta])
