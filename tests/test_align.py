"""The program that straightens a folder: what it writes, and what it refuses."""

import csv
import types
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from poses import blobs, pose, upright

from experiments import align
from flowjax_inv.data.pixels import Normalization
from flowjax_inv.distributions.box import Fixed
from flowjax_inv.transforms import Affine, Chain, Colour

DEGREES = [-100.0, 10.0, 75.0, 160.0]


def trained(**fields) -> types.SimpleNamespace:
    """What a run would give, without the run."""
    named = types.SimpleNamespace(name="identity")
    known = {
        "config": types.SimpleNamespace(seed=0, distribution=named),
        "distribution": Fixed(dim=1), "transform": Affine("rotation"), "propose": upright(0.25),
        "normalization": Normalization(), "image_shape": (21, 21, 1),
    }  # fmt: skip
    return types.SimpleNamespace(**known | fields)


def _name(degrees: float) -> str:
    """Half of the pictures lie in a folder of their own, as those of a class do."""
    return f"right/{degrees:.0f}.png" if degrees < 0 else f"{degrees:.0f}.png"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setattr(align, "load_run", lambda workdir: trained())
    place = tmp_path / "pictures"
    place.mkdir()
    for degrees in DEGREES:
        pixels = np.asarray(255 * blobs(jnp.array([degrees]), size=63)[0, ..., 0])
        target = place / _name(degrees)
        target.parent.mkdir(exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(target)
    (place / "bad.jpg").write_bytes(b"nonsense")
    return place


@pytest.mark.slow
def test_a_folder_is_straightened(folder: Path, capsys) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*.*")}
    out = folder.parent / "out"
    arguments = [f"--images={folder}", f"--out={out}", "--workdir=x", "--step_size=0.5"]
    assert align.main(arguments) == 0
    said = capsys.readouterr()
    assert "4 aligned, 0 left alone, 0 not at rest, 1 skipped" in said.out
    assert "skipped: bad.jpg cannot be read" in said.err
    with open(out / "poses.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    turned = {row["file"]: row["rotation (degrees)"] for row in rows if row["end"] == "aligned"}
    for degrees in DEGREES:
        assert abs(float(turned[_name(degrees)]) + degrees) < 3
        with Image.open(out / f"{_name(degrees)}.png") as picture:  # at its own resolution
            assert picture.size == (63, 63)
            pixels = jnp.asarray(np.asarray(picture), jnp.float32)[None, ..., None]
        assert abs(180 * float(pose(pixels)[0])) < 3
    assert rows[-1]["end"].startswith("skipped: bad.jpg cannot be read")
    for name in ("montage.png", "prototype.png"):
        with Image.open(out / name) as picture:
            picture.verify()
    assert before == {path: path.read_bytes() for path in folder.rglob("*.*")}


@pytest.mark.parametrize("case", ["out", "none", "density", "colours", "step", "coordinate"])
def test_refusals(case, folder: Path, capsys, monkeypatch) -> None:
    out, images, more = folder.parent / "out", folder, []
    if case == "out":
        out.mkdir()
        (out / "mine.txt").write_text("x")
        words = "is there and not empty; give a new folder, nothing is replaced."
    elif case == "none":
        images = folder.parent / "broken"
        images.mkdir()
        (images / "bad.png").write_bytes(b"")
        words = "none of 1 pictures in"
    elif case == "density":
        nothing = types.SimpleNamespace(has_density=False)
        monkeypatch.setattr(align, "load_run", lambda workdir: trained(distribution=nothing))
        words = "x has no density (identity)."
    elif case == "colours":
        chain = Chain(Affine("rotation"), Colour())
        monkeypatch.setattr(align, "load_run", lambda workdir: trained(transform=chain))
        words = "x moves colours (Chain); pictures are straightened by transforms that move pixels"
    elif case == "coordinate":
        more, words = ["--coordinates", "turn"], "coordinates is ['turn']; want names out of"
    else:
        more, words = ["--step_size=2"], "step_size is 2.0; want 0 < step_size <= 1"
    with pytest.raises(SystemExit) as left:
        align.main([f"--images={images}", f"--out={out}", "--workdir=x", *more])
    assert left.value.code == 2
    assert words in capsys.readouterr().err
    assert not (out / "poses.csv").exists()
