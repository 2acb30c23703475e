"""Variants of data sets: laws of selection, and where the pictures go."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from poses import blobs, pose

from experiments.setup import checks, data_sets, defaults
from flowjax_inv.data import stored, subsets, variants
from flowjax_inv.data.pixels import Normalization
from flowjax_inv.data.sets import DataSet, Split

GOLDEN = Path(__file__).parent / "golden" / "tfrecord"
NAMES = ("cat", "dog", "bird", "fish")


def _split(size: int, classes: int = 4, start: int = 0) -> Split:
    """Pictures whose pixels are all their own number; labels in turn."""
    number = np.arange(start, start + size)
    images = np.broadcast_to(number[:, None, None, None], (size, 6, 6, 1)).astype(np.uint8)
    return Split(images, (number % classes).astype(np.int32))


def _set(train: int = 40, test: int = 12) -> DataSet:
    return DataSet(_split(train), _split(test, start=100), NAMES, note="kept")


def _numbers(split: Split) -> list[int]:
    return split.images[:, 0, 0, 0].tolist()


@pytest.mark.parametrize(
    ("classes", "wanted"),
    [("2,0", [2, 0]), ("1-3", [1, 2, 3]), ("bird, cat", [2, 0]), ((3, "dog"), [3, 1])],
)
def test_class_subset_relabels_in_the_order_given(classes, wanted: list[int]) -> None:
    data = _set()
    subset = subsets.class_subset(data, classes)
    assert subset.class_names == tuple(NAMES[label] for label in wanted)
    assert subset.note == "kept"
    for before, after in ((data.train, subset.train), (data.test, subset.test)):
        kept = np.isin(before.labels, wanted)
        assert _numbers(after) == _numbers(Split(before.images[kept], before.labels[kept]))
        old = np.array(wanted)[after.labels]
        np.testing.assert_array_equal(old, before.labels[kept])
        assert after.labels.dtype == np.int32


def test_class_subset_keeps_poses_and_centres() -> None:
    data = _set()
    posed = dataclasses.replace(
        data,
        train=dataclasses.replace(data.train, pose_degrees=np.arange(40, dtype=np.float32)),
        centres_degrees=np.arange(4.0)[:, None],
    )
    subset = subsets.class_subset(posed, "3,1")
    assert subset.centres_degrees is not None
    assert subset.centres_degrees.tolist() == [[3.0], [1.0]]
    np.testing.assert_array_equal(subset.train.pose_degrees, np.arange(1, 40, 2))


@pytest.mark.parametrize(
    ("ratio", "sizes"),
    [
        (10, [5000, 3871, 2997, 2320, 1796, 1391, 1077, 834, 645, 500]),
        (100, [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]),
        (1, [5000] * 10),
    ],
)
def test_long_tail_of_cifar10(ratio: float, sizes: list[int]) -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10, dtype=np.int32), 5000))
    images = np.arange(50_000, dtype=np.uint32).view(np.uint8).reshape(-1, 1, 1, 4)
    data = DataSet(Split(images, labels), _split(20, 10), tuple("0123456789"))
    tail = subsets.long_tail(data, ratio)
    assert np.bincount(tail.train.labels).tolist() == sizes
    kept = tail.train.images.reshape(-1, 4).view(np.uint32)[:, 0]
    assert (np.diff(kept.astype(int)) > 0).all()  # in their order
    for label, size in enumerate(sizes):
        np.testing.assert_array_equal(
            kept[tail.train.labels == label], np.flatnonzero(labels == label)[:size]
        )
    assert tail.test is data.test


def test_sizes_and_held_out_images() -> None:
    data = _set()
    part = subsets.first(data, 7, 3)
    assert _numbers(part.train) == list(range(7))
    assert _numbers(part.test) == [100, 101, 102]
    whole = subsets.first(data)
    assert (len(whole.train), len(whole.test)) == (40, 12)
    held = subsets.hold_out(data, 10)
    assert _numbers(held.train) == list(range(30))
    assert _numbers(held.test) == list(range(30, 40))


def test_images_set_aside_are_in_no_batch_and_go_with_their_repeats() -> None:
    data = subsets.repeated(_set(), 3)
    rest, aside = subsets.set_aside(data, 0.1, seed=5, repeats=3)
    held = _numbers(aside)
    assert len(set(held)) == 4
    assert held == sorted(3 * [*set(held)])
    assert sorted(_numbers(rest.train) + held) == _numbers(data.train)
    assert rest.test is data.test
    other = _numbers(subsets.set_aside(data, 0.1, seed=6, repeats=3)[1])
    assert other != held


def test_random_subsets_are_nested_functions_of_the_seed() -> None:
    data = _set()
    small, large, other = (
        _numbers(subsets.random_subset(data, size, seed=seed).train)
        for size, seed in ((10, 1), (20, 1), (10, 2))
    )
    assert small == large[:10]
    assert len(set(large)) == 20
    assert small != other
    assert _numbers(subsets.random_subset(data, 40, seed=1).train) != list(range(40))


def test_repeats_are_turned_on_their_own_and_cropped_to_their_middle() -> None:
    data = subsets.repeated(_set(), 3)
    assert _numbers(data.train)[:6] == [0, 0, 0, 1, 1, 1]
    turned = variants.rotated(data, 90.0, seed=0)
    assert turned.train.pose_degrees is not None
    assert len(set(turned.train.pose_degrees[:3])) == 3
    side = _set().train.images.shape[1]
    cropped = variants.centre_cropped(turned, side - 3)
    assert cropped.train.images.shape[1:3] == (side - 3, side - 3)
    np.testing.assert_array_equal(cropped.test.images, turned.test.images[:, 1:-2, 1:-2])
    np.testing.assert_array_equal(cropped.train.pose_degrees, turned.train.pose_degrees)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda d: subsets.class_subset(d, "9"), r"class 9 is not among the labels; want 0 .. 3"),
        (lambda d: subsets.class_subset(d, "2-1"), "class 2-1 is not among the labels"),
        (lambda d: subsets.class_subset(d, "dgo"), 'class "dgo" is unknown; did you mean dog'),
        (lambda d: subsets.class_subset(d, "x y z"), "is unknown; want labels 0 .. 3, or names"),
        (
            lambda d: subsets.class_subset(d, "0-2,dog"),
            r"gives the labels \[0, 1, 2, 1\]; want",
        ),
        (lambda d: subsets.class_subset(d, ()), r"classes=\(\) gives the labels \[\]"),
        (lambda d: subsets.long_tail(d, 0.5), "long-tail ratio is 0.5; want 1 or more"),
        (lambda d: subsets.long_tail(d, 11), "ratio 11 leaves class fish without an image; want"),
        (lambda d: subsets.first(d, 41), "train_size is 41; want 0 .. 40"),
        (lambda d: subsets.first(d, 0, -1), "test_size is -1; want 0 .. 12"),
        (lambda d: subsets.random_subset(d, 0, seed=0), "train_size is 0; want 1 .. 40"),
        (lambda d: subsets.hold_out(d, 40), "held-out size is 40; want 1 .. 39"),
        (
            lambda d: subsets.set_aside(d, 0.99, seed=0),
            "40 of 40 train images are to be set aside; want fewer",
        ),
        (lambda d: subsets.repeated(d, 0), "repeats is 0; want 1 or more"),
        (lambda d: variants.centre_cropped(d, 99), "centre_crop is 99; want 1 .. "),
        (lambda d: variants.rotated(d, 0, seed=0), r"half_range_degrees is 0; want \(0, 180\]"),
        (lambda d: variants.rotated(d, 181, seed=0), r"half_range_degrees is 181; want \(0, 180\]"),
        (lambda d: variants.translated(d, -1.0, seed=0), r"half_range=\(-1.0, -1.0\); .* positive"),
        (lambda d: variants.scaled(d, float("nan"), seed=0), "half_range=.*nan.* positive number"),
    ],
)
def test_refusals(make: Callable, text: str) -> None:
    with pytest.raises(ValueError, match=text) as caught:
        make(_set())
    assert "\n" not in str(caught.value)


def _bright_pixel(row: int, column: int, size: int = 31, count: int = 200) -> DataSet:
    """Pictures with one soft spot at a place."""
    y, x = np.mgrid[:size, :size]
    spot = 255 * np.exp(-((y - row) ** 2 + (x - column) ** 2) / 4.0)
    images = np.repeat(spot.round().astype(np.uint8)[None, ..., None], count, axis=0)
    split = Split(images, np.zeros(count, np.int32))
    return DataSet(split, split, ("spot",))


def _centres(split: Split) -> np.ndarray:
    """Centres of mass (N, 2) as x right, y down from the middle, in half-widths."""
    weight = split.images[..., 0].astype(float)
    size = weight.shape[1]
    position = (np.arange(size) - (size - 1) / 2) / (size / 2)
    total = weight.sum((1, 2))
    return np.stack([weight.sum(axis) @ position / total for axis in (1, 2)], axis=-1)


def test_rotated_turns_counter_clockwise_by_the_pose_it_states() -> None:
    data = _bright_pixel(15, 23)  # on the right: angle 0
    turned = variants.rotated(data, 60.0, seed=3)
    for split in (turned.train, turned.test):
        assert split.pose_degrees is not None
        assert split.pose_degrees.dtype == np.float32
        x, y = _centres(split).T
        np.testing.assert_allclose(np.degrees(np.arctan2(-y, x)), split.pose_degrees, atol=1.0)
        assert np.abs(split.pose_degrees).max() <= 60
        assert np.abs(split.pose_degrees).max() > 55
        assert np.abs(split.pose_degrees.mean()) < 8
    assert not set(turned.train.pose_degrees) & set(turned.test.pose_degrees)  # type: ignore[arg-type]


def test_poses_add_up() -> None:
    data = _bright_pixel(15, 23, count=50)
    twice = variants.rotated(variants.rotated(data, 180.0, seed=1), 180.0, seed=2)
    assert twice.train.pose_degrees is not None
    x, y = _centres(twice.train).T
    off = np.degrees(np.arctan2(-y, x)) - twice.train.pose_degrees
    assert np.abs((off + 180) % 360 - 180).max() < 2
    assert np.abs(twice.train.pose_degrees).max() <= 180


def test_translated_moves_by_at_most_the_half_range() -> None:
    data = _bright_pixel(15, 15)
    moved = variants.translated(data, 0.5, seed=3)
    for split in (moved.train, moved.test):
        offsets = _centres(split)
        assert np.abs(offsets).max() <= 0.51
        assert (np.abs(offsets).max(0) > 0.45).all()
        assert np.abs(np.corrcoef(offsets.T)[0, 1]) < 0.2  # the axes are drawn apart
    assert np.abs(_centres(moved.train) - _centres(moved.test)).max() > 0.3


def test_scaled_by_factors_around_one() -> None:
    data = _bright_pixel(15, 20)
    before = _centres(data.train)[0, 0]
    shrunk = variants.scaled(data, np.log(2.0), seed=3)
    for split in (shrunk.train, shrunk.test):
        x, y = _centres(split).T
        np.testing.assert_allclose(y, 0.0, atol=0.01)
        factor = np.log(before / x)
        assert np.abs(factor).max() <= np.log(2.0) + 0.05
        assert factor.max() > 0.6
        assert factor.min() < -0.6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "half_range"),
    [(variants.rotated, 70.0), (variants.translated, 0.7), (variants.scaled, 0.7)],
)
def test_warped_sets_are_functions_of_their_seed(variant: Callable, half_range: float) -> None:
    data = _bright_pixel(3, 7, size=11, count=1600)  # more than one block
    one, same, other = (variant(data, half_range, seed=seed).train for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.images, same.images)
    assert (one.images != other.images).any()
    assert (one.images[1500:] != one.images[:100]).any((1, 2, 3)).mean() > 0.9
    assert one.images.dtype == np.uint8
    assert one.images.shape == data.train.images.shape
    np.testing.assert_array_equal(one.labels, data.train.labels)
    half = dataclasses.replace(data, train=dataclasses.replace(
        data.train, images=data.train.images[:800], labels=data.train.labels[:800]))  # fmt: skip
    np.testing.assert_array_equal(variant(half, half_range, seed=1).train.images, one.images[:800])


def test_kinds_of_variants_do_not_share_their_draws() -> None:
    data = _bright_pixel(15, 20)
    pose = variants.rotated(data, 60.0, seed=3).train.pose_degrees
    assert pose is not None
    x = _centres(variants.scaled(data, 0.5, seed=3).train)[:, 0]
    assert np.abs(np.corrcoef(pose, x)[0, 1]) < 0.3


def test_bicubic_turns_go_the_way_of_the_transforms() -> None:
    """Counter-clockwise as seen; a quarter turn is exact; outside is the given colour."""
    images = np.random.default_rng(0).integers(0, 256, (2, 9, 9, 3), np.uint8)
    quarter = variants.turned_bicubic(images, np.array([90.0, 0.0]), (0.0,))
    np.testing.assert_array_equal(quarter[0], np.rot90(images[0]))
    np.testing.assert_array_equal(quarter[1], images[1])
    smooth = np.asarray(255 * blobs(jnp.array([0.0]), size=31)).astype(np.uint8)
    turned = variants.turned_bicubic(smooth, 30.0, (0.0,))
    assert abs(180 * float(pose(jnp.asarray(turned / 255.0))[0]) - 30.0) < 1
    with pytest.raises(ValueError, match=r"images of 4x6 pixels cannot be turned; pad them"):
        variants.turned_bicubic(np.zeros((1, 4, 6, 3), np.uint8), 90.0, (0.0,))
    grey = variants.turned_bicubic(images, 45.0, (0.2, 0.4, 0.6))
    np.testing.assert_array_equal(grey[:, 0, 0], np.broadcast_to([51, 102, 153], (2, 3)))


@pytest.mark.parametrize(
    ("fields", "variant", "sizes"),
    [
        ({"classes": "two,0"}, lambda d: subsets.class_subset(d, "two,0"), (8, 4)),
        ({"validation_size": 4}, lambda d: subsets.hold_out(d, 4), (8, 4)),
        ({"long_tail": 4.0}, lambda d: subsets.long_tail(d, 4.0), (7, 5)),
        ({"train_size": 5, "test_size": 2}, lambda d: subsets.first(d, 5, 2), (5, 2)),
        (
            {"train_size": 5, "choice": "random", "seed": 3},
            lambda d: subsets.random_subset(d, 5, seed=3),
            (5, 5),
        ),
        ({"repeats": 2}, lambda d: subsets.repeated(d, 2), (24, 10)),
        ({"centre_crop": 6}, lambda d: variants.centre_cropped(d, 6), (12, 5)),
        (
            {"rotated_degrees": 90.0, "seed": 3},
            lambda d: variants.rotated(d, 90.0, seed=3),
            (12, 5),
        ),
        ({"translated": 0.5, "seed": 3}, lambda d: variants.translated(d, 0.5, seed=3), (12, 5)),
        ({"scaled": 0.5, "seed": 3}, lambda d: variants.scaled(d, 0.5, seed=3), (12, 5)),
        (
            {"classes": "0-1", "long_tail": 4.0, "train_size": 3, "repeats": 2, "centre_crop": 6},
            lambda d: variants.centre_cropped(subsets.repeated(subsets.first(
                subsets.long_tail(subsets.class_subset(d, "0-1"), 4.0), 3), 2), 6),
            (6, 8),
        ),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else "",
)  # fmt: skip
def test_a_config_makes_the_variant_it_names(
    fields: dict[str, Any], variant: Callable, sizes: tuple[int, int]
) -> None:
    config = defaults.get_config()
    config.train.batch_size = 1
    asked = {"name": "tiny_golden", "dir": str(GOLDEN), "train_size": 0, "test_size": 0} | fields
    config.update_from_flattened_dict({f"data.{name}": value for name, value in asked.items()})
    checks.check(config)
    plain = stored.load("tiny_golden", GOLDEN)
    made, wanted = data_sets.data_set(config), variant(plain)
    assert (len(made.train), len(made.test)) == sizes
    assert (made.class_names, made.note) == (wanted.class_names, wanted.note)
    for split in ("train", "test"):
        for field in ("images", "labels", "pose_degrees"):
            got, expected = (getattr(getattr(data, split), field) for data in (made, wanted))
            np.testing.assert_array_equal(got, expected)
    assert not np.array_equal(made.train.images, plain.train.images)


def test_some_classes_are_turned_and_nothing_lies_outside_the_disc() -> None:
    images = np.full((6, 9, 9, 1), 200, np.uint8)
    images[:, :, :4] = 20
    split = Split(images, np.arange(6, dtype=np.int32) % 3)
    data = DataSet(split, split, ("a", "b", "c"))
    made = variants.rotated(data, 180.0, seed=0, classes="1,c").train
    upright = made.labels == 0
    assert made.pose_degrees is not None
    np.testing.assert_array_equal(made.images[upright], images[upright])
    assert (made.pose_degrees[upright] == 0).all()
    assert (np.abs(made.pose_degrees[~upright]) > 1).all()
    with pytest.raises(ValueError, match=r"class 7 is not among the labels; want 0 \.\. 2"):
        variants.rotated(data, 180.0, seed=0, classes="7")
    masked = variants.disc(data).train.images[0, ..., 0]
    assert not masked[0, 0]
    assert masked[4].all()
    assert (masked[0] > 0).sum() < (masked[2] > 0).sum() < 9


def test_outside_of_the_disc_is_what_a_warp_fills_with() -> None:
    """Else corners tell views from images: black in these, the mean in those."""
    images = np.random.default_rng(0).integers(0, 256, (3, 9, 7, 3), dtype=np.uint8)
    split = Split(images, np.arange(3, dtype=np.int32))
    normalization = Normalization((125 / 255, 50 / 255, 200 / 255), (0.2, 0.3, 0.4))
    data = DataSet(split, split, ("a", "b", "c"))
    made = np.asarray(
        normalization(jnp.asarray(variants.disc(data, normalization.mean).test.images))
    )
    assert np.abs(made[:, [0, 0, -1, -1], [0, -1, 0, -1]]).max() < 1e-6
    np.testing.assert_array_equal(made[:, 4], normalization(jnp.asarray(images[:, 4])))
    with pytest.raises(ValueError, match=r"fill=\(0.1, 0.2\) for images of 3 channels; give one"):
        variants.disc(data, (0.1, 0.2))
