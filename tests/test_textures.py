"""Textures under lamps."""

import numpy as np
import pytest

from flowjax_inv.data.textures import BRIGHT, PALETTES, PATTERNS, TEST_LAMPS, WARM, textures


def drawn(**fields):
    given = {"train_size": 40, "test_size": 200, "seed": 0, "lamps": 2, "lamp_half_range": 0.4}
    return textures(**given | fields)


def lights(half_range: float) -> list[set[tuple[int, ...]]]:
    """The gains of the images of both splits, found beside the same images in white light."""
    lit, white = drawn(lamp_half_range=half_range), drawn(lamp_half_range=0.0)
    found = []
    for name in ("train", "test"):
        seen, plain = (getattr(data, name).images.mean((1, 2)) for data in (lit, white))
        found.append({tuple(row) for row in np.round(seen / plain, 1).tolist()})
    return found


def test_sets_are_what_they_say() -> None:
    data = drawn()
    assert data.train.images.shape == (40, 32, 32, 3)
    assert len(data.class_names) == len(PATTERNS) * len(PALETTES) == 20
    assert np.bincount(data.train.labels).tolist() == [2] * 20
    np.testing.assert_array_equal(data.train.images, drawn().train.images)
    assert not np.array_equal(data.train.images, drawn(seed=1).train.images)


def test_train_images_know_few_lamps_and_the_test_others() -> None:
    train, test = lights(0.4)
    assert 2 <= len(train) <= 4  # two; where rounding parts one from itself, more
    assert len(test) > TEST_LAMPS / 2
    for red, green, blue in train | test:
        assert all(0.5 <= gain <= 1.9 for gain in (red, green, blue))  # exp(0.6) is 1.82
        assert abs(np.log(red * blue / green**2)) < 0.35  # no green light, but for rounding
    assert lights(0.0) == [{(1.0, 1.0, 1.0)}] * 2


def test_lamps_of_a_split_are_spread() -> None:
    """One in each of five equal parts of (-h, h), by how warm they are, whatever the seed.

    How bright they are is beneath the shade of the image, so only the first is seen.
    """
    for seed in range(3):
        lit, white = (
            drawn(lamps=5, lamp_half_range=h, seed=seed, train_size=400) for h in (0.4, 0.0)
        )
        seen, plain = (data.train.images.mean((1, 2)) for data in (lit, white))
        gains = np.log(seen / plain)
        warm = (gains[:, 0] - gains[:, 2]) / 2.0 / 0.4  # u; bright ones cancel
        parts = np.bincount(np.clip((warm + 1.0) / 2.0 * 5.0, 0, 4.99).astype(int), minlength=5)
        assert (parts > 30).all()


def test_no_lamp_makes_one_palette_of_another() -> None:
    colours = np.log(list(PALETTES.values()))
    ratios = colours[:, 0] - colours[:, 1]
    unlit = np.cross(WARM, BRIGHT)  # the direction of log-gains that lamps do not reach
    tints = colours.mean(1) @ unlit / np.linalg.norm(unlit)
    for k, one in enumerate(ratios):
        for ratio, tint in zip(ratios[:k], tints[:k], strict=True):
            assert np.abs(one - ratio).max() > 0.2 or abs(tints[k] - tint) > 0.3
    assert np.abs(ratios[0] - ratios[1]).max() < 0.05  # by their ratios these two are one
    assert np.abs(ratios[2] - ratios[3]).max() < 0.05


def test_what_is_refused() -> None:
    for fields in ({"lamps": 0}, {"test_size": 0}, {"lamp_half_range": -0.1}):
        with pytest.raises(ValueError, match="want at least 1 of each"):
            drawn(**fields)
