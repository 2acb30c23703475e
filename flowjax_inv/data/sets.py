"""What a data set is to the rest of the house: arrays in memory, pixels as uint8, or points."""

import dataclasses

import numpy as np

__all__ = ["DataSet", "Split"]


@dataclasses.dataclass(frozen=True)
class Split:
    """Images and labels of one split.

    Attributes:
        images: (N, H, W, C) uint8; 255 is full intensity. Or clouds of points (N, P, 3 + K)
            float32, see `transforms.Points`.
        labels: (N,) int32.
        pose_degrees: (N,) float32, counter-clockwise as seen, where it is known; else None.
        maps: (N, H, W) int32, a label for every pixel, where there are such; else None.
        values: (N, m) float32, what is to be predicted in place of labels, where there are such.
    """

    images: np.ndarray
    labels: np.ndarray
    pose_degrees: np.ndarray | None = None
    maps: np.ndarray | None = None
    values: np.ndarray | None = None

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

    Raises:
        ValueError: if images are neither (N, H, W, C) uint8 nor (N, P, 3 + K) float32, or have not
            one label each, of a class.
    """

    train: Split
    test: Split
    class_names: tuple[str, ...]
    centres_degrees: np.ndarray | None = None
    arc_half_range_degrees: float | None = None
    note: str = ""
    labelled: bool = True
    may_be_shuffled: bool = False

    @property
    def pictures(self) -> bool:
        """Whether images are pictures, not points."""
        return self.test.images.ndim == 4

    def __post_init__(self) -> None:
        """Refuse what would train on something else without a word."""
        for name, split in (("train", self.train), ("test", self.test)):
            images, labels = split.images, split.labels
            pictures = images.ndim == 4 and images.dtype == np.uint8
            points = images.ndim == 3 and images.dtype == np.float32 and images.shape[-1] >= 3
            if not (pictures or points) or len(images) != len(labels):
                raise ValueError(
                    f"{name} has images {images.dtype} {images.shape} and {len(labels)} labels; "
                    "want uint8 (N, H, W, C), or points float32 (N, P, 3 + K), and N labels."
                )
            classes = len(self.class_names)
            if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
                raise ValueError(
                    f"labels of {name} span {labels.min()} .. {labels.max()}; want 0 .. "
                    f"{classes - 1}, one per class name."
                )
