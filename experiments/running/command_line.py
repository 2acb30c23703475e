"""Reading the command line: one clear line for whatever is wrong, before anything is imported late.

absl and config_flags parse; this file looks first, because for a misspelt field they end in a
traceback that does not say which field was meant.
"""

import importlib.util
import sys
import traceback
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NoReturn

from absl import flags as absl_flags

from experiments.setup.defaults import PLACES, Config
from experiments.setup.fields import did_you_mean, flatten

__all__ = [
    "UsageError",
    "available_configs",
    "check_arguments",
    "cut_short",
    "leave",
    "portable",
    "read_recipe",
    "unknown_field",
]


class UsageError(Exception):
    """What the user has to change on the command line; shown as one line, without a traceback."""


def available_configs() -> list[str]:
    """Return the paths of the experiment files, as typed from above their folder."""
    folder = Path(__file__).parents[1]
    return sorted(
        f"{folder.name}/{path.name}"
        for path in folder.glob("*.py")
        if "\ndef get_config(" in path.read_text(encoding="utf-8")
    )


def read_recipe(value: str) -> Config:
    """Return the config of FILE.py:VARIANT, as it is without further fields.

    Raises:
        UsageError: if it cannot be read.
    """
    path, _, variant = value.partition(":")
    if not Path(path).is_file():
        raise UsageError(
            f"--config={path} is not a file; available: {', '.join(available_configs())}."
        )
    spec = importlib.util.spec_from_file_location("chosen_config", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"--config={path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        if not hasattr(module, "get_config"):
            raise UsageError(f"--config={path} has no get_config(variant) function.")
        return module.get_config(variant)
    except ValueError as error:
        raise UsageError(f"--config={value}: {error}") from error
    except UsageError:
        raise
    except Exception as error:  # the file is the user's own
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise UsageError(
            f"--config={value} cannot be read: {type(error).__name__}: {error} "
            f"({last.filename}, line {last.lineno})."
        ) from error


def check_arguments(arguments: Sequence[str]) -> None:
    """Check --config and every --config.FIELD of a command line.

    Args:
        arguments: sys.argv.

    Raises:
        UsageError: if --config is missing or not a config file, or a flag or field does not exist
            or is not of its kind.
    """
    flags = [argument.lstrip("-") for argument in arguments[1:] if argument.startswith("-")]
    if any(flag.partition("=")[0] in ("help", "helpfull", "helpshort", "h", "?") for flag in flags):
        return
    values = [
        value if separator else following
        for argument, following in zip(arguments, [*arguments[1:], ""], strict=True)
        for name, separator, value in [argument.lstrip("-").partition("=")]
        if argument.startswith("-") and name == "config"
    ]
    if not values or not values[-1]:
        raise UsageError(
            f"--config is missing; available: {', '.join(available_configs())}. "
            "For example: python -m experiments.run --config=experiments/mario_iggy.py"
        )
    fields = dict(flatten(read_recipe(values[-1])))
    for flag in flags:
        name, given, value = flag.partition("=")
        field = name.removeprefix("no").removeprefix("config.")
        if not name.removeprefix("no").startswith("config."):
            if not {name, name.removeprefix("no")} & {"config", "workdir", *absl_flags.FLAGS}:
                raise UsageError(
                    f"--{name} is not known; fields of the config are written --config.FIELD=VALUE,"
                    " and --help lists the rest."
                )
        elif field not in fields:
            raise unknown_field(field, list(fields))
        elif given and not _fits(value, fields[field]):
            raise UsageError(
                f"--config.{field} is {value!r}; it wants {_KINDS[type(fields[field])]}."
            )


_KINDS = {bool: "true or false", int: "a whole number", float: "a number"}


def _fits(value: str, default: Any) -> bool:
    """Whether a value that was typed can stand for a number or truth value like the default."""
    if isinstance(default, bool):
        return value.lower() in ("true", "false", "t", "f", "1", "0")
    try:
        _ = type(default)(value) if isinstance(default, int | float) else None
    except ValueError:
        return False
    return True


def cut_short(config: Config, recipe: Config, typed: Collection[str]) -> str:
    """Scale what a recipe counts in epochs along, where it was given fewer of them.

    Burn-in and the epochs between drops keep their share of the run, at least one epoch where they
    had one; ramps and cosines follow by themselves. What was typed stays as it was typed.

    Args:
        config: with what was typed; changed in place.
        recipe: the same without it.
        typed: names of the fields that were typed.

    Returns:
        A line for the user that says so; empty if nothing changed.
    """
    was, now = recipe.train.epochs, config.train.epochs
    if "train.epochs" not in typed or not 0 < now < was:
        return ""
    fields = {"objective.burn_in_epochs": recipe.objective.burn_in_epochs} | {
        f"optimizer.{name}.decay_epochs": section.decay_epochs
        for name, section in recipe.optimizer.items()
        if section.schedule == "step"
    }
    scaled = {
        name: max(1, round(value * now / was))
        for name, value in fields.items()
        if value and name not in typed
    }
    config.update_from_flattened_dict(scaled)
    said = ", ".join(f"{name} {fields[name]} -> {value}" for name, value in scaled.items())
    return said and f"epochs {was} -> {now}, and with them {said}; type those fields to keep them"


def unknown_field(field: str, known: list[str]) -> UsageError:
    """Say that a config has no such field, and which one was meant."""
    near = did_you_mean(field, known)
    if "did you mean" not in near:
        near = "; the fields are listed in experiments/setup/defaults.py."
    return UsageError(f"config has no field {field}{near}")


def portable(arguments: Sequence[str], *, besides: Sequence[str] = ()) -> list[str]:
    """Drop --workdir and the fields that name places, written with "=" or as two words.

    Args:
        arguments: of a command, without its name.
        besides: further flags to drop.
    """
    dropped = ("workdir", *besides, *(f"config.{name}" for name in PLACES))
    kept, skip = [], False
    for argument in arguments:
        name, equals, _ = argument.lstrip("-").partition("=")
        if skip:
            skip = False
        elif argument.startswith("-") and name in dropped:
            skip = not equals
        else:
            kept.append(argument)
    return kept


def leave(error: Exception) -> NoReturn:
    """Print one line and exit with status 2."""
    print(f"error: {error}", file=sys.stderr)
    sys.exit(2)
