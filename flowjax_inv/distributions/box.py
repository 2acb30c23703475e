"""Distributions that are uniform on a box: none, fixed, learned for all images, or per image."""

from collections.abc import Sequence
from typing import Any, Literal

import distrax
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from flowjax_inv.distributions.base import ConditionalDistribution, free_plus_projection
from flowjax_inv.distributions.bases import UniformBox
from flowjax_inv.naming import check_name

__all__ = ["Augerino", "Fixed", "Identity", "InstaAug"]

_LEAST = 1e-4  # of the way to the box's side: a range that is a point has no density
_BONUSES = ("paper", "code", "entropy")
_CUT_OFF = 10.0  # full width from which on Augerino's code no longer rewards any


class Identity(ConditionalDistribution):
    """The method without augmentation: the theta that does nothing for every image, a point mass.

    Its log_prob is of the counting measure: 0 there and -inf elsewhere. It has no entropy, and
    alpha multiplies zero.

    Attributes:
        anchor: (dim,) theta that does nothing; empty: 0.
    """

    has_density = False

    anchor: Sequence[float] = ()

    def __call__(self, images: jax.Array, *, train: bool = False) -> distrax.Distribution:
        """Return the point mass, batch shape (N,)."""
        del train
        point = jnp.asarray(_per_coordinate(self, "anchor", 0.0), jnp.float32)
        rows = jnp.broadcast_to(point, (images.shape[0], self.dim))
        return distrax.Independent(distrax.Deterministic(rows), reinterpreted_batch_ndims=1)

    def regularizer(self, distribution: distrax.Distribution, log_prob: jax.Array) -> jax.Array:
        """Return 0: there is nothing to widen."""
        del distribution, log_prob
        return jnp.zeros(())


class Fixed(ConditionalDistribution):
    """Random augmentation: uniform on one given box for all images, nothing learned.

    Attributes:
        box_low, box_high: the box in unit coordinates, one number for all or one per coordinate.

    Raises:
        ValueError: for a box of the wrong number of sides, without volume, or outside [-1, 1].
    """

    box_low: Sequence[float] = (-1.0,)
    box_high: Sequence[float] = (1.0,)

    def __post_init__(self) -> None:
        """Refuse what is no box."""
        low, high = (_per_coordinate(self, name) for name in ("box_low", "box_high"))
        if not (np.all(low >= -1.0) and np.all(high <= 1.0) and np.all(low < high)):
            raise ValueError(
                f"box_low={tuple(self.box_low)}, box_high={tuple(self.box_high)}; want "
                "-1 <= low < high <= 1 for every coordinate."
            )
        super().__post_init__()

    def __call__(self, images: jax.Array, *, train: bool = False) -> distrax.Distribution:
        """Return the same uniform for every image in (N, H, W, C)."""
        del train
        low, high = (_per_coordinate(self, name) for name in ("box_low", "box_high"))
        rows = jnp.zeros((images.shape[0], 1), jnp.float32)
        centre, width = ((low + high) / 2).astype(np.float32), (high - low).astype(np.float32)
        return UniformBox(rows + centre, rows + np.log(width))

    def regularizer(self, distribution: distrax.Distribution, log_prob: jax.Array) -> jax.Array:
        """Return 0: nothing is learned."""
        del distribution, log_prob
        return jnp.zeros(())


class Augerino(ConditionalDistribution):
    """One learned range per coordinate, the same for all images.

    theta ~ U[-h, h] per coordinate, h = sigmoid(a) in (1e-4, 1), a learned. The paper's h has no
    upper bound; here it ends with the box. Where doing nothing is not theta = 0 the range is held
    around `anchor`: U[anchor - h (anchor + 1), anchor + h (1 - anchor)].

    alpha multiplies, with W = 2 h scales the full widths in physical units,
    "paper":   -sum (W / 2)^2
    "code":    -||W||, and 0 once any W reaches 10
    "entropy": mean log g, as for the other methods

    Attributes:
        bonus: which of the three.
        start_half_range: first h, one number for all or one per coordinate.
        scales: (dim,) what 1 is in physical units (radians, half-widths, log-scale): take it from
            the transform. Empty: 1.
        anchor: (dim,) theta that does nothing; empty: 0.

    Source: Augerino, eq. 5 and its code (uniform_aug.py, losses.py). With the code's softplus in
        place of a sigmoid nothing would keep samples in the box.
    """

    scorable = False

    bonus: Literal["paper", "code", "entropy"] = "paper"
    start_half_range: Sequence[float] = (0.1,)
    scales: Sequence[float] = ()
    anchor: Sequence[float] = ()

    def __post_init__(self) -> None:
        """Refuse ranges that are no share of the box, and numbers for other coordinates."""
        _half_ranges(self)
        _anchor(self)
        _scales(self)
        super().__post_init__()

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> distrax.Distribution:
        """Return the same uniform for every image in (N, H, W, C)."""
        del train
        start = jnp.asarray(_half_ranges(self), jnp.float32)
        half = _share(self.param("half_range", lambda _: start))
        rows = jnp.broadcast_to(half, (images.shape[0], self.dim))
        return _around(self, rows, rows)

    def regularizer(self, distribution: distrax.Distribution, log_prob: jax.Array) -> jax.Array:
        """Return the scalar that alpha multiplies, see the class."""
        check_name("bonus", self.bonus, _BONUSES)
        if self.bonus == "entropy":
            return jnp.mean(log_prob)
        box: Any = distribution
        width = jnp.exp(box.log_width[0]) * _scales(self)
        if self.bonus == "paper":
            return -jnp.sum(0.25 * width**2)
        return -jnp.where(jnp.all(width < _CUT_OFF), jnp.sqrt(jnp.sum(width**2)), 0.0)


class InstaAug(ConditionalDistribution):
    """A range per coordinate for every image: a uniform box (mean field), not symmetric.

    theta ~ U[-w_minus, w_plus] per coordinate, both w = sigmoid(head(embedding)) in (1e-4, 1), so
    that the range always holds the transform that does nothing (`anchor`, as in `Augerino`).

    alpha multiplies, averaged over images,
    "paper", "entropy": mean log g = -sum log(w_minus + w_plus), a true negative entropy
    "code":             -sum (w_minus + w_plus) scales: its "entropy" is the half-width itself

    Attributes:
        embed: network of images to the embedding (N, E).
        bonus: which of the two.
        start_half_range: first w, one number for all or one per coordinate.
        scales, anchor: as in `Augerino`.
        base_projection_scale: factor on the start of the projection of the embedding to the head.

    Source: InstaAug, section 3.3 and its code, where rotation starts at sigmoid(-2) = 0.12.
    """

    scorable = False

    embed: nn.Module
    bonus: Literal["paper", "code", "entropy"] = "paper"
    start_half_range: Sequence[float] = (0.1,)
    scales: Sequence[float] = ()
    anchor: Sequence[float] = ()
    base_projection_scale: float = 0.01

    def __post_init__(self) -> None:
        """Refuse ranges that are no share of the box, and numbers for other coordinates."""
        _half_ranges(self)
        _anchor(self)
        _scales(self)
        super().__post_init__()

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> distrax.Distribution:
        """Return the uniform of every image in (N, H, W, C)."""
        embedding = self.embed(images, train=train).astype(jnp.float32)
        start = jnp.asarray(_half_ranges(self), jnp.float32)
        both = free_plus_projection(
            self, "half_ranges", jnp.stack([start, start]), embedding, self.base_projection_scale
        )
        return _around(self, *jnp.moveaxis(_share(both), 1, 0))

    def regularizer(self, distribution: distrax.Distribution, log_prob: jax.Array) -> jax.Array:
        """Return the scalar that alpha multiplies, see the class."""
        check_name("bonus", self.bonus, _BONUSES)
        if self.bonus != "code":
            return jnp.mean(log_prob)
        box: Any = distribution
        width = jnp.exp(box.log_width) * _scales(self)
        return -jnp.mean(jnp.sum(width, axis=-1))


def _around(module: Augerino | InstaAug, below: jax.Array, above: jax.Array) -> UniformBox:
    """Return the uniform that reaches from the anchor these shares of the way to the box's sides.

    Args:
        module: whose anchor.
        below, above: (N, d) shares in (0, 1).
    """
    anchor = _anchor(module)
    below, above = below * (anchor + 1.0), above * (1.0 - anchor)
    return UniformBox(anchor + (above - below) / 2.0, jnp.log(above + below))


def _anchor(module: Augerino | InstaAug) -> jax.Array:
    anchor = np.clip(_per_coordinate(module, "anchor", 0.0), -1.0, 1.0)
    return jnp.asarray(anchor, jnp.float32)


def _scales(module: Augerino | InstaAug) -> jax.Array:
    return jnp.asarray(_per_coordinate(module, "scales", 1.0), jnp.float32)


def _per_coordinate(
    module: ConditionalDistribution, name: str, default: float | None = None
) -> np.ndarray:
    """Return (d,) float64 of a field with one number for all or one each; the default if empty."""
    values = np.atleast_1d(np.asarray(getattr(module, name), np.float64))
    if default is not None and not len(values):
        values = np.array([default])
    if len(values) not in (1, module.dim):
        raise ValueError(
            f"{name} has {len(values)} numbers for {module.dim} coordinates; give one, or one each."
        )
    return np.broadcast_to(values, (module.dim,))


def _share(x: jax.Array) -> jax.Array:
    return _LEAST + (1.0 - _LEAST) * nn.sigmoid(x)


def _half_ranges(module: Augerino | InstaAug) -> np.ndarray:
    """Return what `_share` maps to the first half-ranges."""
    values = _per_coordinate(module, "start_half_range")
    if not np.all((values > _LEAST) & (values < 1)):
        raise ValueError(
            f"start_half_range={tuple(module.start_half_range)}; want shares of the box, above "
            f"{_LEAST:g} and below 1."
        )
    inner = (values - _LEAST) / (1.0 - _LEAST)
    return np.log(inner) - np.log1p(-inner)
