"""From a config to objects: where names become classes (optimizers: `optimizers`).

To add a method, a transform or a network: write its class in its room, and give it one line in a
table here (a data set: in `data_sets`). A class receives those fields of its section of the config
that it declares.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from experiments.setup.defaults import FIELDS, Config
from experiments.setup.fields import did_you_mean
from flowjax_inv import networks, training, transforms
from flowjax_inv.distributions.base import ConditionalDistribution
from flowjax_inv.distributions.box import Augerino, Fixed, Identity, InstaAug
from flowjax_inv.distributions.circular import Circular
from flowjax_inv.distributions.crop_grid import CropGrid
from flowjax_inv.distributions.crops import FlowLRP, InstaAugLRP
from flowjax_inv.distributions.flow import Flow
from flowjax_inv.distributions.gaussian import ConditionalGaussian
from flowjax_inv.training import controllers
from flowjax_inv.training.feed import Feed
from flowjax_inv.training.objectives import Objective
from flowjax_inv.training.placement import Placement

__all__ = [
    "CONTROLLERS",
    "DISTRIBUTIONS",
    "NETWORKS",
    "TRANSFORMS",
    "check_gradient",
    "controller",
    "distribution",
    "feed",
    "learner",
    "look_up",
    "network",
    "objective",
    "placement",
    "transform",
]

NETWORKS = {
    "simple_conv": networks.SimpleConv,
    "mlp": networks.MLP,
    "lenet": networks.LeNet,
    "fixup_resnet": networks.FixupResNet,
    "layer13": networks.Layer13,
    "preact_resnet18": networks.PreActResNet18,
    "polar_conv": networks.PolarConv,
    "outside": networks.Outside,
    "shallow": networks.Shallow,
    "unet": networks.UNet,
    "pair_net": networks.PairNet,
    "blind": networks.Blind,
}
TRANSFORMS = {
    "affine": transforms.Affine,
    "decoupled": transforms.Decoupled,
    "crop": transforms.Crop,
    "colour": transforms.Colour,
    "points": transforms.Points,
}
_LIGHTS = {"gains": transforms.Gains, "light": transforms.Light}
DISTRIBUTIONS = {
    "identity": Identity,
    "fixed": Fixed,
    "augerino": Augerino,
    "instaaug": InstaAug,
    "gaussian": ConditionalGaussian,
    "flow": Flow,
    "circular": Circular,
    "instaaug_lrp": InstaAugLRP,
    "flow_lrp": FlowLRP,
    "crop_grid": CropGrid,
}
CONTROLLERS = {
    "constant": controllers.Constant,
    "ramp": controllers.Ramp,
    "gap": controllers.Gap,
    "band": controllers.EntropyBand,
    "patient_band": controllers.PatientBand,
}


def look_up(table: Mapping[str, Any], name: str, field: str) -> Any:
    """Return the entry of a table that a field of the config names, or refuse the name."""
    if name not in table:
        raise ValueError(f'config.{field} is "{name}"{did_you_mean(name, sorted(table))}')
    return table[name]


def _fields(cls: Any, config: Config, name: str) -> dict[str, Any]:
    """Return the entries of a section that a dataclass declares.

    One that is empty as it is in the defaults means "yours".
    """
    declared = {field.name for field in dataclasses.fields(cls)} - {"name", "parent"}
    return {
        field: value
        for field, value in config[name].items()
        if field in declared and not (value in ((), "") and FIELDS[name][field].value == value)
    }


def network(config: Config, field: str, *, classes: int) -> nn.Module:
    """Return the network of `config.classifier` or `config.embedding`."""
    section = config[field]
    cls = look_up(NETWORKS, section.name, f"{field}.name")
    if field == "classifier" and 0 < section.features < classes:
        raise ValueError(
            f"config.classifier.features is {section.features} for {classes} outputs; take 0, one "
            "per class."
        )
    fields = _fields(cls, config, field) | {"features": section.features or classes}
    if "axis_name" in {field.name for field in dataclasses.fields(cls)}:
        fields["axis_name"] = placement(config).axis_name
    made = cls(**fields)
    if field == "classifier" and config.objective.loss == "contrast":
        made = networks.Projected(made)
    return networks.Bfloat16(made) if section.get("dtype") == "bfloat16" else made


def placement(config: Config) -> Placement:
    """Return the devices of a run and how they share a batch.

    Raises:
        ValueError: if there are fewer devices than asked for, or they cannot share the batch.
    """
    devices, wanted = jax.devices(), config.num_devices
    if wanted > len(devices):
        raise ValueError(
            f"config.num_devices is {wanted}, but there are {len(devices)}; take at most that "
            "many, or 0 for all."
        )
    chosen = Placement(tuple(devices[:wanted]), config.parallel)
    chosen.check(config.train.batch_size, "config.train.batch_size")
    return chosen


def feed(
    config: Config,
    images: np.ndarray,
    targets: np.ndarray,
    order: Callable[[int], np.ndarray],
    *,
    end: int,
) -> Feed:
    """Return what gives every step its batch, as `config.resident` says."""
    resident = {"auto": None, "yes": True, "no": False}[config.resident]
    return Feed(images, targets, order, end=end, placement=placement(config), resident=resident)


def transform(config: Config) -> transforms.Transform:
    """Return the transform of `config.transform`."""
    section = config.transform
    cls = look_up(TRANSFORMS, section.name, "transform.name")
    if cls is transforms.Colour:
        return _colours(config)
    fields = _fields(cls, config, "transform")
    if "entries" in fields:
        fields["entries"] = tuple(fields["entries"])
    chosen = cls(**fields)
    shifts = [name.startswith("translation") for name in chosen.names]
    if any(shifts) and not section.half_range:
        half_range = (
            section.translation_half_range if shift else own
            for shift, own in zip(shifts, chosen.half_range, strict=True)
        )
        chosen = dataclasses.replace(chosen, half_range=tuple(half_range))
    return transforms.Chain(chosen, _colours(config)) if section.colours else chosen


def _colours(config: Config) -> transforms.Transform:
    """Return the transform of `config.transform.colours` and its half-range."""
    cls = _LIGHTS.get(config.transform.colours, transforms.Colour)
    fields = _fields(cls, config, "transform")
    fields["half_range"] = tuple(config.transform.colour_half_range) or None
    return cls(mean=tuple(config.data.mean), std=tuple(config.data.std), **fields)


def distribution(
    config: Config, chosen: transforms.Transform, *, classes: int
) -> ConditionalDistribution:
    """Return the distribution of `config.distribution` over the coordinates of a transform."""
    cls = look_up(DISTRIBUTIONS, config.distribution.name, "distribution.name")
    fields = _fields(cls, config, "distribution") | {"dim": chosen.dim}
    declared = {field.name for field in dataclasses.fields(cls)}
    of_transform = {
        "periodic": chosen.periodic,
        "scales": tuple(
            math.radians(h) if unit == "degrees" else h
            for h, unit in zip(chosen.half_range, chosen.units, strict=True)
        ),
        "anchor": tuple(chosen.identity.tolist()),
        "names": chosen.names,
        "axis_name": placement(config).axis_name,
        "conv": config.embedding.conv,
    }
    # Only crops have these.
    of_transform |= {
        name: getattr(chosen, name)
        for name in ("min_size", "max_size", "centre")
        if hasattr(chosen, name)
    }
    fields |= {name: value for name, value in of_transform.items() if name in declared}
    if "embed" in declared:
        fields["embed"] = _embedding(config, classes)
    return cls(**fields)


def _embedding(config: Config, classes: int) -> nn.Module:
    """Return the network of `config.embedding` behind what it is shown."""
    section, embed = config.embedding, network(config, "embedding", classes=classes)
    if section.shrink > 1:
        embed = networks.Shrunk(embed, section.shrink)
    if section.circular_mask:
        embed = networks.CircularMask(embed)
    return networks.Noisy(embed, section.noise) if section.noise else embed


def controller(config: Config, *, total_steps: int, steps_per_epoch: int) -> training.Controller:
    """Return the controller of alpha of `config.controller`."""
    cls = look_up(CONTROLLERS, config.controller.name, "controller.name")
    fields = _fields(cls, config, "controller")
    declared = {field.name for field in dataclasses.fields(cls)}
    counts = {"steps": total_steps, "every": steps_per_epoch}
    return cls(**fields | {name: count for name, count in counts.items() if name in declared})


def objective(
    config: Config,
    chosen: ConditionalDistribution,
    moved: transforms.Transform,
    *,
    images: int = 0,
) -> Objective:
    """Return the objective of `config.objective`, if that distribution and transform serve it.

    `images` is the number of train images, where it is known. The views of a point mass are all
    alike: one stands for all, with the same loss.
    """
    fields: dict[str, Any] = _fields(Objective, config, "objective") | {"images": images}
    if not chosen.has_density and fields["loss"] != "contrast":
        fields |= {"copies": 1, "copies_per_chunk": 0}
    made = Objective(**fields)
    training.check_objective(chosen, moved, made)
    return made


def check_gradient(
    classifier: nn.Module,
    chosen: ConditionalDistribution,
    made: Objective,
    images: jax.Array,
) -> None:
    """Refuse a function from outside without a gradient, where the density would learn by one."""
    learns = chosen.has_density and made.gradient == "samples" and chosen.reparameterized
    if isinstance(classifier, networks.Outside) and learns:

        def total(images: jax.Array) -> jax.Array:
            made: Any = classifier.apply({}, images)
            return jnp.sum(made)

        jax.eval_shape(jax.grad(total), images)


def learner(config: Config, *, steps: int) -> training.Laplace | None:
    """Return how the evidence teaches in so many steps after burn-in; None where it does not."""
    if config.objective.judge != "evidence":
        return None
    fields = _fields(training.Laplace, config, "laplace")
    return training.Laplace(**fields | {"steps": max(steps // config.laplace.every_steps, 1)})
