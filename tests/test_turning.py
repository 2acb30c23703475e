"""The program that turns the test images of a run: its figures, its page, and what it refuses."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from poses import blobs, pose

from experiments import poses, robustness
from experiments.measuring import turning
from experiments.run import train_and_evaluate
from experiments.setup import data_sets, defaults
from flowjax_inv.data import stored
from flowjax_inv.data.sets import DataSet, Split
from flowjax_inv.data.variants import turned_bicubic
from flowjax_inv.transforms import Affine


def _set() -> DataSet:
    """Dark and bright halves: class 0 is bright above, class 1 bright on the left."""
    random = np.random.default_rng(0)
    images = random.integers(0, 60, (126, 16, 16, 3)).astype(np.uint8)
    labels = (np.arange(126) % 2).astype(np.int32)
    images[labels == 0, :8] += 150
    images[labels == 1, :, :8] += 150
    return DataSet(Split(images[:94], labels[:94]), Split(images[94:], labels[94:]), ("a", "b"))


@pytest.mark.parametrize("choice", ["first", "random"])
def test_what_was_trained_on_is_not_held_out(choice, monkeypatch) -> None:
    monkeypatch.setattr(stored, "load", lambda *_, **__: _set())
    config = poses.get_config("smoke")
    config.data.choice, config.data.train_size, config.data.repeats = choice, 64, 3
    parts = [data_sets.data_set(config).train, data_sets.left_out(config)]
    trained, rest = ({image.tobytes() for image in part.images} for part in parts)
    assert (len(parts[0]), len(trained), len(rest)) == (192, 64, 30)
    assert not trained & rest


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, undrawn: None) -> Path:
    config = poses.get_config("smoke")
    config.classifier.name = "simple_conv"
    config.embedding.width, config.embedding.features = 4, 8
    config.distribution.layers, config.distribution.components = 1, 4
    config.num_devices = 1
    workdir = tmp_path_factory.mktemp("runs") / "one"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored, "load", lambda *_, **__: _set())
        train_and_evaluate(config, workdir)
    return workdir


@pytest.mark.slow
def test_a_run_is_turned_round(finished: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(stored, "load", lambda *_, **__: _set())
    monkeypatch.setattr(turning, "_BATCH", 16)
    before = (finished / "results.json").read_bytes()
    arguments = [f"--workdir={finished}", "--images=16", "--angles=8", "--max_clean_loss=0.3"]
    assert robustness.main([*arguments, "--checked_images=24"]) == 0
    found = json.loads((finished / "robustness.json").read_text())
    assert found["held_out_images"] == 30  # 94 but 64
    assert found["checked_images"] == 24
    for name, way in found["ways"].items():
        assert len(way["accuracy"]) == 8
        assert 0 <= way["c8_accuracy"] <= 1, name
    plain, gate = found["ways"]["plain"], found["gates"]["averaged"]
    assert plain["clean_change"] == 0
    assert "turn known" in found["ways"]
    assert "turn known" not in found["gates"]
    assert gate["bound"] <= 0.3
    assert gate["images"] == 30
    assert len(plain["divergence"]) == 2
    assert 0 <= found["auroc"] <= 1
    assert 10 <= found["adaptive"]["mean_samples"] <= 300
    assert len(found["bound"]["measured"]) == 16
    assert found["mean_shift_to_rest"] in found["mean_shift_validated"]
    page = (finished / "robustness.html").read_text()
    for words in ("Accuracy of turned pictures", "AUROC", "averaged, gated", "Invariance bound"):
        assert words in page
    assert "behind the gate upright" in capsys.readouterr().out
    assert (finished / "results.json").read_bytes() == before


def test_a_known_turn_is_undone(monkeypatch) -> None:
    """By one angle for all and by one for each, in batches that do not divide."""
    monkeypatch.setattr(turning, "_BATCH", 2)
    run: Any = SimpleNamespace(
        transform=Affine("rotation_translation"),
        normalization=lambda stored: stored / 255.0,
        # How near the blob is to where an upright picture has it.
        classify=lambda images: 20 * jnp.abs(pose(images))[:, None] * jnp.array([1.0, -1.0]),
    )
    known = turning.Ways(run, jax.random.key(0)).make_known()
    upright = np.asarray(255 * blobs(jnp.zeros(3)), np.uint8)
    for degrees in (-90.0, 40.0, np.array([170.0, 10.0, -60.0])):
        turned = turned_bicubic(upright, degrees, (0.0,))
        np.testing.assert_allclose(known(turned, degrees), 0.5, atol=0.1)
        assert np.abs(known(turned, 0.0) - 0.5).max() > 0.2


def test_a_run_without_labels_is_refused(monkeypatch) -> None:
    config = defaults.get_config()
    config.data.name = "pictures"
    monkeypatch.setattr(robustness, "load_run", lambda _: SimpleNamespace(config=config))
    with pytest.raises(ValueError, match=r"without labels, so nothing is right or wrong; .*card"):
        robustness.measure("run")


@pytest.mark.slow
def test_refusals(finished: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(stored, "load", lambda *_, **__: _set())
    for more, words in (
        (["--angles=9"], "angles=9, images=500, checked_images=0, turn_degrees=180.0; want a"),
        (["--max_clean_loss=0.01"], "30 calibration images cannot show a loss of at most 0.01"),
        (["--workdir=nowhere"], "nowhere has no config.json; give the folder of a finished run."),
    ):
        with pytest.raises(SystemExit) as left:
            robustness.main([f"--workdir={finished}", *more])
        assert left.value.code == 2
        assert words in capsys.readouterr().err
