"""Straighten a folder of pictures with the density of a finished run.

    python -m experiments.align --workdir=runs/mario_iggy --images=FOLDER --out=FOLDER
    python -m experiments.align ... --coordinates rotation     # turned alone, not moved

Writes to --out, which must be new or empty: every picture straightened, at most 1024 pixels wide,
as NAME.png, in subfolders as it came; poses.csv, what was done to each; montage.png, some before
and after; prototype.png, the mean picture before and after. Pictures are turned as their EXIF says,
converted to the run's channels and put on a canvas of its aspect; what cannot be read is named, and
the rest goes on.
"""

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.report.rendering import write
from experiments.running.command_line import leave
from experiments.running.program_cache import keep_compiled_programs
from experiments.running.trained import Trained, load_run
from flowjax_inv.data.user_pictures import find_pictures, open_picture, padded, warped
from flowjax_inv.inference.alignment import Alignment, align
from flowjax_inv.transforms import Spatial

__all__ = ["align_folder", "main"]

_SHOWN = 12  # pictures of the montage
_LARGEST = 1024  # longest side of what is written


def align_folder(
    workdir: str | Path, images: str | Path, out: str | Path, **fields: Any
) -> dict[str, int]:
    """Straighten every picture of a folder; see the head of this file.

    Args:
        workdir: folder of a finished run with a density.
        images: folder of pictures, or of folders of them.
        out: folder to write to, new or empty.
        **fields: of `inference.mean_shift`.

    Returns:
        How many pictures came to each end: aligned, left alone, not at rest, skipped.

    Raises:
        ValueError: if a folder is not what it should be, or no picture can be read.
    """
    place = Path(out)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise ValueError(f"{place} is there and not empty; give a new folder, nothing is replaced.")
    run = load_run(workdir)
    if not run.distribution.has_density:
        raise ValueError(f"{workdir} has no density ({run.config.distribution.name}).")
    if not isinstance(run.transform, Spatial):
        raise ValueError(
            f"{workdir} moves colours ({type(run.transform).__name__}); pictures are straightened "
            "by transforms that move pixels: give a run without transform.colours."
        )
    fill = np.round(255 * np.array(run.normalization.mean)).astype(int)
    fill = np.broadcast_to(fill, run.image_shape[2])

    paths, skipped = find_pictures(images, deep=True), {}
    names = {path: path.relative_to(images) for path in paths}
    small: dict[Path, np.ndarray] = {}
    for path in paths:
        try:
            canvas = _canvas(path, run, fill)
        except ValueError as error:
            skipped[path] = str(error)
            print(f"skipped: {error}", file=sys.stderr)
            continue
        height, width = run.image_shape[:2]
        small[path] = np.asarray(canvas.resize((width, height))).reshape(run.image_shape)
    if not small:
        raise ValueError(f"none of {len(paths)} pictures in {images} can be read.")

    before = run.normalization(jnp.asarray(np.stack(list(small.values()))))
    found = align(
        run.propose, run.transform, before, key=jax.random.key(run.config.seed), batch_size=64,
        **{"spread": "stratified", "common_noise": True} | fields,
    )  # fmt: skip
    place.mkdir(parents=True, exist_ok=True)
    ends = _ends(found, run)
    matrices = np.asarray(run.transform.matrix(found.theta))
    for path, matrix in zip(small, matrices, strict=True):
        corners = run.transform.align_corners
        canvas = _canvas(path, run, fill)
        turned = warped(canvas, matrix, fill.tolist(), align_corners=corners)
        target = place / f"{names[path]}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        turned.save(target)
    came = {names[path]: end for path, end in zip(small, ends, strict=True)}
    lost = {names[path]: reason for path, reason in skipped.items()}
    _write_poses(place / "poses.csv", run, came, found, lost)
    after = run.normalization.undo(jnp.asarray(found.images))
    shown = np.linspace(0, len(small) - 1, min(_SHOWN, len(small))).astype(int)
    first = run.normalization.undo(before)
    write(place / "montage.png", _sheet([np.asarray(first)[shown], np.asarray(after)[shown]]))
    means = run.normalization.undo(jnp.asarray(found.prototypes))
    write(place / "prototype.png", _sheet([np.asarray(means)]))
    every = [*ends, *(["skipped"] * len(skipped))]
    return {end: every.count(end) for end in ("aligned", "left alone", "not at rest", "skipped")}


def _canvas(path: Path, run: Trained, fill: np.ndarray) -> Any:
    """Return a picture on its canvas, no side longer than `_LARGEST`."""
    picture = open_picture(path, channels=run.image_shape[2])
    picture.thumbnail((_LARGEST, _LARGEST))
    return padded(picture, run.image_shape[:2], fill.tolist())


def _ends(found: Alignment, run: Trained) -> list[str]:
    """Say of every picture how its mean-shift ended."""
    moved = np.any(np.abs(found.theta - np.asarray(run.transform.identity)) > 0, axis=-1)
    words = np.where(moved, "aligned", "left alone")
    return np.where(found.converged, words, "not at rest").tolist()


def _write_poses(
    path: Path, run: Trained, ends: dict[Path, str], found: Alignment, skipped: dict[Path, str]
) -> None:
    """Write one line per picture: name, end, and what was done in physical units."""
    names = [
        f"{name} ({unit})"
        for name, unit in zip(run.transform.names, run.transform.units, strict=True)
    ]
    physical = found.theta * np.asarray(run.transform.half_range)
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["file", "end", *names])
        for (picture, end), values in zip(ends.items(), physical, strict=True):
            table.writerow([picture.as_posix(), end, *(f"{value:.3f}" for value in values)])
        for picture, reason in skipped.items():
            table.writerow([picture.as_posix(), f"skipped: {reason}", *("" for _ in names)])


def _sheet(rows: Sequence[np.ndarray]) -> bytes:
    """Lay rows of pictures (N, H, W, C) in [0, 1] under each other, as PNG, four times as large."""
    from io import BytesIO

    from PIL import Image

    gap = ((0, 0), (1, 1), (1, 1), (0, 0))
    lines = [np.concatenate(list(np.pad(row, gap, constant_values=1.0)), axis=1) for row in rows]
    sheet = np.round(255 * np.concatenate(lines, axis=0)).astype(np.uint8)
    picture = Image.fromarray(sheet[..., 0] if sheet.shape[-1] == 1 else sheet)
    buffer = BytesIO()
    picture.resize((4 * picture.width, 4 * picture.height), Image.Resampling.NEAREST).save(
        buffer, format="PNG"
    )
    return buffer.getvalue()


def main(arguments: Sequence[str] | None = None) -> int:
    """Straighten one folder; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.align",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--workdir", required=True, help="folder of a finished run")
    parser.add_argument("--images", required=True, help="folder of pictures")
    parser.add_argument("--out", required=True, help="folder to be made")
    parser.add_argument("--steps", type=int, default=100, help="of mean-shift, at most")
    parser.add_argument("--num_samples", type=int, default=100, help="per picture and step")
    parser.add_argument("--step_size", type=float, default=0.1, help="share of the mean per step")
    parser.add_argument("--coordinates", nargs="+", help="those that move; all if not given")
    parsed = parser.parse_args(arguments)
    keep_compiled_programs()
    names = ("steps", "num_samples", "step_size", "coordinates")
    fields = {name: getattr(parsed, name) for name in names}
    try:
        counts = align_folder(parsed.workdir, parsed.images, parsed.out, **fields)
    except (ValueError, OSError) as error:
        leave(error)
    print(", ".join(f"{count} {end}" for end, count in counts.items()))
    print(f"pictures, poses.csv, montage.png and prototype.png: {parsed.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
