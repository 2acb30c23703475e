"""Save, restore, and refusals."""

import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from steps import IMAGES, LABELS, build, copy

from flowjax_inv.training.checkpoints import Checkpoints, config_differences


def test_config_differences_name_fields_on_both_sides() -> None:
    there = {"a": 1, "b": {"c": (1, 2), "d": 3}}
    here = {"a": 1, "b": {"c": [1, 2], "d": 4}, "e": "new"}
    assert config_differences(there, here) == [
        "b.d: 3 there, 4 here",
        "e: (absent) there, new here",
    ]
    assert config_differences(there, there) == []


@pytest.mark.slow
def test_a_state_comes_back_whole(tmp_path: Path) -> None:
    state, step = build()
    state = step(state, IMAGES, LABELS, np.arange(8))
    with Checkpoints(tmp_path, {"seed": 1}) as checkpoints:
        assert checkpoints.latest_step() is None
        checkpoints.save(1, state)
        kept = copy(state)
        step(state, IMAGES, LABELS, np.arange(8))  # donates what is being saved
    fresh, _ = build()
    with Checkpoints(tmp_path, {"seed": 1}) as checkpoints:
        back = checkpoints.restore(fresh)
    assert jax.tree.structure(back) == jax.tree.structure(kept)
    for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(kept), strict=True):
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype


@pytest.mark.parametrize("part", ["state", "config"])
def test_a_damaged_checkpoint_is_named_and_what_is_left(tmp_path: Path, part: str) -> None:
    state, _ = build()
    with Checkpoints(tmp_path, {"seed": 1}) as checkpoints:
        checkpoints.save(2, state)
        checkpoints.save(4, state)
    shutil.rmtree(tmp_path / "4" / part)
    with (
        Checkpoints(tmp_path, {"seed": 1}) as checkpoints,
        pytest.raises(ValueError, match=r"4 cannot be read .*remove it, and .* on from step 2"),
    ):
        checkpoints.restore(state)


def test_refusals(tmp_path: Path) -> None:
    state, _ = build()
    with Checkpoints(tmp_path, {"seed": 1}) as checkpoints:
        with pytest.raises(FileNotFoundError, match="no checkpoint in"):
            checkpoints.restore(state)
        checkpoints.save(2, state)
        with pytest.raises(RuntimeError, match="no checkpoint written for step 2: .* already has"):
            checkpoints.save(2, state)
    with (
        Checkpoints(tmp_path, {"seed": 3}) as checkpoints,
        pytest.raises(ValueError, match=r"another config \(seed: 1 there, 3 here\)"),
    ):
        checkpoints.restore(state)
