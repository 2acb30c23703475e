"""Archives: every format as it is published, and one line for each way it may be broken."""

import dataclasses
import gzip
import hashlib
import io
import re
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import small_archives as small
from PIL import Image

from flowjax_inv.data.archives import Archive, CifarBinary
from flowjax_inv.data.picture_archives import TinyImageNet
from flowjax_inv.data.recipes import SETS

WRITERS: dict[str, Callable] = {
    "mnist": small.write_idx,
    "fashion_mnist": small.write_idx,
    "olivetti": small.write_faces,
    "cifar10": small.write_cifar,
    "tiny_imagenet": small.write_tiny,
    "folder": small.write_folder,
}


def _read(name: str, source: Path) -> Archive:
    return SETS[name].format.read(source, name)


def _pixels(archive: Archive, split: str) -> np.ndarray:
    part = archive.splits[split]
    pictures = [Image.open(io.BytesIO(part.encoded(i))) for i in range(len(part.labels))]
    return np.stack([np.asarray(picture).reshape(archive.shape) for picture in pictures])


@pytest.mark.parametrize("packed", [True, False])
def test_idx_files_come_back_exactly(tmp_path: Path, packed: bool) -> None:
    arrays = small.write_idx(tmp_path / "raw", packed=packed)
    archive = _read("mnist", tmp_path)
    for split, prefix in (("train", "train"), ("test", "t10k")):
        images = arrays[f"{prefix}-images-idx3-ubyte"]
        labels = arrays[f"{prefix}-labels-idx1-ubyte"]
        np.testing.assert_array_equal(_pixels(archive, split)[..., 0], images)
        np.testing.assert_array_equal(archive.splits[split].labels, labels)
    assert archive.class_names == tuple("0123456789")
    assert re.match("train-images-idx3-ubyte has sha256 [0-9a-f]{12}", archive.differs)


def test_only_the_official_contents_are_official(tmp_path: Path) -> None:
    arrays = small.write_idx(tmp_path)
    digests = {name: hashlib.sha256(small.idx_bytes(a)).hexdigest() for name, a in arrays.items()}
    known = dataclasses.replace(SETS["mnist"].format, digests=digests)  # type: ignore[type-var]
    assert known.read(tmp_path, "mnist").differs == ""
    changed = small.idx_bytes(arrays["t10k-labels-idx1-ubyte"][::-1])
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(changed))
    assert "t10k-labels-idx1-ubyte has sha256" in known.read(tmp_path, "mnist").differs


def test_cifar_from_files_and_from_the_packed_archive(tmp_path: Path) -> None:
    splits = small.write_cifar(tmp_path / "plain" / "cifar-10-batches-bin")
    packed = tmp_path / "packed" / "cifar-10-binary.tar.gz"
    packed.parent.mkdir()
    with tarfile.open(packed, "w:gz") as tar:
        tar.add(tmp_path / "plain" / "cifar-10-batches-bin", "cifar-10-batches-bin")
    for source in (tmp_path / "plain", packed.parent, packed):
        archive = _read("cifar10", source)
        for split, (images, labels) in splits.items():
            np.testing.assert_array_equal(_pixels(archive, split), images)
            np.testing.assert_array_equal(archive.splits[split].labels, labels)
    assert "cifar-10-binary.tar.gz has sha256" in _read("cifar10", packed).differs
    assert "10 train and 2 test pictures" in _read("cifar10", tmp_path / "plain").differs
    digest = hashlib.sha256(packed.read_bytes()).hexdigest()
    assert CifarBinary(digest, tuple("0123456789")).read(packed, "cifar10").differs == ""


@pytest.mark.slow
def test_cifar_of_official_counts_is_told_by_its_mean(tmp_path: Path) -> None:
    for name in [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]:
        with open(tmp_path / f"{name}.bin", "wb") as file:
            file.truncate(10_000 * 3073)
    assert "mean intensities of train are (0.0, 0.0, 0.0)" in _read("cifar10", tmp_path).differs
    # 0.4914, 0.4822, 0.4465 of 255 are 125.307, 122.961, 113.8575: mixed from two grey levels.
    shares = {1: (125, 0.307), 2: (122, 0.961), 3: (113, 0.8575)}
    for number in range(1, 6):
        rows = np.zeros((10_000, 3073), np.uint8)
        for plane, (low, share) in shares.items():
            rows[:, 1 + 1024 * (plane - 1) : 1 + 1024 * plane] = low
            rows[: round(share * 10_000), 1 + 1024 * (plane - 1) : 1 + 1024 * plane] = low + 1
        (tmp_path / f"data_batch_{number}.bin").write_bytes(rows.tobytes())
    assert "only cifar-10-binary.tar.gz can be compared" in _read("cifar10", tmp_path).differs


def test_tiny_imagenet_keeps_bytes_and_goes_round_the_classes(tmp_path: Path) -> None:
    root = tmp_path / "tiny-imagenet-200"
    small.write_tiny(root)
    packed = tmp_path / "zip" / TinyImageNet.packed
    packed.parent.mkdir()
    with zipfile.ZipFile(packed, "w") as archive:
        for path in sorted(root.rglob("*")):
            archive.write(path, path.relative_to(tmp_path))
    for source in (root, packed.parent):
        archive = _read("tiny_imagenet", source)
        assert archive.class_names == tuple(sorted(small.WNIDS))
        assert archive.class_words == ("word1", "word2", "word3")
        assert archive.splits["train"].labels.tolist() == [0, 1, 2, 2]
        assert archive.splits["validation"].labels.tolist() == [1, 0, 2]
        second = root / "train" / "n00000003" / "images" / "n00000003_10.JPEG"
        assert archive.splits["train"].encoded(3) == second.read_bytes()
        assert archive.differs == "4 train and 3 val pictures, officially 100000 and 10000"


def test_a_folder_of_pictures(tmp_path: Path) -> None:
    small.write_folder(tmp_path)
    (tmp_path / "train" / "cats" / "notes.txt").write_text("not a picture")
    (tmp_path / "train" / "cats" / ".hidden.png").write_text("not a picture")
    archive = _read("folder", tmp_path)
    assert archive.shape == (6, 8, 3)
    assert archive.class_names == ("cats", "dogs")
    assert archive.splits["train"].labels.tolist() == [0, 1] * 3
    with Image.open(tmp_path / "train" / "dogs" / "1.png") as picture:
        np.testing.assert_array_equal(_pixels(archive, "train")[3], np.asarray(picture))


def test_grey_folders_have_one_channel_unless_one_picture_is_coloured(tmp_path: Path) -> None:
    small.write_folder(tmp_path, grey=True)
    assert _read("folder", tmp_path).shape == (6, 8, 1)
    Image.new("RGB", (8, 6), (1, 2, 3)).save(tmp_path / "test" / "dogs" / "9.png")
    archive = _read("folder", tmp_path)
    assert archive.shape == (6, 8, 3)
    assert _pixels(archive, "test")[-1][0, 0].tolist() == [1, 2, 3]


def test_a_picture_is_turned_as_its_camera_says(tmp_path: Path) -> None:
    small.write_folder(tmp_path, size=(8, 8), grey=True)
    path = tmp_path / "test" / "dogs" / "0.png"
    pixels = np.arange(64, dtype=np.uint8).reshape(8, 8)
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    Image.fromarray(pixels).save(path, exif=exif)
    shown = _pixels(_read("folder", tmp_path), "test")[1][..., 0]
    np.testing.assert_array_equal(shown, pixels[::-1, ::-1])


def _replace(path: str, data: bytes) -> Callable[[Path], object]:
    return lambda root: (root / path).write_bytes(data)


def _remove(path: str) -> Callable[[Path], object]:
    return lambda root: (
        shutil.rmtree(root / path) if (root / path).is_dir() else (root / path).unlink()
    )


def _cut(path: str, size: int = 9) -> Callable[[Path], object]:
    return lambda root: (root / path).write_bytes((root / path).read_bytes()[:-size])


def _picture(path: str, mode: str, size: tuple[int, int] = (8, 6)) -> Callable[[Path], object]:
    return lambda root: Image.new(mode, size).save(root / path)


def _dangling(root: Path) -> None:
    with tarfile.open(root / "cifar-10-binary.tar.gz", "w:gz") as tar:
        link = tarfile.TarInfo("c/data_batch_1.bin")
        link.type, link.linkname = tarfile.SYMTYPE, "nowhere"
        tar.addfile(link)


def _encrypted(root: Path) -> None:
    packed = root / "tiny-imagenet-200.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("t/wnids.txt", "n1")
    data = bytearray(packed.read_bytes())
    data[6] |= 1  # flags, of the file and in the directory
    data[data.index(b"PK\x01\x02") + 8] |= 1
    packed.write_bytes(data)


_LABELS = "train-labels-idx1-ubyte.gz"
_IMAGES = "train-images-idx3-ubyte.gz"
_JPEG = "train/n00000002/images/n00000002_9.JPEG"
BROKEN = [
    ("mnist", _remove(_LABELS), r"train-labels-idx1-ubyte.gz is missing; want train-images"),
    (
        "mnist",
        _cut(_IMAGES),
        r"train-images-idx3-ubyte.gz is damaged or cut short .*; get it",
    ),
    ("mnist", _replace(_IMAGES, b"<html>"), "is no idx file of 3 dimension.* begins with 3c 68 74"),
    ("mnist", _replace(_IMAGES, b""), "is no idx file of 3 dimension"),
    (
        "mnist",
        _replace(_LABELS, small.idx_bytes(np.zeros(7, np.uint8))[:-1]),
        r"holds 6 values, its header says \(7,\); get it again",
    ),
    (
        "mnist",
        _replace(_LABELS, small.idx_bytes(np.array([0] * 6 + [12], np.uint8))),
        "train: label 12 at example 6; want 0 .. 9",
    ),
    (
        "mnist",
        _replace(_LABELS, small.idx_bytes(np.zeros(5, np.uint8))),
        r"train has images \(7, 28, 28\) and 5 labels",
    ),
    ("cifar10", _remove("data_batch_3.bin"), "lacks data_batch_3.bin; want data_batch_1.bin"),
    ("cifar10", _cut("test_batch.bin"), "holds 6137 bytes, no whole number of 3073-byte records"),
    ("cifar10", _replace("test_batch.bin", b""), "holds 0 bytes, no whole number"),
    ("cifar10", _replace("test_batch.bin", b"\xff" * 3073), "test: label 255 at example 0; want 0"),
    (
        "cifar10",
        _replace("cifar-10-binary.tar.gz", b"\x1f\x8bno archive"),
        "cifar-10-binary.tar.gz is damaged or cut short",
    ),
    (
        "cifar10",
        _dangling,
        r"cifar-10-binary.tar.gz is damaged or cut short \(.*nowhere' not found",
    ),
    ("tiny_imagenet", _remove("words.txt"), "words.txt is missing; get the archive again"),
    ("tiny_imagenet", _replace("words.txt", b"\xff\xfe\x00"), "words.txt is no text"),
    ("tiny_imagenet", _remove("train/n00000002"), "no pictures in train/n00000002/images"),
    (
        "tiny_imagenet",
        _replace("val/val_annotations.txt", b"val_0.JPEG\tn7\n"),
        r"val_annotations.txt says 'val_0.JPEG\\tn7'; want FILE, tab, wnid",
    ),
    ("tiny_imagenet", _replace("val/val_annotations.txt", b""), "says 'nothing'; want FILE"),
    ("tiny_imagenet", _remove("val/images/val_1.JPEG"), "val_1.JPEG is missing; get the archive"),
    ("tiny_imagenet", _cut(_JPEG), r"n00000002_9.JPEG cannot be decoded \(.*\); replace or remove"),
    ("tiny_imagenet", _picture(_JPEG, "RGB", (64, 60)), "n00000002_9.JPEG is 64x60; want 64x64"),
    (
        "tiny_imagenet",
        _replace("tiny-imagenet-200.zip", b"PK no archive"),
        "tiny-imagenet-200.zip is damaged or cut short",
    ),
    ("tiny_imagenet", _encrypted, r"tiny-imagenet-200.zip: wnids.txt is damaged \(.*encrypted"),
    ("folder", _remove("train"), "holds no such archive; give the folder with train/CLASS"),
    ("folder", _remove("test"), "test is no folder; want train/CLASS"),
    ("folder", _remove("test/cats/0.png"), None),
    ("folder", lambda root: (root / "test/dogs/more.png").mkdir(), None),
    ("folder", lambda root: (root / "test/birds").mkdir(), "test has class birds, train has not"),
    ("folder", lambda root: (root / "train/birds").mkdir(), "train/birds holds no pictures"),
    (
        "folder",
        _picture("test/dogs/0.png", "RGB", (9, 6)),
        r"test/dogs/0.png is 9x6, but .*train/cats/0.png is 8x6; .* resize them first",
    ),
    ("folder", _picture("test/dogs/0.png", "RGBA"), "0.png has mode RGBA; want 8-bit grey or RGB"),
    ("folder", _picture("test/dogs/0.png", "I;16"), "0.png has mode I;16; want 8-bit grey or RGB"),
    ("folder", _replace("test/dogs/0.png", b"text"), "test/dogs/0.png cannot be decoded"),
    ("folder", _cut("test/dogs/0.png", 60), "test/dogs/0.png cannot be decoded"),
]


@pytest.mark.parametrize(("name", "damage", "text"), BROKEN)
def test_broken_archives(tmp_path: Path, name: str, damage: Callable, text: str | None) -> None:
    root = tmp_path / "root"
    WRITERS[name](root)
    damage(root)

    def read_all() -> None:
        archive = _read(name, root)
        for split in archive.splits:
            _pixels(archive, split) if name != "tiny_imagenet" else [
                archive.splits[split].encoded(i) for i in range(len(archive.splits[split].labels))
            ]

    if text is None:  # harmless
        read_all()
        return
    with pytest.raises(ValueError, match=text) as caught:
        read_all()
    assert "\n" not in str(caught.value)


def test_the_archive_is_found_where_it_obviously_is(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="absent does not exist; give the folder that holds train"):
        _read("mnist", tmp_path / "absent")
    with pytest.raises(ValueError, match="holds no such archive; give the folder with train"):
        _read("mnist", tmp_path)
    small.write_idx(tmp_path / "mnist")
    small.write_idx(tmp_path / "fashion_mnist")
    assert len(_read("mnist", tmp_path).splits["test"].labels) == 4
    (tmp_path / "mnist").rename(tmp_path / "other")
    (tmp_path / "fashion_mnist").rename(tmp_path / "another")
    with pytest.raises(ValueError, match="leads to several archives: .*another, .*other; give one"):
        _read("mnist", tmp_path)
