"""From an official archive to a prepared set: TFDS's layout in array_record, order kept.

Nothing that looks finished is ever half-made: all is written into DATA_DIR/NAME/incomplete.*,
read back, and renamed.
"""

import contextlib
import fcntl
import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flowjax_inv.data.archives import Archive, Pictures
from flowjax_inv.data.recipes import GENERATED, SETS, Recipe
from flowjax_inv.data.records import read_records
from flowjax_inv.data.stored import LOCK, PREPARED_JSON, data_dir_path, describe

__all__ = ["prepare"]


def prepare(
    recipe: str,
    source: str | Path,
    *,
    data_dir: str | Path | None = None,
    name: str = "",
    allow_unknown: bool = False,
) -> tuple[Path, bool]:
    """Write the set of an archive, unless it is there.

    Args:
        recipe: one of `recipes.SETS`.
        source: folder that holds the archive, or the packed file.
        data_dir: see `stored.data_dir_path`.
        name: under which the set is stored; default: the recipe's own. Needed for "folder".
        allow_unknown: whether to take contents that are not known to be the official ones; the
            set then says so wherever it is read.

    Returns:
        The folder of the set, and whether it was written now.

    Raises:
        ValueError: one line, if the archive or the name is not as it should be, or something
            else is in the place of the set.
        OSError: if writing fails; nothing is left of the attempt.
    """
    if recipe not in SETS:
        raise ValueError(f'"{recipe}" is no set known here; known: {", ".join(SETS)}.')
    chosen, name = SETS[recipe], _checked_name(recipe, name)
    target = data_dir_path(data_dir) / name / chosen.version
    if _is_there(target):
        return target, False
    archive = chosen.format.read(Path(source).expanduser().absolute(), recipe)
    if archive.differs and not allow_unknown:
        raise ValueError(
            f"{source} is not known to be the official {recipe}: {archive.differs}; "
            "--allow-unknown takes it all the same, and the set will say so."
        )
    with _incomplete(target) as folder:
        _write(archive, chosen, name, folder, target)
        if _is_there(target):  # another process was faster
            return target, False
        (folder / LOCK).unlink()
        folder.rename(target)
    return target, True


def _checked_name(recipe: str, name: str) -> str:
    if recipe == "folder" and not name:
        raise ValueError("a folder of pictures wants a name of its own: --name NAME.")
    name = name or recipe
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        raise ValueError(f'--name {name}: want lower-case letters, digits and "_", as my_set.')
    if name != recipe and name in SETS:
        raise ValueError(f"--name {name} is the name of an official set; take another.")
    if name in GENERATED:
        raise ValueError(f"--name {name} is the name of a generated set; take another.")
    return name


def _is_there(target: Path) -> bool:
    """Return whether the finished set is there; refuse to touch anything else in its place."""
    if target.parent.is_file():
        raise ValueError(f"{target.parent} is a file, where the set's folder goes; move it away.")
    if not target.exists():
        return False
    if not (target / "dataset_info.json").is_file():
        raise ValueError(
            f"{target} is there, but is no prepared set (no dataset_info.json); move it away."
        )
    return True


@contextlib.contextmanager
def _incomplete(target: Path) -> Iterator[Path]:
    """Give a folder to write into beside the target; remove it, and those of killed processes.

    A live process holds a lock on a file in its folder; the system lets go of it when it dies.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    for left in target.parent.glob(f"incomplete.{target.name}.*"):
        with contextlib.suppress(OSError), open(left / LOCK, "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"incomplete.{target.name}.", dir=target.parent))
    folder.chmod(0o755)
    try:
        with open(folder / LOCK, "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            target.parent.rmdir()  # succeeds only if we made it and nothing came


def _write(archive: Archive, recipe: Recipe, name: str, folder: Path, target: Path) -> None:
    import tensorflow_datasets as tfds
    from etils import epath
    from tensorflow_datasets.core.dataset_info import DatasetIdentity
    from tensorflow_datasets.core.splits import SplitDict

    fields: dict[str, Any] = {
        "image": tfds.features.Image(shape=archive.shape, encoding_format=archive.encoding),
        "label": tfds.features.ClassLabel(names=list(archive.class_names)),
    }
    if recipe.ids:
        fields["id"] = tfds.features.Text()
    features = tfds.features.FeaturesDict(fields)
    note = archive.differs and f"not known to be the official contents: {archive.differs}"
    infos, digests = [], {}
    for split, pictures in archive.splits.items():
        path = folder / f"{name}-{split}.array_record-00000-of-00001"
        num_bytes = _write_records(path, split, pictures, features, ids=recipe.ids)
        template = tfds.core.ShardedFileTemplate(
            dataset_name=name,
            data_dir=epath.Path(folder),
            split=split,
            filetype_suffix="array_record",
        )
        infos.append(
            tfds.core.SplitInfo(
                name=split,
                shard_lengths=[len(pictures.labels)],
                num_bytes=num_bytes,
                filename_template=template,
            )
        )
        with open(path, "rb") as file:
            digests[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    info = tfds.core.DatasetInfo(
        builder=DatasetIdentity(
            name=name,
            version=tfds.core.Version(recipe.version),
            data_dir=str(folder),
            module_name=__name__,
        ),
        description=f"{recipe.description} {note}".strip(),
        features=features,
        supervised_keys=("image", "label"),
        homepage=recipe.homepage,
    )
    info.set_file_format(tfds.core.FileFormat.ARRAY_RECORD)
    info.set_splits(SplitDict(infos))
    info.write_to_directory(folder)
    own = {"note": note, "sha256": digests, "class_words": archive.class_words}
    (folder / PREPARED_JSON).write_text(json.dumps(own, indent=1) + "\n", encoding="utf-8")
    described = describe(folder)
    if described.sizes != {split: len(part.labels) for split, part in archive.splits.items()}:
        raise OSError(f"{target} was written, but TFDS reads its sizes as {described.sizes}.")


def _write_records(path: Path, split: str, pictures: Pictures, features: Any, *, ids: bool) -> int:
    """Write a split, read it back, and return its bytes."""
    from array_record.python.array_record_module import ArrayRecordWriter

    num_bytes, example = 0, b""
    try:
        writer = ArrayRecordWriter(str(path), "group_size:1")
        for index, label in enumerate(pictures.labels):
            fields = {"image": pictures.encoded(index), "label": int(label)}
            if ids:
                fields["id"] = f"{split}_{index:05d}"
            example = features.serialize_example(fields)
            writer.write(example)
            num_bytes += len(example)
        writer.close()
        count, last = 0, b""
        for records in read_records(path, "array_record"):
            count, last = count + len(records), records[-1]
    except RuntimeError as error:  # the kind of array_record for a full disk too
        raise OSError(f"{path} cannot be written ({' '.join(str(error).split())}).") from error
    if (count, last) != (len(pictures.labels), example):
        raise OSError(f"{path} was written, but reads back with {count} records or another last.")
    return num_bytes
