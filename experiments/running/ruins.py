"""The two ways a density is ruined in training, told in the epoch they happen."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from experiments.report.tables import RUINS
from experiments.setup.assembly import Assembly
from flowjax_inv.transforms import Transform

__all__ = [
    "BLOWN_OPEN",
    "COLLAPSED",
    "box_of",
    "first_ruin",
    "moves_a_pixel",
    "pixel_half_ranges",
    "ruin",
    "warning",
]

BLOWN_OPEN, COLLAPSED = RUINS
_BY_PIXELS = {"degrees", "half-widths", "half-heights", "log-scale", "algebra"}  # units
_NEAR_EVEN = 1.0  # nats below the box's log volume
_HALF_AS_WELL = math.log(2.0)  # nats that views cost more than originals


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
    """Return `log_volume` and `pixels` of a run.

    Nothing can be told of a list of crops, and a density of poses is right to be sharp.
    """
    transform, poses = parts.transform, parts.objective.pose_likelihood
    if poses or parts.distribution.discrete or not parts.distribution.has_density:
        return {"log_volume": math.inf, "pixels": []}
    size = min(parts.data.train.images.shape[1:3])
    pixels = pixel_half_ranges(transform, size) if {*transform.units} <= _BY_PIXELS else []
    return {"log_volume": transform.dim * math.log(2.0), "pixels": pixels}


def ruin(line: Mapping[str, Any], *, log_volume: float, pixels: Sequence[float]) -> str:
    """Name the ruin that a line of metrics shows; empty if none.

    Blown open: the entropy is within a nat of the box's, and the right class of a view has half
    the probability that it has of the original (geometric means). Collapsed: the entropy is below
    that of boxes whose every half-range is a pixel at the rim.

    Args:
        line: of metrics.jsonl, of a step with views.
        log_volume: of the box, nats.
        pixels: half-ranges of a pixel, box units.
    """
    entropy = line.get("entropy")
    if entropy is None:  # not a number
        return ""
    views, originals = line.get("cross_entropy"), line.get("cross_entropy_original")
    if views is not None and originals:  # 0: originals are not classified
        near = entropy > log_volume - _NEAR_EVEN
        if near and views - originals > _HALF_AS_WELL:
            return BLOWN_OPEN
    point = pixels and entropy < sum(math.log(2.0 * each) for each in pixels)
    return COLLAPSED if point else ""


def first_ruin(
    lines: Iterable[Mapping[str, Any]], *, burn_in_epochs: int, **box: Any
) -> tuple[str, float | None]:
    """Return the ruin that the last epoch ended in, and the epoch since when it is so.

    Args:
        lines: of metrics.jsonl.
        burn_in_epochs: in which there are no views.
        **box: `log_volume` and `pixels`, see `ruin`.
    """
    now, since = "", None
    for line in lines:
        epoch = line["epoch"]
        if epoch > burn_in_epochs and epoch == round(epoch):
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
    return f"WARNING: in epoch {epoch:g} the density is {found}: {RUINS[found]}"
