"""Write the averaged predictor of a finished run as files that plain JAX runs.

    python -m experiments.export --workdir=runs/mario_iggy --out=exports/mario_iggy

The predictor is the one whose accuracy the run states: the first of its config's rules, with its
average and number of views. The data set need not be there. See `flowjax_inv.export`.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding

from experiments import build, defaults, evaluate
from experiments.run_folder import RunFolder
from flowjax_inv import export, training
from flowjax_inv.checkpoints import Checkpoints

__all__ = ["export_run", "main"]


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
    if not (Path(workdir) / "config.json").is_file():
        raise ValueError(f"{workdir} has no config.json; give the folder of a finished run.")
    folder = RunFolder(workdir)
    config = _config(folder)
    results = folder.read_json("results.json") or {}
    for name in ("class_names", "image_shape"):
        if name not in results:
            raise ValueError(
                f"{workdir} has no results.json with {name}; let the run finish first, by the "
                "command it was started with."
            )
    class_names, image_shape = results["class_names"], results["image_shape"]

    if config.objective.loss != "cross_entropy" or config.objective.reject_distorted:
        raise ValueError(
            f"{folder.path} does not end in one probability per class; export a run with "
            "objective.loss=cross_entropy and reject_distorted=False."
        )
    transform = build.transform(config)
    classifier = build.network(config, "classifier", classes=len(class_names))
    distribution = build.distribution(config, transform, classes=len(class_names))
    state = _restore(folder, config, classifier, distribution, image_shape)

    section, density = config.evaluation, distribution.has_density
    path = export.write_predictor(
        out,
        classifier,
        distribution,
        transform,
        {
            name: {"params": state.params[name], "batch_stats": state.batch_stats[name]}
            for name in ("classifier", "distribution")
        },
        image_shape=image_shape,
        class_names=class_names,
        # The views of a point mass are all alike.
        num_samples=(num_samples or section.num_samples) if density else 1,
        average=section.average,
        normalization=build.normalization(config),
        **evaluate.RULES[section.rules[0] if density else "plain"],
    )
    export.load(path)
    return path


def _config(folder: RunFolder) -> defaults.Config:
    """Return the config that a run stored."""
    stored: dict[str, Any] = folder.read_json("config.json") or {}
    config = defaults.get_config()
    try:
        config.update({name: value for name, value in stored.items() if name != "command"})
    except (KeyError, TypeError) as error:
        first = str(error.args[0]).partition("since")[0].strip()
        raise ValueError(
            f"{folder.path}/config.json is not of this version of the package ({first}); export "
            "with the version that trained the run."
        ) from error
    config.num_devices = 1  # the weights do not depend on how many there were
    return config


def _restore(
    folder: RunFolder,
    config: defaults.Config,
    classifier: Any,
    distribution: Any,
    image_shape: Sequence[int],
) -> training.TrainState:
    """Return the newest state of the run, on one device."""

    def first_state() -> training.TrainState:
        return training.init_state(
            classifier,
            distribution,
            # How long the schedules are does not show in the state.
            build.optimizer(config, total_steps=1, steps_per_epoch=1),
            build.controller(config, total_steps=1, steps_per_epoch=1),
            jnp.zeros((1, *image_shape), jnp.uint8),
            key=jax.random.key(config.seed),
        )

    place = SingleDeviceSharding(jax.devices()[0])
    like = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place),
        jax.eval_shape(first_state),
    )
    with Checkpoints(folder.checkpoints_path, defaults.without_places(config)) as checkpoints:
        return checkpoints.restore(like)


def main(arguments: Sequence[str] | None = None) -> int:
    """Export one run; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.export",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--workdir", required=True, help="folder of a finished run")
    parser.add_argument("--out", required=True, help="folder to be made")
    parser.add_argument("--num_samples", type=int, default=0, help="views; 0: as in the run")
    parsed = parser.parse_args(arguments)
    try:
        path = export_run(parsed.workdir, parsed.out, num_samples=parsed.num_samples)
    except (ValueError, OSError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    size = sum(file.stat().st_size for file in path.iterdir()) / 1e6
    print(f"exported to {path} ({size:.1f} MB); card.json says what goes in and comes out")
    print("call it, with nothing but jax and flatbuffers:")
    print(f"    python experiments/run_exported.py {path} IMAGES.npy")
    return 0


if __name__ == "__main__":
    sys.exit(main())
