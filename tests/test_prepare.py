"""Preparing: what is stored is what came, TFDS reads it, and a failed attempt leaves nothing."""

import fcntl
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_archives as small
import tensorflow_datasets as tfds
from PIL import Image
from test_archives import WRITERS

from experiments.setup import data_sets
from flowjax_inv.data import __main__ as command
from flowjax_inv.data import stored, user_pictures
from flowjax_inv.data.prepare import prepare
from flowjax_inv.data.recipes import SETS

VERSIONS = {"mnist": "3.0.1", "fashion_mnist": "3.0.1", "cifar10": "3.0.2"}


def _prepared(tmp_path: Path, recipe: str = "mnist", **options) -> Path:
    source = tmp_path / "archive"
    if not source.exists():
        WRITERS[recipe](source)
    options = {"data_dir": tmp_path / "data", "allow_unknown": True} | options
    return prepare(recipe, source, **options)[0]


@pytest.mark.parametrize("recipe", sorted(SETS))
def test_what_is_stored_is_what_came_in_order(tmp_path: Path, recipe: str) -> None:
    name = "my_set" if recipe == "folder" else recipe
    folder = _prepared(tmp_path, recipe, name=name)
    archive = SETS[recipe].format.read(tmp_path / "archive", recipe)
    data = stored.load(name, tmp_path / "data")
    splits = [archive.splits["train"], archive.splits.get("test") or archive.splits["validation"]]
    for part, read in zip(splits, (data.train, data.test), strict=True):
        assert read.images.dtype == np.uint8
        assert read.labels.dtype == np.int32
        np.testing.assert_array_equal(read.labels, part.labels)
        for index, image in enumerate(read.images):
            with Image.open(io.BytesIO(part.encoded(index))) as picture:
                mode = "L" if archive.shape[2] == 1 else "RGB"
                pixels = np.asarray(picture.convert(mode)).reshape(archive.shape)
            np.testing.assert_array_equal(image, pixels)
    assert data.class_names == (archive.class_words or archive.class_names)
    official = recipe == "folder"
    assert data.note.startswith("" if official else "not known to be the official contents: ")
    assert bool(data.note) != official
    assert not list(folder.parent.glob("incomplete.*"))
    assert not (folder / "lock").exists()


@pytest.mark.parametrize("name", sorted(VERSIONS))
def test_plain_tfds_reads_it_without_tensorflow(tmp_path: Path, name: str) -> None:
    folder = _prepared(tmp_path, name)
    assert folder == tmp_path / "data" / name / VERSIONS[name]
    data = stored.load(name, tmp_path / "data")
    for split, ours in (("train", data.train), ("test", data.test)):
        source: Any = tfds.data_source(name, data_dir=tmp_path / "data", split=split)
        assert len(source) == len(ours)
        for index in range(len(source)):
            np.testing.assert_array_equal(source[index]["image"], ours.images[index])
            assert source[index]["label"] == ours.labels[index]
            if name == "cifar10":
                assert source[index]["id"] == f"{split}_{index:05d}".encode()
    assert "tensorflow" not in sys.modules


def test_importing_the_room_is_light() -> None:
    code = (
        "import sys, flowjax_inv.data.stored, flowjax_inv.data.prepare, flowjax_inv.data.__main__;"
        "sys.exit(bool({'PIL', 'tensorflow_datasets', 'array_record', 'jax'} & {*sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_finished_set_is_left_as_it_is(tmp_path: Path, capsys) -> None:
    folder = _prepared(tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert prepare("mnist", tmp_path / "absent", data_dir=tmp_path / "data") == (folder, False)
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    line = ["prepare", "mnist", "--from", "absent", "--data_dir", str(tmp_path / "data")]
    assert command.main(line) == 0
    assert f"was in {folder}, left as it is" in capsys.readouterr().out


def test_refusals(tmp_path: Path) -> None:
    small.write_idx(tmp_path / "archive")
    foreign = tmp_path / "foreign" / "mnist" / "3.0.1"
    foreign.mkdir(parents=True)
    (foreign / "letter.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "with_file").mkdir()
    (tmp_path / "with_file" / "mnist").write_text("mine")
    cases = [
        ({"recipe": "mnits"}, '"mnits" is no set known here; known: mnist, fashion_mnist'),
        ({"recipe": "folder"}, "wants a name of its own: --name NAME"),
        ({"recipe": "folder", "name": "My set"}, "--name My set: want lower-case letters"),
        ({"recipe": "folder", "name": "mnist"}, "--name mnist is the name of an official set"),
        *(
            ({"recipe": "folder", "name": name}, f"--name {name} is the name of a generated set")
            for name in data_sets.SETS
        ),
        (
            {"allow_unknown": False},
            "archive is not known to be the official mnist: train-images-idx3-ubyte has sha256 "
            ".*; --allow-unknown takes it all the same",
        ),
        ({"data_dir": tmp_path / "foreign"}, "is there, but is no prepared set .*; move it away"),
        ({"data_dir": tmp_path / "file"}, "sets cannot be in .*file is a file; give another fold"),
        ({"data_dir": tmp_path / "with_file"}, "mnist is a file, where the set's folder goes; mov"),
    ]
    for change, text in cases:
        options = {"recipe": "mnist", "allow_unknown": True, "data_dir": tmp_path / "data"} | change
        recipe = options.pop("recipe")
        with pytest.raises(ValueError, match=text) as caught:
            prepare(recipe, tmp_path / "archive", **options)
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "data").exists()
    assert [path.name for path in foreign.iterdir()] == ["letter.txt"]
    assert (tmp_path / "with_file" / "mnist").read_text() == "mine"


def test_a_picture_that_fails_leaves_nothing(tmp_path: Path) -> None:
    small.write_tiny(tmp_path / "archive")
    (tmp_path / "archive" / "val" / "images" / "val_2.JPEG").write_bytes(b"no picture")
    with pytest.raises(ValueError, match=r"val_2.JPEG cannot be decoded"):
        _prepared(tmp_path, "tiny_imagenet")
    assert not list((tmp_path / "data").iterdir())


def _run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


_CALL = "prepare('mnist', {source!r}, data_dir={data!r}, allow_unknown=True)"


def test_a_killed_attempt_looks_unfinished_and_the_next_cleans_up(tmp_path: Path) -> None:
    small.write_idx(tmp_path / "archive")
    call = _CALL.format(source=str(tmp_path / "archive"), data=str(tmp_path / "data"))
    killed = _run(
        "import os, signal; from flowjax_inv.data import prepare as room;"
        "room.describe = lambda folder: os.kill(os.getpid(), signal.SIGKILL);"
        f"room.{call}"
    )
    assert killed.returncode == -9
    (left,) = (tmp_path / "data" / "mnist").iterdir()
    assert left.name.startswith("incomplete.3.0.1.")
    assert (left / "dataset_info.json").exists()  # nearly done, and still not taken for a set
    with pytest.raises(ValueError, match="mnist. is half-written: .* was left unfinished; remove"):
        stored.load("mnist", tmp_path / "data")
    alive = left.with_name("incomplete.3.0.1.alive")
    alive.mkdir()
    with open(alive / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match="mnist. is being prepared by another .*alive; wait"):
            stored.load("mnist", tmp_path / "data")
        folder = _prepared(tmp_path)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["3.0.1", alive.name]
    assert len(stored.load("mnist", tmp_path / "data").train) == 7


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    small.write_idx(tmp_path / "archive")
    call = _CALL.format(source=str(tmp_path / "archive"), data=str(tmp_path / "data"))
    full = _run(
        "import resource; from flowjax_inv.data.prepare import prepare;"
        "import tensorflow_datasets, array_record.python.array_record_module;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000));"
        "\ntry: " + call + "\nexcept OSError as error: print(error)"
    )
    assert "cannot be written" in full.stdout, full.stderr
    assert "File too large" in full.stdout
    assert full.stdout.count("\n") == 1
    assert not list((tmp_path / "data").iterdir())


def test_the_commands(tmp_path: Path, capsys) -> None:
    small.write_idx(tmp_path / "archive")
    place = ["--data_dir", str(tmp_path / "data")]
    prepare_mnist = ["prepare", "mnist", "--from", str(tmp_path / "archive"), *place]

    def run(*arguments: str) -> tuple[int, str, str]:
        status = command.main([*arguments, *place])
        return status, *capsys.readouterr()

    assert run("list") == (
        0,
        f"nothing is prepared in {tmp_path / 'data'}\ncan be prepared from their archives: mnist, "
        "fashion_mnist, cifar10, tiny_imagenet, olivetti, folder\n",
        "",
    )
    status, _, error = run("verify")
    assert status == 1
    assert error.startswith("error: nothing is prepared in")
    assert command.main(prepare_mnist) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert "--allow-unknown" in error
    assert command.main([*prepare_mnist, "--allow-unknown"]) == 0
    line = "mnist 3.0.1: 7 train, 4 test, 28x28x1, 10 classes, array_record; not known to be the"
    assert capsys.readouterr().out.startswith(line)
    status, text, _ = run("list")
    assert f"  {line}" in text
    assert text.endswith("archives: fashion_mnist, cifar10, tiny_imagenet, olivetti, folder\n")
    status, text, _ = run("verify", "mnist")
    assert status == 0
    assert text.startswith(f"right: {line}")
    folder = tmp_path / "data" / "mnist" / "3.0.1"
    (folder / "features.json").write_text("{")
    status, text, _ = run("list")
    assert "  unusable: " in text
    assert status == 0
    status, text, _ = run("verify")
    assert status == 1
    assert text.startswith("wrong: ")


def test_list_says_what_is_in_the_way(tmp_path: Path, capsys) -> None:
    data = tmp_path / "data"
    for place in (
        "mnist/incomplete.3.0.1.x",
        "cifar10/3.0.2",
        "mine/incomplete.1.0.0.y",
        "foreign",
    ):
        (data / place).mkdir(parents=True)
    (data / "cifar10" / "3.0.2" / "x").write_text("mine")
    (data / "olivetti").write_text("mine")
    assert command.main(["list", "--data_dir", str(data)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"nothing is prepared in {data}",
        f"  cifar10 is half-written: {data}/cifar10/3.0.2 has no dataset_info.json; move it away "
        "and prepare the set again.",
        f"  mine is half-written: {data}/mine/incomplete.1.0.0.y was left unfinished; remove it "
        "and prepare the set again.",
        f"  mnist is half-written: {data}/mnist/incomplete.3.0.1.x was left unfinished; remove it "
        "and prepare the set again.",
        f"  olivetti cannot be there: {data}/olivetti is a file; move it away.",
        "can be prepared from their archives: fashion_mnist, tiny_imagenet, folder",
    ]
    (data / "file").write_text("mine")
    assert command.main(["list", "--data_dir", str(data / "file")]) == 1
    assert "file is a file; give another folder." in capsys.readouterr().err


def test_a_huge_picture_is_refused_in_one_line(tmp_path: Path, monkeypatch) -> None:
    small.write_folder(tmp_path / "archive", size=(40, 40))
    monkeypatch.setattr(user_pictures, "MOST_PIXELS", 1_000)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1_500)  # above it PIL warns
    with pytest.raises(
        ValueError, match=r"0.png cannot be decoded \(40x40 pixels, more than 1,000\); replace"
    ) as caught:
        _prepared(tmp_path, "folder", name="my_set")
    assert "\n" not in str(caught.value)


def test_verify_sees_a_changed_file(tmp_path: Path) -> None:
    folder = _prepared(tmp_path)
    stored.verify(folder)
    own = json.loads((folder / stored.PREPARED_JSON).read_text())
    (name, *_) = own["sha256"]
    data = bytearray((folder / name).read_bytes())
    data[-1] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(ValueError, match="train.* has changed since it was prepared"):
        stored.verify(folder)
    (folder / name).unlink()
    with pytest.raises(ValueError, match="train.* is missing; prepare the set again"):
        stored.verify(folder)
