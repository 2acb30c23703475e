"""Write the averaged predictor of a finished run as files that plain JAX runs.

    python -m experiments.export --workdir=runs/mario_iggy --out=exports/mario_iggy
    python -m experiments.export --workdir=runs/mario_iggy --out=exports/aligner --aligner

The predictor is the one whose accuracy the run states: the first of its config's rules, with its
average and number of views. The data set need not be there. See `flowjax_inv.export`.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.measuring import evaluate
from experiments.running.trained import load_run, read_config
from flowjax_inv import export

__all__ = ["export_aligner", "export_run", "main"]


def export_run(workdir: str | Path, out: str | Path, *, num_samples: int = 0) -> Path:
    """Rebuild the networks of a run, restore its newest checkpoint, and write its predictor.

    Args:
        workdir: folder of a finished run.
        out: folder to be made.
        num_samples: views per image; 0: as many as the run was evaluated with.

    Returns:
        `out`, read back and compared with its digests.

    Raises:
        FileExistsError: if `out` is there.
        ImportError: without flatbuffers or safetensors.
        ValueError: if `workdir` holds no finished run, or one of other fields than today's.
    """
    config = read_config(workdir)
    objective = config.objective
    if objective.loss != "cross_entropy" or objective.maps or objective.reject_distorted != "no":
        raise ValueError(
            f"{workdir} does not end in one probability per class; export a run with "
            "objective.loss=cross_entropy, maps=False and reject_distorted=no."
        )
    if config.classifier.name == "outside":
        raise ValueError(
            f"{workdir} stands before a classifier of your own ({config.classifier.function}), "
            "which is not exported; export its density: --aligner."
        )
    run = load_run(workdir)
    section, density = config.evaluation, run.distribution.has_density
    path = export.write_predictor(
        out,
        run.classifier,
        run.distribution,
        run.transform,
        run.variables,
        image_shape=run.image_shape,
        class_names=run.class_names,
        # The views of a point mass are all alike.
        num_samples=(num_samples or section.num_samples) if density else 1,
        average=section.average,
        normalization=run.normalization,
        **evaluate.RULES[section.rules[0] if density else "plain"],
    )
    export.load(path)
    return path


def export_aligner(workdir: str | Path, out: str | Path, *, num_samples: int = 0) -> Path:
    """Write the aligner of a run: mean-shift by its density, as `experiments.align` does it.

    Args:
        workdir: folder of a finished run.
        out: folder to be made.
        num_samples: per image and step; 0: 100.

    Returns:
        `out`, read back and compared with its digests.

    Raises:
        FileExistsError: if `out` is there.
        ImportError: without flatbuffers or safetensors.
        ValueError: if `workdir` holds no finished run, one of other fields than today's, or one
            without a density.
    """
    run = load_run(workdir)
    if not run.distribution.has_density:
        raise ValueError(f"{workdir} has no density ({run.config.distribution.name}).")
    path = export.write_aligner(
        out,
        run.distribution,
        run.transform,
        run.variables["distribution"],
        image_shape=run.image_shape,
        normalization=run.normalization,
        steps=100,
        num_samples=num_samples or 100,
        spread="stratified",
        common_noise=True,
    )
    export.load(path)
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    """Export one run; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.export",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--workdir", required=True, help="folder of a finished run")
    parser.add_argument("--out", required=True, help="folder to be made")
    parser.add_argument("--aligner", action="store_true", help="mean-shift instead of prediction")
    parser.add_argument("--num_samples", type=int, default=0, help="0: as in the run")
    parsed = parser.parse_args(arguments)
    try:
        writer = export_aligner if parsed.aligner else export_run
        path = writer(parsed.workdir, parsed.out, num_samples=parsed.num_samples)
    except (ValueError, OSError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    size = sum(file.stat().st_size for file in path.iterdir()) / 1e6
    print(f"exported to {path} ({size:.1f} MB); card.json says what goes in and comes out")
    if parsed.aligner:
        return 0
    print("call it, with nothing but jax and flatbuffers:")
    print(f"    python experiments/run_exported.py {path} IMAGES.npy")
    return 0


if __name__ == "__main__":
    sys.exit(main())
