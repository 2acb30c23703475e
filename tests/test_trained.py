"""Runs rebuilt from their folders."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
from smoke_runs import smoke

from experiments.running.run_folder import RunFolder
from experiments.running.trained import load_run
from experiments.setup import defaults
from experiments.setup.assembly import assemble
from flowjax_inv.training.checkpoints import Checkpoints


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "outputs"),
    [
        ({"objective__reject_distorted": "always"}, 5),
        ({"objective__loss": "squared_error", "evaluation__average": "logits"}, 1),
    ],
)
def test_a_run_comes_back_with_the_outputs_it_had(
    fields: dict[str, Any], outputs: int, tmp_path: Path
) -> None:
    """One more than the four classes, for what is distorted; one, for an angle."""
    config = smoke(**fields)
    parts, folder, plain = assemble(config), RunFolder(tmp_path), defaults.without_places(config)
    shape, names = parts.data.train.images.shape[1:], list(parts.data.class_names)
    folder.write_json("config.json", plain)
    with pytest.raises(ValueError, match=r"no results.json with class_names; let the run finish"):
        load_run(tmp_path)
    folder.write_json("results.json", {"class_names": names, "image_shape": list(shape)})
    with pytest.raises(ValueError, match="has no checkpoints, so no weights"):
        load_run(tmp_path)
    with Checkpoints(folder.checkpoints_path, plain) as checkpoints:
        checkpoints.save(1, parts.init_state())
    assert load_run(tmp_path).classify(jnp.zeros((1, *shape))).shape == (1, outputs)
