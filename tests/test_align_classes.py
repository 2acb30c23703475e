"""The program that aligns the classes of a set by a run: how well, in figures and a picture."""

import json
import types
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from poses import blobs, upright

from experiments import align_classes as program
from flowjax_inv.data import stored
from flowjax_inv.data.pixels import Normalization
from flowjax_inv.data.sets import DataSet, Split
from flowjax_inv.distributions.box import Fixed
from flowjax_inv.transforms import Affine


def _trained(**fields) -> types.SimpleNamespace:
    part = types.SimpleNamespace(name="x")
    known = {
        "config": types.SimpleNamespace(seed=0, distribution=part, data=part),
        "distribution": Fixed(dim=1), "transform": Affine("rotation"), "propose": upright(0.05),
        "normalization": Normalization(), "image_shape": (25, 25, 1),
    }  # fmt: skip
    return types.SimpleNamespace(**known | fields)


@pytest.fixture(autouse=True)
def _set(monkeypatch) -> None:
    pixels = np.asarray(255 * blobs(jnp.linspace(-3.0, 3.0, 24))).astype(np.uint8)
    split = Split(pixels, (np.arange(24) % 2).astype(np.int32))
    monkeypatch.setattr(stored, "load", lambda *_: DataSet(split, split, ("a", "b")))
    monkeypatch.setattr(program, "load_run", lambda workdir: _trained())


@pytest.mark.slow
@pytest.mark.parametrize("alike", [False, True])
def test_classes_are_aligned(alike, tmp_path: Path, capsys) -> None:
    arguments = [f"--workdir={tmp_path}", "--data=mine", "--step_size=0.5", "--steps=20"]
    assert program.main([*arguments, *["--alike"] * alike]) == 0
    name = "alignment_mine_alike" if alike else "alignment_mine"
    found = json.loads((tmp_path / f"{name}.json").read_text())
    for row in found["classes"]:
        assert row["images"] == 12
        assert (row["spread_before_degrees"] < 0.1) == alike
        assert row["spread_after_degrees"] < 4  # of blobs that differ by as much
        if not alike:
            assert row["deviation_aligned"] < 0.7 * row["deviation_turned"]
        assert row["deviation_aligned"] < 1.3 * row["deviation_unturned"]
    assert "deviation turned -> aligned (unturned)\na  " in capsys.readouterr().out
    with Image.open(tmp_path / "figures" / f"{name}.png") as picture:
        picture.verify()


@pytest.mark.slow
def test_a_class_without_test_images_is_left_out(tmp_path: Path, monkeypatch) -> None:
    loaded = stored.load("mine")
    three = DataSet(loaded.train, loaded.test, ("a", "b", "none"))
    monkeypatch.setattr(stored, "load", lambda *_: three)
    assert program.main([f"--workdir={tmp_path}", "--data=mine", "--steps=1"]) == 0
    found = json.loads((tmp_path / "alignment_mine.json").read_text())
    assert [row["class"] for row in found["classes"]] == ["a", "b"]


@pytest.mark.parametrize(
    ("more", "fields", "words"),
    [
        (["--degrees=0"], {}, "degrees=0.0, per_class=200; want above 0 up to 180"),
        ([], {"image_shape": (20, 20, 1)}, "images of 21x21x1 do not fit the run's 20x20x1"),
        ([], {"transform": Affine("translation")}, "has no density over turns"),
    ],
)
def test_refusals(more, fields, words, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(program, "load_run", lambda workdir: _trained(**fields))
    with pytest.raises(SystemExit) as left:
        program.main([f"--workdir={tmp_path}", "--data=mine", *more])
    assert left.value.code == 2
    assert words in capsys.readouterr().err
