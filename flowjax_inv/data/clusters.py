"""Clusters of charged points made by code: energies that turns leave alone, dipoles that turn."""

from typing import Literal, get_args

import numpy as np

from flowjax_inv.data.sets import DataSet, Split
from flowjax_inv.naming import check_name

__all__ = ["Value", "clusters", "dipoles", "energies"]

Value = Literal["energy", "dipole"]
_LEAST, _MOST = 4, 8  # points, as many of each charge
_APART = 0.7  # lengths, the least distance of two points


def energies(positions: np.ndarray, charges: np.ndarray) -> np.ndarray:
    """Return the sum over pairs of a Morse well (unlike charges) or a repulsion (like ones).

        V(r) = (1 - e^(1 - r))^2 - 1   of unlike,   e^(2 (1 - r)) / 2   of like charges

    Args:
        positions: (N, P, 3).
        charges: (N, P) of -1, 1, and 0 where there is no point.

    Returns:
        (N,), in depths of the well.
    """
    r = np.linalg.norm(positions[:, :, None] - positions[:, None, :], axis=-1)
    product = charges[:, :, None] * charges[:, None, :]
    unlike = (1.0 - np.exp(1.0 - r)) ** 2 - 1.0
    like = 0.5 * np.exp(2.0 * (1.0 - r))
    upper = np.triu(np.ones(r.shape[1:], bool), 1)
    return np.sum(upper * ((product < 0) * unlike + (product > 0) * like), axis=(1, 2))


def dipoles(positions: np.ndarray, charges: np.ndarray) -> np.ndarray:
    """Return the sum over pairs of unlike charges of (x_+ - x_-) e^(1 - r), (N, 3), of the same.

    Bonds that fade with their length: so the sum turns along with the cluster, and does not follow
    it when it is sheared or scaled, as the plain dipole, which is linear, would.
    """
    apart = positions[:, :, None] - positions[:, None, :]  # from the second to the first
    r = np.linalg.norm(apart, axis=-1)
    bonds = (charges[:, :, None] > 0) & (charges[:, None, :] < 0)
    return np.einsum("npqi,npq->ni", apart, bonds * np.exp(1.0 - r))


def clusters(*, value: Value, train_size: int, test_size: int, seed: int) -> DataSet:
    """Draw clusters of 4, 6 or 8 points, half of them of charge 1, half of -1.

    Points lie at random in a cube, no two nearer than 0.7; so clusters have no direction of their
    own, and every turn of one is as likely as itself.

    Args:
        value: "energy", (N, 1), or "dipole", (N, 3): see `energies`, `dipoles`; less their mean
            and over their standard deviation in the train split (of dipoles over the root mean
            square, about 0).
        train_size, test_size: clusters.
        seed: of the draw.

    Returns:
        Clouds (N, 8, 5): positions, and which charge.
    """
    check_name("value", value, get_args(Value))
    if min(train_size, test_size) < 1:
        raise ValueError(
            f"train_size={train_size}, test_size={test_size}; want at least 1 of each."
        )
    rng = np.random.default_rng(seed)
    clouds, values = _drawn(rng, train_size + test_size, value)
    train = values[:train_size]
    if value == "energy":
        values = (values - train.mean()) / max(float(train.std()), 1e-6)
    else:
        values = values / max(float(np.sqrt(np.mean(train**2))), 1e-6)
    labels = np.zeros(len(clouds), np.int32)
    train, test = (
        Split(clouds[part], labels[part], values=values[part].astype(np.float32))
        for part in (slice(train_size), slice(train_size, None))
    )
    return DataSet(train, test, ("cluster",))


def _drawn(rng: np.random.Generator, count: int, value: Value) -> tuple[np.ndarray, np.ndarray]:
    """Return clouds (N, 8, 5) and values (N, 1 or 3)."""
    positions = np.stack([_apart(rng) for _ in range(count)])
    sizes = rng.choice(np.arange(_LEAST, _MOST + 1, 2), count)
    there = np.arange(_MOST) < sizes[:, None]
    charges = np.where(np.arange(_MOST) % 2 == 0, 1.0, -1.0) * there
    positions = positions * there[..., None]
    kinds = np.stack([charges > 0, charges < 0], axis=-1)
    clouds = np.concatenate([positions, kinds], axis=-1).astype(np.float32)
    made = energies(positions, charges)[:, None] if value == "energy" else None
    return clouds, dipoles(positions, charges) if made is None else made


def _apart(rng: np.random.Generator) -> np.ndarray:
    """Return eight points (8, 3) of a cube about 0, no two of them near each other."""
    points = np.zeros((0, 3))
    while len(points) < _MOST:
        point = rng.uniform(-1.3, 1.3, 3)
        if not len(points) or np.linalg.norm(points - point, axis=-1).min() >= _APART:
            points = np.concatenate([points, point[None]])
    return points
