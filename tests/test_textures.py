"""Textures under lamps."""

import numpy as np
import pytest

from flowjax_inv.data.textures import APART, BRIGHT, PLACES, TEST_LAMPS, textures


def drawn(**fields):
    given = {"train_size": 40, "test_size": 200, "seed": 0, "lamps": 2, "lamp_half_range": 0.4}
    return textures(**given | fields)


def lights(split: str, place: str, **fields) -> np.ndarray:
    """Log-gains of the images of a place, found beside the same images in white light."""
    names = np.array(drawn().class_names)
    there = [name.split()[1] in PLACES[place].patterns for name in names]
    lit, white = (
        getattr(drawn(**fields | {"lamp_half_range": h}), split)
        for h in (fields.get("lamp_half_range", 0.4), 0.0)
    )
    kept = np.array(there)[lit.labels]
    return np.log(lit.images[kept].mean((1, 2)) / white.images[kept].mean((1, 2)))


def test_sets_are_what_they_say() -> None:
    data = drawn()
    assert data.train.images.shape == (40, 32, 32, 3)
    assert len(set(data.class_names)) == 20
    assert np.bincount(data.train.labels).tolist() == [2] * 20
    np.testing.assert_array_equal(data.train.images, drawn().train.images)
    assert not np.array_equal(data.train.images, drawn(seed=1).train.images)


@pytest.mark.parametrize("place", PLACES)
def test_train_images_know_few_lamps_of_their_place_and_the_test_others(place) -> None:
    train, test = (lights(split, place) for split in ("train", "test"))
    count = [len(np.unique(np.round(found, 1), axis=0)) for found in (train, test)]
    assert 2 <= count[0] <= 6  # two; where rounding parts one from itself, more
    assert count[1] > TEST_LAMPS / 4
    unlit = np.array(PLACES[place].other) / np.linalg.norm(PLACES[place].other)
    for found, half_range in ((train, 0.2), (test, 0.4)):
        # By the kind of the lamp, half of it by how bright it is, and rounding.
        assert 0.6 * half_range < np.abs(found).max() < 1.5 * half_range + 0.05
        assert np.abs(found @ unlit).max() < 0.05  # but for rounding
    np.testing.assert_array_equal(lights("train", place, lamp_half_range=0.0), 0.0)


@pytest.mark.parametrize("place", PLACES)
def test_lamps_of_a_split_are_spread(place) -> None:
    """One in each of five equal parts of (-h, h), by how warm or green they are, whatever the seed.

    How bright they are is beneath the shade of the image, so only the first is seen.
    """
    kind = np.array(PLACES[place].lamps)
    for seed in range(3):
        found = lights("train", place, lamps=5, seed=seed, train_size=400)
        along = found @ kind / (kind @ kind) / 0.2  # u: bright ones are at right angles
        parts = np.bincount(np.clip((along + 1.0) / 2.0 * 5.0, 0, 4.99).astype(int), minlength=5)
        assert (parts > 16).all()


def test_palettes_are_apart_in_what_their_lamps_do_not_know_and_only_there() -> None:
    for place in PLACES.values():
        assert np.dot(place.lamps, place.other) == np.dot(BRIGHT, place.other) == 0
        palettes = place.palettes()
        ratios = {name: np.log(first / second) for name, (first, second) in palettes.items()}
        for one, other in place.pairs:
            apart = np.log(palettes[other] / palettes[one])
            np.testing.assert_allclose(apart, APART * np.array([place.other] * 2), atol=1e-12)
        (a, b), (c, d) = place.pairs
        for one, other in ((a, c), (a, d), (b, c), (b, d)):
            assert np.abs(ratios[one] - ratios[other]).max() > 0.2  # no light turns them


def test_what_is_refused() -> None:
    for fields in ({"lamps": 0}, {"test_size": 0}, {"lamp_half_range": -0.1}):
        with pytest.raises(ValueError, match="want at least 1 of each"):
            drawn(**fields)
