"""A data set of random pictures: what they show does not change the work."""

import numpy as np

from flowjax_inv.data.sets import DataSet, Split

__all__ = ["random_pictures"]


def random_pictures(number: int, shape: tuple[int, ...], classes: int) -> DataSet:
    """Return `number` pictures (H, W, C) with labels, the same to train and to test on."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (number, *shape), dtype=np.uint8)
    split = Split(images, random.integers(0, classes, number).astype(np.int32))
    return DataSet(split, split, tuple(str(label) for label in range(classes)))
