"""Archives of data sets as they are downloaded: the contract, and the formats of pixel arrays.

A format reads a folder or packed file and gives an `Archive`: encoded pictures with their labels,
and in which way they differ from the official contents, if they do.
"""

import dataclasses
import gzip
import hashlib
import io
import tarfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

__all__ = ["Archive", "CifarBinary", "Format", "Idx", "Pictures", "as_png", "find_folder"]


@dataclasses.dataclass(frozen=True)
class Pictures:
    """One split of an archive.

    Attributes:
        labels: (N,) int32.
        encoded: index -> the bytes of a PNG or JPEG file that was seen to decode.
    """

    labels: np.ndarray
    encoded: Callable[[int], bytes]


@dataclasses.dataclass(frozen=True)
class Archive:
    """The contents of an archive.

    Attributes:
        splits: by TFDS's names of splits.
        class_names: one per label.
        shape: (H, W, C) of every picture.
        encoding: "png" or "jpeg".
        differs: how the contents differ from the official ones, or why that is unknown; "" if
            they are the official ones, or none are official.
        class_words: readable names where class_names are codes, else empty.
    """

    splits: Mapping[str, Pictures]
    class_names: tuple[str, ...]
    shape: tuple[int, int, int]
    encoding: str = "png"
    differs: str = ""
    class_words: tuple[str, ...] = ()


class Format(Protocol):
    """How one kind of archive is read."""

    def read(self, source: Path, name: str) -> Archive:
        """Read the archive at or just below `source`; where several are, the one called `name`.

        Raises:
            ValueError: one line, if a file is missing, damaged, or not what it should be.
        """
        ...


def find_folder(source: Path, name: str, holds: Callable[[Path], bool], wanted: str) -> Path:
    """Return the folder at `source`, or up to two below it, that holds an archive.

    Args:
        source: a folder, or a file in it.
        name: chosen among several archives, if a folder is called so.
        holds: whether a folder holds the archive.
        wanted: the files looked for, in words.

    Raises:
        ValueError: if there is none, or more than one.
    """
    if not source.exists():
        raise ValueError(f"--from {source} does not exist; give the folder that holds {wanted}.")
    folder = source.parent if source.is_file() else source
    for places in ([folder], folder.glob("*"), folder.glob("*/*")):
        hits = [path for path in sorted(places) if path.is_dir() and holds(path)]
        chosen = [path for path in hits if name in path.relative_to(folder).parts] or hits
        if len(chosen) > 1:
            where = ", ".join(str(path) for path in chosen)
            raise ValueError(f"--from {source} leads to several archives: {where}; give one.")
        if chosen:
            return chosen[0]
    raise ValueError(f"--from {source} holds no such archive; give the folder with {wanted}.")


def _unpacked(path: Path) -> bytes:
    """Return the bytes of a file, gunzipped if they are gzipped, whatever its name."""
    data = path.read_bytes()
    if data[:2] != b"\x1f\x8b":
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is damaged or cut short ({error}); get it again.") from error


def _checked_labels(labels: np.ndarray, classes: int, path: object) -> np.ndarray:
    bad = np.flatnonzero(labels >= classes)
    if bad.size:
        raise ValueError(
            f"{path}: label {labels[bad[0]]} at example {bad[0]}; want 0 .. {classes - 1}."
        )
    return labels.astype(np.int32)


def as_png(pixels: np.ndarray) -> bytes:
    """Encode (H, W, 1) or (H, W, 3) uint8."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(buffer, "PNG")
    return buffer.getvalue()


def _as_pictures(images: np.ndarray, labels: np.ndarray) -> Pictures:
    return Pictures(labels, lambda index: as_png(images[index]))


def _digest_line(name: str, digest: str, official: str) -> str:
    return f"{name} has sha256 {digest[:12]}..., the official one {official[:12]}..."


@dataclasses.dataclass(frozen=True)
class Idx:
    """MNIST's four idx files, gzipped or not: train and t10k, images and labels.

    Args:
        digests: file name without ending -> sha256 of its uncompressed contents.
        class_names: one per label.

    Convention: bytes 0, 0, 8 and the number of dimensions, then each dimension as 4 bytes, then
        the values; all big-endian.
    """

    digests: Mapping[str, str]
    class_names: tuple[str, ...]

    def read(self, source: Path, name: str) -> Archive:
        """Read the archive at or just below `source`; see `Format`."""
        stems = tuple(self.digests)
        wanted = ", ".join(f"{stem}.gz" for stem in stems)
        folder = find_folder(
            source, name, lambda p: any(_idx_file(p, stem) for stem in stems), wanted
        )
        arrays, differs = {}, ""
        for stem, official in self.digests.items():
            path = _idx_file(folder, stem)
            if path is None:
                raise ValueError(f"{folder / stem}.gz is missing; want {wanted}.")
            data = _unpacked(path)
            arrays[stem] = _idx_array(data, 3 if "images" in stem else 1, path)
            digest = hashlib.sha256(data).hexdigest()
            differs = differs or (digest != official and _digest_line(stem, digest, official)) or ""
        splits = {}
        for split, prefix in (("train", "train"), ("test", "t10k")):
            images = arrays[f"{prefix}-images-idx3-ubyte"]
            labels = arrays[f"{prefix}-labels-idx1-ubyte"]
            if len(images) != len(labels) or images.shape[1:] != (28, 28):
                raise ValueError(
                    f"{folder}: {prefix} has images {images.shape} and {len(labels)} labels; want "
                    "(N, 28, 28) and N."
                )
            labels = _checked_labels(labels, len(self.class_names), f"{folder}, {prefix}")
            splits[split] = _as_pictures(images[..., None], labels)
        return Archive(splits, self.class_names, (28, 28, 1), differs=differs)


def _idx_file(folder: Path, stem: str) -> Path | None:
    """Return the file of that name; some mirrors write a dot before idx, or drop the .gz."""
    names = [stem, stem.replace("-idx", ".idx")]
    paths = [folder / f"{name}{ending}" for name in names for ending in (".gz", "")]
    return next((path for path in paths if path.is_file()), None)


def _idx_array(data: bytes, dimensions: int, path: Path) -> np.ndarray:
    header = 4 + 4 * dimensions
    if len(data) < header or data[:4] != bytes((0, 0, 8, dimensions)):
        raise ValueError(
            f"{path} is no idx file of {dimensions} dimension(s): it begins with "
            f"{data[:4].hex(' ')}, want 00 00 08 0{dimensions}; get it again."
        )
    shape = tuple(int(size) for size in np.frombuffer(data, ">u4", dimensions, 4))
    values = np.frombuffer(data, np.uint8, offset=header)
    if values.size != np.prod(shape) or not values.size:
        raise ValueError(
            f"{path} holds {values.size} values, its header says {shape}; get it again."
        )
    return values.reshape(shape)


@dataclasses.dataclass(frozen=True)
class CifarBinary:
    """CIFAR-10's binary version: cifar-10-binary.tar.gz, or the folder of .bin files in it.

    Records of 3073 bytes: a label, then 1024 bytes each of red, green and blue, row by row. Only
    the packed file has a published digest, so an unpacked folder counts as unknown.

    Args:
        digest: sha256 of the .tar.gz.
        class_names: one per label.
    """

    digest: str
    class_names: tuple[str, ...]
    packed: str = "cifar-10-binary.tar.gz"

    def read(self, source: Path, name: str) -> Archive:
        """Read the archive at or just below `source`; see `Format`."""
        batches = {
            "train": [f"data_batch_{number}.bin" for number in range(1, 6)],
            "test": ["test_batch.bin"],
        }
        names = [file for files in batches.values() for file in files]
        folder = find_folder(
            source,
            name,
            lambda p: any((p / file).is_file() for file in [self.packed, *names]),
            f"{self.packed}, or {names[0]} .. {names[-1]}",
        )
        packed = folder / self.packed
        data = _tar_members(packed, names) if packed.is_file() else _bin_files(folder, names)
        splits = {}
        for split, files in batches.items():
            rows = np.concatenate([_cifar_records(data[file], folder / file) for file in files])
            labels = _checked_labels(rows[:, 0], len(self.class_names), f"{folder}, {split}")
            images = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
            splits[split] = (np.ascontiguousarray(images), labels)
        differs = self._differs(packed, splits["train"][0], len(splits["test"][1]))
        pictures = {split: _as_pictures(*arrays) for split, arrays in splits.items()}
        return Archive(pictures, self.class_names, (32, 32, 3), differs=differs)

    def _differs(self, packed: Path, train: np.ndarray, test_size: int) -> str:
        if packed.is_file():
            digest = hashlib.sha256(packed.read_bytes()).hexdigest()
            return "" if digest == self.digest else _digest_line(packed.name, digest, self.digest)
        if (len(train), test_size) != (50_000, 10_000):
            return f"{len(train)} train and {test_size} test pictures, officially 50000 and 10000"
        # Published with four digits in many places; re-encoded pictures miss them.
        means = tuple(round(float(mean), 4) for mean in train.mean((0, 1, 2), np.float64) / 255)
        if means != (0.4914, 0.4822, 0.4465):
            return f"mean intensities of train are {means}, officially (0.4914, 0.4822, 0.4465)"
        return f"only {self.packed} can be compared with a published sha256, unpacked files cannot"


def _tar_members(packed: Path, names: Sequence[str]) -> dict[str, bytes]:
    data: dict[str, bytes] = {}
    try:
        with tarfile.open(packed) as tar:
            for member in tar:
                file = tar.extractfile(member) if Path(member.name).name in names else None
                if file is not None:
                    data[Path(member.name).name] = file.read()
    except (tarfile.TarError, KeyError, EOFError, OSError, zlib.error) as error:
        line = " ".join(str(error).split())  # tarfile writes a line for every method it tried
        raise ValueError(f"{packed} is damaged or cut short ({line}); get it again.") from error
    return _complete(data, names, packed)


def _bin_files(folder: Path, names: Sequence[str]) -> dict[str, bytes]:
    there = [file for file in names if (folder / file).is_file()]
    return _complete({file: _unpacked(folder / file) for file in there}, names, folder)


def _complete(data: dict[str, bytes], names: Sequence[str], where: Path) -> dict[str, bytes]:
    missing = [file for file in names if file not in data]
    if missing:
        raise ValueError(f"{where} lacks {', '.join(missing)}; want {', '.join(names)}.")
    return data


def _cifar_records(data: bytes, path: Path) -> np.ndarray:
    if not data or len(data) % 3073:
        raise ValueError(
            f"{path} holds {len(data)} bytes, no whole number of 3073-byte records; get it again."
        )
    return np.frombuffer(data, np.uint8).reshape(-1, 3073)
