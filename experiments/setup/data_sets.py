"""From a config to its images: which set, cut and turned how, and what is predicted of it.

A set that is made by code is one line in `SETS`; prepared ones have theirs in `flowjax_inv.data`.
"""

import inspect
from collections.abc import Callable, Sequence

import numpy as np

from experiments.setup.build import CONTROLLERS, look_up
from experiments.setup.defaults import FIELDS, Config
from flowjax_inv.data import (
    clusters,
    digits,
    molecules,
    scenes,
    sprites,
    stored,
    subsets,
    textures,
    user_pictures,
    variants,
)
from flowjax_inv.data.pixels import Normalization
from flowjax_inv.data.sets import DataSet, Split

__all__ = [
    "SETS",
    "data_set",
    "held_out",
    "kept_for_density",
    "left_out",
    "normalization",
    "outputs",
    "targets",
]


def _mario_iggy(section: Config) -> DataSet:
    declared = inspect.signature(sprites.mario_iggy).parameters
    fields = {name: section[name] for name in section if name in declared and name != "sprites"}
    return sprites.mario_iggy(sprites=sprites.load_sprites(section.sprites), **fields)


def _pictures(section: Config) -> DataSet:
    return user_pictures.picture_set(
        _folder(section),
        size=section.size,
        channels=section.channels,
        train_size=section.train_size,
        seed=section.seed,
    )


def _picture_classes(section: Config) -> DataSet:
    return user_pictures.picture_classes(
        _folder(section), size=section.size, channels=section.channels, seed=section.seed
    )


def _folder(section: Config) -> str:
    if not section.dir:
        raise ValueError("config.data.dir is empty; pictures want the folder they are in.")
    return section.dir


def _printed_digits(section: Config) -> DataSet:
    return digits.printed_digits(
        train_size=section.train_size, test_size=section.test_size, seed=section.seed
    )


def _scenes(section: Config) -> DataSet:
    return scenes.scenes(
        sprites=sprites.load_sprites(section.sprites),
        train_size=section.train_size,
        test_size=section.test_size,
        turn_std=section.turn_std,
        seed=section.seed,
    )


def _clusters(section: Config) -> DataSet:
    return clusters.clusters(
        value=section.value,
        train_size=section.train_size,
        test_size=section.test_size,
        seed=section.seed,
    )


def _molecules(section: Config) -> DataSet:
    return molecules.molecules(
        train_size=section.train_size, test_size=section.test_size, seed=section.seed
    )


def _textures(section: Config) -> DataSet:
    return textures.textures(
        train_size=section.train_size,
        test_size=section.test_size,
        seed=section.seed,
        lamps=section.lamps,
        lamp_half_range=section.lamp_half_range,
    )


# Those of GENERATED; what is not here is looked for among the prepared sets.
SETS: dict[str, Callable[[Config], DataSet]] = {
    "clusters": _clusters,
    "mario_iggy": _mario_iggy,
    "molecules": _molecules,
    "picture_classes": _picture_classes,
    "pictures": _pictures,
    "printed_digits": _printed_digits,
    "scenes": _scenes,
    "textures": _textures,
}


# Read from the user's own folder: variants are for them as for prepared sets.
_OF_A_FOLDER = ("picture_classes", "pictures")

_VARIANTS = ("classes", "validation_size", "long_tail", "choice", "repeats", "rotated_degrees",
             "rotated_classes", "translated", "scaled", "centre_crop", "disc")  # fmt: skip


def normalization(config: Config) -> Normalization:
    """Return how stored pixels become inputs."""
    return Normalization(tuple(config.data.mean), tuple(config.data.std))


def _data_seed(config: Config) -> int:
    """Return the seed of what is drawn."""
    return config.data.seed + config.seed * config.data.redrawn


def data_set(config: Config) -> DataSet:
    """Return the data set of `config.data`, cut and turned as its fields say."""
    section = config.data.copy_and_resolve_references()
    section.seed = _data_seed(config)
    made = section.name in SETS and section.name not in _OF_A_FOLDER
    if made:
        unread = [name for name in _VARIANTS if section[name] != FIELDS["data"][name].value]
        if unread:
            raise ValueError(
                f"config.data.{unread[0]} is {section[unread[0]]!r}, but {section.name} is made, "
                "not read: variants are for prepared sets; leave it at its default."
            )
        return SETS[section.name](section)
    if section.name in _OF_A_FOLDER:
        data = SETS[section.name](section)
    else:
        data = stored.load(section.name, section.dir or None)
    if section.classes:
        data = subsets.class_subset(data, section.classes)
    if section.validation_size:
        data = subsets.hold_out(data, section.validation_size)
    if section.long_tail > 1:
        data = subsets.long_tail(data, section.long_tail)
    if section.choice == "random" and section.train_size:
        data = subsets.random_subset(data, section.train_size, seed=section.seed)
    data = subsets.first(data, section.train_size, section.test_size)
    if section.repeats > 1:
        data = subsets.repeated(data, section.repeats)
    if section.rotated_degrees:
        data = variants.rotated(
            data, section.rotated_degrees, seed=section.seed, classes=section.rotated_classes
        )
    if section.translated:
        data = variants.translated(data, section.translated, seed=section.seed)
    if section.scaled:
        data = variants.scaled(data, section.scaled, seed=section.seed)
    if section.centre_crop:
        data = variants.centre_cropped(data, section.centre_crop)
    if section.disc:
        data = variants.disc(data, section.mean)
    return data


def held_out(config: Config, data: DataSet) -> tuple[DataSet, Split | None]:
    """Return the set as it is learned, and the train images that a controller measures instead."""
    section = config.controller
    if look_up(CONTROLLERS, section.name, "controller.name").watches != "gap":
        return data, None
    return subsets.set_aside(
        data, section.held_out, seed=_data_seed(config), repeats=config.data.repeats
    )


def kept_for_density(config: Config, data: DataSet) -> tuple[DataSet, int]:
    """Return the set with the train images that the density alone learns by put last; how many."""
    share = config.objective.frozen_share
    if not share:
        return data, 0
    data, last = subsets.put_last(data, share, seed=_data_seed(config), repeats=config.data.repeats)
    first = len(data.train) - last
    if min(first, last) < config.train.batch_size:
        raise ValueError(
            f"config.objective.frozen_share is {share}: {first} train images for the classifier "
            f"and {last} for the density; both want a batch, {config.train.batch_size}."
        )
    return data, last


def left_out(config: Config) -> Split:
    """Return the train images that `data_set` gives but for `config.data.train_size`."""
    config, trained = config.copy_and_resolve_references(), config.data.train_size
    if not trained or config.data.name in SETS:
        nothing = np.zeros(0, np.int32)
        return Split(nothing, nothing)
    config.data.train_size, config.data.repeats = 0, 1  # repeats would put trained ones behind
    if config.data.choice == "random":  # all of them, in the order of which the first were taken
        config.data.train_size = len(data_set(config).train)
    whole = data_set(config).train
    return Split(whole.images[trained:], whole.labels[trained:])


def targets(config: Config, split: Split) -> np.ndarray:
    """Return what is predicted of every image: its label, map, values, or pose (degrees).

    Raises:
        ValueError: if maps, values or poses are asked for and nobody knows them.
    """
    if config.objective.loss == "absolute_error":
        wanted = outputs(config, ())
        if split.values is None or split.values.shape[-1] != wanted:
            there = "none" if split.values is None else f"{split.values.shape[-1]} each"
            raise ValueError(
                f"config.objective.loss is absolute_error with vectors={config.objective.vectors}, "
                f"which learns {wanted} value(s); of {config.data.name} there are {there}: take "
                "clusters or molecules, and vectors for dipoles alone."
            )
        return split.values
    if config.objective.maps:
        if split.maps is None:
            raise ValueError(
                f"config.objective.maps is True, but {config.data.name} has no label for every "
                "pixel; take scenes, or set it to False."
            )
        return split.maps
    if config.objective.loss != "squared_error":
        return split.labels
    if split.pose_degrees is None:
        raise ValueError(
            f"config.objective.loss is squared_error, which learns poses, but those of "
            f"{config.data.name} are not known; turn its images: config.data.rotated_degrees=90."
        )
    return split.pose_degrees


def outputs(config: Config, class_names: Sequence[str]) -> int:
    """Return the length of the classifier's output: one per class, one angle, or the values.

    One more class stands for what was distorted, where `reject_distorted` asks for it.
    """
    if config.objective.loss in ("squared_error", "absolute_error"):
        return 3 if config.objective.vectors else 1
    return len(class_names) + int(config.objective.reject_distorted != "no")
