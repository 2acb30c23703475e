"""One step, however it is spread: 1, 2, 4 devices, jit or pmap, whole or in chunks of copies.

Equal means: after one step parameters within 1e-5 relative (1e-6 absolute) and the sampled theta
within 1e-6; after ten steps the loss within 1e-3. Reductions differ in order, so not bit for bit.
"""

import functools
from typing import Any, Literal, cast

import flax.linen as nn
import jax
import numpy as np
import optax
import pytest

from flowjax_inv import training
from flowjax_inv.distributions.base import ConditionalDistribution
from flowjax_inv.distributions.flow import Flow
from flowjax_inv.distributions.gaussian import ConditionalGaussian
from flowjax_inv.networks.convolutions import Conv
from flowjax_inv.training.controllers import EntropyBand
from flowjax_inv.training.feed import Feed
from flowjax_inv.training.objectives import Objective
from flowjax_inv.training.placement import Placement
from flowjax_inv.transforms import Affine

IMAGES = np.random.default_rng(0).integers(0, 256, (24, 8, 8, 1), dtype=np.uint8)
LABELS = np.arange(24, dtype=np.int32) % 3


class OneConv(nn.Module):
    """A network of one layer with statistics: every test here compiles steps of its own."""

    features: int
    width: int = 2
    batch_norm: bool = False
    axis_name: str | None = None

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> jax.Array:
        x = Conv(self.width, 3, padding=1, conv="lax")(images)
        if self.batch_norm:
            average = not train
            x = nn.BatchNorm(average, axis_name=self.axis_name, use_fast_variance=False)(x)
        return nn.Dense(self.features)(nn.relu(x).mean((1, 2)))


OPTIMIZER, CONTROLLER = optax.sgd(0.02, momentum=0.9), EntropyBand(low=0, high=1)


def modules(
    *, batch_norm: bool, density: str, axis_name: str | None = None
) -> tuple[OneConv, ConditionalDistribution]:
    """Return a classifier and a distribution: a "gaussian", a "flow", or one with a "score"."""

    def network(features: int) -> OneConv:
        return OneConv(features, batch_norm=batch_norm, axis_name=axis_name)

    if density == "gaussian":  # compiles in two thirds of the time
        return network(3), ConditionalGaussian(dim=1, embed=network(4), start_scale=0.5)
    gumbel = "hard" if density == "flow" else "score"
    few: dict[str, Any] = {"layers": 2, "width": 8, "components": 2, "gumbel": gumbel}
    return network(3), Flow(dim=1, embed=network(4), **few)


@functools.cache
def start(*, batch_norm: bool, density: str) -> training.TrainState:
    """Where all steps of these modules begin, made once: on the host, but for the key."""
    parts = modules(batch_norm=batch_norm, density=density)
    state = training.init_state(*parts, OPTIMIZER, CONTROLLER, IMAGES[:4], key=jax.random.key(1))
    return jax.device_get(state)


class Spy(Affine):
    """Keeps the theta it was given, whichever device gave it."""

    seen: list[np.ndarray] = []

    def __call__(self, images, theta):
        jax.debug.callback(lambda t: Spy.seen.append(np.asarray(t)), theta)
        return super().__call__(images, theta)


def train(
    devices: int,
    parallel: str = "jit",
    *,
    steps: int = 1,
    batch_norm: bool = False,
    mirror: bool = False,
    density: str = "gaussian",
    spy: bool = False,
    guarded: bool = False,
    resident: bool = True,
    **objective: Any,
) -> training.TrainState:
    place = Placement(jax.devices()[:devices], cast("Literal['jit', 'pmap']", parallel))
    fields: dict[str, Any] = {"batch_norm": batch_norm, "density": density}
    Spy.seen.clear()
    step = training.make_step(
        *modules(**fields, axis_name=place.axis_name), (Spy if spy else Affine)("rotation"),
        OPTIMIZER, CONTROLLER, Objective(**objective), mirror=mirror, placement=place,
        resident=resident,
    )  # fmt: skip
    kept = start(**fields)
    # A step destroys the state that it is given.
    state = place.replicate(kept.replace(key=jax.random.clone(kept.key)))

    def order(number: int) -> np.ndarray:
        return (np.arange(8) + 8 * number) % 24

    with Feed(IMAGES, LABELS, order, end=steps, placement=place, resident=resident) as feed:
        for number in range(steps):
            images, labels, *indices = feed(number)
            if guarded and number:  # compiled by now
                indices = [place.divide(each) for each in indices]
                with jax.transfer_guard("disallow"):
                    state = step(state, images, labels, *indices)
            else:
                state = step(state, images, labels, *indices)
    jax.block_until_ready(state)
    jax.effects_barrier()
    return state


@functools.cache
def reference(devices: int = 1, **fields: Any) -> training.TrainState:
    """What several tests compare with, trained once."""
    return train(devices, **fields)


def assert_equal(one: training.TrainState, other: training.TrainState) -> None:
    for part in ("params", "batch_stats", "controller", "totals"):
        a, b = (
            jax.tree_util.tree_leaves_with_path(jax.device_get(getattr(s, part)))
            for s in (one, other)
        )
        for (path, x), (_, y) in zip(a, b, strict=True):
            np.testing.assert_allclose(
                x, y, rtol=1e-5, atol=1e-6, err_msg=part + jax.tree_util.keystr(path)
            )


SPREADS = [(2, "jit"), (4, "jit"), (1, "pmap"), (2, "pmap"), (4, "pmap")]


# Two of them: each compiles a step of its own, and batch norm, below, goes through all.
@pytest.mark.devices(4)
@pytest.mark.slow
@pytest.mark.parametrize(("devices", "parallel"), [(4, "jit"), (4, "pmap")])
def test_one_step_is_the_same_step(devices: int, parallel: str) -> None:
    fields: dict[str, Any] = {"copies": 2, "mirror": True, "density": "flow"}
    assert_equal(reference(devices, parallel=parallel, **fields), reference(1, **fields))


@pytest.mark.slow
def test_a_step_reads_nothing_back_and_is_given_indices_alone() -> None:
    """The images lie on the devices; what a step needs of the host is placed before it."""
    guarded = train(4, steps=3, guarded=True)
    assert int(guarded.step) == 3
    with jax.transfer_guard("disallow"), pytest.raises(Exception, match="Disallowed .* transfer"):
        _ = guarded.step * 2.5  # what the guard is for


@pytest.mark.devices(4)
@pytest.mark.slow
@pytest.mark.parametrize(("devices", "parallel"), [(4, "jit"), (4, "pmap")])
def test_a_set_that_is_sent_batch_by_batch_trains_alike(devices: int, parallel: str) -> None:
    fields: dict[str, Any] = {"copies": 2, "mirror": True, "density": "flow"}
    sent = train(devices, parallel, resident=False, **fields)
    assert_equal(sent, reference(devices, parallel=parallel, **fields))


@pytest.mark.devices(4)
@pytest.mark.slow
@pytest.mark.parametrize(("devices", "parallel"), SPREADS)
def test_batch_norm_sees_the_whole_batch(devices: int, parallel: str) -> None:
    fields: dict[str, Any] = {"copies": 2, "batch_norm": True}
    assert_equal(train(devices, parallel, **fields), reference(1, **fields))


@pytest.mark.devices(4)
@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["jit", "pmap"])
def test_the_score_function_sees_the_whole_batch(parallel: str) -> None:
    fields: dict[str, Any] = {"copies": 2, "density": "score"}
    assert_equal(train(4, parallel, **fields), reference(1, **fields))


@pytest.mark.devices(4)
@pytest.mark.slow
@pytest.mark.parametrize(("devices", "parallel"), [(4, "jit"), (4, "pmap")])
def test_samples_do_not_know_the_devices(devices: int, parallel: str) -> None:
    def sampled(*spread: Any) -> np.ndarray:
        train(*spread, copies=3, spy=True)
        # Shards arrive in any order; every image's own copies stay together.
        rows = np.concatenate([theta.reshape(-1, 3) for theta in Spy.seen])
        return rows[np.lexsort(rows.T)]

    one, other = sampled(1, "jit"), sampled(devices, parallel)
    assert one.shape == (8, 3)
    np.testing.assert_allclose(other, one, atol=1e-6)


@pytest.mark.devices(4)
@pytest.mark.slow
@pytest.mark.parametrize(("devices", "parallel"), [(4, "jit"), (4, "pmap")])
def test_ten_steps_stay_together(devices: int, parallel: str) -> None:
    fields: dict[str, Any] = {"steps": 10, "batch_norm": True}
    one, other = reference(1, **fields), train(devices, parallel, **fields)
    np.testing.assert_allclose(other.totals["loss"], one.totals["loss"], rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("average", "chunk"), [("losses", 1), ("losses", 2), ("logits", 2), ("probs", 1)]
)
def test_chunks_of_copies_equal_the_whole(average: str, chunk: int) -> None:
    fields: dict[str, Any] = {"copies": 4, "average": average}
    assert_equal(train(2, copies_per_chunk=chunk, **fields), reference(2, **fields))


@pytest.mark.slow
def test_chunks_need_less_memory() -> None:
    """Temporaries as XLA plans them: a quarter of the copies, less than half the memory."""

    def temporaries(**objective: Any) -> int:
        place = Placement(jax.devices()[:1])
        network = OneConv(3, width=8)
        distribution = Flow(dim=1, embed=OneConv(4), layers=1, width=8, components=2)
        parts = (EntropyBand(low=0, high=1), optax.sgd(0.1))
        state = training.init_state(
            network, distribution, parts[1], parts[0], IMAGES[:4], key=jax.random.key(1)
        )
        step: Any = training.make_step(
            network, distribution, Affine("rotation"), parts[1], parts[0],
            Objective(copies=16, include_original=False, **objective), placement=place,
        )  # fmt: skip
        images = np.zeros((64, 16, 16, 1), np.uint8)
        lowered = step.lower(state, images, np.zeros(64, np.int32), np.arange(64))
        return lowered.compile().memory_analysis().temp_size_in_bytes

    assert temporaries(copies_per_chunk=4) < 0.5 * temporaries()


CHUNKS_WITH_NORM: dict[str, Any] = {"copies": 4, "copies_per_chunk": 2, "batch_norm": True}


@pytest.mark.slow
def test_chunks_with_batch_norm_are_refused() -> None:
    with pytest.raises(ValueError, match="copies_per_chunk is 2 and OneConv has batch norm"):
        train(1, **CHUNKS_WITH_NORM)


@pytest.mark.slow
def test_chunks_with_batch_norm_may_be_allowed() -> None:
    assert int(train(1, chunk_statistics=True, **CHUNKS_WITH_NORM).step) == 1


def test_chunks_must_divide_the_copies() -> None:
    with pytest.raises(ValueError, match="copies_per_chunk is 3 of 4 copies; take a divisor"):
        Objective(copies=4, copies_per_chunk=3)


@pytest.mark.devices(4)
def test_a_batch_that_does_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="batch_size is 10, which 4 devices .*; take 8 or 12"):
        Placement(jax.devices()[:4]).check(10, "batch_size")
    with pytest.raises(ValueError, match="batch_size is 3, which 4 devices .*; take 4 or 8"):
        Placement(jax.devices()[:4]).check(3, "batch_size")


def test_parallel_has_two_names() -> None:
    with pytest.raises(ValueError, match='parallel is "tpu"; allowed: jit, pmap'):
        Placement(parallel=cast("Any", "tpu"))


def test_without_devices_all_are_taken() -> None:
    assert Placement().devices == tuple(jax.devices())
