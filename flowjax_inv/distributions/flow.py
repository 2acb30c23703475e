"""The conditional normalizing flow: the paper's density, and a spline on the box beside it."""

from collections.abc import Sequence
from typing import Any, Literal

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
from flowjax_inv.distributions.bases import GaussianMixture, UniformBox
from flowjax_inv.distributions.couplings import Couplings
from flowjax_inv.naming import check_name

__all__ = ["Flow", "FlowDistribution"]

_LOG_2 = float(np.log(2.0))
_BOX = (-6.0, _LOG_2)  # log full widths of the uniform base: no wider than [-1, 1]
_SCALES = (-6.0, _LOG_2)  # log standard deviations of the mixture


class FlowDistribution(distrax.Distribution):
    """Density of x = f(z), z ~ base: log g(x) = log base(z) - log |df/dz|, -inf outside the box.

    Distrax's own Transformed would trace the bijector with unbatched dummies to learn its shapes
    and would give NaN, not -inf, outside the image of a squash; hence this small class.

    Args:
        base: density with batch shape (N,) and event shape (d,).
        bijector: bijection on vectors, base to box.
    """

    def __init__(self, base: distrax.Distribution, bijector: distrax.Bijector):
        super().__init__()
        # Distrax types arrays and shapes as unions with NumPy's and TFP's: ours are plain.
        self.base: Any = base
        self.bijector: Any = bijector

    @property
    def event_shape(self) -> tuple[int, ...]:
        """(d,)."""
        return self.base.event_shape

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """(N,)."""
        return self.base.batch_shape

    def _sample_n(self, key: jax.Array, n: int) -> jax.Array:
        return self._sample_n_and_log_prob(key, n)[0]

    def _sample_n_and_log_prob(self, key: jax.Array, n: int) -> tuple[jax.Array, jax.Array]:
        z, log_base = self.base.sample_and_log_prob(seed=key, sample_shape=(n,))
        theta, log_det = self.bijector.forward_and_log_det(z)
        return theta, log_base - log_det

    def log_prob(self, value: jax.Array) -> jax.Array:
        """Return log g of value (..., N, d) in the unit box: (..., N), nats.

        Of a sample it is what `sample_and_log_prob` gave with it as far as float32 tells: to 0.1
        while log g is below some 4 nats per coordinate. Where couplings contract more, the
        rounding of a sample loses where it came from, and its log g here may be anything, -inf too.
        """
        inside = jnp.all(jnp.abs(value) <= 1.0, axis=-1)
        z, log_det = self.bijector.inverse_and_log_det(jnp.clip(value, -1.0, 1.0))
        return jnp.where(inside, self.base.log_prob(z) + log_det, -jnp.inf)


class Flow(ConditionalDistribution):
    """Conditional flow over the unit box: x = squash(couplings(z; e)), z ~ base(e), e = embed(I).

    Two families share the class. `bijection="coupling"` is the paper's RealNVP: affine couplings
    with fixed permutations and an inner squash on the line, then an outer squash into the box.
    `bijection="spline"` (ours) first squashes the base into the box (not needed for "unit_box"),
    then maps the box onto itself by rational-quadratic splines, the first elementwise, the others
    coupling alternate coordinates. For dim = 1 a coupling has nothing to condition on: the
    elementwise conditional map takes its place (in the authors' code nothing does).

    Attributes:
        embed: network of images to the embedding (N, E); one pass per image, never per copy.
        periodic: (dim,) which coordinates are circles; take it from the transform.
        bijection: "coupling" or "spline".
        layers: couplings, or splines. Paper 12; Mario-Iggy 4.
        width, hidden_layers: of the conditioner. Paper 64 and 1; its code 32 and 1.
        permutation_seed: of the fixed permutations.
        log_scale_cap: smooth bound on the couplings' log-scales.
        inner_squash: L of L tanh(z / L) after every coupling; 0 leaves it out. Code 6.
        tanh_width: w of the outer squash tanh(z / w). Code 1 (Table 1), 1.5 and 2 (toy runs), where
            samples reached w and were clamped to 1; ours always ends exactly at the box.
        bins: of the splines.
        circular_shift: end with a learned turn of the periodic coordinates. Ours; not in the paper.
        base: "mixture" (paper), "box" (learned uniform; the toy scripts), "unit_box" (uniform on
            [-1, 1]^d: nothing learned).
        components: K of the mixture. 1 digits, 10 Table 1, 30 rotation discovery, 90 three modes.
        loc_start: where the components' first centres lie: "random", uniform within `loc_std`
            before the squash (paper); "even" (ours): spread evenly over the box after it, so
            that every region begins with its share of the mass. None is further out than
            tanh(0.99 / tanh_width): 0.96 at a width of 0.5, but 0.76 at 1.
        loc_std: half-range of the random first centres.
        start_scale: first standard deviation of the components; of a box, the first full width
            over 2.
        gumbel: how the mixture's weights learn: "hard" (straight-through: exact samples, a biased
            gradient), "score" (ours: exact samples, a score function for the weights and gradients
            through the samples for all else: unbiased) or "relaxed" (a surrogate, see
            `GaussianMixture`).
        temperature: of the Gumbel-softmax. Code 0.05 by default, 0.1 in its runs.
        pathwise_entropy: train by `log_prob_along_samples`. For a mixture that is not "relaxed".
        base_projection_scale: factor on the start of the projection of e to the base's parameters.

    Raises:
        ValueError: for a name that is none of those above, no layer, a circle too few or many, or a
            pathwise entropy of another base.
    Source: flow paper section 4; its code (NFAug, ConditionalUniform); its errors are not repeated:
        nothing is clamped after the flow, and every log-determinant is that of the map used.
    """

    embed: nn.Module
    periodic: Sequence[bool] = ()
    bijection: Literal["coupling", "spline"] = "coupling"
    layers: int = 12
    width: int = 64
    hidden_layers: int = 1
    permutation_seed: int = 0
    log_scale_cap: float = 3.0
    inner_squash: float = 6.0
    tanh_width: float = 1.0
    bins: int = 16
    circular_shift: bool = False
    base: Literal["mixture", "box", "unit_box"] = "mixture"
    components: int = 10
    loc_start: Literal["random", "even"] = "random"
    loc_std: float = 0.8
    start_scale: float = 0.1
    gumbel: Literal["hard", "score", "relaxed"] = "hard"
    temperature: float = 0.05
    pathwise_entropy: bool = False
    base_projection_scale: float = 0.01

    def __post_init__(self) -> None:
        """Refuse what would silently be another model."""
        check_name("bijection", self.bijection, ("coupling", "spline"))
        check_name("base", self.base, ("mixture", "box", "unit_box"))
        check_name("loc_start", self.loc_start, ("random", "even"))
        if self.layers < 1:
            raise ValueError(f"layers is {self.layers}; want at least 1.")
        if len(self.periodic) not in (0, self.dim):
            raise ValueError(
                f"periodic has {len(self.periodic)} entries for {self.dim} coordinates; give one "
                "each, as transform.periodic, or none."
            )
        if self.pathwise_entropy and not self.scorable:
            raise ValueError(
                f'pathwise_entropy is True with base "{self.base}" and gumbel "{self.gumbel}"; it '
                'wants a "mixture" that is "hard" or "score", whose samples follow a density '
                "without edges."
            )
        super().__post_init__()

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> distrax.Distribution:
        """Return the density of every image in (N, H, W, C)."""
        # Densities stay float32 even when the embedding is computed in bfloat16.
        embedding = self.embed(images, train=train).astype(jnp.float32)
        if self.bijection == "coupling":
            chain = [self._couplings(embedding), bijections.Squash(1.0, self.tanh_width)]
        else:
            squash = [] if self.base == "unit_box" else [bijections.Squash(1.0, self.tanh_width)]
            chain = squash + self._splines(embedding)
        if self.circular_shift and any(self._periodic):
            chain.append(self._shift(embedding))
        return FlowDistribution(self._base(embedding), distrax.Chain(chain[::-1]))

    @property
    def scorable(self) -> bool:
        """Whether log g of samples held still has the gradient of their probability."""
        return self.base == "mixture" and self.gumbel != "relaxed"

    @property
    def reparameterized(self) -> bool:
        """Whether samples carry the gradient of all parameters."""
        return self.base != "mixture" or self.gumbel != "score"

    def scored(
        self, distribution: distrax.Distribution, theta: jax.Array, log_prob: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return the score of the mixture's weights, and log g."""
        flow: Any = distribution
        z = jax.lax.stop_gradient(flow.bijector.inverse(theta))
        return flow.base.log_weight(z), log_prob

    @property
    def _periodic(self) -> tuple[bool, ...]:
        return tuple(self.periodic) or (False,) * self.dim

    def _conditioner(
        self, embedding: jax.Array, inputs: int, outputs: int, name: str
    ) -> bijections.Conditioner:
        net = bijections.ConditionerNet(inputs, outputs, self.width, self.hidden_layers, name=name)
        return net(embedding)

    def _couplings(self, embedding: jax.Array) -> distrax.Bijector:
        """Return all couplings with their permutations and inner squashes."""
        random = np.random.RandomState(self.permutation_seed)
        if self.dim > 2:
            orders = [random.permutation(self.dim).tolist() for _ in range(self.layers)]
        else:
            orders = [[*range(self.dim)][::-1]] * self.layers
        conditioners = [
            self._conditioner(embedding, self.dim, 2 * self.dim, name=f"coupling{layer}")
            for layer in range(self.layers)
        ]
        return Couplings(
            conditioners,
            orders,
            log_scale_cap=self.log_scale_cap,
            inner_squash=self.inner_squash,
        )

    def _splines(self, embedding: jax.Array) -> list[distrax.Bijector]:
        """Return one elementwise spline, then splines that couple alternate coordinates."""
        chain: list[distrax.Bijector] = []
        for layer in range(self.layers if self.dim > 1 else 1):
            kept = np.arange(self.dim) % 2 == layer % 2 if layer else np.zeros(self.dim, bool)
            conditioner = self._conditioner(
                embedding, 2 * self.dim, self.dim * (3 * self.bins + 1), name=f"spline{layer}"
            )
            chain.append(bijections.spline_coupling(kept, conditioner, self.bins, self._periodic))
        return chain

    def _shift(self, embedding: jax.Array) -> distrax.Bijector:
        vector = self._conditioner(embedding, 0, 2 * self.dim, name="shift")(
            jnp.zeros((embedding.shape[0], 0))
        ).reshape(-1, self.dim, 2)
        # (1, 0) points along "no turn": without it the direction would start undetermined.
        return bijections.CircularShift(vector + jnp.array([1.0, 0.0]), self._periodic)

    def _base(self, embedding: jax.Array) -> distrax.Distribution:
        """Return the base: every parameter a free value plus a projection of the embedding."""

        def parameter(name: str, free: jax.Array) -> jax.Array:
            return free_plus_projection(self, name, free, embedding, self.base_projection_scale)

        start_scale = np.log(self.start_scale)
        if self.base == "unit_box":
            centre = jnp.zeros((embedding.shape[0], self.dim))
            return UniformBox(centre, jnp.full_like(centre, _LOG_2))
        if self.base == "box":
            # Slightly inside the bound, whose inverse is infinite at the bound itself.
            log_width = np.clip(start_scale + _LOG_2, _BOX[0] + 0.01, _BOX[1] - 0.01)
            free = unbounded(jnp.full((self.dim,), log_width), *_BOX)
            loc = parameter("loc", jnp.zeros((self.dim,)))
            return UniformBox(loc, bounded(parameter("log_width", free), *_BOX))
        shape = (self.components, self.dim)
        loc = parameter("loc", unbounded(jnp.asarray(self._centres(shape), jnp.float32), -1, 1))
        log_scale = np.clip(start_scale, _SCALES[0] + 0.01, _SCALES[1] - 0.01)
        free = unbounded(jnp.full(shape, log_scale), *_SCALES)
        return GaussianMixture(
            parameter("logits", jnp.zeros((self.components,))),
            bounded(loc, -1.0, 1.0),
            bounded(parameter("log_scale", free), *_SCALES),
            temperature=self.temperature,
            gumbel=self.gumbel,
        )

    def _centres(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return the first centres (K, d) of the components, before the squash."""
        if self.loc_start == "random":
            random = np.random.RandomState(self.permutation_seed)
            return random.uniform(-1.0, 1.0, shape) * self.loc_std
        # The first coordinate in equal steps, the others by multiples of irrational numbers
        # (Kronecker's sequence), which fill the box evenly for any number of components.
        rate = np.sqrt([2.0, 3.0, 5.0, 7.0, 11.0, 13.0, 17.0][: self.dim])
        number = np.arange(self.components)[:, None] + 0.5
        share = (number * rate) % 1.0
        share[:, 0] = number[:, 0] / self.components
        return np.clip(self.tanh_width * np.arctanh(2.0 * share - 1.0), -0.99, 0.99)
