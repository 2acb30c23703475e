"""Bad input: a defined result or one clear line, and nothing of the user's is lost.

The rest of the table stands where the input comes in: fields in test_config.py, archives and
prepared sets in test_archives.py, test_prepare.py and test_stored.py, exported files in
test_export_files.py, run folders in test_run.py.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import mario_iggy, mnist
from experiments.setup import build, data_sets
from flowjax_inv.data.pixels import Normalization
from flowjax_inv.distributions.flow import Flow
from flowjax_inv.inference import make_mean_shift, make_predict
from flowjax_inv.networks import SimpleConv
from flowjax_inv.transforms import Affine

ROOT = Path(__file__).parents[1]
IMAGES = jax.random.uniform(jax.random.key(0), (2, 12, 12, 3))


def predict(images: Any) -> np.ndarray:
    classifier = SimpleConv(3, width=2)
    distribution = Flow(dim=1, embed=SimpleConv(4, width=2), layers=1, width=4, components=2)
    variables = {
        "classifier": classifier.init(jax.random.key(1), IMAGES),
        "distribution": distribution.init(jax.random.key(2), IMAGES),
    }
    averaged = make_predict(classifier, distribution, Affine("rotation"), num_samples=2)
    return np.asarray(averaged(variables, images, jax.random.key(3)))


def test_variables_of_other_networks() -> None:
    """Both take what the other does for their own, and say so."""
    turn, both = Affine("rotation"), {"classifier": {}, "distribution": {}}
    averaged = make_predict(SimpleConv(3), SimpleConv(4), turn, num_samples=2)
    with pytest.raises(ValueError, match="variables hold params; want those of both networks"):
        averaged({"params": {}}, IMAGES, jax.random.key(0))
    straighten = make_mean_shift(SimpleConv(4), turn)
    with pytest.raises(ValueError, match="hold classifier, distribution; .* the distribution al"):
        straighten(both, IMAGES, jax.random.key(0))


REFUSED = {
    "one picture": (IMAGES[0], ValueError, r"shape \(12, 12, 3\); want \(N, H, W, C\)"),
    "five axes": (IMAGES[None], ValueError, r"shape \(1, 2, 12, 12, 3\); want \(N, H, W, C\)"),
    "no picture": (IMAGES[:0], ValueError, r"shape \(0, 12, 12, 3\); .* none of them 0"),
    "no channel": (IMAGES[..., :0], ValueError, r"shape \(2, 12, 12, 0\); .* none of them 0"),
    "other channels": (IMAGES[..., :1], ValueError, "have 1 channels; conv0 was made for 3"),
    "too small": (IMAGES[:, :4], ValueError, r"wants \(N, H, W, C\) with H, W >= 8"),
    "one row": (IMAGES[:, :1], ValueError, r"wants \(N, H, W, C\) with H, W >= 8"),
    "whole numbers": (
        jnp.zeros((2, 12, 12, 3), jnp.uint8), TypeError, "images are uint8; .*convert to float",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", REFUSED)
def test_images_that_cannot_be_classified(case: str) -> None:
    images, kind, text = REFUSED[case]
    with pytest.raises(kind, match=text) as caught:
        predict(images)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_picture_with_nan_spoils_itself_alone() -> None:
    probabilities = predict(IMAGES.at[0, 3, 3].set(jnp.nan))
    assert np.isnan(probabilities[0]).all()
    np.testing.assert_allclose(probabilities[1], predict(IMAGES)[1], rtol=1e-5)


@pytest.mark.parametrize(
    ("mean", "std"), [((0.0,), (0.0,)), ((0.0, 0.0), (1.0,)), ((), ())]
)  # fmt: skip
def test_a_normalization_that_cannot_divide(mean, std) -> None:
    with pytest.raises(ValueError, match="want as many positive std as means"):
        Normalization(mean, std)


def test_more_devices_than_there_are() -> None:
    config = mario_iggy.get_config("smoke")
    config.num_devices = 99
    with pytest.raises(ValueError, match=r"num_devices is 99, but there are \d+; take at most"):
        build.placement(config)


@pytest.mark.devices(4)
def test_a_batch_that_devices_cannot_share() -> None:
    config = mario_iggy.get_config("smoke")
    config.train.batch_size, config.num_devices = 30, 4
    with pytest.raises(ValueError, match="config.train.batch_size is 30, which 4 devices cannot"):
        build.placement(config)


def test_a_set_made_by_code_has_no_variants() -> None:
    config = mario_iggy.get_config("smoke")
    config.data.long_tail = 10.0
    with pytest.raises(
        ValueError, match="data.long_tail is 10.0, but mario_iggy is made, not read"
    ):
        data_sets.data_set(config)


def test_a_missing_set_says_how_to_get_it(tmp_path: Path) -> None:
    config = mnist.get_config("smoke")
    config.data.dir = str(tmp_path)
    with pytest.raises(ValueError, match="python -m flowjax_inv.data prepare mnist") as caught:
        data_sets.data_set(config)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_full_disk_ends_in_one_line_and_the_run_goes_on_later(tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk: the metrics hit it first."""
    line = [sys.executable, "-m", "experiments.run", "--config=experiments/mario_iggy.py:smoke",
            f"--workdir={tmp_path / 'run'}", "--config.train.checkpoint_every=1000",
            "--config.train.log_every=1", "--config.distribution.name=identity",
            "--config.num_devices=1"]  # fmt: skip
    environment = {
        "PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": os.environ["XLA_FLAGS"],  # compiles faster
        "PYTHONDONTWRITEBYTECODE": "1",  # or the limit leaves half a file in __pycache__
        # Programs of other tests are read, but none is written, or half of one.
        "JAX_COMPILATION_CACHE_DIR": os.environ["JAX_COMPILATION_CACHE_DIR"],
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "1000",
    }  # fmt: skip
    limited = ["bash", "-c", "ulimit -S -f 3 && exec " + shlex.join(line)]  # blocks of 1024 bytes
    full = subprocess.run(limited, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert full.returncode == 2, full.stderr
    assert "error: " in full.stderr
    assert "Traceback" not in full.stderr
    environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    again = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "run" / "report.html").exists()


@pytest.mark.slow
def test_the_users_command_without_its_data_ends_in_one_line(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "experiments.run", "--config=experiments/tinyin.py",
            f"--workdir={tmp_path / 'run'}", f"--config.data.dir={tmp_path}"]  # fmt: skip
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "python -m flowjax_inv.data prepare tiny_imagenet" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "run").exists()
