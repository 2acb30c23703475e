"""The Olivetti faces: both layouts, the split by person, refusals."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from flowjax_inv.data.faces import OlivettiFaces

FACES = OlivettiFaces("00")
PERSON = np.repeat(np.arange(40), 10)


def _pictures() -> np.ndarray:
    """Grey levels that rise with the number of the picture, and down every picture."""
    return (np.arange(400)[:, None, None] // 4 + np.arange(112)[:, None] + np.zeros(92)).astype(
        np.uint8
    )


def _write_arrays(folder: Path, images: np.ndarray, person: np.ndarray = PERSON) -> None:
    folder.mkdir(exist_ok=True)
    np.savez(folder / "faces.npz", images=images, person=person)


def test_both_layouts_give_the_same_and_people_are_apart(tmp_path: Path) -> None:
    images = _pictures()
    _write_arrays(tmp_path / "arrays", images)
    for number, image in enumerate(images):
        place = tmp_path / "pictures" / f"s{number // 10 + 1}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"{number % 10 + 1}.pgm")
    one, two = (FACES.read(tmp_path / name, "olivetti") for name in ("arrays", "pictures"))
    assert one.shape == (64, 64, 1)
    assert "sha256" in one.differs
    assert one.differs == two.differs
    assert set(one.splits["train"].labels) == set(range(30))
    assert set(one.splits["test"].labels) == set(range(30, 40))
    assert one.splits["test"].encoded(99) == two.splits["test"].encoded(99)
    last = np.asarray(Image.open(io.BytesIO(one.splits["test"].encoded(99)))).astype(float)
    # The middle 92 rows: from 10 to 101 below the first, which is 99.
    assert last[0].mean() == pytest.approx(99 + 10, abs=1)
    assert last[-1].mean() == pytest.approx(99 + 101, abs=1)


@pytest.mark.parametrize(
    ("images", "person", "text"),
    [
        (_pictures()[:399], PERSON, r"images uint8 \(399, 112, 92\); want uint8 \(400, 112, 92\)"),
        (_pictures(), PERSON[::-1], "is not in the order of people"),
    ],
)
def test_arrays_of_another_kind(tmp_path: Path, images, person, text) -> None:
    _write_arrays(tmp_path, images, person)
    with pytest.raises(ValueError, match=text):
        FACES.read(tmp_path, "olivetti")


def test_damaged_and_missing_files(tmp_path: Path) -> None:
    place = tmp_path / "s1"
    place.mkdir()
    (place / "1.pgm").write_bytes(b"P5 92 112 255 ")
    with pytest.raises(ValueError, match="1.pgm cannot be read .*want the folders s1 .. s40"):
        FACES.read(tmp_path, "olivetti")
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(place / "1.pgm")
    with pytest.raises(ValueError, match=r"1.pgm is \(8, 8\); want \(112, 92\) pixels"):
        FACES.read(tmp_path, "olivetti")
    (tmp_path / "faces.npz").write_bytes(b"PK no zip")
    with pytest.raises(ValueError, match="faces.npz cannot be read"):
        FACES.read(tmp_path, "olivetti")
