"""Both ways of feeding a step give the same batches, from whichever step a run goes on."""

import dataclasses
import functools
import threading
from typing import Any

import jax
import numpy as np
import pytest

from flowjax_inv.data.batches import batch_indices
from flowjax_inv.training.feed import Feed
from flowjax_inv.training.placement import Placement

IMAGES = np.random.default_rng(0).integers(0, 256, (10, 2, 3, 1), dtype=np.uint8)
TARGETS = np.arange(10, dtype=np.int32)
ORDER = functools.partial(batch_indices, size=10, batch_size=4, seed=3, shuffle=True)
ONE = Placement(jax.devices()[:1])


@pytest.mark.parametrize("begin", [0, 3])
@pytest.mark.parametrize("devices", [1, pytest.param(4, marks=pytest.mark.devices(4))])
def test_equal_batches_either_way(begin: int, devices: int) -> None:
    place = Placement(jax.devices()[:devices])
    held, sent = (
        Feed(IMAGES, TARGETS, ORDER, end=6, placement=place, resident=resident)
        for resident in (True, False)
    )
    with held, sent:
        for step in range(begin, 6):
            images, targets, indices = held(step)
            batch, labels = sent(step)
            np.testing.assert_array_equal(batch, np.asarray(images)[indices])
            np.testing.assert_array_equal(labels, np.asarray(targets)[indices])
            assert len(batch.sharding.device_set) == devices


def test_the_next_batch_is_fetched_ahead_and_none_after_the_last() -> None:
    asked, fetched = [], threading.Event()

    def order(step: int) -> np.ndarray:
        asked.append(step)
        if step == 1:
            fetched.set()
        return ORDER(step)

    with Feed(IMAGES, TARGETS, order, end=2, placement=ONE, resident=False) as feed:
        feed(0)
        assert fetched.wait(timeout=60)
        feed(1)
    assert asked == [0, 1]


def test_what_fails_beside_the_step_is_raised_in_it() -> None:
    def order(step: int) -> np.ndarray:
        return np.array([99 if step else 0])

    with Feed(IMAGES, TARGETS, order, end=9, placement=ONE, resident=False) as feed:
        feed(0)
        with pytest.raises(IndexError, match="99"):
            feed(1)


@pytest.mark.parametrize(("memory", "resident"), [(None, True), (1000, True), (300, False)])
def test_a_set_is_held_if_it_fills_a_quarter_at_most(memory: int | None, resident: bool) -> None:  # noqa: FBT001
    """IMAGES and TARGETS take 100 bytes; a CPU does not tell how much it has."""

    @dataclasses.dataclass
    class Device:
        def memory_stats(self) -> dict[str, int] | None:
            return None if memory is None else {"bytes_limit": memory}

    class Here(Placement):
        def replicate(self, tree: Any) -> Any:
            return tree

    place = Here((Device(), Device()))
    assert IMAGES.nbytes + TARGETS.nbytes == 100
    assert Feed(IMAGES, TARGETS, ORDER, end=1, placement=place).resident == resident
