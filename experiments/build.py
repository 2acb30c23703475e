"""From a config to objects: the one place where names become classes.

To add a method, a transform, a network or a data set: write its class in its room, and give it one
line in a table here. A class receives those fields of its section of the config that it declares.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import optax

from experiments.defaults import Config, did_you_mean
from flowjax_inv import controllers, networks, transforms
from flowjax_inv.data import sprites
from flowjax_inv.data.sets import DataSet
from flowjax_inv.distributions.base import ConditionalDistribution
from flowjax_inv.distributions.box import Identity
from flowjax_inv.distributions.flow import Flow
from flowjax_inv.training import Controller, Objective

__all__ = [
    "CONTROLLERS",
    "DISTRIBUTIONS",
    "NETWORKS",
    "SETS",
    "TRANSFORMS",
    "controller",
    "data_set",
    "distribution",
    "network",
    "objective",
    "optimizer",
    "transform",
]

NETWORKS = {"simple_conv": networks.SimpleConv, "mlp": networks.MLP}
TRANSFORMS = {
    "affine": transforms.Affine,
    "decoupled": transforms.Decoupled,
    "crop": transforms.Crop,
}
DISTRIBUTIONS = {"identity": Identity, "flow": Flow}
CONTROLLERS = {
    "constant": controllers.Constant,
    "ramp": controllers.Ramp,
    "band": controllers.EntropyBand,
}


def _mario_iggy(section: Config) -> DataSet:
    fields = {name: section[name] for name in section if name not in ("name", "sprites")}
    return sprites.mario_iggy(sprites=sprites.load_sprites(section.sprites), **fields)


SETS: dict[str, Callable[[Config], DataSet]] = {"mario_iggy": _mario_iggy}


def _look_up(table: Mapping[str, Any], name: str, field: str) -> Any:
    if name not in table:
        raise ValueError(f'config.{field} is "{name}"{did_you_mean(name, sorted(table))}')
    return table[name]


def _fields(cls: Any, section: Config) -> dict[str, Any]:
    """Return the entries of a section that a dataclass declares; an empty tuple means "yours"."""
    declared = {field.name for field in dataclasses.fields(cls)} - {"name", "parent"}
    return {name: section[name] for name in section if name in declared and section[name] != ()}


def network(section: Config, *, classes: int, field: str) -> nn.Module:
    """Return the network of `config.classifier` or `config.embedding`."""
    cls = _look_up(NETWORKS, section.name, f"{field}.name")
    return cls(**_fields(cls, section) | {"features": section.features or classes})


def transform(config: Config) -> transforms.Transform:
    """Return the transform of `config.transform`."""
    cls = _look_up(TRANSFORMS, config.transform.name, "transform.name")
    fields = _fields(cls, config.transform)
    if "entries" in fields:
        fields["entries"] = tuple(fields["entries"])
    chosen = cls(**fields)
    shifts = [name.startswith("translation") for name in chosen.names]
    if config.transform.half_range or not any(shifts):
        return chosen
    wanted = config.transform.translation_half_range
    half_range = (
        wanted if shift else own for shift, own in zip(shifts, chosen.half_range, strict=True)
    )
    return dataclasses.replace(chosen, half_range=tuple(half_range))


def distribution(
    config: Config, chosen: transforms.Transform, *, classes: int
) -> ConditionalDistribution:
    """Return the distribution of `config.distribution` over the coordinates of a transform."""
    cls = _look_up(DISTRIBUTIONS, config.distribution.name, "distribution.name")
    fields = _fields(cls, config.distribution) | {"dim": chosen.dim}
    declared = {field.name for field in dataclasses.fields(cls)}
    if "periodic" in declared:
        fields["periodic"] = chosen.periodic
    if "embed" in declared:
        fields["embed"] = network(config.embedding, classes=classes, field="embedding")
    return cls(**fields)


def controller(config: Config, *, total_steps: int) -> Controller:
    """Return the controller of alpha of `config.controller`."""
    cls = _look_up(CONTROLLERS, config.controller.name, "controller.name")
    fields = _fields(cls, config.controller)
    if "steps" in {field.name for field in dataclasses.fields(cls)}:
        fields["steps"] = total_steps
    return cls(**fields)


def objective(config: Config) -> Objective:
    """Return the objective of `config.objective`."""
    return Objective(**_fields(Objective, config.objective))


def optimizer(config: Config, *, total_steps: int) -> optax.GradientTransformation:
    """Return the two optimizers of `config.optimizer`, each with its schedule and weight decay."""

    def kernels(params: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf.ndim > 1, params)

    def one(section: Config) -> optax.GradientTransformation:
        rate: Any = section.learning_rate
        if section.schedule == "cosine":
            rate = optax.cosine_decay_schedule(rate, total_steps, section.final_fraction)
        parts = [optax.clip_by_global_norm(section.clip_norm)] if section.clip_norm else []
        if section.name == "adamw":
            parts.append(optax.adamw(rate, weight_decay=section.weight_decay, mask=kernels))
        else:
            parts.append(optax.add_decayed_weights(section.weight_decay, mask=kernels))
            parts.append(optax.sgd(rate, momentum=section.momentum))
        return optax.chain(*parts)

    names = ("classifier", "distribution")
    return optax.multi_transform(
        {name: one(config.optimizer[name]) for name in names}, {name: name for name in names}
    )


def data_set(config: Config) -> DataSet:
    """Return the data set of `config.data`."""
    return _look_up(SETS, config.data.name, "data.name")(config.data)
