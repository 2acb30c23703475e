"""What a learned density is judged by: pure functions on samples; angles in degrees."""

import math

import distrax
import jax
import jax.numpy as jnp

__all__ = [
    "arc_share",
    "circular_mean_degrees",
    "circular_std_degrees",
    "covered_share",
    "entropy",
    "half_range_degrees",
    "kolmogorov_distance",
    "mode_shares",
    "nearest_rotation",
    "outside_share",
    "pairwise_degrees",
    "valley_ratio",
    "wasserstein_degrees",
    "wrap_degrees",
]

_LOW, _HIGH = 1.0, 99.0  # percentiles between which a range is measured
_HELD = (_HIGH - _LOW) / 100.0  # share of a uniform's width between them
_GRID = 720  # parts of the circle where distributions of angles are compared


def wrap_degrees(angle: jax.Array) -> jax.Array:
    """Wrap angles into [-180, 180) degrees."""
    wrapped = jnp.mod(angle + 180.0, 360.0) - 180.0
    return jnp.where(wrapped < 180.0, wrapped, -180.0)  # rounded up, just below -180


def circular_mean_degrees(angle: jax.Array) -> jax.Array:
    """Direction of the mean unit vector over the last axis: (..., S) -> (...), degrees."""
    radians = jnp.deg2rad(angle)
    return jnp.rad2deg(jnp.arctan2(jnp.sin(radians).mean(-1), jnp.cos(radians).mean(-1)))


def circular_std_degrees(angle: jax.Array) -> jax.Array:
    """Circular standard deviation sqrt(-2 log R) over the last axis: (..., S) -> (...), degrees.

    R is the length of the mean unit vector; infinite for R = 0.
    """
    radians = jnp.deg2rad(angle)
    squared = jnp.cos(radians).mean(-1) ** 2 + jnp.sin(radians).mean(-1) ** 2
    return jnp.rad2deg(jnp.sqrt(-jnp.log(jnp.minimum(squared, 1.0))))


def pairwise_degrees(angle: jax.Array) -> jax.Array:
    """Mean absolute angle between two different ones of (..., S > 1): (...) degrees in [0, 180]."""
    apart = jnp.abs(wrap_degrees(angle[..., :, None] - angle[..., None, :]))
    count = angle.shape[-1]
    return jnp.sum(apart, axis=(-2, -1)) / (count * (count - 1))


def half_range_degrees(
    rotation: jax.Array, centres: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """Half-range of one learned arc: (corrected, raw) = (raw / 0.98, (p99 - p1) / 2), in degrees.

    Angles are first unwrapped about their circular mean, so an arc across +-180 counts as one. The
    0.98 is the share of a uniform's width between its first and last percentile.

    Args:
        rotation: (..., S) sampled rotations of one image, degrees; with centres, resulting poses.
        centres: (M,) of several arcs, degrees: the range is then that of the offsets from the
            nearest one, all arcs together.

    Returns:
        Two arrays (...).
    Source: flow paper's code (raw value); the correction is ours.
    """
    if centres is not None:
        unwrapped, _ = _offsets(rotation, centres)
    else:
        unwrapped = wrap_degrees(rotation - circular_mean_degrees(rotation)[..., None])
    low, high = jnp.percentile(unwrapped, jnp.array([_LOW, _HIGH]), axis=-1)
    raw = (high - low) / 2.0
    return raw / _HELD, raw


def arc_share(rotation: jax.Array) -> jax.Array:
    """Length of the shortest arc that holds 98 % of samples, over 0.98 of the circle, at most 1.

    Of a uniform on an arc: the arc's share of the circle. Several modes count with the gaps between
    them, wherever they are.

    Args:
        rotation: (..., S) sampled rotations, degrees.

    Returns:
        (...) share in [0, 1].
    """
    count = rotation.shape[-1]
    held = math.ceil(_HELD * count)
    turned = jnp.sort(wrap_degrees(rotation), axis=-1)
    # Twice round, so that an arc may run across the seam.
    twice = jnp.concatenate([turned, turned + 360.0], axis=-1)
    arcs = twice[..., held - 1 : held - 1 + count] - turned
    return jnp.minimum(jnp.min(arcs, axis=-1) / (_HELD * 360.0), 1.0)


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


def covered_share(
    pose: jax.Array, centres: jax.Array, half_range: float, *, bins: int = 18, least: float = 0.1
) -> jax.Array:
    """Share of the arcs of a class that poses reach.

    Every arc is cut into equal parts; one counts as reached if it holds at least `least` of what a
    uniform over the arcs would put there.

    Args:
        pose: (..., S) resulting poses, degrees.
        centres: (M,) centres of the arcs of the class, degrees.
        half_range: of every arc, degrees.
        bins: parts per arc.
        least: share of the uniform's.

    Returns:
        (...) share in [0, 1].
    """
    modes = centres.shape[-1]
    offset, nearest = _offsets(pose, centres)
    part = jnp.floor((offset / (2.0 * half_range) + 0.5) * bins).astype(jnp.int32)
    inside = (part >= 0) & (part < bins)
    index = jnp.where(inside, nearest * bins + part, modes * bins)
    counts = jnp.sum(jax.nn.one_hot(index, modes * bins), axis=-2)
    return jnp.mean(counts >= least * pose.shape[-1] / (modes * bins), axis=-1)


def mode_shares(pose: jax.Array, centres: jax.Array, half_range: float) -> jax.Array:
    """Share of poses within `half_range` degrees of each centre: (..., S), (M,) -> (..., M)."""
    near = jnp.abs(wrap_degrees(pose[..., None] - centres)) <= half_range
    return jnp.mean(near, axis=-2)


def valley_ratio(pose: jax.Array, centres: jax.Array, half_range: float) -> jax.Array:
    """Density of poses halfway between neighbouring arcs over that at the lowest peak.

    Counted in windows of a third of an arc: the fullest of the valleys, over the emptiest of the
    modes' fullest windows.

    Args:
        pose: (..., S) resulting poses, degrees.
        centres: (M,) centres of the arcs, degrees, evenly spaced, M >= 2.
        half_range: of every arc, degrees.

    Returns:
        (...) 0: nothing between the modes; 1, the most: no valley, or an empty mode.
    """
    window = half_range / 3.0
    between = centres + 180.0 / centres.shape[-1]
    valley = jnp.max(mode_shares(pose, between, window), axis=-1)
    starts = centres[:, None] + jnp.array([-2.0, 0.0, 2.0]) * window
    peaks = mode_shares(pose, starts.reshape(-1), window)
    peak = jnp.min(jnp.max(peaks.reshape(*peaks.shape[:-1], *starts.shape), axis=-1), axis=-1)
    return jnp.where(peak > valley, valley / jnp.maximum(peak, 1e-9), 1.0)


def wasserstein_degrees(pose: jax.Array, centres: jax.Array, half_range: float) -> jax.Array:
    """Wasserstein-1 distance on the circle of poses to the uniform over the arcs of a class.

    min_c integral |F_samples(x) - F_true(x) - c| dx over the circle: c, the flow through the point
    where the circle is cut, is the median of the difference.

    Args:
        pose: (..., S) resulting poses, degrees.
        centres: (M,) centres of the arcs, degrees.
        half_range: of every arc, degrees.

    Returns:
        (...) degrees.
    Source: Rabin, Delon, Gousseau, Transportation distances on the circle, 2011.
    """
    edges = jnp.arange(1, _GRID + 1) * (360.0 / _GRID) - 180.0
    wrapped = jnp.sort(wrap_degrees(pose), axis=-1)
    found = jax.vmap(lambda row: jnp.searchsorted(row, edges, side="right"))(
        wrapped.reshape(-1, pose.shape[-1])
    )
    samples = found.reshape(*pose.shape[:-1], _GRID) / pose.shape[-1]
    # An arc across +-180 is two pieces; as a sum over turns each is counted where it falls.
    turns = centres[:, None] + jnp.array([-360.0, 0.0, 360.0])
    low = turns.reshape(-1) - half_range

    def mass(x: jax.Array) -> jax.Array:
        return jnp.sum(jnp.clip((x - low) / (2.0 * half_range), 0.0, 1.0)) / centres.shape[-1]

    true = jax.vmap(mass)(edges) - mass(jnp.float32(-180.0))
    difference = samples - true
    middle = jnp.median(difference, axis=-1, keepdims=True)
    return 360.0 * jnp.mean(jnp.abs(difference - middle), axis=-1)


def nearest_rotation(matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Angle of the rotation nearest to a linear map, and the relative Frobenius distance to it.

    A = [[a, b], [c, d]], R(t) = [[cos t, -sin t], [sin t, cos t]]:
    t = atan2(c - b, a + d);  |A - R|^2 = |A|^2 + 2 - 2 hypot(a + d, c - b);  distance |A - R| / |A|

    Args:
        matrix: (..., 2, 2), or (..., 3, 3) of which the linear part is taken.

    Returns:
        Degrees in [-180, 180], and the distance: 0 for a rotation, sqrt(2) for a mirror image;
        two arrays (...).
    Source: flow paper, section 4 (rotation discovery). Its code takes all nine entries of the 3x3
        matrix and the nearest orthogonal one, mirror images included.
    """
    a, b, c, d = (matrix[..., i, j] for i in (0, 1) for j in (0, 1))
    norm = a**2 + b**2 + c**2 + d**2
    turn, along = c - b, a + d
    # |A - R|^2 as a sum of squares: the difference above loses its digits near a rotation.
    radius = jnp.hypot(along, turn)
    square = (a - d) ** 2 / 2 + (b + c) ** 2 / 2 + (radius / jnp.sqrt(2.0) - jnp.sqrt(2.0)) ** 2
    return jnp.rad2deg(jnp.arctan2(turn, along)), jnp.sqrt(square / norm)


def entropy(distribution: distrax.Distribution, *, key: jax.Array, num_samples: int) -> jax.Array:
    """Monte-Carlo entropy in the unit box: -E log g, (N,) nats.

    Args:
        distribution: batch shape (N,).
        key: PRNG key.
        num_samples: samples per image.
    """
    _, log_prob = distribution.sample_and_log_prob(seed=key, sample_shape=(num_samples,))
    return -jnp.mean(log_prob, axis=0)
