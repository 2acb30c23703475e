"""Scenes with a label for every pixel."""

import functools

import numpy as np
import pytest

from flowjax_inv.data.scenes import CLASS_NAMES, scenes
from flowjax_inv.data.sets import Split
from flowjax_inv.data.sprites import load_sprites


@functools.cache
def drawn(**fields):
    given = {"train_size": 60, "test_size": 20, "turn_std": 1.0, "seed": 0}
    return scenes(sprites=load_sprites(), **given | fields)


def maps_of(split: Split) -> np.ndarray:
    assert split.maps is not None
    return split.maps


def test_sets_are_what_they_say() -> None:
    data = drawn()
    maps = maps_of(data.train)
    assert data.train.images.shape == (60, 32, 32, 3)
    assert maps.shape == (60, 32, 32)
    assert data.class_names == CLASS_NAMES
    assert set(np.unique(maps)) == set(range(len(CLASS_NAMES)))
    shares = np.bincount(maps.ravel()) / maps.size
    assert 0.5 < shares[0] < 0.9
    counts = np.stack([(maps == k).sum((1, 2)) for k in range(len(CLASS_NAMES))], 1)
    assert (counts[np.arange(60), data.train.labels] == counts[:, 1:].max(1)).all()
    np.testing.assert_array_equal(data.train.images, drawn.__wrapped__().train.images)
    assert not np.array_equal(data.train.images, drawn(seed=1).train.images)
    assert not np.array_equal(data.train.images[:20], data.test.images)


def test_maps_lie_on_the_things_and_turn_with_them() -> None:
    """Digits are the brightest grey there is, turned or not; the ground is darker."""
    for turn in (0.0, 1.0):
        split = drawn(turn_std=turn).train
        digits = maps_of(split) >= 3
        darkest = split.images.min(-1)
        assert darkest[digits].mean() > darkest[~digits].mean() + 60
        # A pixel aside they no longer lie there.
        aside = np.roll(digits, 4, axis=2)
        assert darkest[digits].mean() > darkest[aside].mean() + 40


def test_scenes_are_turned_by_normal_angles() -> None:
    """The axes of the first figure point one way in scenes that are not turned, else many."""
    upright, turned = (maps_of(drawn(turn_std=turn, train_size=200).train) for turn in (0.0, 1.0))

    def axes(maps: np.ndarray) -> np.ndarray:
        found = []
        for each in maps == 1:
            if each.sum() < 60:
                continue
            y, x = np.nonzero(each)
            covariance = np.cov(np.stack([x, y]))
            found.append(np.arctan2(2 * covariance[0, 1], covariance[0, 0] - covariance[1, 1]))
        return np.asarray(found)

    together, apart = (np.abs(np.exp(1j * axes(maps)).mean()) for maps in (upright, turned))
    assert together > 1.5 * apart


def test_what_is_refused() -> None:
    for fields in ({"train_size": 0}, {"test_size": 0}, {"turn_std": -0.1}):
        with pytest.raises(ValueError, match="want at least 1 of each"):
            drawn(**fields)
