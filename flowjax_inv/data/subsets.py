"""Parts of a data set: classes, so many images, uneven classes, images held out.

Every function takes a `DataSet` and gives a new one; arrays are never changed in place.
"""

import dataclasses
import difflib
import math
import re
from collections.abc import Sequence

import numpy as np

from flowjax_inv.data.sets import DataSet, Split

__all__ = [
    "class_subset",
    "first",
    "hold_out",
    "labels_of",
    "long_tail",
    "put_last",
    "random_subset",
    "repeated",
    "set_aside",
]


def _taken(split: Split, index: np.ndarray | slice) -> Split:
    pose = split.pose_degrees
    return Split(split.images[index], split.labels[index], None if pose is None else pose[index])


def class_subset(data: DataSet, classes: str | Sequence[int | str]) -> DataSet:
    """Keep some classes, relabelled 0 .. k-1 in the order given.

    Args:
        data: any set.
        classes: labels or names, or a text of them with ranges, as "0-4,9" or "cat,dog".

    Raises:
        ValueError: if a class is unknown or named twice, or none is named.
    """
    labels = labels_of(classes, data.class_names)
    if len(set(labels)) < len(labels) or not labels:
        raise ValueError(f"classes={classes!r} gives the labels {labels}; want each once.")
    new_label = np.full(len(data.class_names), -1, np.int32)
    new_label[labels] = np.arange(len(labels))

    def kept(split: Split) -> Split:
        part = _taken(split, np.flatnonzero(new_label[split.labels] >= 0))
        return dataclasses.replace(part, labels=new_label[part.labels])

    centres = data.centres_degrees
    return dataclasses.replace(
        data,
        train=kept(data.train),
        test=kept(data.test),
        class_names=tuple(data.class_names[label] for label in labels),
        centres_degrees=None if centres is None else centres[labels],
    )


def labels_of(classes: str | Sequence[int | str], names: Sequence[str]) -> list[int]:
    """Return the labels of classes: labels or names, or a text of them with ranges, as "0-4,cat".

    Raises:
        ValueError: if a class is not among `names`.
    """
    items = classes.split(",") if isinstance(classes, str) else list(classes)
    return [label for item in items for label in _labels_of(item, tuple(names))]


def _labels_of(item: int | str, names: tuple[str, ...]) -> list[int]:
    """Return the labels of a label, a range of labels, or a name."""
    text, last = str(item).strip(), len(names) - 1
    bounds = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    if bounds:
        low, high = int(bounds[1]), int(bounds[2] or bounds[1])
        if not low <= high <= last:
            raise ValueError(f"class {text} is not among the labels; want 0 .. {last}.")
        return list(range(low, high + 1))
    if text in names:
        return [names.index(text)]
    near = difflib.get_close_matches(text, names, n=1, cutoff=0.5)
    raise ValueError(
        f'class "{text}" is unknown; '
        + (f"did you mean {near[0]}?" if near else f"want labels 0 .. {last}, or names.")
    )


def long_tail(data: DataSet, ratio: float) -> DataSet:
    """Thin out the classes of the train split, each more than the one before.

    n_i = floor(n_0 ratio^(-i / (C - 1))), the first n_i images of class i in their order; n_0 is
    the size of the smallest class. The test split stays. Where the order may not be the archive's,
    the note says so.

    Args:
        data: any set; CIFAR-10 with 10 gives 5000, 3871, 2997, 2320, 1796, 1391, 1077, 834, 645,
            500.
        ratio: rho, of the first class's size to the last's, at least 1.

    Raises:
        ValueError: if the ratio is below 1, or leaves a class empty.
    Source: Cui et al. 2019, as in LILA's code. Theirs takes n_0 from CIFAR-10, where all classes
        are alike; with uneven ones, only the smallest has room for any ratio.
    """
    classes = len(data.class_names)
    counts = np.bincount(data.train.labels, minlength=classes)
    if not 1 <= ratio < math.inf:
        raise ValueError(f"long-tail ratio is {ratio}; want 1 or more.")
    exponents = -np.arange(classes) / max(classes - 1, 1)
    # Without the last term, exact quotients such as 5000 / 100 may come out one too small.
    sizes = np.floor(counts.min() * ratio**exponents + 1e-9).astype(int)
    if sizes.min() < 1:
        raise ValueError(
            f"long-tail ratio {ratio} leaves class {data.class_names[int(sizes.argmin())]} "
            f"without an image; want at most {counts.min()}."
        )
    labels = data.train.labels
    index = [np.flatnonzero(labels == label)[:size] for label, size in enumerate(sizes)]
    note = data.note
    if data.may_be_shuffled:
        clause = "long tail: first of each class as stored, which may not be the official order"
        note = f"{note}; {clause}" if note else clause
    train = _taken(data.train, np.sort(np.concatenate(index)))
    return dataclasses.replace(data, train=train, note=note)


def first(data: DataSet, train_size: int = 0, test_size: int = 0) -> DataSet:
    """Keep the first images of each split; 0 keeps all.

    Raises:
        ValueError: if a size is negative or larger than its split.
    """
    for name, size, split in (("train", train_size, data.train), ("test", test_size, data.test)):
        _check_size(f"{name}_size", size, split, low=0)
    return dataclasses.replace(
        data,
        train=_taken(data.train, slice(train_size or None)),
        test=_taken(data.test, slice(test_size or None)),
    )


def set_aside(data: DataSet, share: float, *, seed: int, repeats: int = 1) -> tuple[DataSet, Split]:
    """Take a share of the train images, drawn at random, out of the set: at least one.

    Args:
        data: any set.
        share: in (0, 1).
        seed: of the draw.
        repeats: times every image stands in a row, see `repeated`; all of them go together.

    Returns:
        The set without them, and them; both in the set's order.

    Raises:
        ValueError: if none would be left.
    """
    aside = _drawn_aside(data, share, seed=seed, repeats=repeats)
    rest = _taken(data.train, np.flatnonzero(~aside))
    return dataclasses.replace(data, train=rest), _taken(data.train, np.flatnonzero(aside))


def _drawn_aside(data: DataSet, share: float, *, seed: int, repeats: int) -> np.ndarray:
    """Return which train images (N,) bool are set aside, see `set_aside`."""
    images = len(data.train) // repeats
    size = max(1, round(share * images))
    if size >= images:
        raise ValueError(
            f"{size} of {images} train images are to be set aside; want fewer than there are."
        )
    aside = np.zeros(images, bool)
    aside[np.random.default_rng(seed).permutation(images)[:size]] = True
    return np.repeat(aside, repeats)


def put_last(data: DataSet, share: float, *, seed: int, repeats: int = 1) -> tuple[DataSet, int]:
    """Put a share of the train images, drawn as by `set_aside`, behind the others.

    Returns:
        The set with all its images, and how many of them stand last.
    """
    aside = _drawn_aside(data, share, seed=seed, repeats=repeats)
    order = np.argsort(aside, kind="stable")
    return dataclasses.replace(data, train=_taken(data.train, order)), int(aside.sum())


def random_subset(data: DataSet, train_size: int, *, seed: int) -> DataSet:
    """Keep the first `train_size` train images of an order drawn from `seed`.

    So a smaller subset is part of a larger one of the same seed.

    Raises:
        ValueError: if the size is not 1 .. all.
    """
    _check_size("train_size", train_size, data.train, low=1)
    order = np.random.default_rng(seed).permutation(len(data.train))
    return dataclasses.replace(data, train=_taken(data.train, order[:train_size]))


def hold_out(data: DataSet, size: int) -> DataSet:
    """Make the last `size` train images the test split, to tune without the test images.

    Raises:
        ValueError: if nothing is held out, or nothing left to train on.
    """
    _check_size("held-out size", size, data.train, low=1, spare=1)
    return dataclasses.replace(
        data,
        train=_taken(data.train, slice(None, -size)),
        test=_taken(data.train, slice(-size, None)),
    )


def _check_size(name: str, size: int, split: Split, *, low: int, spare: int = 0) -> None:
    if not low <= size <= len(split) - spare:
        raise ValueError(f"{name} is {size}; want {low} .. {len(split) - spare}.")


def repeated(data: DataSet, times: int) -> DataSet:
    """Take every image of both splits so many times in a row, before each is turned on its own.

    Raises:
        ValueError: if `times` is not positive.
    """
    if times < 1:
        raise ValueError(f"repeats is {times}; want 1 or more.")

    def part(split: Split) -> Split:
        return _taken(split, np.repeat(np.arange(len(split)), times))

    return dataclasses.replace(data, train=part(data.train), test=part(data.test))
