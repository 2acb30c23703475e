"""The ways a training is ruined without an error, told in the epoch they happen."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from experiments.report.verdicts import RUINS
from experiments.setup.assembly import Assembly
from flowjax_inv.transforms import Transform

__all__ = [
    "BLOWN_OPEN",
    "COLLAPSED",
    "GUESSING",
    "TRIVIAL",
    "box_of",
    "first_ruin",
    "moves_a_pixel",
    "pixel_half_ranges",
    "ruin",
    "warning",
]

BLOWN_OPEN, COLLAPSED, TRIVIAL, GUESSING = RUINS
_BY_PIXELS = {"degrees", "half-widths", "half-heights", "log-scale", "algebra"}  # units
_NEAR_EVEN = 1.0  # nats below the box's log volume
_HALF_AS_WELL = math.log(2.0)  # nats that views cost more than originals
_OFTENER = 1.25  # than chance: below, a classifier guesses
_ALL_PAIRS = 0.99  # of views that are compared: what is left to learn by it is noise
_LEARNS_BY = 3  # epochs, by which every set of these tells something apart
_ENOUGH = 1_000  # images in a line of metrics, to tell it from chance


def pixel_half_ranges(transform: Transform, size: int) -> list[float]:
    """Return which half-range, in box units, moves the rim of a picture by a pixel.

    Args:
        transform: by matrices: its units are degrees, or shares of half a picture.
        size: pixels across the picture.
    """
    pixel = 2.0 / size
    return [
        (math.degrees(pixel) if unit == "degrees" else pixel) / half_range
        for unit, half_range in zip(transform.units, transform.half_range, strict=True)
    ]


def box_of(parts: Assembly) -> dict[str, Any]:
    """Return what `ruin` must know of a run.

    Nothing can be told of a list of crops or of points, and a density of poses is right to be
    sharp.
    """
    config, transform = parts.config, parts.transform
    box = {"burn_in_epochs": config.objective.burn_in_epochs, "chance": 0.0}
    seen = config.train.log_every * config.train.batch_size
    classes = parts.data.labelled and config.objective.loss == "cross_entropy"
    if classes and seen >= _ENOUGH:
        box["chance"] = 1.0 / len(parts.data.class_names)
    poses = parts.objective.pose_likelihood
    apart = poses or parts.distribution.discrete or not parts.data.pictures
    if apart or not parts.distribution.has_density:
        return {"log_volume": math.inf, "pixels": [], **box}
    size = min(parts.data.train.images.shape[1:3])
    pixels = pixel_half_ranges(transform, size) if {*transform.units} <= _BY_PIXELS else []
    return {"log_volume": transform.dim * math.log(2.0), "pixels": pixels, **box}


def ruin(
    line: Mapping[str, Any],
    *,
    log_volume: float,
    pixels: Sequence[float],
    burn_in_epochs: int,
    chance: float,
) -> str:
    """Name the ruin that a line of metrics shows; empty if none.

    Guessing: from the third epoch on the train images are classified right no oftener than 1.25
    times by chance. The others are of epochs with views. Blown open: the entropy is within a nat of
    the box's, and the right class of a view has half the probability that it has of the original
    (geometric means). Trivial: of views that are compared, more than 99 % find their partner among
    all. Collapsed: the entropy is below that of boxes whose every half-range is a
    pixel at the rim.

    Args:
        line: of metrics.jsonl.
        log_volume: of the box, nats.
        pixels: half-ranges of a pixel, box units.
        burn_in_epochs: in which there are no views.
        chance: one over the number of classes; 0 where that cannot be told.
    """
    if line["epoch"] >= _LEARNS_BY and line.get("train_accuracy", 1.0) < _OFTENER * chance:
        return GUESSING
    if line.get("train_pairs_found", 0.0) > _ALL_PAIRS:
        return TRIVIAL
    entropy = line.get("entropy")
    if entropy is None or line["epoch"] <= burn_in_epochs:  # None: not a number
        return ""
    views, originals = line.get("cross_entropy"), line.get("cross_entropy_original")
    if views is not None and originals:  # 0: originals are not classified
        near = entropy > log_volume - _NEAR_EVEN
        if near and views - originals > _HALF_AS_WELL:
            return BLOWN_OPEN
    point = pixels and entropy < sum(math.log(2.0 * each) for each in pixels)
    return COLLAPSED if point else ""


def first_ruin(lines: Iterable[Mapping[str, Any]], **box: Any) -> tuple[str, float | None]:
    """Return the ruin that the last epoch ended in, and the epoch since when it is so.

    Args:
        lines: of metrics.jsonl.
        **box: of `box_of`, see `ruin`.
    """
    now, since = "", None
    for line in lines:
        epoch = line["epoch"]
        if epoch == round(epoch):
            found = ruin(line, **box)
            if found != now:
                now, since = found, epoch if found else None
    return now, since


def moves_a_pixel(results: Mapping[str, Any], parts: Assembly) -> bool:
    """Say whether a measured half-range is a pixel at the rim or more.

    Then nothing has collapsed: of several coordinates, the entropy falls without end where some are
    points, however wide another one is.
    """
    transform, pixels = parts.transform, box_of(parts)["pixels"]
    return any(
        results.get(f"half_range_{name}", 0.0) >= pixel * half_range
        for name, half_range, pixel in zip(
            transform.names, transform.half_range, pixels, strict=bool(pixels)
        )
    )


def warning(found: str, epoch: float) -> str:
    """Return the line that a run prints."""
    what = {GUESSING: "classifier", TRIVIAL: "contrast"}.get(found, "density")
    return f"WARNING: in epoch {epoch:g} the {what} is {found}: {RUINS[found]}"
