"""Small molecules that the package `ase` carries, shaken a little, and their energies."""

import importlib
from typing import Any

import numpy as np

from flowjax_inv.data.sets import DataSet, Split

__all__ = ["KINDS", "molecules"]

KINDS = ("H", "C", "N", "O")
_SHAKEN = 0.1  # angstrom, standard deviation of every position
_MOST = 14  # atoms
_TESTED = 5  # every fifth molecule is for the test


def molecules(*, train_size: int, test_size: int, seed: int) -> DataSet:
    """Draw shaken molecules of hydrogen, carbon, nitrogen and oxygen, and what energy they have.

    The geometries are G2's (Curtiss et al. 1997); every example takes one of them and moves each
    atom by N(0, 0.1 angstrom). Energies are those of ASE's effective medium theory, made for
    metals: not what these molecules have, but a smooth function of all positions that turns leave
    alone. Those of the train split lie as the package has them, planes along the axes; those of the
    test split are other molecules, and each is turned by a turn of its own, any being as likely.

    Args:
        train_size, test_size: examples.
        seed: of the draw.

    Returns:
        Clouds (N, 14, 7), about their middle: positions in angstrom, which element. Values (N, 1):
        energies less their mean and over their standard deviation in the train split.

    Raises:
        ValueError: if a size is below 1, or the package is not there.
    """
    if min(train_size, test_size) < 1:
        raise ValueError(
            f"train_size={train_size}, test_size={test_size}; want at least 1 of each."
        )
    found = _small_ones()
    rng = np.random.default_rng(seed)
    tested = found[::_TESTED]
    trained = [each for index, each in enumerate(found) if index % _TESTED]
    splits = [
        [_shaken(rng, ones, turned=turned) for _ in range(size)]
        for ones, size, turned in ((trained, train_size, False), (tested, test_size, True))
    ]
    energies = np.array([energy for _, energy in splits[0]])
    mean, std = energies.mean(), max(float(energies.std()), 1e-6)

    def split(drawn: list[tuple[np.ndarray, float]]) -> Split:
        clouds = np.stack([cloud for cloud, _ in drawn]).astype(np.float32)
        values = np.array([[(energy - mean) / std] for _, energy in drawn], np.float32)
        return Split(clouds, np.zeros(len(clouds), np.int32), values=values)

    train, test = (split(each) for each in splits)
    return DataSet(train, test, ("molecule",))


def _ase(name: str) -> Any:
    try:
        return importlib.import_module(f"ase.{name}")
    except ImportError as error:
        raise ValueError(
            'molecules are those of the package ase, which is not here; pip install "ase", or '
            "flowjax_inv[molecules]."
        ) from error


def _small_ones() -> list[Any]:
    """Return the molecules of these elements, ordered by their names."""
    g2 = _ase("collections").g2
    every = [g2[name] for name in sorted(g2.names)]
    return [
        each for each in every
        if 2 <= len(each) <= _MOST and set(each.get_chemical_symbols()) <= set(KINDS)
    ]  # fmt: skip


def _shaken(
    rng: np.random.Generator, found: list[Any], *, turned: bool
) -> tuple[np.ndarray, float]:
    """Return the cloud (14, 7) of one of the molecules, and its energy."""
    atoms = found[rng.integers(len(found))].copy()
    atoms.positions += rng.normal(0.0, _SHAKEN, atoms.positions.shape)
    atoms.calc = _ase("calculators.emt").EMT()
    energy = float(atoms.get_potential_energy())
    positions = atoms.positions - atoms.positions.mean(axis=0)
    if turned:
        positions = positions @ _turn(rng).T
    cloud = np.zeros((_MOST, 3 + len(KINDS)))
    cloud[: len(atoms), :3] = positions
    kinds = [KINDS.index(symbol) for symbol in atoms.get_chemical_symbols()]
    cloud[np.arange(len(atoms)), 3 + np.array(kinds)] = 1.0
    return cloud, energy


def _turn(rng: np.random.Generator) -> np.ndarray:
    """Draw a turn (3, 3), all alike likely: from a unit quaternion of normal numbers."""
    w, x, y, z = (q := rng.normal(size=4)) / np.linalg.norm(q)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
