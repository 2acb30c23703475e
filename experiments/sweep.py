"""Train every combination of a grid, one after the other, and put the finished runs side by side.

    python -m experiments.sweep --config=experiments/mario_iggy.py:smoke \
        --grid "seed=0,1,2;distribution.name=flow,augerino"

Every run has its own folder below --workdir, named by its values. The same command continues a
sweep that was stopped and skips what is finished; sweep.json says how each run ended. Fields beside
the grid change as in experiments.run: --config.train.epochs=2. A tuple stands in parentheses, as
does text with a comma: --grid "classifier.hidden=(64,64),(256,)".
"""

import itertools
import re
import shlex
import sys
import traceback
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from absl import app, flags, logging
from ml_collections import config_flags

from experiments import run as experiment  # its flags --config and --workdir are taken over
from experiments.report.comparing import compare_runs
from experiments.report.formats import setting
from experiments.running.allocator import keep_freed_memory
from experiments.running.collector import collect_rarely
from experiments.running.command_line import (
    UsageError,
    check_arguments,
    cut_short,
    leave,
    portable,
    read_recipe,
    unknown_field,
)
from experiments.running.program_cache import keep_compiled_programs
from experiments.running.run_folder import RunFolder
from experiments.setup import build, checks, data_sets, defaults, optimizers
from experiments.setup.fields import flatten

__all__ = ["Combination", "combinations", "parse_grid", "sweep"]

_GRID = flags.DEFINE_string("grid", "", "Fields and their values: seed=0,1,2;FIELD=A,B.")
_EXAMPLE = 'write --grid "seed=0,1,2;distribution.name=flow,identity"'
_LONGEST = 255  # bytes of a folder's name


@dataclass(frozen=True)
class Combination:
    """One run of a sweep.

    Attributes:
        name: of its folder: its fields and their values.
        config: of the run, checked.
        overrides: the fields as arguments of experiments.run.
    """

    name: str
    config: defaults.Config
    overrides: tuple[str, ...]


def parse_grid(text: str, config: defaults.Config) -> dict[str, list[Any]]:
    """Read "seed=0,1;distribution.name=flow,identity" as fields and values of their type.

    Args:
        text: fields apart by semicolons, values by commas; parentheses keep commas together.
        config: whose fields these are.

    Returns:
        Names of fields to their values, both in the order given.

    Raises:
        UsageError: one line, if the grid is empty, a field is unknown, is there twice, says where
            a run happens, or has a value twice or of another type.
    """
    known = dict(flatten(config))
    grid: dict[str, list[Any]] = {}
    for part in filter(str.strip, _split(text, ";")):
        field, equals, values = (word.strip() for word in part.partition("="))
        if field not in known:
            raise unknown_field(field, list(known))
        if not equals or not values:
            raise UsageError(f"--grid has no value for {field}; {_EXAMPLE}.")
        if field in grid:
            raise UsageError(f"--grid has {field} twice; list all of its values in one place.")
        if field in defaults.PLACES:
            raise UsageError(
                f"--grid has {field}, which says where a run happens, not what it is; give it "
                f"beside the grid: --config.{field}=..."
            )
        grid[field] = [_value(field, word.strip(), known[field]) for word in _split(values, ",")]
        for value in grid[field]:
            if grid[field].count(value) > 1:
                raise UsageError(f"--grid has {setting(field, value)} twice; list it once.")
    if not grid:
        raise UsageError(f"--grid is empty; {_EXAMPLE}.")
    return grid


def combinations(
    config: defaults.Config,
    grid: Mapping[str, Sequence[Any]],
    *,
    recipe: defaults.Config | None = None,
    typed: Collection[str] = (),
) -> list[Combination]:
    """Make and check the config of every combination; the last field changes fastest.

    Args:
        config: what all runs share; it is left as it is.
        grid: names of fields to values of their type.
        recipe: the config without what was typed: where fewer epochs were, the rest is scaled along
            as `experiments.run` does.
        typed: names of the fields that were typed beside the grid.

    Returns:
        One combination per run.

    Raises:
        UsageError: one line, if a combination cannot be run or two would share a folder.
    """
    made: dict[str, Combination] = {}
    for values in itertools.product(*grid.values()):
        fields = dict(zip(grid, values, strict=True))
        chosen = config.copy_and_resolve_references()
        with chosen.unlocked():
            for field, value in fields.items():
                chosen.update_from_flattened_dict({field: value})
            if recipe is not None:
                cut_short(chosen, recipe, {*typed, *grid})
        settings = [setting(field, value) for field, value in fields.items()]
        name = re.sub(r"[^\w.,=()+-]", "_", ",".join(settings))
        try:
            _check(chosen)
        except (ValueError, TypeError) as error:
            raise UsageError(f"{name}: {_one_line(error)}") from error
        if name in made or len(name.encode()) > _LONGEST:
            what = "two combinations" if name in made else f"more than {_LONGEST} bytes"
            raise UsageError(
                f"the folder {name[:80]} would be that of {what}; give fewer or simpler values, "
                "or several sweeps."
            )
        overrides = tuple(f"--config.{field}={value}" for field, value in fields.items())
        made[name] = Combination(name, chosen, overrides)
    return list(made.values())


def sweep(
    runs: Sequence[Combination], workdir: str | Path, *, command: Sequence[str] = ()
) -> dict[str, dict[str, str]]:
    """Train one run after the other; one that fails says why, and the rest goes on.

    Args:
        runs: as from `combinations`.
        workdir: folder of the sweep; finished runs in it are skipped, stopped ones go on.
        command: of a single run, without the fields of the grid, for its report.

    Returns:
        Names of these runs to their `status`, finished or failed, and the `reason` of a failure;
        sweep.json holds them and those of earlier grids.

    Raises:
        ValueError: if sweep.json is damaged.
    """
    folder = RunFolder(workdir)  # files that are whole or not there, as those of a run
    stored: Any = folder.read_json("sweep.json") or {"runs": {}}
    if not isinstance(stored, dict) or not isinstance(stored.get("runs"), dict):
        raise ValueError(f"{folder.path}/sweep.json is damaged; remove it, finished runs are kept.")
    told: dict[str, dict[str, str]] = stored["runs"]

    def tell(name: str, status: str, **more: str) -> None:
        told[name] = {"status": status, **more}
        folder.write_json("sweep.json", {"runs": told})

    for run in runs:
        if told.get(run.name, {}).get("status") != "finished":
            tell(run.name, "waiting")
    for number, run in enumerate(runs, start=1):
        print(f"{number} of {len(runs)}: {run.name}", flush=True)
        where = folder.path / run.name
        try:
            if RunFolder(where).results_of(defaults.without_places(run.config)) is not None:
                print("already finished, skipped")
            else:
                tell(run.name, "running")
                line = shlex.join([*command, *run.overrides]) if command else ""
                experiment.train_and_evaluate(run.config, where, command=line)
            tell(run.name, "finished")
        except KeyboardInterrupt:
            tell(run.name, "stopped")
            raise
        except Exception as error:
            # Whatever it is: a night of other runs must not end with this one.
            expected = isinstance(error, ValueError | FloatingPointError | OSError)
            more = {} if expected else {"traceback": traceback.format_exc()}
            reason = _one_line(error) if expected else f"{type(error).__name__}: {_one_line(error)}"
            tell(run.name, "failed", reason=reason, **more)
            print(f"failed: {run.name}: {reason}", file=sys.stderr, flush=True)
        jax.clear_caches()  # the programs of one run are of no use to the next
    return {run.name: told[run.name] for run in runs}


def _check(config: defaults.Config) -> None:
    """Build what a run builds before it has its data: what cannot be built is refused here."""
    checks.check(config)
    build.placement(config)
    data_sets.normalization(config)
    transform = build.transform(config)
    build.network(config, "classifier", classes=1)
    distribution = build.distribution(config, transform, classes=1)
    build.objective(config, distribution, transform)
    optimizers.from_config(config, total_steps=1, steps_per_epoch=1)
    build.controller(config, total_steps=1, steps_per_epoch=1)


def _split(text: str, separator: str) -> list[str]:
    """Split where no parenthesis is open."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            break
        if letter == separator and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    if depth:
        raise UsageError(f"--grid has a parenthesis without its other half in {text!r}; close it.")
    return parts


def _value(field: str, text: str, usual: Any) -> Any:
    """Read one value in the type of its field."""
    inner = text[1:-1] if text.startswith("(") and text.endswith(")") else text
    if isinstance(usual, tuple):
        words = [word.strip() for word in inner.split(",")]
        declared = dict(flatten(defaults.FIELDS))[field].value
        entry = (usual or declared or (0.0,))[0]
        return tuple(_value(field, word.strip("'\""), entry) for word in words if word)
    if isinstance(usual, str):
        return inner
    kind, example = _KINDS[type(usual)]
    try:
        if isinstance(usual, bool):
            return {"true": True, "false": False}[text.lower()]
        return type(usual)(text)
    except (KeyError, ValueError):
        raise UsageError(
            f"--grid has {field}={text}; allowed is {kind}: write {field}={example}."
        ) from None


_KINDS = {
    bool: ("true or false", "true,false"),
    int: ("a whole number", "1,2"),
    float: ("a number", "0.1,1e-3"),
}


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _refuse_overlap(arguments: Sequence[str], grid: Mapping[str, Any]) -> None:
    """Refuse a field that is set beside the grid as well: one of the two would be a lie."""
    for argument in arguments:
        name = argument.lstrip("-").partition("=")[0]
        for field in grid:
            if argument.startswith("-") and name in (f"config.{field}", f"noconfig.{field}"):
                raise UsageError(f"{field} is in --grid and in {argument}; leave one of them out.")


def _main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
        leave(UsageError(f"unexpected argument {argv[1]}; put the grid in quotes: {_EXAMPLE}."))
    logging.set_verbosity(logging.WARNING)  # orbax tells its life at INFO
    keep_freed_memory()
    collect_rarely()
    keep_compiled_programs()
    config = flags.FLAGS["config"]
    file = config_flags.get_config_filename(config)
    path, _, variant = file.partition(":")
    name = "_".join(filter(None, (Path(path).stem, variant)))
    workdir = Path(flags.FLAGS["workdir"].value or f"runs/sweeps/{name}")
    command = ["python", "-m", "experiments.run", *portable(sys.argv[1:], besides=("grid",))]
    try:
        grid = parse_grid(_GRID.value, config.value)
        _refuse_overlap(sys.argv[1:], grid)
        typed = config_flags.get_override_values(config)
        runs = combinations(config.value, grid, recipe=read_recipe(file), typed=typed)
        ended = sweep(runs, workdir, command=command)
        finished = [name for name, end in ended.items() if end["status"] == "finished"]
        if finished:
            page = compare_runs([workdir / name for name in finished], workdir / "comparison")
            print(f"\nreport: {page}")
    except (UsageError, ValueError, OSError) as error:
        leave(error)
    except KeyboardInterrupt:
        print(f"\nstopped; the same command continues {workdir}", file=sys.stderr)
        sys.exit(130)
    ends = workdir / "sweep.json"
    print(f"{len(finished)} of {len(ended)} runs finished; {ends} says how each ended")
    sys.exit(int(len(finished) < len(ended)))


if __name__ == "__main__":
    try:
        check_arguments(sys.argv)
    except UsageError as problem:
        leave(problem)
    flags.adopt_module_key_flags(experiment)
    app.run(_main)
