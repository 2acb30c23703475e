"""Reading the command line: one clear line for whatever is wrong, before anything is imported late.

absl and config_flags parse; this file looks first, because for a misspelt field they end in a
traceback that does not say which field was meant.
"""

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import ml_collections

from experiments.defaults import PLACES, did_you_mean, flatten

__all__ = [
    "UsageError",
    "available_configs",
    "check_arguments",
    "leave",
    "portable",
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
        if path.name != "defaults.py" and "\ndef get_config(" in path.read_text(encoding="utf-8")
    )


def _load(value: str) -> ml_collections.ConfigDict:
    path, _, variant = value.partition(":")
    if not Path(path).is_file():
        raise UsageError(
            f"--config={path} is not a file; available: {', '.join(available_configs())}."
        )
    spec = importlib.util.spec_from_file_location("chosen_config", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"--config={path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "get_config"):
        raise UsageError(f"--config={path} has no get_config(variant) function.")
    try:
        return module.get_config(variant)
    except ValueError as error:
        raise UsageError(f"--config={value}: {error}") from error


def check_arguments(arguments: Sequence[str]) -> None:
    """Check --config and every --config.FIELD of a command line.

    Args:
        arguments: sys.argv.

    Raises:
        UsageError: if --config is missing or not a config file, or a field does not exist.
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
    known = [name for name, _ in flatten(_load(values[-1]))]
    for flag in flags:
        name = flag.partition("=")[0].removeprefix("no")
        if name.startswith("config.") and name.removeprefix("config.") not in known:
            raise unknown_field(name.removeprefix("config."), known)


def unknown_field(field: str, known: list[str]) -> UsageError:
    """Say that a config has no such field, and which one was meant."""
    near = did_you_mean(field, known)
    if "did you mean" not in near:
        near = "; the fields are listed in experiments/defaults.py."
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
