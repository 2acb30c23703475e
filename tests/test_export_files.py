"""Files of an export: whole, or refused by name; an interrupted write leaves none."""

import hashlib
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from exported import IMAGES, NAMES, SHAPE, parts, variables

from flowjax_inv import export


def times(value: jax.Array, images: jax.Array, key: jax.Array) -> dict[str, jax.Array]:
    return {"y": images * value}


OUTPUTS = {"y": "the images"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    target = tmp_path / "exported"
    export.write(target, times, jnp.ones(()), image_shape=SHAPE, outputs=OUTPUTS, about={})
    return target


def test_an_interrupted_write_leaves_nothing(tmp_path: Path, monkeypatch) -> None:
    def full(self: Path, target: Path) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(OSError, match="No space left"):
        export.write(
            tmp_path / "deep" / "x", times, jnp.ones(()), image_shape=SHAPE, outputs=OUTPUTS,
            about={},
        )  # fmt: skip
    assert list((tmp_path / "deep").iterdir()) == []


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


DAMAGES = {
    "weights": (
        lambda x: flip(x / export.WEIGHTS, -3),
        "weights.safetensors is damaged: its sha256 begins with .*copy the folder again",
    ),
    "program": (lambda x: flip(x / export.PROGRAM, 500), "program.jax is damaged: its sha256"),
    "cut": (
        lambda x: (x / export.PROGRAM).write_bytes((x / export.PROGRAM).read_bytes()[:-1]),
        "program.jax is damaged",
    ),
    "no weights": (
        lambda x: (x / export.WEIGHTS).unlink(),
        "has no weights.safetensors; give a whole folder",
    ),
    "no card": (lambda x: (x / export.CARD).unlink(), "has no card.json; give a whole folder"),
    "card": (lambda x: (x / export.CARD).write_text('{"sha'), "card.json is damaged: no card"),
    "other card": (lambda x: (x / export.CARD).write_text("[]"), "card.json is damaged: no card"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named(name: str, folder: Path) -> None:
    damage, text = DAMAGES[name]
    damage(folder)
    with pytest.raises((ValueError, FileNotFoundError), match=text) as caught:
        export.load(folder)
    assert "\n" not in str(caught.value)


def test_what_this_jax_cannot_read_is_said(folder: Path) -> None:
    program, card = folder / export.PROGRAM, folder / export.CARD
    before = hashlib.sha256(program.read_bytes()).hexdigest()
    program.write_bytes(b"of another time" * 20)
    after = hashlib.sha256(program.read_bytes()).hexdigest()
    card.write_text(card.read_text().replace(before, after))
    with pytest.raises(ValueError, match="as it was written, but jax .* cannot read it") as caught:
        export.load(folder)
    assert "\n" not in str(caught.value)


def test_weights_that_no_export_holds_are_refused(tmp_path: Path) -> None:
    weights = {"a": jnp.ones(()), "b": {"c": jnp.ones(2, jnp.bfloat16)}}
    with pytest.raises(TypeError, match=r"b\.c is bfloat16; exports hold .* to float32"):
        export.write(tmp_path / "x", times, weights, image_shape=SHAPE, outputs=OUTPUTS, about={})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("images", "text"),
    [
        (IMAGES.astype("f4"), r"images are float32 \(3, 9, 8, 1\); this program wants uint8 \(N, "),
        (IMAGES[:, :8], r"images are uint8 \(3, 8, 8, 1\); .*wants uint8 \(N, 9, 8, 1\)"),
        (IMAGES[:0], r"images are uint8 \(0, 9, 8, 1\); .*N >= 1"),
        (IMAGES[0], r"images are uint8 \(9, 8, 1\)"),
    ],
    ids=["float", "size", "none", "one"],
)
def test_wrong_images_are_refused(images, text: str, folder: Path) -> None:
    with pytest.raises(ValueError, match=text):
        export.load(folder)(images, jax.random.key(0))


def test_refusals(folder: Path, tmp_path: Path, monkeypatch) -> None:
    fields: dict[str, Any] = {"image_shape": SHAPE, "class_names": NAMES, "num_samples": 2}
    modules = parts("identity")
    weights = variables(*modules[:2])
    before = (folder / export.CARD).read_bytes()
    with pytest.raises(FileExistsError, match="exported is there already; name a new folder"):
        export.write_predictor(folder, *modules, weights, **fields)
    assert (folder / export.CARD).read_bytes() == before
    fields["class_names"] = NAMES[:2]
    with pytest.raises(ValueError, match="class_names are 2, the classifier's logits 3; give one"):
        export.write_predictor(tmp_path / "x", *modules, weights, **fields)
    for missing in ("flatbuffers", "safetensors"):
        with monkeypatch.context() as patched:
            for name in [n for n in sys.modules if n.partition(".")[0] == missing] + [missing]:
                patched.setitem(sys.modules, name, None)
            with pytest.raises(ImportError, match=rf"exports need {missing}.*; install it: pip"):
                export.load(folder)
    assert list(tmp_path.iterdir()) == [folder]
