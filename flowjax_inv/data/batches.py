"""The order in which a run reads its examples: a pure function of seed and step."""

import numpy as np

__all__ = ["batch_indices", "drawn_indices", "padded_batches", "steps_per_epoch"]


def steps_per_epoch(size: int, batch_size: int) -> int:
    """Return the number of whole batches in a set of `size`; the rest sits out that epoch."""
    if not 0 < batch_size <= size:
        raise ValueError(f"batch_size is {batch_size}; want 1 .. {size}, the size of the set.")
    return size // batch_size


def batch_indices(step: int, *, size: int, batch_size: int, seed: int, shuffle: bool) -> np.ndarray:
    """Return the (batch_size,) int32 indices of the examples of step 0, 1, ...

    Every epoch is a new permutation, drawn from (seed, epoch), so a resumed run sees the same
    batches. Without `shuffle` every epoch runs in the set's own order.
    """
    epoch, position = divmod(step, steps_per_epoch(size, batch_size))
    start = position * batch_size
    if not shuffle:
        return np.arange(start, start + batch_size, dtype=np.int32)
    order = np.random.default_rng((seed, epoch)).permutation(size)
    return order[start : start + batch_size].astype(np.int32)


def drawn_indices(step: int, *, size: int, batch_size: int, seed: int) -> np.ndarray:
    """Return (batch_size,) int32 indices for step 0, 1, ..., drawn from (seed, step).

    None comes twice where there are enough of them.
    """
    order = np.random.default_rng((seed, step)).permutation(size)
    return np.resize(order, batch_size).astype(np.int32)


def padded_batches(size: int, batch_size: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (indices, mask) pairs that cover a set in order; the last is padded, and masked."""
    pairs = []
    for start in range(0, size, batch_size):
        index = np.arange(start, start + batch_size, dtype=np.int32)
        pairs.append((np.minimum(index, size - 1), index < size))
    return pairs
