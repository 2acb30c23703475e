"""How the predictions of a finished run fare when pictures are turned, and what a gate promises.

    python -m experiments.robustness --workdir=runs/poses

Test images are turned by angles round the circle, bicubically, which no training here does. Each
way to predict (as it is; averaged; straightened by mean-shift; both) is judged with and without a
gate, fitted on training images that the run left out. Writes robustness.json, robustness.html and
figures/robustness_*.png to WORKDIR, and changes nothing else there.
"""

import argparse
import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.measuring.judging import Probabilities, Seen, behind_gate
from experiments.measuring.turning import KNOWN, SHIFTS, WAYS, Ways, over_batches
from experiments.report.turned import write_robustness
from experiments.running.command_line import leave
from experiments.running.program_cache import keep_compiled_programs
from experiments.running.run_folder import RunFolder, environment
from experiments.running.trained import Trained, load_run
from experiments.setup import data_sets
from flowjax_inv import metrics
from flowjax_inv.data.sets import Split
from flowjax_inv.data.variants import turned_bicubic
from flowjax_inv.inference import (
    InvarianceBound,
    fit_gate,
    invariance_bound,
    least_images,
    predict,
    predict_adaptive,
)
from flowjax_inv.training import Stream

__all__ = ["main", "measure"]

LOSSES = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1)  # promises that the gate's curve is drawn for
_OF_CURVE = (
    "max_clean_loss", "gate", "bound", "clean_change", "upright_accuracy", "c8_accuracy",
)  # fmt: skip
_BOUND_IMAGES = 50


def measure(
    workdir: str | Path,
    *,
    images: int = 500,
    angles: int = 16,
    turn_degrees: float = 180.0,
    checked_images: int = 0,
    data_dir: str = "",
    max_clean_loss: float = 0.01,
    confidence: float = 0.95,
) -> dict[str, Any]:
    """Measure a run on turned images; see the head of this file.

    Args:
        workdir: folder of a finished run on a prepared set.
        images: test images, evenly from the split; five times as many held-out ones fit the gate.
        angles: round the circle, a multiple of 8.
        turn_degrees: half-range of the one turn per image by which divergences are measured.
        checked_images: test images that promises are checked on, upright; 0: those that are turned.
        data_dir: where the prepared sets are; empty as for a run.
        max_clean_loss, confidence: of the gate, see `inference.wrap`.

    Returns:
        What robustness.json holds.

    Raises:
        ValueError: if there is no such run or set, its classes are poses, numbers are out of
            range, or too few images were held out for the gate that is asked for.
    """
    if angles < 8 or angles % 8 or images < 1 or checked_images < 0 or not 0 < turn_degrees <= 180:
        raise ValueError(
            f"angles={angles}, images={images}, checked_images={checked_images}, "
            f"turn_degrees={turn_degrees}; want a multiple of 8, at least 1 image, 0 or more, and "
            "a half-range above 0 up to 180."
        )
    run = load_run(workdir)
    if run.config.data.name == "pictures":
        raise ValueError(
            f"{workdir} was trained on pictures without labels, so nothing is right or wrong; what "
            "was measured of it stands in its card.md."
        )
    if run.config.objective.maps:
        raise ValueError(
            f"{workdir} labels pixels, which turn with the image; what is asked of that, the "
            "equivariance error, stands in its results.json."
        )
    run.config.data.dir = data_dir
    data = data_sets.data_set(run.config)
    if run.config.objective.loss == "contrast":
        raise ValueError(
            f"{workdir} learned without labels and classifies nothing; what a linear probe of it "
            "does stands in its results.json."
        )
    if data.centres_degrees is not None or run.config.objective.loss != "cross_entropy":
        raise ValueError(
            f"{workdir} tells poses apart ({run.config.data.name}, {run.config.objective.loss}): a "
            "turned picture is another thing there; give a run whose classes do not turn."
        )
    test = _evenly(data.test, images)
    has_density = run.distribution.has_density
    left_out = data_sets.left_out(run.config)
    held_out = _evenly(left_out, 5 * images) if has_density and len(left_out) else None
    if held_out is not None:
        # Refuse now what the gates would refuse at the end.
        nothing = np.zeros(len(held_out))
        fit_gate(nothing, nothing > 0, max_clean_loss=max_clean_loss, confidence=confidence)
    ways = Ways(run, jax.random.fold_in(jax.random.key(run.config.seed), Stream.ROBUSTNESS))
    rng = np.random.default_rng(run.config.seed)
    anyhow = rng.uniform(-turn_degrees, turn_degrees, len(test))
    shifts = {}
    if held_out is not None:
        some = _evenly(held_out, min(500, images))
        by = rng.uniform(-180.0, 180.0, len(some))
        turned = turned_bicubic(some.images, by, run.normalization.mean)
        shifts = ways.validated(turned, some.labels)
    at_rest = [name for name in SHIFTS if "rest" in name]
    rest = max(at_rest, key=lambda name: shifts.get(name, 0.0))
    everything = ways.make(rest)
    degrees = np.linspace(-180.0, 180.0, angles, endpoint=False)
    seen = _seen(run, ways, everything, test, degrees, anyhow, classes=len(data.class_names))
    found: dict[str, Any] = {
        "images": len(test),
        "held_out_images": 0 if held_out is None else len(held_out),
        "degrees": seen.degrees,
        "turn_degrees": turn_degrees,
        "method": run.config.distribution.name,
        "data": run.config.data.name,
        "seed": run.config.seed,
        "mean_shift_validated": shifts,
        "mean_shift_to_rest": rest,
        "max_clean_loss": max_clean_loss,
        "confidence": confidence,
        "environment": environment(),
        "ways": {name: seen.record(name) for name in WAYS if name in seen.upright},
        "gates": {},
        "curve": [],
        "class_sizes": np.bincount(data.train.labels, minlength=seen.classes).tolist(),
    }
    if has_density:
        found |= _of_density(run, seen, test, anyhow)
    if held_out is not None:
        checked = _evenly(data.test, checked_images).images if checked_images else None
        found |= {"checked_images": len(test) if checked is None else len(checked)} | _of_gates(
            seen,
            everything(held_out.images),
            seen.upright if checked is None else everything(checked),
            confidence,
            max_clean_loss,
        )
    RunFolder(workdir).write_json("robustness.json", found)
    return found


def _seen(
    run: Trained,
    ways: Ways,
    everything: Callable[[np.ndarray], Probabilities],
    test: Split,
    degrees: np.ndarray,
    anyhow: np.ndarray,
    *,
    classes: int,
) -> Seen:
    """Predict test images turned by every angle, and each by its own, in every way there is."""
    can_turn = run.distribution.has_density and "rotation" in run.transform.names
    known = ways.make_known() if can_turn else None

    def turned_by(by: Any) -> Probabilities:
        pictures = turned_bicubic(test.images, by, run.normalization.mean)
        return everything(pictures) | ({KNOWN: known(pictures, by)} if known else {})

    return Seen(
        labels=test.labels,
        classes=classes,
        degrees=degrees.tolist(),
        at=[turned_by(angle) for angle in degrees],
        anyhow=turned_by(anyhow),
    )


def _of_density(run: Trained, seen: Seen, test: Split, anyhow: np.ndarray) -> dict[str, Any]:
    """Return what the density itself shows: turned or not, samples needed, the bound."""
    scores = np.concatenate([seen.upright["evidence"], seen.anyhow["evidence"]])
    off = np.repeat([False, True], len(test))
    turned = turned_bicubic(test.images, anyhow, run.normalization.mean)
    return {
        "auroc": float(metrics.auroc(jnp.asarray(scores), jnp.asarray(off))),
        "adaptive": _adaptive(run, turned, test.labels),
        "bound": _bound(run, _evenly(test, _BOUND_IMAGES).images),
    }


def _of_gates(
    seen: Seen,
    clean: Probabilities,
    checked: Probabilities,
    confidence: float,
    max_clean_loss: float,
) -> dict[str, Any]:
    """Return every way behind the gate that `clean` predictions allow, and what others promise."""
    behind = {
        name: functools.partial(behind_gate, seen, name, clean, checked, confidence)
        for name in WAYS
        if name != "plain" and name in clean
    }
    possible = [loss for loss in LOSSES if len(clean["plain"]) >= least_images(loss, confidence)]
    return {
        "gates": {name: gated(max_clean_loss) for name, gated in behind.items()},
        "curve": [
            {"way": name} | {key: entry[key] for key in _OF_CURVE}
            for name, gated in behind.items()
            for entry in map(gated, possible)
        ],
    }


def _adaptive(run: Trained, images: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Compare as many views as a standard error of 0.01 asks for with 100, on turned images."""

    def predicted(stored: jax.Array, key: jax.Array) -> dict[str, jax.Array]:
        pixels = run.normalization(stored)
        few = predict_adaptive(run.classify, run.propose, run.transform, pixels, key=key)
        many = predict(run.classify, run.propose, run.transform, pixels, key=key, num_samples=100)
        return {"few": few.probabilities, "number": few.num_samples, "many": many}

    found = over_batches(jax.jit(predicted), images, jax.random.key(run.config.seed))
    return {
        "standard_error": 0.01,
        "mean_samples": float(found["number"].mean()),
        "accuracy": float(np.mean(found["few"].argmax(-1) == labels)),
        "accuracy_of_100": float(np.mean(found["many"].argmax(-1) == labels)),
    }


def _bound(run: Trained, images: np.ndarray) -> dict[str, Any] | None:
    """Compare the invariance bound with how far averaged predictions move, any dT."""
    if not run.transform.commutative:
        return None
    transform = run.transform
    key_turn, key_bound, *keys = jax.random.split(jax.random.key(run.config.seed), 4)
    pixels = run.normalization(jnp.asarray(images))
    delta = jax.random.uniform(key_turn, (len(images), transform.dim), minval=-1.0)

    @jax.jit
    def bounded(pixels: jax.Array, delta: jax.Array, key: jax.Array) -> InvarianceBound:
        return invariance_bound(run.propose, transform, pixels, delta, key=key)

    @jax.jit
    def averaged(pixels: jax.Array, key: jax.Array) -> jax.Array:
        return predict(run.classify, run.propose, transform, pixels, key=key, num_samples=200)

    before, after = averaged(pixels, keys[0]), averaged(transform(pixels, delta), keys[1])
    change = np.max(np.abs(np.asarray(before - after)), axis=-1)
    bound = bounded(pixels, delta, key_bound)
    return {
        "bound": np.asarray(bound.bound, float).tolist(),
        "paper_bound_mean": float(jnp.mean(bound.paper_bound)),
        "standard_error": np.asarray(bound.standard_error, float).tolist(),
        "measured": change.astype(float).tolist(),
    }


def _evenly(split: Split, count: int) -> Split:
    """Take `count` images evenly from a split: official ones may be ordered."""
    index = np.linspace(0, len(split) - 1, min(count, len(split))).astype(int)
    return Split(split.images[index], split.labels[index])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure one run; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.robustness",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--workdir", required=True, help="folder of a finished run")
    parser.add_argument("--images", type=int, default=500, help="test images")
    parser.add_argument("--angles", type=int, default=16, help="round the circle; 8, 16, 24 ...")
    parser.add_argument(
        "--turn_degrees", type=float, default=180.0, help="half-range for the divergences"
    )
    parser.add_argument(
        "--checked_images", type=int, default=0, help="that promises are checked on; 0: the same"
    )
    parser.add_argument("--data_dir", default="", help="of prepared sets")
    parser.add_argument("--max_clean_loss", type=float, default=0.01, help="that the gate promises")
    parser.add_argument("--confidence", type=float, default=0.95, help="of the promise")
    parsed = parser.parse_args(arguments)
    keep_compiled_programs()
    fields = {name: value for name, value in vars(parsed).items() if name != "workdir"}
    try:
        found = measure(parsed.workdir, **fields)
        page = write_robustness(parsed.workdir, found)
    except (ValueError, OSError) as error:
        leave(error)
    for name, way in found["ways"].items():
        gated = found["gates"].get(name)
        behind = f", behind the gate {_words(gated)}" if gated else ""
        print(f"{name:30} {_words(way)}{behind}")
    print(f"report: {page}")
    return 0


def _words(way: dict[str, Any]) -> str:
    return f"upright {100 * way['upright_accuracy']:.1f} %, C8 {100 * way['c8_accuracy']:.1f} %"


if __name__ == "__main__":
    sys.exit(main())
