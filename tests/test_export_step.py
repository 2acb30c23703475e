"""The whole train step as a program: lowered on a CPU for every platform, and still the step."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from exported import IMAGES, NORMALIZATION, parts
from jax import export as jax_export

from flowjax_inv import training
from flowjax_inv.training.controllers import EntropyBand
from flowjax_inv.training.objectives import Objective
from flowjax_inv.training.placement import Placement


def flat_step(name: str, *, batch_norm: bool) -> tuple[Any, list[Any], tuple[Any, ...]]:
    """The whole step as a function of flat leaves: serialisation refuses optax's named tuples."""
    classifier, distribution, transform = parts(name, batch_norm=batch_norm)
    optimizer, controller = optax.adamw(1e-2), EntropyBand(low=0, high=1)
    state = training.init_state(
        classifier, distribution, optimizer, controller, jnp.asarray(IMAGES), key=jax.random.key(1)
    )
    step = training.make_step(
        classifier, distribution, transform, optimizer, controller, Objective(copies=2),
        normalization=NORMALIZATION, mirror=True, placement=Placement(jax.devices()[:1]),
    )  # fmt: skip
    leaves, structure = jax.tree.flatten(state)

    def flat(leaves, images, labels, indices):
        return jax.tree.leaves(step(jax.tree.unflatten(structure, leaves), images, labels, indices))

    data = (jnp.asarray(IMAGES), jnp.arange(3), jnp.array([2, 0]))
    return jax.jit(flat), leaves, data


def plain(leaf: jax.Array) -> np.ndarray:
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)


@pytest.mark.slow
@pytest.mark.parametrize("batch_norm", [False, True], ids=["plain", "batch_norm"])
@pytest.mark.parametrize("name", ["affine_coupling", "crop_spline"])
def test_the_train_step_lowers_for_every_platform(name: str, batch_norm: bool) -> None:
    flat, leaves, data = flat_step(name, batch_norm=batch_norm)
    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
    exported = jax_export.export(flat, platforms=("cpu", "cuda", "tpu"))(shapes, *data)
    assert exported.platforms == ("cpu", "cuda", "tpu")
    assert len(exported.out_avals) == len(leaves)
    assert len(exported.serialize()) > 10_000


@pytest.mark.slow
def test_an_exported_step_is_the_step() -> None:
    flat, leaves, data = flat_step("affine_coupling", batch_norm=True)
    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
    data_bytes = jax_export.export(flat, platforms=("cpu", "cuda", "tpu"))(
        shapes, *data
    ).serialize()
    got = jax_export.deserialize(bytearray(data_bytes)).call(leaves, *data)
    moved = 0
    for before, a, b in zip(leaves, got, flat(leaves, *data), strict=True):
        np.testing.assert_allclose(plain(a), plain(b), rtol=1e-5, atol=1e-6)
        moved += int((plain(a) != plain(before)).any())
    assert moved > len(leaves) // 2
