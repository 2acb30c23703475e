"""What a data set is to the rest of the house: arrays in memory, pixels as uint8."""

import dataclasses

import numpy as np

__all__ = ["DataSet", "Split"]


@dataclasses.dataclass(frozen=True)
class Split:
    """Images and labels of one split.

    Attributes:
        images: (N, H, W, C) uint8; 255 is full intensity.
        labels: (N,) int32.
        pose_degrees: (N,) float32, counter-clockwise as seen, where it is known; else None.
    """

    images: np.ndarray
    labels: np.ndarray
    pose_degrees: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.labels)


@dataclasses.dataclass(frozen=True)
class DataSet:
    """Train and test split with the names of the classes.

    Attributes:
        train, test: the splits.
        class_names: one per label.
        centres_degrees: (classes, modes) centres of the arcs a class covers, where known.
        arc_half_range_degrees: half-width of every such arc.
        note: what a reader of figures must know, e.g. that the contents are not the official ones.
        labelled: whether the labels mean anything.
        may_be_shuffled: whether it is stored in an order that may not be its archive's.
    """

    train: Split
    test: Split
    class_names: tuple[str, ...]
    centres_degrees: np.ndarray | None = None
    arc_half_range_degrees: float | None = None
    note: str = ""
    labelled: bool = True
    may_be_shuffled: bool = False
