"""Straightening images: mean-shift towards where a density is centred, and a density's modes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from flowjax_inv.distributions.noise import SPREADS, SpreadKey, repeat_key
from flowjax_inv.inference.averaging import check_images
from flowjax_inv.naming import check_name
from flowjax_inv.transforms import Transform, wrap

if TYPE_CHECKING:  # slow to import, and only named
    import distrax
    import flax.linen as nn

__all__ = ["Shifted", "density_modes", "make_mean_shift", "mean_offset", "mean_shift"]

# The mean direction of samples that are even round the circle is noise. Rayleigh's test: under
# evenness S R^2, R the length of the mean unit vector, exceeds this with probability exp(-4.6).
_RAYLEIGH = 4.6
_MODE_STEPS = 100  # at most; mean-shift on a few hundred samples ends within a few dozen


class Shifted(NamedTuple):
    """What `mean_shift` returns.

    Attributes:
        theta: (N, d) T_K, box units; outside periodic coordinates it may leave the box.
        images: (N, H, W, C) A_{T_K}(I): the originals, warped once.
        trajectory: (steps + 1, N, d) T_0 ... T_K; an image that has stopped stays.
        converged: (N,) bool, whether the last mean offset is below the tolerance.
        steps: (N,) int32, how many it took.
    """

    theta: jax.Array
    images: jax.Array
    trajectory: jax.Array
    converged: jax.Array
    steps: jax.Array


def mean_offset(
    theta: jax.Array, periodic: tuple[bool, ...], bandwidth: float | None = None
) -> jax.Array:
    """Mean of samples in the unit box: E[T], on circles the mean direction.

    A circle whose samples show no direction (Rayleigh's test at 1 %) has offset 0: a density that
    is even round the circle moves nothing. In a window there always is one.

    Args:
        theta: (S, ..., d) samples.
        periodic: (d,), which coordinates are circles of circumference 2.
        bandwidth: of a Gaussian window about 0, in box units: only what lies near then counts, so
            of several modes the nearest. None: all count alike (the paper).

    Returns:
        (..., d).
    """
    weight = jnp.ones(theta.shape[:-1])
    if bandwidth is not None:
        distance = jnp.sum(wrap(theta, periodic) ** 2, axis=-1) / bandwidth**2
        # The nearest sample weighs 1: a window that holds none would divide by 0.
        weight = jnp.exp(-0.5 * (distance - jnp.min(distance, axis=0)))
    total = jnp.sum(weight, axis=0)[..., None]
    weight = weight[..., None]
    mean = jnp.sum(weight * theta, axis=0) / total
    if not any(periodic):
        return mean
    angle = jnp.pi * theta
    sine, cosine = (jnp.sum(weight * part(angle), axis=0) / total for part in (jnp.sin, jnp.cos))
    turn = jnp.arctan2(sine, cosine) / jnp.pi
    if bandwidth is None:
        # Written so that NaN stays NaN.
        even = theta.shape[0] * (sine**2 + cosine**2) <= _RAYLEIGH
        turn = jnp.where(even, 0.0, turn)
    return jnp.where(jnp.asarray(periodic), turn, mean)


def mean_shift(
    propose: Callable[[jax.Array], distrax.Distribution],
    transform: Transform,
    images: jax.Array,
    *,
    key: jax.Array,
    steps: int = 10,
    num_samples: int = 100,
    step_size: float = 0.1,
    tolerance: float = 1e-3,
    coordinates: Sequence[str] | None = None,
    start: jax.Array | None = None,
    bandwidth: float | None = None,
    group: bool = False,
    fresh_noise: bool = False,
    spread: str = "independent",
    common_noise: bool = False,
) -> Shifted:
    """Move images to where their density is centred: straighten them.

    T_k = T_{k-1} + gamma E[T], T ~ g(.; A_{T_{k-1}}(I)); I itself is warped every time. E[T] is
    counted from the identity, which crops do not have at 0.

    Args:
        propose: images (N, H, W, C) -> distribution with batch (N,), event (d,).
        transform: images, theta -> views.
        images: (N, H, W, C) float.
        key: PRNG key.
        steps: K >= 1, the most that are made.
        num_samples: per image and step; along a circle without a window at least 5, as fewer show
            no direction (see `mean_offset`).
        step_size: gamma in (0, 1]. Paper 0.1; ten steps of it cover 65 % of an offset.
        tolerance: an image stops when no coordinate of E[T] is above this, in box units (of a
            rotation, 1e-3 is 0.18 degrees). 0: all steps are made (the paper).
        coordinates: names of those that E[T] is taken along; of the others it counts as 0. None:
            all (the paper). What does not differ between training images, nothing brings back: a
            density of figures at the centre moves them off it, ever further, by its small bias.
        start: T_0, (N, d) or (d,). None: the identity.
        bandwidth: follow the nearest of several modes, see `mean_offset`.
        group: T_k = compose(gamma E[T], T_{k-1}) instead of the sum; the same where transforms
            commute, and right in any case.
        fresh_noise: new samples in every step. With the same ones (default) a wide density comes
            to rest; with fresh ones it moves for ever.
        common_noise: the same noise for every image, so that what the samples are off by is the
            same for all: to bring images to one pose. Needs densities of this package.
        spread: of the samples, "independent", "antithetic" or "stratified", see
            `flowjax_inv.distributions.noise`; the last two need densities of this package.

    Raises:
        TypeError: if images are not floating point.
        ValueError: for shapes or numbers out of range, coordinates that the transform has not, or
            `group` with a transform that is not closed.
    Source: flow paper, section 4 and appendix (mean-shift).
    """
    check_images(images)
    _check_shift(steps, num_samples, step_size, tolerance, bandwidth)
    check_name("spread", spread, SPREADS)
    chosen = _chosen(transform, coordinates)
    circles = bandwidth is None and np.any(chosen & np.asarray(transform.periodic))
    if circles and num_samples <= _RAYLEIGH:
        raise ValueError(
            f"num_samples is {num_samples}; along a circle want at least {math.ceil(_RAYLEIGH)}, "
            "or a bandwidth: fewer samples show no direction, and nothing would move."
        )
    if group and not transform.closed:
        raise ValueError(
            f"group=True with {type(transform).__name__}({', '.join(transform.names)}), of which "
            "two in a row are none again; take group=False."
        )
    first = transform.identity if start is None else jnp.asarray(start, transform.identity.dtype)
    first = jnp.broadcast_to(first, (images.shape[0], transform.dim))

    def offset(theta: jax.Array, step: jax.Array) -> jax.Array:
        now = jax.random.fold_in(key, step) if fresh_noise else key
        if common_noise:
            now = repeat_key(now, images.shape[0])
        seed: Any = now if spread == "independent" else SpreadKey(now, spread)
        density = propose(transform(images, theta))
        drawn = density.sample(seed=seed, sample_shape=(num_samples,))
        mean = mean_offset(drawn - transform.identity, transform.periodic, bandwidth)
        return jnp.where(chosen, mean, 0.0)

    def moves(carry: tuple[Any, ...]) -> jax.Array:
        step, _, _, resting, _ = carry
        return (step < steps) & ~jnp.all(resting)

    def move(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        step, theta, trajectory, resting, taken = carry
        mean = offset(theta, step)
        resting = resting | (jnp.max(jnp.abs(mean), axis=-1) < tolerance)
        part = step_size * mean
        moved = transform.compose(transform.identity + part, theta) if group else theta + part
        moved = wrap(moved, transform.periodic)
        theta = jnp.where(resting[:, None], theta, moved)
        trajectory = trajectory.at[step + 1].set(theta)
        return step + 1, theta, trajectory, resting, taken + ~resting

    count = images.shape[0]
    trajectory = jnp.broadcast_to(first, (steps + 1, *first.shape))
    resting, taken = jnp.zeros(count, bool), jnp.zeros(count, jnp.int32)
    made, theta, trajectory, resting, taken = lax.while_loop(
        moves, move, (jnp.int32(0), first, trajectory, resting, taken)
    )
    later = jnp.arange(steps + 1)[:, None, None] > made
    trajectory = jnp.where(later, theta, trajectory)
    return Shifted(theta, transform(images, theta), trajectory, resting, taken)


def make_mean_shift(
    distribution: nn.Module, transform: Transform, **fields: Any
) -> Callable[..., Shifted]:
    """Return `mean_shift` for a Linen module, jitted: (variables, images, key) -> Shifted.

    Args:
        distribution: Linen module, images -> density.
        transform: images, theta -> views.
        **fields: as in `mean_shift`.

    Returns:
        A function that compiles once per shape; variables are arguments, so that new weights do
        not compile again. It raises a ValueError for those of several networks.
    """

    @jax.jit
    def shifted(variables: Mapping[str, Any], images: jax.Array, key: jax.Array) -> Shifted:
        if "distribution" in variables:
            raise ValueError(
                f"variables hold {', '.join(variables)}; want those of the distribution alone: "
                'variables["distribution"].'
            )

        def propose(images: jax.Array) -> Any:
            return distribution.apply(variables, images, train=False)

        return mean_shift(propose, transform, images, key=key, **fields)

    return shifted


def density_modes(
    theta: jax.Array, periodic: tuple[bool, ...], *, starts: int = 20, bandwidth: float = 0.1
) -> tuple[jax.Array, jax.Array]:
    """Modes of a density known by samples, with the share of the mass that each draws.

    Mean-shift with a Gaussian window from the first samples; those that end within a bandwidth of
    each other are one mode; every sample belongs to the nearest.

    Args:
        theta: (S, d) samples of one density, in the unit box; `jax.vmap` for several.
        periodic: (d,), which coordinates are circles.
        starts: how many of the samples start; as many modes at most are found.
        bandwidth: box units.

    Returns:
        modes (starts, d), heaviest first, and weights (starts,) that sum to 1. Where fewer modes
        are, the rest repeats the last starts, of weight 0.
    Source: Comaniciu and Meer, Mean shift, 2002.
    """
    if theta.ndim != 2 or starts < 1 or theta.shape[0] < starts or not bandwidth > 0:
        raise ValueError(
            f"theta has shape {theta.shape}, starts={starts}, bandwidth={bandwidth}; want samples "
            "(S, d), 1 <= starts <= S and a bandwidth above 0."
        )

    def move(_: int, place: jax.Array) -> jax.Array:
        step = mean_offset(theta[:, None] - place, periodic, bandwidth)
        return wrap(place + step, periodic)

    ends = lax.fori_loop(0, _MODE_STEPS, move, theta[:starts])

    def apart(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.linalg.norm(wrap(a[:, None] - b, periodic), axis=-1)

    # One mode: the first of those that ended near each other.
    near = apart(ends, ends) < bandwidth
    leader = jnp.argmax(near, axis=1) == jnp.arange(starts)
    nearest = jnp.argmin(jnp.where(leader, apart(theta, ends), jnp.inf), axis=1)
    weights = jnp.mean(jax.nn.one_hot(nearest, starts), axis=0)
    order = jnp.argsort(-weights, stable=True)
    return ends[order], weights[order]


def _chosen(transform: Transform, coordinates: Sequence[str] | None) -> np.ndarray:
    """Return which coordinates E[T] is taken along, (d,) bool."""
    if coordinates is None:
        return np.ones(transform.dim, bool)
    # A word is a sequence of letters, which may be names: not what was meant.
    if isinstance(coordinates, str) or not coordinates or set(coordinates) - set(transform.names):
        raise ValueError(
            f"coordinates is {coordinates!r}; want names out of {list(transform.names)}, as in "
            f'("{transform.names[-1]}",), or None for all.'
        )
    return np.isin(transform.names, tuple(coordinates))


def _check_shift(
    steps: int,
    num_samples: int,
    step_size: float,
    tolerance: float,
    bandwidth: float | None,
) -> None:
    """Refuse numbers that make no mean-shift."""
    if steps < 1 or num_samples < 1:
        raise ValueError(f"steps={steps}, num_samples={num_samples}; want at least 1 of each.")
    if not 0 < step_size <= 1:
        raise ValueError(
            f"step_size is {step_size}; want 0 < step_size <= 1: 1 goes to the mean at once, more "
            "overshoots."
        )
    if not tolerance >= 0 or (bandwidth is not None and not bandwidth > 0):
        raise ValueError(
            f"tolerance={tolerance}, bandwidth={bandwidth}; want tolerance >= 0 and a bandwidth "
            "above 0, or None."
        )
