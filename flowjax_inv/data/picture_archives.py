"""Archives that are folders of encoded pictures: Tiny ImageNet, and anyone's own pictures."""

import hashlib
import io
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from flowjax_inv.data.archives import Archive, Pictures, as_png, find_folder
from flowjax_inv.data.user_pictures import open_within_limit

__all__ = ["PictureFolder", "TinyImageNet"]


class TinyImageNet:
    """Stanford's tiny-imagenet-200: the .zip, or the folder in it.

    Pictures are kept as they come, some of them grey. The official test pictures have no labels
    and are left out. Training pictures are put in rounds, one of each class: the file order is by
    class, so that a first part of it would lack most classes. Only the .zip has a known digest.

    Convention: labels number the wnids in sorted order, as folders of classes usually are.
    """

    packed = "tiny-imagenet-200.zip"
    md5 = "90528d7ca1a48142e341f4ef8d21d0de"

    def read(self, source: Path, name: str) -> Archive:
        """Read the archive at or just below `source`; see `Format`."""
        folder = find_folder(
            source,
            name,
            lambda p: (p / self.packed).is_file() or (p / "wnids.txt").is_file(),
            f"{self.packed}, or the folder tiny-imagenet-200 with wnids.txt",
        )
        packed = folder / self.packed
        names, get = _zip_files(packed) if packed.is_file() else _folder_files(folder)
        wnids = sorted(_text(get, "wnids.txt", folder).split())
        label = {wnid: number for number, wnid in enumerate(wnids)}
        lines = [line.split("\t") for line in _text(get, "words.txt", folder).splitlines()]
        words = {line[0]: line[1].split(",")[0] for line in lines if len(line) > 1}
        readable = tuple(words.get(wnid, wnid) for wnid in wnids)

        train: dict[str, list[tuple[int, str]]] = {wnid: [] for wnid in wnids}
        for file in names:
            match = re.fullmatch(r"train/(n\d+)/images/\w+_(\d+)\.JPEG", file)
            if match and match[1] in train:
                train[match[1]].append((int(match[2]), file))
        empty = [wnid for wnid, files in train.items() if not files]
        if empty:
            raise ValueError(f"{folder}: no pictures in train/{empty[0]}/images; get it again.")
        order = _in_rounds([[file for _, file in sorted(files)] for files in train.values()])
        labels = [label[file.split("/")[1]] for file in order]
        rows = _text(get, "val/val_annotations.txt", folder).splitlines()
        validation = [row.split("\t")[:2] for row in rows if row.strip()]
        foreign = [row for row in validation if len(row) < 2 or row[1] not in label]
        if foreign or not validation:
            got = "\t".join(foreign[0]) if foreign else "nothing"
            raise ValueError(f"{folder}: val_annotations.txt says {got!r}; want FILE, tab, wnid.")
        splits = {
            "train": _kept(order, labels, get, folder),
            "validation": _kept(
                [f"val/images/{file}" for file, _ in validation],
                [label[wnid] for _, wnid in validation],
                get,
                folder,
            ),
        }
        differs = self._differs(packed, len(order), len(validation))
        unique = readable if len(set(readable)) == len(readable) else ()
        return Archive(splits, tuple(wnids), (64, 64, 3), "jpeg", differs, unique)

    def _differs(self, packed: Path, train: int, validation: int) -> str:
        if (train, validation) != (100_000, 10_000):
            return f"{train} train and {validation} val pictures, officially 100000 and 10000"
        if packed.is_file():
            with open(packed, "rb") as file:
                digest = hashlib.file_digest(file, "md5").hexdigest()
            return "" if digest == self.md5 else f"{packed.name} has md5 {digest}, not {self.md5}"
        return f"only {self.packed} can be compared with a known md5, unpacked files cannot"


_Get = Callable[[str], bytes]


def _zip_files(packed: Path) -> tuple[list[str], _Get]:
    """Return names within the archive, below the folder of wnids.txt, and how to read one."""
    try:
        archive = zipfile.ZipFile(packed)
    except (zipfile.BadZipFile, OSError) as error:
        raise ValueError(f"{packed} is damaged or cut short ({error}); get it again.") from error
    names = archive.namelist()
    tops = [name.removesuffix("wnids.txt") for name in names if name.endswith("wnids.txt")]
    top = min(tops, key=len, default="")

    def get(name: str) -> bytes:
        try:
            return archive.read(top + name)
        except KeyError as error:
            raise FileNotFoundError(name) from error
        except (zipfile.BadZipFile, RuntimeError, zlib.error, EOFError) as error:
            raise ValueError(f"{packed}: {name} is damaged ({error}); get it again.") from error

    return [name.removeprefix(top) for name in names], get


def _folder_files(folder: Path) -> tuple[list[str], _Get]:
    def names() -> Iterable[str]:
        for place, _, files in os.walk(folder / "train"):
            inside = Path(place).relative_to(folder).as_posix()
            yield from (f"{inside}/{file}" for file in files)

    return list(names()), lambda name: (folder / name).read_bytes()


def _text(get: _Get, name: str, folder: Path) -> str:
    try:
        return get(name).decode()
    except FileNotFoundError as error:
        raise ValueError(f"{folder / name} is missing; get the archive again.") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{folder / name} is no text ({error}); get it again.") from error


def _in_rounds(files: list[list[str]]) -> list[str]:
    """Return the first of every class, then the second of every class that has one, ..."""
    longest = max(map(len, files))
    return [some[k] for k in range(longest) for some in files if k < len(some)]


def _kept(names: list[str], labels: list[int], get: _Get, folder: Path) -> Pictures:
    """Pictures whose bytes are kept as they are, 64x64, once they are seen to decode."""

    def encoded(index: int) -> bytes:
        path = folder / names[index]
        try:
            data = get(names[index])
        except FileNotFoundError as error:
            raise ValueError(f"{path} is missing; get the archive again.") from error
        size = _decoded(data, path).shape
        if size[:2] != (64, 64):
            raise ValueError(f"{path} is {size[1]}x{size[0]}; want 64x64.")
        return data

    return Pictures(np.array(labels, np.int32), encoded)


def _decoded(data: bytes, path: Path) -> np.ndarray:
    """Return (H, W, 1) or (H, W, 3) uint8, upright as its EXIF says; refuse what is neither."""
    from PIL import ImageOps, UnidentifiedImageError

    try:
        with open_within_limit(io.BytesIO(data)) as opened:
            picture = ImageOps.exif_transpose(opened)
            if picture.mode in ("P", "1", "CMYK") and "transparency" not in picture.info:
                picture = picture.convert("L" if picture.mode == "1" else "RGB")
            pixels, mode = np.asarray(picture), picture.mode
    except UnidentifiedImageError as error:
        raise ValueError(f"{path} cannot be decoded (no picture); replace or remove it.") from error
    except Exception as error:  # PIL raises nearly every kind for damaged files
        raise ValueError(f"{path} cannot be decoded ({error}); replace or remove it.") from error
    if mode not in ("L", "RGB"):
        raise ValueError(f"{path} has mode {mode}; want 8-bit grey or RGB without transparency.")
    return pixels[..., None] if pixels.ndim == 2 else pixels


class PictureFolder:
    """A folder of pictures by class: train/CLASS/*.png and test/CLASS/*.png, all of one size.

    Also .jpg, .jpeg, .bmp, .pgm, .ppm, .tif, .webp. They are turned as their EXIF says and stored
    as PNG: grey if all are grey, else RGB. Labels number the class folders in sorted order;
    pictures are sorted by name within a class and put in rounds, one of each class.
    """

    endings = (".png", ".jpg", ".jpeg", ".bmp", ".pgm", ".ppm", ".tif", ".tiff", ".webp")

    def read(self, source: Path, name: str) -> Archive:
        """Read the archive at or just below `source`; see `Format`."""
        wanted = "train/CLASS/*.png and test/CLASS/*.png"
        root = find_folder(source, name, lambda path: (path / "train").is_dir(), wanted)
        class_names = _folders(root / "train")
        strange = sorted(set(_folders(root / "test")) - set(class_names))
        if strange or not class_names:
            raise ValueError(
                f"{root}: test has class {strange[0]}, train has not; make both alike."
                if strange
                else f"{root / 'train'} holds no class folders; want {wanted}."
            )
        files = {split: self._files(root / split, class_names) for split in ("train", "test")}
        if not files["test"]:
            raise ValueError(f"{root / 'test'} holds no pictures; want {wanted}.")
        first = files["train"][0]
        size, channels = _decoded(first.read_bytes(), first).shape[:2], 1
        for path in (path for paths in files.values() for path in paths):
            shape = _decoded(path.read_bytes(), path).shape
            if shape[:2] != size:
                raise ValueError(
                    f"{path} is {shape[1]}x{shape[0]}, but {first} is {size[1]}x{size[0]}; all "
                    "pictures must have one size: resize them first."
                )
            channels = max(channels, shape[2])
        splits = {
            split: self._pictures(paths, class_names, channels) for split, paths in files.items()
        }
        return Archive(splits, class_names, (size[0], size[1], channels))

    def _files(self, folder: Path, class_names: tuple[str, ...]) -> list[Path]:
        by_class = []
        for class_name in class_names:
            paths = sorted((folder / class_name).glob("*"))
            kept = [
                p
                for p in paths
                if p.suffix.lower() in self.endings and p.is_file() and p.name[0] != "."
            ]
            if not kept and folder.name == "train":
                raise ValueError(
                    f"{folder / class_name} holds no pictures; want files ending in "
                    f"{', '.join(self.endings)}, or remove it."
                )
            by_class.append([str(path) for path in kept])
        return [Path(path) for path in _in_rounds(by_class)]

    @staticmethod
    def _pictures(paths: list[Path], class_names: tuple[str, ...], channels: int) -> Pictures:
        def encoded(index: int) -> bytes:
            pixels = _decoded(paths[index].read_bytes(), paths[index])
            return as_png(np.broadcast_to(pixels, (*pixels.shape[:2], channels)))

        labels = [class_names.index(path.parent.name) for path in paths]
        return Pictures(np.array(labels, np.int32), encoded)


def _folders(path: Path) -> tuple[str, ...]:
    if not path.is_dir():
        raise ValueError(f"{path} is no folder; want train/CLASS/*.png and test/CLASS/*.png.")
    return tuple(sorted(p.name for p in path.iterdir() if p.is_dir() and p.name[0] != "."))
