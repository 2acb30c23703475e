"""Reading prepared sets: TFDS's own TFRecord too, and one line for each way a set may be broken."""

import dataclasses
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_archives as small
import tensorflow_datasets as tfds
from array_record.python.array_record_module import ArrayRecordWriter

from flowjax_inv.data import records, stored
from flowjax_inv.data.prepare import prepare
from flowjax_inv.data.records import read_records
from flowjax_inv.data.subsets import long_tail

GOLDEN = Path(__file__).parent / "golden" / "tfrecord"
GOLDEN_SET = GOLDEN / "tiny_golden" / "1.2.3"


@pytest.fixture(scope="module")
def mnist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared set of a few pictures; tests copy it before they break it."""
    root = tmp_path_factory.mktemp("stored")
    small.write_idx(root / "archive")
    return prepare("mnist", root / "archive", data_dir=root / "data", allow_unknown=True)[0]


def test_tfds_own_format_is_read_as_tensorflow_reads_it() -> None:
    expected = np.load(GOLDEN / "expected.npz")
    data = stored.load("tiny_golden", GOLDEN)
    for split, ours in (("train", data.train), ("test", data.test)):
        np.testing.assert_array_equal(ours.images, expected[f"{split}_images"])
        np.testing.assert_array_equal(ours.labels, expected[f"{split}_labels"])
    assert data.train.images.shape == (12, 8, 10, 3)
    assert data.class_names == ("one", "two", "three")
    assert data.note == ""
    assert stored.verify(GOLDEN_SET).file_format == "tfrecord"
    assert "tensorflow" not in sys.modules


def test_features_agree_with_tfds_on_every_record() -> None:
    features: Any = tfds.builder_from_directory(GOLDEN_SET).info.features
    data = stored.load("tiny_golden", GOLDEN)
    shards = sorted(GOLDEN_SET.glob("*train.tfrecord*"))
    records = [record for path in shards for chunk in read_records(path, "tfrecord", 4)
               for record in chunk]  # fmt: skip
    assert len(records) == 12
    for record, image in zip(records, data.train.images, strict=True):
        np.testing.assert_array_equal(features.deserialize_example_np(record)["image"], image)


@pytest.fixture
def as_tfds_stores(tmp_path: Path) -> Callable[[str], Path]:
    """Prepare a set of a few pictures, then store it as TFDS does: shuffled, no prepared.json."""

    def make(name: str) -> Path:
        {"mnist": small.write_idx, "cifar10": small.write_cifar}[name](tmp_path / name)
        folder, _ = prepare(name, tmp_path / name, data_dir=tmp_path / "data", allow_unknown=True)
        (folder / stored.PREPARED_JSON).unlink()
        for path in folder.glob("*.array_record-*"):
            (chunk,) = read_records(path, "array_record")
            writer = ArrayRecordWriter(str(path), "group_size:1")
            for index in np.random.default_rng(0).permutation(len(chunk)):
                writer.write(chunk[index])
            writer.close()
        return tmp_path / "data"

    return make


def test_ids_give_a_shuffled_set_its_order(as_tfds_stores: Callable, tmp_path: Path) -> None:
    data = stored.load("cifar10", as_tfds_stores("cifar10"))
    official = small.write_cifar(tmp_path / "again")
    for split, ours in (("train", data.train), ("test", data.test)):
        np.testing.assert_array_equal(ours.images, official[split][0])
        np.testing.assert_array_equal(ours.labels, official[split][1])
    assert not data.may_be_shuffled


def test_without_ids_a_long_tail_says_that_the_order_is_unknown(
    as_tfds_stores: Callable, mnist: Path, tmp_path: Path
) -> None:
    in_order = stored.load("mnist", mnist.parent.parent)
    shuffled = stored.load("mnist", as_tfds_stores("mnist"))
    assert not in_order.may_be_shuffled
    assert shuffled.may_be_shuffled
    assert (shuffled.train.labels != in_order.train.labels).any()
    golden = stored.load("tiny_golden", GOLDEN)
    clause = "long tail: first of each class as stored, which may not be the official order"
    assert golden.note == ""
    assert long_tail(golden, 2).note == clause
    assert long_tail(dataclasses.replace(golden, note="x"), 2).note == f"x; {clause}"
    assert long_tail(dataclasses.replace(golden, may_be_shuffled=False), 2).note == ""


def test_checksums_are_those_of_the_standard() -> None:
    """RFC 3720, B.4: CRC-32C of 32 zeros, of 32 ones, and of the bytes 0 .. 31."""
    parts = [bytes(32), b"\xff" * 32, bytes(range(32)), b"123456789", b""]
    expected = [0x8A9136AA, 0x62A8AB43, 0x46DD794E, 0xE3069283, 0]
    masked = [((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32 for crc in expected]
    assert records._masked_crc(parts).tolist() == masked


def test_verify_sees_a_changed_label_in_tfds_own_format(tmp_path: Path) -> None:
    folder = tmp_path / "tiny_golden" / "1.2.3"
    shutil.copytree(GOLDEN_SET, folder)
    path = folder / "tiny_golden-train.tfrecord-00000-of-00002"
    data, (chunk,) = path.read_bytes(), read_records(path, "tfrecord")
    at = data.index(b"label") + len(b"label")  # then the value, whose last byte is the number
    at = data.index(b"\x1a\x03\x0a\x01", at) + 4
    path.write_bytes(_flip(at)(data))
    changed = path.read_bytes()[12 : 12 + len(chunk[0])]
    features: Any = tfds.builder_from_directory(GOLDEN_SET).info.features
    before, after = (features.deserialize_example_np(record) for record in (chunk[0], changed))
    assert before["label"] ^ 1 == after["label"]
    with pytest.raises(ValueError, match="00000-of-00002 is damaged .changed in the record at byt"):
        stored.verify(folder)


def test_a_file_where_a_folder_should_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("mine")
    for place in ("file", "file/below"):
        text = f"cannot be in {tmp_path / place}: {tmp_path / 'file'} is a file; give another"
        with pytest.raises(ValueError, match=text) as caught:
            stored.load("mnist", tmp_path / place)
        assert "\n" not in str(caught.value)
    (tmp_path / "mnist").write_text("mine")
    with pytest.raises(
        ValueError, match=r'data set "mnist" cannot be there: .*/mnist is a file; move'
    ):
        stored.load("mnist", tmp_path)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "file"))
    with pytest.raises(ValueError, match='"cifar10" is not in'):  # of no matter here
        stored.load("cifar10", tmp_path)


def test_names_versions_and_configs(tmp_path: Path) -> None:
    for version in ("1.2.3", "1.10.0"):
        shutil.copytree(GOLDEN_SET, tmp_path / "tiny_golden" / version)
    assert stored.find("tiny_golden", tmp_path).name == "1.10.0"
    for name in ("tiny_golden:1.2.3", "tiny_golden/1.2.3"):
        assert stored.find(name, tmp_path).name == "1.2.3"
    for config in ("plain", "odd"):
        shutil.copytree(GOLDEN_SET, tmp_path / "with_config" / config / "1.2.3")
    assert stored.find("with_config/odd", tmp_path).parent.name == "odd"
    with pytest.raises(
        ValueError, match='"with_config" has several configs; give one of: with_con'
    ):
        stored.find("with_config", tmp_path)
    with pytest.raises(ValueError, match='"../x" is no name; want NAME, NAME/CONFIG'):
        stored.find("../x", tmp_path)


def test_the_place_of_sets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TFDS_DATA_DIR", raising=False)
    assert stored.data_dir_path() == Path.home() / "tensorflow_datasets"
    monkeypatch.setenv("TFDS_DATA_DIR", str(GOLDEN))
    assert stored.data_dir_path() == GOLDEN
    assert stored.data_dir_path(tmp_path) == tmp_path
    assert len(stored.load("tiny_golden").test) == 5
    with pytest.raises(ValueError, match="prepare mnist --from PATH$"):
        stored.load("mnist")


def test_a_missing_set_says_what_to_do(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN_SET, tmp_path / "tiny_golden" / "1.2.3")
    make = "python -m flowjax_inv.data prepare"
    cases = {
        "cifar10": f"not in {tmp_path}; make it: {make} cifar10 --from PATH --data_dir {tmp_path}",
        "fashionmnist": "did you mean fashion_mnist?",
        "tiny_goldn": "did you mean tiny_golden?",
        "mario_igy": "did you mean mario_iggy?",
        "qqq": f"known: cifar10, .*; own pictures: {make} folder --from PATH --name qqq",
    }
    for name, text in cases.items():
        with pytest.raises(ValueError, match=text) as caught:
            stored.load(name, tmp_path)
        assert "\n" not in str(caught.value)


def _write(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text)


def _json(name: str, change: Callable[[dict], object]) -> Callable[[Path], object]:
    def apply(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        change(content)
        (folder / name).write_text(json.dumps(content))

    return apply


def _shard(pattern: str, change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    def apply(folder: Path) -> None:
        (path,) = folder.glob(pattern)
        path.write_bytes(change(path.read_bytes()))

    return apply


def _flip(position: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


def _dimensions(content: dict, *sizes: str) -> None:
    image = content["featuresDict"]["features"]["image"]["image"]
    image["shape"]["dimensions"] = list(sizes)


def _unlabelled(content: dict) -> None:
    content["featuresDict"]["features"]["label"] = content["featuresDict"]["features"]["image"]


_FIRST = "*train*00000-of-*"
BROKEN = [
    ("both", lambda f: (f / "dataset_info.json").unlink(), "half-written: .* has no dataset_info"),
    ("both", _write("dataset_info.json", "{"), "dataset_info.json cannot be read .*; prepare the"),
    ("both", _write("dataset_info.json", "[]"), "dataset_info.json holds no JSON object"),
    ("both", _write("dataset_info.json", '{"splits": 3}'), "is no set TFDS can read"),
    ("both", lambda f: (f / "features.json").unlink(), "features.json is missing; prepare the set"),
    ("both", _write("features.json", "{}"), "is no set TFDS can read"),
    (
        "both",
        _json("features.json", _unlabelled),
        "features image and label are Image and Image; want one Image and one ClassLabel",
    ),
    (
        "both",
        _json("features.json", lambda c: _dimensions(c, "-1", "-1", "3")),
        r"images are uint8 \(None, None, 3\); want uint8 of one size",
    ),
    (
        "both",
        _json("features.json", lambda c: _dimensions(c, "5", "5", "1")),
        r"train.*-of-.*: example 0 of train cannot be decoded",
    ),
    (
        "both",
        _json("dataset_info.json", lambda c: c["splits"][0].update(shardLengths=["5"])),
        "train.* holds 7 records, dataset_info.json says 5|train.*-of-00001 is missing",
    ),
    (
        "both",
        _json("dataset_info.json", lambda c: c["splits"].pop(1)),
        r"has the splits {'train': \d+}; want train, and test or validation",
    ),
    (
        "both",
        _json("dataset_info.json", lambda c: c.update(fileFormat="riegeli")),
        "is stored as riegeli; want array_record or tfrecord",
    ),
    (
        "both",
        _write("label.labels.txt", "one\n"),
        r"labels of train span 0 .. \d; want 0 .. 0",
    ),
    ("both", lambda f: next(f.glob(_FIRST)).unlink(), "train.*00000-of-.* is missing; prepare"),
    ("array_record", _shard(_FIRST, lambda data: data[:-7]), "train.* holds 0 records"),
    ("array_record", _shard(_FIRST, lambda data: data[:99]), "train.* holds 0 records"),
    ("array_record", _shard(_FIRST, lambda data: b""), "train.* holds 0 records"),
    ("tfrecord", _shard(_FIRST, lambda data: data[:-7]), "cut short in the record at byte 1850"),
    ("tfrecord", _shard(_FIRST, lambda data: data + data[:370]), "holds 7 records, .* says 6"),
    ("tfrecord", _shard(_FIRST, lambda data: data[:370]), "holds 1 records, .* says 6"),
    ("tfrecord", _shard(_FIRST, _flip(371)), "damaged .no record begins at byte 370"),
    ("tfrecord", _shard(_FIRST, _flip(60)), "damaged .changed in the record at byte 0.; prepare"),
    ("array_record", _write("prepared.json", "{"), "prepared.json cannot be read"),
    ("array_record", _write("prepared.json", '{"class_words": 5}'), "prepared.json is damaged"),
]


@pytest.mark.parametrize(
    ("kind", "damage", "text"),
    [
        (kind, damage, text)
        for wanted, damage, text in BROKEN
        for kind in (("array_record", "tfrecord") if wanted == "both" else (wanted,))
    ],
)
def test_broken_sets(tmp_path: Path, mnist: Path, kind: str, damage: Callable, text: str) -> None:
    source = mnist if kind == "array_record" else GOLDEN_SET
    folder = tmp_path / source.parent.name / source.name
    shutil.copytree(source, folder)
    damage(folder)
    with pytest.raises(ValueError, match=text) as caught:
        stored.load(folder.parent.name, tmp_path)
    assert "\n" not in str(caught.value)
    assert " object at 0x" not in str(caught.value)
