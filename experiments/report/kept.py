"""Runs kept below a folder, as NAME/SEED/, and what their seeds have in common."""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.report.reading import flat, read_object, read_results

__all__ = ["Kept", "kept_where", "read_by_name", "read_kept"]


@dataclass(frozen=True)
class Kept:
    """The runs of one name, one per seed: their results and configs, in the same order."""

    name: str
    results: list[Mapping[str, Any]]
    configs: list[Mapping[str, Any]]

    def have(self, key: str) -> bool:
        """Say whether a seed's results have a figure."""
        return any(key in seed for seed in self.results)

    @property
    def command(self) -> str:
        """The command of the first seed, without seed and folder; empty if it is not known."""
        return self._commands[0]

    @property
    def _commands(self) -> list[str]:
        return [_without_seed(str(config.get("command", ""))) for config in self.configs]

    def refuse_mixture(self) -> None:
        """Refuse a mean over runs that are not the same experiment.

        Convention: a field that one of two runs knows is younger than the other; by one command
            it has its default, which changes nothing.

        Raises:
            ValueError: if the seeds differ in more than their seed.
        """
        said = ("method", "data_note", "evaluation_rule", "evaluation_average")
        # The command also names the seed, and may spell the same config in other words.
        what = [
            {key: value for key, value in flat(config).items() if key not in ("command", "seed")}
            | {f"results: {key}": results.get(key) for key in said}
            for config, results in zip(self.configs, self.results, strict=True)
        ]
        for other, command in zip(what[1:], self._commands[1:], strict=True):
            same = command and command == self.command
            fields = what[0].keys() & other.keys() if same else what[0].keys() | other.keys()
            differing = sorted(k for k in fields if what[0].get(k) != other.get(k))
            if differing:
                raise ValueError(
                    f"the runs of {self.name} differ in {', '.join(differing)}; publish runs that "
                    "differ in more than their seed under names of their own"
                )


def read_kept(root: Path) -> list[Kept]:
    """Read all runs, ordered by name and seed folder.

    Raises:
        ValueError: if there is no NAME/SEED/results.json, or a file is not a JSON object.
    """
    kept: dict[str, Kept] = {}
    for path in sorted(root.glob("*/*/results.json")):
        name = path.parent.parent.name
        runs = kept.setdefault(name, Kept(name, [], []))
        config = path.parent / "config.json"
        runs.results.append(read_results(path))
        runs.configs.append(read_object(config) if config.is_file() else {})
    if not kept:
        raise ValueError(
            f"{root} holds no NAME/SEED/results.json; copy the results.json of finished runs there"
        )
    return list(kept.values())


def kept_where(root: Path, wanted: Callable[[Kept], bool]) -> list[Kept]:
    """Read the runs that a table is of, each name one experiment.

    Raises:
        ValueError: as `read_kept`, or if the seeds of one name differ in more than their seed.
    """
    found = [runs for runs in read_kept(root) if wanted(runs)]
    for runs in found:
        runs.refuse_mixture()
    return found


def read_by_name(root: Path, pattern: str) -> dict[str, list[dict[str, Any]]]:
    """Read the objects NAME/SEED/PATTERN, seeds in order, by name."""
    kept: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(root.glob(f"*/*/{pattern}")):
        kept.setdefault(path.parent.parent.name, []).append(read_object(path))
    return kept


def _without_seed(command: str) -> str:
    """Leave the seed and the folder out of a command, written --name=value or --name value."""
    kept: list[str] = []
    words = iter(shlex.split(command))
    for word in words:
        name, separator, _ = word.partition("=")
        if word.startswith("-") and name.lstrip("-") in ("config.seed", "workdir"):
            if not separator:
                next(words, None)
            continue
        kept.append(word)
    return shlex.join(kept)
