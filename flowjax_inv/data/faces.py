"""The Olivetti (ORL) faces: 40 people, ten pictures each."""

import dataclasses
import hashlib
from pathlib import Path

import numpy as np

from flowjax_inv.data.archives import Archive, Pictures, as_png, find_folder

__all__ = ["OlivettiFaces"]

_PEOPLE, _EACH, _SHAPE, _SIDE = 40, 10, (112, 92), 64
_TRAIN = 30  # people; Augerino's split, by person
_WANTED = "the folders s1 .. s40 with 1.pgm .. 10.pgm, or one file faces.npz (images, person)"


@dataclasses.dataclass(frozen=True)
class OlivettiFaces:
    """The archive as published, s1/1.pgm to s40/10.pgm, or its arrays in faces.npz.

    Pictures are stored at 64 x 64: the middle 92 x 92 of 112 x 92, resized with anti-aliasing.
    Train: the first 30 people; test: the last ten.

    Args:
        digest: sha256 of the grey levels of all pictures, person by person.

    Source: Samaria and Harter, 1994; the split by person and the size are Augerino's.
    """

    digest: str

    def read(self, source: Path, name: str) -> Archive:
        """Read the archive at or just below `source`; see `archives.Format`."""

        def holds(folder: Path) -> bool:
            return (folder / "faces.npz").is_file() or (folder / "s1" / "1.pgm").is_file()

        folder = find_folder(source, name, holds, _WANTED)
        packed = folder / "faces.npz"
        images = _from_arrays(packed) if packed.is_file() else _from_pictures(folder)
        found = hashlib.sha256(images.tobytes()).hexdigest()
        differs = "" if found == self.digest else f"sha256 of the grey levels is {found}"
        small = np.stack([_resized(image) for image in images])[..., None]
        labels = np.repeat(np.arange(_PEOPLE, dtype=np.int32), _EACH)
        cut = _TRAIN * _EACH
        splits = {
            split: Pictures(labels[part], lambda index, part=part: as_png(small[part][index]))
            for split, part in (("train", slice(0, cut)), ("test", slice(cut, None)))
        }
        names = tuple(f"s{person}" for person in range(1, _PEOPLE + 1))
        return Archive(splits, names, (_SIDE, _SIDE, 1), differs=differs)


def _from_arrays(path: Path) -> np.ndarray:
    """Read (400, 112, 92) uint8 in the order of people."""
    try:
        with np.load(path, allow_pickle=False) as file:
            images, person = np.asarray(file["images"]), np.asarray(file["person"])
    except Exception as error:  # zipfile and numpy raise their own kinds for damaged files
        raise ValueError(f"{path} cannot be read ({error}); want {_WANTED}.") from error
    shape = (_PEOPLE * _EACH, *_SHAPE)
    if images.shape != shape or images.dtype != np.uint8:
        raise ValueError(f"{path} has images {images.dtype} {images.shape}; want uint8 {shape}.")
    if not np.array_equal(person, np.repeat(np.arange(_PEOPLE), _EACH)):
        raise ValueError(
            f"{path} is not in the order of people; want ten pictures each of 0 .. 39."
        )
    return images


def _from_pictures(folder: Path) -> np.ndarray:
    """Read (400, 112, 92) uint8 from s1/1.pgm to s40/10.pgm."""
    from PIL import Image  # the sets can be listed without it

    images = []
    for person in range(1, _PEOPLE + 1):
        for number in range(1, _EACH + 1):
            path = folder / f"s{person}" / f"{number}.pgm"
            try:
                with Image.open(path) as picture:
                    pixels = np.asarray(picture.convert("L"))
            except (OSError, SyntaxError) as error:
                raise ValueError(f"{path} cannot be read ({error}); want {_WANTED}.") from error
            if pixels.shape != _SHAPE:
                raise ValueError(f"{path} is {pixels.shape}; want {_SHAPE} pixels.")
            images.append(pixels)
    return np.stack(images)


def _resized(image: np.ndarray) -> np.ndarray:
    from PIL import Image

    height, width = _SHAPE
    top = (height - width) // 2
    square = Image.fromarray(image[top : top + width])
    return np.asarray(square.resize((_SIDE, _SIDE), Image.Resampling.BOX))
