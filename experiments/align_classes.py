"""Align the classes of a data set by the density of a finished run, and say how well that went.

    python -m experiments.align_classes --workdir=runs/mario_iggy --data=mnist --degrees=45
    python -m experiments.align_classes --workdir=runs/mario_iggy --data=mnist --degrees=60 --alike

Test images of every class are turned by up to +-degrees (`--alike`: all by as much), brought to the
run's shape, and straightened by mean-shift. Known turns tell how far apart they end; the deviation
per pixel stands beside that of the unturned images, which turning back alone cannot pass. Writes
alignment_DATA.json (alignment_DATA_alike.json) and a figure of the same name to WORKDIR.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.report.rendering import as_png, write
from experiments.report.straightened import prototypes
from experiments.running.command_line import leave
from experiments.running.program_cache import keep_compiled_programs
from experiments.running.run_folder import RunFolder, environment
from experiments.running.trained import Trained, load_run
from flowjax_inv import metrics
from flowjax_inv.data import stored
from flowjax_inv.data.variants import turned_bicubic
from flowjax_inv.inference.alignment import align, prototype, residual_degrees

__all__ = ["align_classes", "main"]

_STEPS, _STEP_SIZE, _SAMPLES = 50, 0.1, 100


def align_classes(
    workdir: str | Path,
    data: str,
    *,
    degrees: float = 45.0,
    alike: bool = False,
    per_class: int = 200,
    data_dir: str = "",
    **fields: Any,
) -> dict[str, Any]:
    """Align every class of a prepared set; see the head of this file.

    Args:
        workdir: folder of a finished run whose transform turns.
        data: name of a prepared set.
        degrees: half-range of the turns, or with `alike` the turn of all.
        alike: turn all images by as much.
        per_class: test images of a class, the first ones.
        data_dir: of prepared sets.
        **fields: of `inference.mean_shift`; 50 steps of 0.1 with 100 samples if not given.

    Returns:
        What is written: per class the spread of the turns before and after (circular standard
        deviation, degrees) and the deviation per pixel of the turned, aligned, unturned images.

    Raises:
        ValueError: if the run cannot turn pictures, or the set is not there or of another kind.
    """
    run = load_run(workdir)
    if "rotation" not in run.transform.names or not run.distribution.has_density:
        raise ValueError(f"{workdir} has no density over turns; give a run that has.")
    if not 0 < degrees <= 180 or per_class < 2:
        raise ValueError(
            f"degrees={degrees}, per_class={per_class}; want above 0 up to 180, and at least 2."
        )
    axis = run.transform.names.index("rotation")
    test = stored.load(data, data_dir or None)
    rng, key = np.random.default_rng(run.config.seed), jax.random.key(run.config.seed)
    shift = {"steps": _STEPS, "step_size": _STEP_SIZE, "num_samples": _SAMPLES} | fields
    rows, shown = [], []
    for label, name in enumerate(test.class_names):
        of_class = test.test.images[test.test.labels == label][:per_class]
        if not len(of_class):
            continue  # a set may have classes without test images
        images = _shaped(of_class, run)
        turn = rng.uniform(-degrees, degrees, len(images))
        if alike:
            turn = np.full(len(images), degrees)
        turned = run.normalization(
            jnp.asarray(turned_bicubic(images, turn, run.normalization.mean))
        )
        found = align(
            run.propose, run.transform, turned, key=key, batch_size=100,
            spread="stratified", common_noise=True, **shift,
        )  # fmt: skip
        done = found.theta[:, axis] * run.transform.half_range[axis]
        after = residual_degrees(jnp.asarray(turn), jnp.asarray(done))
        means = [np.asarray(x) for x in found.prototypes]
        unturned, floor = prototype(run.normalization.undo(run.normalization(jnp.asarray(images))))
        deviation = [
            float(prototype(run.normalization.undo(jnp.asarray(x)))[1])
            for x in (turned, found.images)
        ]
        rows.append(
            {
                "class": name,
                "images": len(images),
                "spread_before_degrees": float(metrics.circular_std_degrees(jnp.asarray(turn))),
                "spread_after_degrees": float(metrics.circular_std_degrees(after)),
                "median_off_degrees": float(np.median(np.abs(np.asarray(after)))),
                "converged_share": float(np.mean(found.converged)),
                "deviation_turned": deviation[0],
                "deviation_aligned": deviation[1],
                "deviation_unturned": float(floor),
            }
        )
        undone = [np.asarray(run.normalization.undo(jnp.asarray(mean))) for mean in means]
        shown.append([*undone, np.asarray(unturned)])
    result = {
        "data": data, "degrees": degrees, "alike": alike, "mean_shift": shift,
        "method": run.config.distribution.name, "trained_on": run.config.data.name,
        "seed": run.config.seed, "classes": rows, "environment": environment(),
    }  # fmt: skip
    folder = RunFolder(workdir)
    (folder.path / "figures").mkdir(exist_ok=True)
    name = f"alignment_{data}{'_alike' if alike else ''}"
    folder.write_json(f"{name}.json", result)
    figure = prototypes([row["class"] for row in rows], np.asarray(shown), rows)
    write(folder.path / "figures" / f"{name}.png", as_png(figure))
    return result


def _shaped(images: np.ndarray, run: Trained) -> np.ndarray:
    """Bring images to a run's shape: zeros around, grey repeated, as the authors do."""
    height, width, channels = run.image_shape
    _, h, w, c = images.shape
    if h > height or w > width or c not in (1, channels):
        raise ValueError(
            f"images of {h}x{w}x{c} do not fit the run's {height}x{width}x{channels}; take a set "
            "of smaller ones."
        )
    around = [(0, 0), *(((a - b) // 2, (a - b + 1) // 2) for a, b in ((height, h), (width, w)))]
    return np.repeat(np.pad(images, [*around, (0, 0)]), channels // c, axis=-1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Align the classes of one set; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.align_classes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--workdir", required=True, help="folder of a finished run")
    parser.add_argument("--data", required=True, help="name of a prepared set")
    parser.add_argument("--degrees", type=float, default=45.0, help="half-range of the turns")
    parser.add_argument("--alike", action="store_true", help="turn all by --degrees")
    parser.add_argument("--per_class", type=int, default=200, help="test images of a class")
    parser.add_argument("--data_dir", default="", help="of prepared sets")
    parser.add_argument("--steps", type=int, default=_STEPS, help="of mean-shift")
    parser.add_argument("--step_size", type=float, default=_STEP_SIZE, help="share of the mean")
    parser.add_argument("--num_samples", type=int, default=_SAMPLES, help="per image and step")
    parser.add_argument("--coordinates", nargs="+", help="those that move; all if not given")
    parser.add_argument("--bandwidth", type=float, help="follow the nearest of several modes")
    parsed = parser.parse_args(arguments)
    keep_compiled_programs()
    try:
        found = align_classes(**vars(parsed))
    except (ValueError, OSError) as error:
        leave(error)
    print("class   spread before -> after (degrees)   deviation turned -> aligned (unturned)")
    for row in found["classes"]:
        print(
            f"{row['class']:12} {abs(row['spread_before_degrees']):6.1f} -> "
            f"{row['spread_after_degrees']:6.1f}      {row['deviation_turned']:.4f} -> "
            f"{row['deviation_aligned']:.4f} ({row['deviation_unturned']:.4f})"
        )
    print(f"prototypes: {parsed.workdir}/figures")
    return 0


if __name__ == "__main__":
    sys.exit(main())
