"""Prepared sets on disk, in TFDS's layout, read whole into memory and without TensorFlow.

DATA_DIR/NAME/VERSION, or DATA_DIR/NAME/CONFIG/VERSION, in array_record or in TFDS's own default,
TFRecord. A set prepared here also holds prepared.json, with what TFDS has no place for.
"""

import concurrent.futures
import dataclasses
import difflib
import fcntl
import hashlib
import importlib
import io
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flowjax_inv.data.recipes import GENERATED, SETS
from flowjax_inv.data.records import read_records
from flowjax_inv.data.sets import DataSet, Split

__all__ = [
    "LOCK",
    "PREPARED_JSON",
    "Description",
    "data_dir_path",
    "describe",
    "find",
    "load",
    "set_folders",
    "unfinished",
    "verify",
]

LOCK = "lock"  # in a folder that is being written, held by the process that writes
PREPARED_JSON = "prepared.json"
_COMMAND = "python -m flowjax_inv.data prepare"


@dataclasses.dataclass(frozen=True)
class Description:
    """What the files of a prepared set say about it.

    Attributes:
        folder: the version's own folder.
        name, version: of the set.
        sizes: images by split.
        shards: by split, the files in order with the images in each.
        shape: (H, W, C) of every image.
        class_names: one per label.
        image_key, label_key: names of the two features.
        file_format: "array_record" or "tfrecord".
        note: how it differs from the official contents, as said when it was prepared; "" if not.
        digests: file name -> sha256, of sets prepared here.
    """

    folder: Path
    name: str
    version: str
    sizes: Mapping[str, int]
    shards: Mapping[str, Sequence[tuple[Path, int]]]
    shape: tuple[int, int, int]
    class_names: tuple[str, ...]
    image_key: str
    label_key: str
    file_format: str
    note: str
    digests: Mapping[str, str]

    @property
    def test_split(self) -> str:
        """Name of the split used as test: "test", else "validation"."""
        return "test" if "test" in self.sizes else "validation"


def data_dir_path(data_dir: str | Path | None = None) -> Path:
    """Return the folder of prepared sets: `data_dir`, else TFDS_DATA_DIR, else TFDS's default.

    Raises:
        ValueError: if it, or a folder it would be in, is a file.
    """
    chosen = data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    path = Path(chosen).expanduser().absolute()
    there = next(part for part in (path, *path.parents) if os.path.exists(part))
    if os.path.isfile(there):
        raise ValueError(f"data sets cannot be in {path}: {there} is a file; give another folder.")
    return path


def set_folders(root: Path) -> list[Path]:
    """Return the folders below a set's own (or below the data dir) that hold dataset_info.json."""
    patterns = ("dataset_info.json", *("*/" * depth + "dataset_info.json" for depth in (1, 2, 3)))
    found = {path.parent for pattern in patterns for path in root.glob(pattern)}
    return sorted(
        path
        for path in found
        if not any(part.startswith((".", "incomplete.")) for part in path.relative_to(root).parts)
    )


def unfinished(root: Path) -> str:
    """Say what is in the folder of a set, or in its place, where no prepared set is.

    Returns:
        The end of a sentence that begins with the set's name; "" if nothing is there.
    """
    if os.path.isfile(root):
        return f"cannot be there: {root} is a file; move it away."
    folders = sorted(path for path in root.glob("*") if path.is_dir())
    for folder in folders:
        if _is_locked(folder):
            return f"is being prepared by another process, in {folder}; wait until it ends."
    if not folders:
        return ""
    left = folders[0]
    if left.name.startswith("incomplete."):
        return f"is half-written: {left} was left unfinished; remove it and prepare the set again."
    return (
        f"is half-written: {left} has no dataset_info.json; move it away and prepare the set again."
    )


def _is_locked(folder: Path) -> bool:
    try:
        with open(folder / LOCK) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # nobody writes there, or it cannot be known
        return False
    return False


def find(name: str, data_dir: str | Path | None = None) -> Path:
    """Return the folder of a prepared set, the newest version.

    Args:
        name: of the set, or name/config, name/version, name:version.
        data_dir: see `data_dir_path`.

    Raises:
        ValueError: if there is none, with the command that makes it, or only an unfinished one,
            or several configs.
    """
    place = data_dir_path(data_dir)
    parts = name.replace(":", "/").split("/")
    if not all(re.fullmatch(r"\w[\w.+-]*", part) for part in parts):
        raise ValueError(f'data set "{name}" is no name; want NAME, NAME/CONFIG or NAME/VERSION.')
    root = place.joinpath(*parts)
    folders = set_folders(root)
    if not folders:
        raise ValueError(_missing(name, place, root, f" --data_dir {place}" if data_dir else ""))
    if len({folder.parent for folder in folders}) > 1:
        configs = ", ".join(sorted(str(f.parent.relative_to(place)) for f in folders))
        raise ValueError(f'data set "{name}" has several configs; give one of: {configs}.')
    return max(folders, key=lambda f: [int(n) for n in re.findall(r"\d+", f.name)])


def _missing(name: str, place: Path, root: Path, at: str) -> str:
    instead = unfinished(root)
    if instead:
        return f'data set "{name}" {instead}'
    first = name.replace(":", "/").split("/")[0]
    stored = {folder.relative_to(place).parts[0] for folder in set_folders(place)}
    known = sorted({*SETS, *GENERATED, *stored} - {"folder"})
    near = difflib.get_close_matches(first, known, n=1, cutoff=0.6)
    if first in SETS and first != "folder":
        advice = f"make it: {_COMMAND} {first} --from PATH{at}"
    elif near:
        advice = f"did you mean {near[0]}?"
    else:
        advice = (
            f"known: {', '.join(known)}; own pictures: "
            f"{_COMMAND} folder --from PATH --name {first}{at}"
        )
    return f'data set "{name}" is not in {place}; {advice}'


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ValueError(f"{path} is missing; prepare the set again.") from error
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read ({error}); prepare the set again.") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no JSON object; prepare the set again.")
    return content


def describe(folder: Path) -> Description:
    """Read what the JSON files of a prepared set say, without touching its records.

    Raises:
        ValueError: one line, if a file is missing or broken, or the set is not of images of one
            size with one label each.
    """
    info = _json(folder / "dataset_info.json")
    _json(folder / "features.json")  # TFDS's own words for a broken one mislead
    import tensorflow_datasets as tfds

    try:
        # TFDS types every one of these as a union of all nested kinds.
        read: Any = tfds.builder_from_directory(folder).info
        features, splits = dict(read.features or {}), read.splits
        keys = read.supervised_keys or ("image", "label")
        file_format = str(info.get("fileFormat", "tfrecord"))
        shards = {
            split: list(zip(map(Path, part.filepaths), part.shard_lengths, strict=True))
            for split, part in splits.items()
        }
    except Exception as error:  # TFDS raises every kind for files it does not expect
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{folder} is no set TFDS can read ({line}); prepare it again.") from error
    image, label = (features.get(key) for key in keys[:2])
    if not isinstance(image, tfds.features.Image) or not isinstance(
        label, tfds.features.ClassLabel
    ):
        raise ValueError(
            f"{folder}: features {keys[0]} and {keys[1]} are {type(image).__name__} and "
            f"{type(label).__name__}; want one Image and one ClassLabel."
        )
    tensor: Any = image.get_tensor_info()
    shape, dtype = tensor.shape, np.dtype(tensor.np_dtype)
    if None in shape or len(shape) != 3 or shape[2] not in (1, 3) or dtype != np.uint8:
        raise ValueError(
            f"{folder}: images are {dtype} {shape}; want uint8 of one size, with "
            "1 or 3 channels: resize them and prepare them as a folder."
        )
    if file_format not in ("array_record", "tfrecord"):
        raise ValueError(
            f"{folder} is stored as {file_format}; want array_record or tfrecord: prepare it again."
        )
    own = _json(folder / PREPARED_JSON) if (folder / PREPARED_JSON).exists() else {}
    words, digests = own.get("class_words") or label.names, own.get("sha256", {})
    if not isinstance(words, list) or not isinstance(digests, dict):
        raise ValueError(f"{folder / PREPARED_JSON} is damaged; prepare the set again.")
    return Description(
        folder=folder,
        name=str(info.get("name", folder.parent.name)),
        version=str(info.get("version", folder.name)),
        sizes={split: sum(length for _, length in files) for split, files in shards.items()},
        shards=shards,
        shape=(shape[0], shape[1], shape[2]),
        class_names=tuple(words),
        image_key=keys[0],
        label_key=keys[1],
        file_format=file_format,
        note=str(own.get("note", "")),
        digests=digests,
    )


def load(name: str, data_dir: str | Path | None = None) -> DataSet:
    """Read a prepared set: images (N, H, W, C) uint8 and labels (N,) int32.

    The splits are TFDS's train and test, or train and validation where there is no test. The order
    is that of the archive: sets prepared here are stored in it; TFDS's own preparation shuffles,
    which ids such as train_00017 undo. Without them the set `may_be_shuffled`.

    Args:
        name: see `find`.
        data_dir: see `data_dir_path`.

    Raises:
        ValueError: one line, if the set is missing, half-written, damaged, or not of images of
            one size with one label each.
    """
    return _load(describe(find(name, data_dir)))


def _load(described: Description) -> DataSet:
    for split in ("train", described.test_split):
        if not described.sizes.get(split):
            raise ValueError(
                f"{described.folder} has the splits {dict(described.sizes)}; want train, and test "
                "or validation, none of them empty."
            )
    train, ordered = _read_split(described, "train")
    return DataSet(
        train,
        _read_split(described, described.test_split)[0],
        described.class_names,
        note=described.note,
        may_be_shuffled=not (ordered or described.digests),
    )


def _read_split(described: Description, split: str) -> tuple[Split, bool]:
    """Return a split, and whether ids gave its order."""
    # Generated code: checkers do not see what is in it.
    proto: Any = importlib.import_module("tensorflow_datasets.proto").tf_example_pb2
    images = np.empty((described.sizes[split], *described.shape), np.uint8)
    labels = np.empty(len(images), np.int32)
    numbers = np.full(len(images), -1, np.int64)
    numbered = re.compile(rf"{re.escape(split)}_(\d{{1,18}})".encode())

    def fill(start: int, records: list[bytes], path: Path) -> None:
        for index, record in enumerate(records, start):
            try:
                feature = proto.Example.FromString(record).features.feature
                encoded = feature[described.image_key].bytes_list.value[0]
                labels[index] = feature[described.label_key].int64_list.value[0]
                images[index] = _decoded(encoded, described.shape[2])
                number = numbered.fullmatch(b"".join(feature["id"].bytes_list.value))
                numbers[index] = int(number[1]) if number else -1
            except Exception as error:  # PIL and protobuf raise nearly every kind
                reason = re.sub(" <.*>", "", str(error))  # PIL shows the buffer's address
                raise ValueError(
                    f"{path}: example {index} of {split} cannot be decoded ({reason}); prepare the "
                    "set again."
                ) from error

    # Decoding lets go of the interpreter's lock for larger pictures.
    with concurrent.futures.ThreadPoolExecutor(min(os.cpu_count() or 1, 8)) as pool:
        start, jobs = 0, []
        for path, length in described.shards[split]:
            for records in _checked_records(path, length, described.file_format):
                jobs.append(pool.submit(fill, start, records, path))
                start += len(records)
        for job in jobs:
            job.result()
    classes = len(described.class_names)
    if labels.min() < 0 or labels.max() >= classes:
        raise ValueError(
            f"{described.folder}: labels of {split} span {labels.min()} .. {labels.max()}; want "
            f"0 .. {classes - 1}: prepare the set again."
        )
    ordered = bool(numbers.min() >= 0) and len(np.unique(numbers)) == len(numbers)
    if ordered and (np.diff(numbers) < 0).any():
        order = np.argsort(numbers)
        images, labels = images[order], labels[order]
    return Split(images, labels), ordered


def _decoded(encoded: bytes, channels: int) -> np.ndarray:
    """Decode to (H, W, C); some JPEGs of colour sets are grey."""
    from PIL import Image

    with Image.open(io.BytesIO(encoded)) as picture:
        mode = "L" if channels == 1 else "RGB"
        pixels = np.asarray(picture if picture.mode == mode else picture.convert(mode))
    return pixels[..., None] if channels == 1 else pixels


def _checked_records(path: Path, length: int, file_format: str) -> Iterator[list[bytes]]:
    """Yield the records of a shard in chunks; refuse a shard that does not hold `length`."""
    if not path.is_file():
        raise ValueError(f"{path} is missing; prepare the set again.")
    count = 0
    try:
        for records in read_records(path, file_format):
            count += len(records)
            yield records if count <= length else records[: len(records) - (count - length)]
    except (RuntimeError, IndexError, ValueError) as error:
        line = " ".join(str(error).split())
        raise ValueError(f"{path} is damaged ({line}); prepare the set again.") from error
    if count != length:
        raise ValueError(
            f"{path} holds {count} records, dataset_info.json says {length}; prepare the set again."
        )


def verify(folder: Path) -> Description:
    """Read every record of a prepared set, and compare its files with their digests, if known.

    Raises:
        ValueError: one line that names the first thing wrong.
    """
    described = describe(folder)
    for name, digest in described.digests.items():
        path = folder / name
        if not path.is_file():
            raise ValueError(f"{path} is missing; prepare the set again.")
        with open(path, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                raise ValueError(f"{path} has changed since it was prepared; prepare it again.")
    _load(described)
    return described
