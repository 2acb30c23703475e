"""The program that wraps somebody else's classifier: from a folder to a card."""

import json
import shutil
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from poses import blobs, pose

from experiments import poses as poses_config
from experiments import wrap
from flowjax_inv.inference import least_images

HERE = Path(__file__).stem


def classify(images):
    """NumPy, from outside: is the blob right of the middle?"""
    images = np.asarray(images)
    right = np.abs(np.asarray(pose(jnp.asarray(images)))) < 0.15
    return 10.0 * np.stack([right, ~right], axis=-1)


def fails(images):
    raise RuntimeError("I want 224 pixels")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "pictures"
    place.mkdir()
    for number, image in enumerate(np.asarray(blobs(jnp.linspace(-9.0, 9.0, 320), size=16))):
        pixels = (255 * image[..., 0]).astype(np.uint8)
        Image.fromarray(pixels).save(place / f"{number}.png")
    return place


def _arguments(folder: Path, name: str = "classify", **fields) -> list[str]:
    given = {
        "classifier": f"{HERE}:{name}", "images": folder, "workdir": folder.parent / "run",
        "size": 16, "channels": 1, "max_clean_loss": 0.1, "steps": 20,
    } | fields  # fmt: skip
    return [f"--{flag}={value}" for flag, value in given.items()]


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_folder_becomes_a_card(folder: Path, capsys, monkeypatch) -> None:
    small = poses_config.get_config()
    small.embedding.width, small.embedding.features = 4, 8
    small.distribution.layers, small.distribution.components = 1, 8
    small.num_devices = 1
    small.evaluation.density_images = small.evaluation.density_samples = 20
    small.evaluation.batch_size = 20
    monkeypatch.setattr(poses_config, "get_config", lambda: small)
    assert wrap.main(_arguments(folder)) == 0
    run = folder.parent / "run"
    card = json.loads((run / "card.json").read_text())
    assert card["images"] == 32
    assert card["observed_images"] == 32
    assert card["bound"] <= card["max_clean_loss"] == 0.1
    assert 0.1 < card["c8_agreement_alone"] < 0.2  # upright alone
    assert 0.1 < card["c8_agreement_wrapped"] <= 1  # nothing is learned in twenty steps
    assert 1 <= card["calls_per_upright_image"] <= 21
    assert 0 <= card["host_seconds_per_call"] < 1
    assert card["pictures"] == 320
    said = capsys.readouterr().out
    assert "| upright predictions that may change, at most | 10.0 % |" in said
    assert (run / "card.md").read_text() in said
    assert "test_accuracy" not in json.loads((run / "results.json").read_text())  # no labels
    assert "Alarm" not in (run / "report.html").read_text()
    assert wrap.main(_arguments(folder)) == 0  # again: the run is finished, the card the same
    assert json.loads((run / "card.json").read_text())["gate"] == card["gate"]
    config = json.loads((run / "config.json").read_text())
    assert config["command"] == (
        f"python -m experiments.wrap --classifier={HERE}:classify --images=FOLDER --workdir=RUN "
        "--size=16 --channels=1 --steps=20 --max_clean_loss=0.1"
    )
    shutil.copy(folder / "1.png", folder / "0a.png")  # another split: what trained could fit a gate
    with pytest.raises(SystemExit):
        wrap.main(_arguments(folder))
    assert "holds other pictures than" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"classifier": "no_such:f"}, "no_such:f cannot be imported"),
        ({"name": "fails"}, "fails failed on images of shape (1, 16, 16, 1): I want 224 pixels"),
        ({"max_clean_loss": 0.01}, "320 pictures that can be read, of which a tenth fits the gate"),
        ({"steps": 0}, "steps is 0; want at least 1"),
        ({"confidence": 1.0}, "confidence=1.0; want both above 0 and below 1"),
        ({"images": "nowhere"}, "nowhere is no folder"),
    ],
)
def test_refusals(fields, words, folder: Path, capsys) -> None:
    with pytest.raises(SystemExit) as left:
        wrap.main(_arguments(folder, **fields))
    assert left.value.code == 2
    assert words in capsys.readouterr().err
    assert not (folder.parent / "run").exists()


@pytest.mark.parametrize(("fitting", "confidence"), [(2, 0.9), (13, 0.95), (298, 0.95)])
def test_few_pictures_promise_what_they_can_show(fitting: int, confidence: float, capsys) -> None:
    """The least loss: a thousandth less and they would be too few."""
    least = wrap._promise(fitting, 10 * fitting, None, confidence)
    assert least_images(least, confidence) <= fitting
    assert least_images(least - 1e-3, confidence) > fitting
    said = capsys.readouterr().out
    assert f"at most {least:.1%} of upright predictions change: that is promised. For 1%" in said
    assert f"{10 * fitting} could be read" in said
    assert wrap._promise(299, 2_990, None, 0.95) == 0.01
    assert wrap._promise(30, 300, 0.2, 0.95) == 0.2
    with pytest.raises(ValueError, match="leave none for the gate; give at least 10"):
        wrap._promise(0, 9, None, 0.95)


def test_what_cannot_be_read_does_not_count(folder: Path, capsys, monkeypatch) -> None:
    """Of 320 files 12 are damaged: batches and promises are of the 308."""
    for path in sorted(folder.glob("*.png"))[:12]:
        path.write_bytes(b"nonsense")
    seen = []
    monkeypatch.setattr(wrap, "train_and_evaluate", lambda config, *_, **__: seen.append(config))
    monkeypatch.setattr(wrap, "load_run", lambda _: 1 / 0)
    arguments = [a for a in _arguments(folder) if "max_clean_loss" not in a]
    with pytest.raises(ZeroDivisionError):
        wrap.main(arguments)
    assert seen[0].train.batch_size == 128
    assert seen[0].train.epochs == -(-20 * 128 // 246)
    assert "308 could be read" in capsys.readouterr().out
