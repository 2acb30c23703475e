"""Pictures of every kind: each read by a stated rule, or refused by name."""

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from experiments import mario_iggy, mnist
from experiments.setup import data_sets, defaults
from experiments.setup.assembly import assemble
from flowjax_inv.data import user_pictures as pictures
from flowjax_inv.data.user_pictures import find_pictures, open_picture, padded, warped
from flowjax_inv.transforms import Affine

RED = (200, 30, 40)


def _saved(tmp_path, name, picture, **fields):
    picture.save(tmp_path / name, **fields)
    return tmp_path / name


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "CMYK", "L", "LA", "1", "I;16"])
def test_every_mode_becomes_what_the_network_takes(mode, tmp_path) -> None:
    plain = Image.new("RGB", (7, 5), (204, 204, 204))
    if mode == "I;16":
        picture = Image.fromarray(np.full((5, 7), 204 * 257, np.uint16))
    else:
        picture = plain.convert(mode, dither=Image.Dither.NONE)
    path = _saved(tmp_path, "x.tif" if mode in ("CMYK", "I;16") else "x.png", picture)
    for channels in (1, 3):
        read = np.asarray(open_picture(path, channels=channels))
        assert read.shape == ((5, 7) if channels == 1 else (5, 7, 3))
        assert read.dtype == np.uint8
        np.testing.assert_allclose(read, 255 if mode == "1" else 204, atol=2)


def test_transparent_shows_black_and_exif_is_followed(tmp_path) -> None:
    clear = Image.new("RGBA", (4, 4), (*RED, 0))
    assert not np.asarray(open_picture(_saved(tmp_path, "clear.png", clear), channels=3)).any()
    lying = Image.new("RGB", (8, 4))
    lying.paste(RED, (0, 0, 2, 4))
    exif = lying.getexif()
    exif[0x0112] = 6  # to be turned a quarter clockwise
    upright = open_picture(_saved(tmp_path, "lying.png", lying, exif=exif), channels=3)
    assert upright.size == (4, 8)
    np.testing.assert_array_equal(np.asarray(upright)[:2], np.broadcast_to(RED, (2, 4, 3)))


def test_what_cannot_be_read_is_named(tmp_path, monkeypatch) -> None:
    (tmp_path / "bad.png").write_bytes(b"nonsense")
    whole = _saved(tmp_path, "whole.png", Image.effect_noise((40, 40), 50)).read_bytes()
    (tmp_path / "cut.png").write_bytes(whole[: len(whole) // 2])
    for name in ("bad.png", "cut.png"):
        with pytest.raises(ValueError, match=f"^{name} cannot be read") as caught:
            open_picture(tmp_path / name, channels=3)
        assert "\n" not in str(caught.value)
    monkeypatch.setattr(pictures, "MOST_PIXELS", 1_000)
    with pytest.raises(ValueError, match=r"cannot be read \(40x40 pixels, more than 1,000"):
        open_picture(tmp_path / "whole.png", channels=3)
    with pytest.raises(ValueError, match="is no folder; give the folder that holds the pictures"):
        find_pictures(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no pictures; want files ending in .png"):
        find_pictures(tmp_path / "empty")
    assert [p.name for p in find_pictures(tmp_path)] == ["bad.png", "cut.png", "whole.png"]


def test_the_canvas_has_the_aspect_and_keeps_the_middle() -> None:
    canvas = padded(Image.new("RGB", (10, 4), RED), (16, 16), [9, 9, 9])
    assert canvas.size == (10, 10)
    pixels = np.asarray(canvas)
    assert (pixels[3:7] == RED).all()
    assert (pixels[:3] == 9).all()
    assert padded(Image.new("L", (10, 10)), (8, 16), [0]).size == (20, 10)


@pytest.mark.parametrize("align_corners", [True, False])
def test_a_warp_of_pil_is_ours(align_corners) -> None:
    y, x = np.mgrid[0:24, 0:24] / 24.0
    smooth = (120 + 90 * np.sin(5 * x + 2 * y) * np.exp(-4 * (x - 0.5) ** 2)).astype(np.uint8)
    transform = Affine("rotation_translation", align_corners=align_corners)
    theta = jnp.array([0.1, -0.05, 0.17])
    got = warped(
        Image.fromarray(smooth), np.asarray(transform.matrix(theta)), [0],
        align_corners=align_corners,
    )  # fmt: skip
    expected = transform(jnp.asarray(smooth, jnp.float32)[..., None], theta)[..., 0]
    # Not at the rim: PIL does not blend with what is outside.
    inner = jnp.asarray(np.pad(np.ones((20, 20)), 2)[..., None])
    inside = np.asarray(transform(inner, theta)[..., 0]) > 0.999
    assert inside.mean() > 0.4
    np.testing.assert_allclose(np.asarray(got)[inside], expected[inside], atol=1.5)


def test_a_folder_becomes_a_set_without_labels(tmp_path) -> None:
    for number in range(10):
        place = tmp_path / f"class{number % 2}"
        place.mkdir(exist_ok=True)
        Image.new("L", (12, 6), 20 * number).save(place / f"{number}.png")
    (tmp_path / "bad.png").write_bytes(b"nonsense")
    made = pictures.picture_set(tmp_path, size=8, channels=1)
    assert not made.labelled
    assert len(made.train) == 8
    assert made.train.images.shape == (8, 8, 8, 1)
    assert "1 left out: bad.png cannot be read" in made.note
    both = np.concatenate([made.train.images, made.test.images])
    np.testing.assert_allclose(np.sort(both[:, 4, 4, 0]), 20 * np.arange(10), atol=1)
    assert (both[:, 0] == 0).all()  # the canvas is square
    with pytest.raises(ValueError, match="holds 10 pictures that can be read; want more than 10"):
        pictures.picture_set(tmp_path, size=8, channels=1, train_size=10)
    with pytest.raises(ValueError, match="channels is 2; want 1, grey, or 3"):
        pictures.picture_set(tmp_path, size=8, channels=2)


def test_folders_become_classes(tmp_path) -> None:
    """A fifth of each class is tested on; what is left out is named, a second way to it is none."""
    for name, count in (("b", 10), ("a/deep", 4), ("alone", 1), ("none", 0)):
        (tmp_path / name).mkdir(parents=True)
        for number in range(count):
            grey = Image.new("L", (12, 6), 20 * number + 9 * (name == "b"))
            grey.save(tmp_path / name / f"{number}.png")
    (tmp_path / "b" / "bad.png").write_bytes(b"nonsense")
    (tmp_path / "b" / "again.png").symlink_to("0.png")
    Image.new("L", (4, 4)).save(tmp_path / "loose.png")
    made = pictures.picture_classes(tmp_path, size=8, channels=3)
    assert made.class_names == ("a", "b")
    assert made.labelled
    for split, counts in ((made.train, [3, 8]), (made.test, [1, 2])):
        assert np.bincount(split.labels).tolist() == counts
    both = np.concatenate([made.train.images, made.test.images])[:, 4, 4, 0]
    of = np.concatenate([made.train.labels, made.test.labels])
    np.testing.assert_allclose(sorted(both[of == 0]), [0, 20, 40, 60], atol=1)
    np.testing.assert_allclose(sorted(both[of == 1]), 20 * np.arange(10) + 9, atol=1)
    for said in (
        "3 left out",
        "bad.png cannot be read",
        "loose.png lies in no class's folder",
        "class alone has 1 picture that can be read, of two it takes",
    ):
        assert said in made.note
    other = pictures.picture_classes(tmp_path, size=8, channels=3, seed=1)
    assert not (other.train.images == made.train.images).all()
    with pytest.raises(ValueError, match="has 1 subfolders with two pictures or more .* FOLDER/CL"):
        pictures.picture_classes(tmp_path / "a", size=8, channels=3)


@pytest.mark.parametrize("set_name", ["picture_classes", "pictures"])
def test_recipes_of_prepared_sets_take_a_folder(set_name, tmp_path) -> None:
    for number in range(40):
        place = tmp_path / "xy"[number % 2]
        place.mkdir(exist_ok=True)
        Image.new("L", (9, 9), 6 * number).save(place / f"{number}.png")
    config = mnist.get_config("cpu")
    config.data.name, config.data.dir, config.data.channels = set_name, str(tmp_path), 1
    config.data.choice, config.data.train_size = "random", 0
    assert len(data_sets.data_set(config).train) == 32
    config.data.train_size = 20
    assert len(data_sets.data_set(config).train) == 20


def test_few_pictures_are_seen_more_often() -> None:
    config = mario_iggy.get_config("smoke")  # eight steps an epoch
    config.train.epochs, config.objective.burn_in_epochs = 4, 1
    config.train.least_steps = 60
    parts = assemble(config)
    assert (parts.total_steps, parts.burn_in_steps) == (64, 16)
    assert parts.config.train.epochs == 8
    assert config.train.epochs == 4


def test_made_and_read_sets_refuse_what_they_cannot_be() -> None:
    config = defaults.get_config()
    config.data.name = "pictures"
    with pytest.raises(ValueError, match="config.data.dir is empty; pictures want the folder"):
        data_sets.data_set(config)
    config.data.name, config.data.train_size = "printed_digits", 0
    with pytest.raises(ValueError, match="train_size=0, test_size=600; want at least 1 of each"):
        data_sets.data_set(config)
    config.data.train_size = config.data.test_size = 20
    made = data_sets.data_set(config)
    assert made.train.images.shape == (20, 28, 28, 1)
    assert (made.train.images.max(axis=(1, 2, 3)) > 150).all()
    assert not (made.train.images == made.test.images).all()
