"""What a learned density is judged by: pure functions on samples; angles in degrees."""

import distrax
import jax
import jax.numpy as jnp

__all__ = [
    "circular_mean_degrees",
    "entropy",
    "half_range_degrees",
    "kolmogorov_distance",
    "outside_share",
    "wrap_degrees",
]

_LOW, _HIGH = 1.0, 99.0  # percentiles between which a range is measured
_HELD = (_HIGH - _LOW) / 100.0  # share of a uniform's width between them


def wrap_degrees(angle: jax.Array) -> jax.Array:
    """Wrap angles into [-180, 180) degrees."""
    return jnp.mod(angle + 180.0, 360.0) - 180.0


def circular_mean_degrees(angle: jax.Array) -> jax.Array:
    """Direction of the mean unit vector over the last axis: (..., S) -> (...), degrees."""
    radians = jnp.deg2rad(angle)
    return jnp.rad2deg(jnp.arctan2(jnp.sin(radians).mean(-1), jnp.cos(radians).mean(-1)))


def half_range_degrees(rotation: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Half-range of one learned arc: (corrected, raw) = (raw / 0.98, (p99 - p1) / 2), in degrees.

    Angles are first unwrapped about their circular mean, so an arc across +-180 counts as one. The
    0.98 is the share of a uniform's width between its first and last percentile.

    Args:
        rotation: (..., S) sampled rotations of one image, degrees.

    Returns:
        Two arrays (...).
    Source: flow paper's code (raw value); the correction is ours.
    """
    unwrapped = wrap_degrees(rotation - circular_mean_degrees(rotation)[..., None])
    low, high = jnp.percentile(unwrapped, jnp.array([_LOW, _HIGH]), axis=-1)
    raw = (high - low) / 2.0
    return raw / _HELD, raw


def _offsets(pose: jax.Array, centres: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Signed offset (degrees) of every pose to the nearest centre, and that centre's index."""
    offset = wrap_degrees(pose[..., None] - centres)
    nearest = jnp.argmin(jnp.abs(offset), axis=-1)
    return jnp.take_along_axis(offset, nearest[..., None], axis=-1)[..., 0], nearest


def outside_share(
    pose: jax.Array, centres: jax.Array, half_range: float, tolerance: float = 5.0
) -> jax.Array:
    """Share of poses more than `tolerance` degrees outside every arc of the class.

    Args:
        pose: (..., S) resulting poses, degrees.
        centres: (M,) centres of the arcs of the class, degrees.
        half_range: of every arc, degrees.
        tolerance: degrees.

    Returns:
        (...) share in [0, 1].
    """
    offset, _ = _offsets(pose, centres)
    return jnp.mean(jnp.abs(offset) > half_range + tolerance, axis=-1)


def kolmogorov_distance(pose: jax.Array, centres: jax.Array, half_range: float) -> jax.Array:
    """Kolmogorov distance of poses to the uniform over the arcs of a class.

    max_x |F_samples(x) - F_true(x)|, with the circle cut in the gap before the first arc (opposite
    to the centre where there is one arc). A sample of S true values scores about 0.87 / sqrt(S).

    Args:
        pose: (..., S) resulting poses, degrees.
        centres: (M,) centres of the arcs, degrees, evenly spaced.
        half_range: of every arc, degrees.

    Returns:
        (...) distance in [0, 1].
    """
    modes = centres.shape[-1]
    offset, nearest = _offsets(pose, jnp.sort(centres))
    inside = jnp.clip((offset + half_range) / (2.0 * half_range), 0.0, 1.0)
    expected = jnp.sort((nearest + inside) / modes, axis=-1)
    count = pose.shape[-1]
    above = jnp.arange(1, count + 1) / count
    return jnp.maximum(
        jnp.max(above - expected, axis=-1), jnp.max(expected - (above - 1 / count), axis=-1)
    )


def entropy(distribution: distrax.Distribution, *, key: jax.Array, num_samples: int) -> jax.Array:
    """Monte-Carlo entropy in the unit box: -E log g, (N,) nats.

    Args:
        distribution: batch shape (N,).
        key: PRNG key.
        num_samples: samples per image.
    """
    _, log_prob = distribution.sample_and_log_prob(seed=key, sample_shape=(num_samples,))
    return -jnp.mean(log_prob, axis=0)
