"""What a train step is given: indices into a set that the devices hold, or the batch itself."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

import numpy as np

from flowjax_inv.training.placement import Placement

__all__ = ["Feed"]

# Of a device's memory, for the train split: the rest is the step's.
_SHARE = 0.25


class Feed:
    """The arguments of step 0, 1, ..., after the state.

    A set that fits stays on every device as it is stored (uint8), and a step is given the indices
    of its batch alone. Of one that does not, a thread gathers the next batch in host memory and
    sends it, divided among the devices, while they work on this one. Both see equal batches.

    Args:
        images: (N, H, W, C) uint8, of the train split.
        targets: (N, ...).
        order: step -> (batch,) indices.
        end: the number of steps: nothing is fetched for step `end`.
        placement: devices.
        resident: whether the set stays on the devices; None: if it takes at most a quarter of the
            memory of each. On a CPU, whose memory is the host's, it always fits.

    Use it as a context manager: leaving ends the thread.
    """

    def __init__(
        self,
        images: np.ndarray,
        targets: np.ndarray,
        order: Callable[[int], np.ndarray],
        *,
        end: int,
        placement: Placement,
        resident: bool | None = None,
    ):
        self._order, self._end, self._place = order, end, placement
        if resident is None:
            resident = images.nbytes + targets.nbytes <= _SHARE * placement.least_memory
        self.resident = resident
        self._set = placement.replicate((images, targets)) if resident else (images, targets)
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._coming: tuple[int, Future[Any]] | None = None

    def __call__(self, step: int) -> tuple[Any, ...]:
        """Return (images, targets, indices) if resident, else (images, targets) of the batch."""
        if self.resident:
            return *self._set, self._order(step)
        at, future = self._coming or (-1, None)
        batch = future.result() if future and at == step else self._gather(step)
        self._coming = None
        if step + 1 < self._end:
            self._coming = step + 1, self._thread.submit(self._gather, step + 1)
        return batch

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(cancel_futures=True)

    def _gather(self, step: int) -> tuple[Any, ...]:
        indices = self._order(step)
        return tuple(self._place.divide(array[indices]) for array in self._set)
