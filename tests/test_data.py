"""The sprites, and the order of batches."""

from pathlib import Path

import numpy as np
import pytest

from flowjax_inv.data import batches, sprites
from flowjax_inv.data.sets import DataSet, Split

OURS = sprites.load_sprites()


def _set(**fields):
    return sprites.mario_iggy(sprites=OURS, train_size=48, test_size=24, **fields)


def test_our_figures_are_two_and_asymmetric() -> None:
    assert OURS.shape == (2, 32, 32, 3)
    assert OURS.min() >= 0
    assert OURS.max() <= 1
    for figure in OURS:
        turns = [np.rot90(figure, k) for k in range(4)] + [figure[:, ::-1], figure[::-1]]
        for other in turns[1:]:
            assert np.abs(other - figure).mean() > 0.05


@pytest.mark.parametrize(("modes", "half"), [(1, 90.0), (1, 45.0), (3, 30.0)])
def test_poses_lie_in_the_arcs_of_their_class(modes: int, half: float) -> None:
    data = _set(modes=modes, half_range_degrees=half)
    centres = data.centres_degrees
    assert centres is not None
    assert data.train.pose_degrees is not None
    offset = (data.train.pose_degrees[:, None] - centres[data.train.labels] + 180) % 360 - 180
    assert np.abs(offset).min(1).max() <= half + 1e-3
    assert np.bincount(data.train.labels).tolist() == [12] * 4
    if modes == 3:
        assert sorted(centres[0]) == [-120, 0, 120]
        assert sorted(centres[1]) == [-180, -60, 60]
        nearest = np.abs(offset).argmin(1)
        assert np.bincount(nearest).tolist() == [16] * 3


def test_sectors_cut_the_circle_of_each_figure() -> None:
    data = _set(sectors=12)
    assert data.train.pose_degrees is not None
    assert data.arc_half_range_degrees == 15.0
    assert len(data.class_names) == 24
    assert data.class_names[13] == "second 30°"
    sector = np.round(data.train.pose_degrees / 30.0).astype(int) % 12
    np.testing.assert_array_equal(sector, data.train.labels % 12)
    assert np.bincount(data.train.labels).tolist() == [2] * 24
    upright = np.flatnonzero(data.train.labels == 12)[0]
    back = sprites.turned(OURS[1:], data.train.pose_degrees[[upright]], False)
    np.testing.assert_array_equal(data.train.images[[upright]], back)


def test_quarter_turns_are_counter_clockwise_and_exact() -> None:
    pose = np.array([0.0, 90.0, 180.0, -90.0], np.float32)
    images = sprites.turned(np.repeat(OURS[:1], 4, axis=0), pose, False)
    upright = np.round(OURS[0] * 255).astype(np.uint8)
    for image, turns in zip(images, (0, 1, 2, 3), strict=True):
        off = np.abs(image.astype(int) - np.rot90(upright, turns).astype(int))
        assert off.max() <= 1


def test_the_set_is_a_function_of_its_seed() -> None:
    one, same, other = _set(seed=1), _set(seed=1), _set(seed=2)
    np.testing.assert_array_equal(one.train.images, same.train.images)
    assert np.abs(one.train.images.astype(int) - other.train.images).max() > 0
    train, test = one.train.pose_degrees, one.test.pose_degrees
    assert train is not None
    assert test is not None
    assert not set(train) & set(test)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"train_size": 50}, "train_size is 50; want a positive multiple of 4"),
        ({"test_size": 0}, "test_size is 0; want a positive multiple of 4"),
        ({"half_range_degrees": 91.0}, r"half_range_degrees is 91.0 with modes=1; want \(0, 90\]"),
        ({"sectors": 7}, "train_size is 48; want a positive multiple of 14"),
        ({"sectors": 4, "modes": 3}, "sectors=4 with modes=3; sectors have one arc each"),
        ({"modes": 3}, r"half_range_degrees is 90.0 with modes=3; want \(0, 30\]"),
    ],
)
def test_set_refusals(fields, text) -> None:
    with pytest.raises(ValueError, match=text):
        sprites.mario_iggy(**{"sprites": OURS, "train_size": 48, "test_size": 24} | fields)


def _file(path: Path, **arrays) -> Path:
    np.savez(path, **arrays)
    return path


def test_sprites_from_a_file(tmp_path: Path) -> None:
    figure = np.random.default_rng(0).random((1, 3, 32, 32))
    path = _file(tmp_path / "own.npz", mario=figure, iggy=figure[:, ::-1])
    loaded = sprites.load_sprites(path)
    np.testing.assert_allclose(loaded[0], figure[0].transpose(1, 2, 0), atol=1e-6)


def test_sprite_file_refusals(tmp_path: Path) -> None:
    good = np.zeros((1, 3, 32, 32))
    cases = [
        (_file(tmp_path / "a.npz", mario=good), r"has keys \['mario'\], not iggy"),
        (_file(tmp_path / "b.npz", mario=good, iggy=good[0]), r"iggy is float64 \(3, 32, 32\)"),
        (_file(tmp_path / "c.npz", mario=good, iggy=good + 2), r"iggy spans \[2.0, 2.0\]"),
        (_file(tmp_path / "d.npz", mario=good, iggy=good * np.nan), r"iggy spans \[nan, nan\]"),
        (_file(tmp_path / "e.npz", mario=good, iggy=good.astype(int)), r"iggy is int64"),
        (tmp_path / "absent.npz", "cannot be read"),
    ]
    (tmp_path / "text.npz").write_text("no archive")
    cases.append((tmp_path / "text.npz", "cannot be read"))
    whole = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    cases.append((tmp_path / "cut.npz", "is damaged|cannot be read"))
    for path, text in cases:
        with pytest.raises(ValueError, match=text) as caught:
            sprites.load_sprites(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("images", "labels", "text"),
    [
        (
            np.zeros((2, 4, 4, 1), np.float32),
            [0, 1],
            r"train has images float32 \(2, 4, 4, 1\) and",
        ),
        (np.zeros((2, 4, 4, 1), np.uint8), [0], "and 1 labels; want uint8"),
        (np.zeros((2, 4, 4, 1), np.uint8), [1, 2], "labels of train span 1 .. 2; want 0 .. 1"),
    ],
)
def test_what_is_no_set_is_refused(images: np.ndarray, labels: list[int], text: str) -> None:
    split = Split(images, np.array(labels, np.int32))
    with pytest.raises(ValueError, match=text):
        DataSet(split, split, ("a", "b"))


def test_every_epoch_is_a_new_permutation_and_a_pure_function() -> None:
    def epoch(number: int) -> np.ndarray:
        return np.concatenate([
            batches.batch_indices(3 * number + i, size=10, batch_size=3, seed=4, shuffle=True)
            for i in range(3)
        ])  # fmt: skip

    assert len(set(epoch(0))) == 9
    assert set(epoch(0)) <= set(range(10))
    np.testing.assert_array_equal(epoch(5), epoch(5))
    assert (epoch(0) != epoch(1)).any()
    plain = batches.batch_indices(4, size=10, batch_size=3, seed=4, shuffle=False)
    np.testing.assert_array_equal(plain, [3, 4, 5])


def test_drawn_indices_are_a_pure_function_and_repeat_only_where_they_must() -> None:
    def drawn(step: int, size: int) -> np.ndarray:
        return batches.drawn_indices(step, size=size, batch_size=8, seed=4)

    assert len(set(drawn(3, 20))) == 8
    np.testing.assert_array_equal(drawn(3, 20), drawn(3, 20))
    assert (drawn(3, 20) != drawn(4, 20)).any()
    assert sorted(np.bincount(drawn(0, 5))) == [1, 1, 2, 2, 2]


def test_padded_batches_cover_everything_once() -> None:
    pairs = batches.padded_batches(10, 4)
    assert [len(index) for index, _ in pairs] == [4, 4, 4]
    np.testing.assert_array_equal(np.concatenate([i[m] for i, m in pairs]), np.arange(10))


def test_batch_larger_than_the_set() -> None:
    with pytest.raises(ValueError, match="batch_size is 11; want 1 .. 10"):
        batches.steps_per_epoch(10, 11)
