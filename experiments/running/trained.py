"""A finished run, rebuilt from its folder: networks, transform and weights; no data set needed."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding

from experiments.running.run_folder import RunFolder
from experiments.setup import build, data_sets, defaults, optimizers
from flowjax_inv import training
from flowjax_inv.data.pixels import Normalization
from flowjax_inv.distributions.base import ConditionalDistribution
from flowjax_inv.training.checkpoints import Checkpoints
from flowjax_inv.training.objectives import Objective
from flowjax_inv.transforms import Transform

__all__ = ["Trained", "load_run", "read_config"]


@dataclasses.dataclass(frozen=True)
class Trained:
    """What a run has trained.

    Attributes:
        config: of the run.
        classifier, distribution, transform: as built from it.
        variables: of both modules, by name.
        normalization: of stored pixels.
        class_names: of the logits.
        image_shape: (H, W, C).
    """

    config: defaults.Config
    classifier: nn.Module
    distribution: ConditionalDistribution
    transform: Transform
    variables: Mapping[str, Any]
    normalization: Normalization
    class_names: Sequence[str]
    image_shape: Sequence[int]

    def classify(self, images: jax.Array) -> Any:
        """Return logits of normalised images (N, H, W, C), by one program."""
        return _logits(self.classifier, self.variables["classifier"], images)

    def propose(self, images: jax.Array) -> Any:
        """Return the density of every normalised image (N, H, W, C)."""
        return self.distribution.apply(self.variables["distribution"], images, train=False)


@functools.partial(jax.jit, static_argnums=0)
def _logits(classifier: nn.Module, variables: Any, images: jax.Array) -> Any:
    return classifier.apply(variables, images, train=False)


def load_run(workdir: str | Path) -> Trained:
    """Rebuild the networks of a finished run and restore its newest checkpoint.

    Args:
        workdir: folder of a finished run.

    Raises:
        ValueError: if `workdir` holds no finished run, or one of other fields than today's.
    """
    config, folder = read_config(workdir), RunFolder(workdir)
    results = folder.read_json("results.json") or {}
    for name in ("class_names", "image_shape"):
        if name not in results:
            raise ValueError(
                f"{workdir} has no results.json with {name}; let the run finish first, by the "
                "command it was started with."
            )
    if not folder.checkpoints_path.is_dir():
        raise ValueError(
            f"{workdir} has no checkpoints, so no weights; give the folder the run was made in."
        )
    class_names, image_shape = results["class_names"], results["image_shape"]
    transform = build.transform(config)
    classes = data_sets.outputs(config, class_names)
    classifier = build.network(config, "classifier", classes=classes)
    distribution = build.distribution(config, transform, classes=classes)
    objective = build.objective(config, distribution, transform)
    state = _restore(folder, config, classifier, distribution, objective, image_shape)
    variables = {
        name: {"params": state.params[name], "batch_stats": state.batch_stats[name]}
        for name in ("classifier", "distribution")
    }
    return Trained(
        config, classifier, distribution, transform, variables, data_sets.normalization(config),
        class_names, image_shape,
    )  # fmt: skip


def read_config(workdir: str | Path) -> defaults.Config:
    """Return the config that a run stored.

    Raises:
        ValueError: if there is none, or one of other fields than today's.
    """
    if not (Path(workdir) / "config.json").is_file():
        raise ValueError(f"{workdir} has no config.json; give the folder of a finished run.")
    stored: dict[str, Any] = RunFolder(workdir).read_json("config.json") or {}
    config = defaults.get_config()
    try:
        config.update({name: value for name, value in stored.items() if name != "command"})
    except (KeyError, TypeError) as error:
        first = str(error.args[0]).partition("since")[0].strip()
        raise ValueError(
            f"{workdir}/config.json is not of this version of the package ({first}); take the "
            "version that trained the run."
        ) from error
    config.num_devices = 1  # the weights do not depend on how many there were
    return config


def _restore(
    folder: RunFolder,
    config: defaults.Config,
    classifier: Any,
    distribution: Any,
    objective: Objective,
    image_shape: Sequence[int],
) -> training.TrainState:
    """Return the newest state of the run, on one device."""

    def first_state() -> training.TrainState:
        return training.init_state(
            classifier,
            distribution,
            # How long the schedules are does not show in the state.
            optimizers.from_config(config, total_steps=1, steps_per_epoch=1),
            build.controller(config, total_steps=1, steps_per_epoch=1),
            jnp.zeros((1, *image_shape), jnp.uint8),
            key=jax.random.key(config.seed),
            objective=objective,
        )

    place = SingleDeviceSharding(jax.devices()[0])
    like = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place),
        jax.eval_shape(first_state),
    )
    # What the run was, in its own words: fields that came later have their defaults.
    stored = folder.read_json("config.json") or {}
    stored.pop("command", None)
    with Checkpoints(folder.checkpoints_path, stored) as checkpoints:
        return checkpoints.restore(like)
