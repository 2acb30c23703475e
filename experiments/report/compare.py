"""Many runs side by side: run folders in, experiments with one row per method out.

An experiment is a config without what belongs to the method, the seed and the words about the run.
A row is one method on one experiment, its runs differ in their seed alone. Nothing is written.
"""

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.report.alarms import alarms
from experiments.report.formats import setting
from experiments.report.papers import paper_figure
from experiments.report.reading import as_stored, flat, read_metrics, read_object
from experiments.report.verdicts import has_density, method_name, poses_known

__all__ = ["Comparison", "Experiment", "Member", "Row", "compare", "group"]

# Sections that belong to the method: what an experiment leaves to it, and what tells two rows of
# one method apart.
OF_METHOD = ("distribution", "embedding", "controller", "objective", "optimizer.distribution")
LABELS = ("command", "seed", "paper")
# How it was computed and written down, not what: runs of one experiment may differ in these.
MEANS = (
    "transform.warp",
    "classifier.conv",
    "embedding.conv",
    "train.log_every",
    "train.checkpoint_every",
    "evaluation.batch_size",
)
ABSENT = "not there"
NAMED = 4  # fields in a name, as long as they tell all apart


@dataclass(frozen=True)
class Member:
    """One finished run.

    Attributes:
        name: the last parts of its folder's path, as many as tell it from the others.
        path: its folder.
        config: flat names to values; fields that the run does not know have their default.
        results: flat names to numbers.
        metrics: one mapping per logged step; empty when they were not kept.
        environment: flat names to values; empty when it was not kept.
    """

    name: str
    path: Path
    config: Mapping[str, Any]
    results: Mapping[str, Any]
    metrics: Sequence[Mapping[str, Any]] = ()
    environment: Mapping[str, Any] | None = None

    @property
    def seed(self) -> Any:
        """Seed, None where neither results nor config have one."""
        return self.results.get("seed", self.config.get("seed"))

    @functools.cached_property
    def alarms(self) -> list[str]:
        """Sentences about what went wrong, as in the run's own report."""
        return alarms(self.results, self.metrics)


@dataclass(frozen=True)
class Row:
    """One method on one experiment.

    Attributes:
        name: the method, and the fields in which it differs from its other rows.
        fields: these fields and their values.
        members: its runs, one per seed, in the order of seeds.
    """

    name: str
    fields: Mapping[str, Any]
    members: list[Member]

    @property
    def results(self) -> list[Mapping[str, Any]]:
        """Results of the runs, in the order of seeds."""
        return [member.results for member in self.members]


@dataclass(frozen=True)
class Experiment:
    """What several methods were run on.

    Attributes:
        name: the data, and the fields in which it differs from others on this data.
        fields: all these fields and their values; the name may leave some out.
        note: about the data, else empty.
        rows: first those without a density.
    """

    name: str
    fields: Mapping[str, Any]
    note: str
    rows: list[Row]

    @property
    def poses_known(self) -> bool:
        """Whether the true half-range is known."""
        return any(poses_known(results) for row in self.rows for results in row.results)


@dataclass(frozen=True)
class Comparison:
    """Experiments, and what is not among them.

    Attributes:
        experiments: with at least one row each, ordered by data and fields.
        left_out: names of folders, and in one line each why they are not counted.
    """

    experiments: list[Experiment]
    left_out: list[tuple[str, str]]

    @functools.cached_property
    def members(self) -> list[Member]:
        """All runs that are counted, in the order of the table."""
        return [m for e in self.experiments for row in e.rows for m in row.members]


def compare(
    folders: Iterable[Path | str], *, defaults: Mapping[str, Any] | None = None
) -> Comparison:
    """Read run folders and put them side by side; their order does not matter.

    Args:
        folders: of runs; config.json and results.json are needed, the rest is shown when there.
        defaults: nested config; what fields stand at that a run of an earlier version lacks.

    Returns:
        The comparison; folders that cannot be counted are in its `left_out`.
    """
    usual = flat(as_stored(defaults)) if defaults is not None else {}
    names = _names({Path(folder).resolve() for folder in folders})
    members, left_out = [], []
    for folder, name in sorted(names.items(), key=lambda item: item[1]):
        try:
            members.append(_read(folder, name, usual))
        except (ValueError, OSError) as error:
            # A message names the whole path, which is nobody's business.
            left_out.append((name, " ".join(str(error).replace(str(folder), name).split())))
    counted, repeats = _without_repeats(members)
    return Comparison(group(counted), sorted(left_out + repeats))


def group(members: Iterable[Member]) -> list[Experiment]:
    """Sort runs into experiments and rows, and name both by the fields that differ.

    Args:
        members: runs, in any order, no two of which are alike in all but their folder.

    Returns:
        Experiments, ordered by data and fields.
    """
    experiments: dict[Any, dict[Any, list[Member]]] = {}
    for member in sorted(members, key=_order):
        rows = experiments.setdefault(_key(_experiment(member)), {})
        rows.setdefault(_key(_method(member)), []).append(member)

    firsts = {key: next(iter(rows.values()))[0] for key, rows in experiments.items()}
    of_data: dict[str, list[Any]] = {}
    for key, first in firsts.items():
        of_data.setdefault(_data(first), []).append(key)
    # A field that tells rows apart in one experiment is named in all: rows of a name are alike.
    apart: dict[str, list[str]] = {}
    for rows in experiments.values():
        of_method: dict[str, list[Mapping[str, Any]]] = {}
        for found in rows.values():
            of_method.setdefault(_word(found[0]), []).append(_method(found[0]))
        for word, configs in of_method.items():
            apart[word] = sorted({*apart.get(word, ()), *_differing(configs)})

    made = []
    for data, keys in sorted(of_data.items()):
        configs = [_experiment(firsts[key]) for key in keys]
        differing = _differing(configs)
        found = []
        for key, name, config in zip(keys, _names_of(data, configs), configs, strict=True):
            fields = {field: config.get(field, ABSENT) for field in differing}
            note = str(firsts[key].results.get("data_note") or "")
            rows = [
                _row(members, apart[_word(members[0])]) for members in experiments[key].values()
            ]
            rows.sort(
                key=lambda r: (has_density(r.results[0]), _word(r.members[0]), _rank(r.fields))
            )
            found.append(Experiment(name, fields, note, rows))
        made += sorted(found, key=lambda e: _rank(e.fields))
    return made


def _read(folder: Path, name: str, usual: Mapping[str, Any]) -> Member:
    """Read one run, or say in one line why it cannot be counted."""
    if not folder.is_dir():
        raise ValueError("is no folder; give folders of runs")
    config_path, results_path, metrics_path = (
        folder / file for file in ("config.json", "results.json", "metrics.jsonl")
    )
    if not config_path.is_file():
        within = any(folder.glob("*/config.json"))
        hint = "but its folders are: give them" if within else "it has no config.json"
        raise ValueError(f"is no run folder, {hint}")
    metrics = read_metrics(metrics_path) if metrics_path.is_file() else []
    if not results_path.is_file():
        step = f" at step {metrics[-1].get('step')}" if metrics else ""
        said = " ".join(alarms({}, metrics)) or "the same command continues it"
        raise ValueError(f"unfinished{step}, it has no results.json; {said}")
    environment = folder / "environment.json"
    config, results = {**usual, **flat(read_object(config_path))}, read_object(results_path)
    return Member(
        name=name,
        path=folder,
        config=config,
        results=results | {"paper": paper_figure(results, config)},
        metrics=metrics,
        environment=flat(read_object(environment)) if environment.is_file() else {},
    )


def _names(folders: Iterable[Path]) -> dict[Path, str]:
    """Name folders by as few of the last parts of their paths as tell them apart."""
    names = {}
    left, count = set(folders), 1
    while left:
        short = {folder: "/".join(folder.parts[-count:]) for folder in left}
        taken = list(short.values())
        done = {f for f in left if taken.count(short[f]) == 1 or count >= len(f.parts)}
        names |= {folder: short[folder] for folder in done}
        left, count = left - done, count + 1
    return names


def _without_repeats(members: Iterable[Member]) -> tuple[list[Member], list[tuple[str, str]]]:
    """Count a seed once: a second run of it would make the spread too small."""
    kept: dict[Any, Member] = {}
    repeats = []
    # Of two, the one that has more to show; the order of the folders does not matter.
    for member in sorted(members, key=lambda m: (-_to_show(m), m.name)):
        what = (_key(_experiment(member)), _key(_method(member)), _freeze(member.seed))
        first = kept.setdefault(what, member)
        if first is not member:
            reason = f"repeats {first.name}: same experiment, method and seed; counted once"
            repeats.append((member.name, reason))
    return list(kept.values()), repeats


def _to_show(member: Member) -> int:
    return bool(member.metrics) + (member.path / "evaluation.npz").is_file()


def _of_method(field: str) -> bool:
    return any(field == part or field.startswith(f"{part}.") for part in OF_METHOD)


def _experiment(member: Member) -> dict[str, Any]:
    """Return what a run shares with those of other methods on the same experiment."""
    fields = {
        k: v for k, v in member.config.items() if k not in LABELS + MEANS and not _of_method(k)
    }
    # Contents that are not the official ones are other data.
    note = member.results.get("data_note")
    if note:
        fields["data_note"] = note
    return fields


def _method(member: Member) -> dict[str, Any]:
    """Return what a run shares with its other seeds beside the experiment."""
    fields = {k: v for k, v in member.config.items() if _of_method(k) and k not in MEANS}
    fields["method"] = member.results.get("method")
    return fields


def _row(members: list[Member], differing: Sequence[str]) -> Row:
    config = _method(members[0])
    fields = {field: config.get(field, ABSENT) for field in differing}
    words = [_word(members[0]), *(setting(field, value) for field, value in fields.items())]
    return Row(", ".join(words), fields, members)


def _word(member: Member) -> str:
    return method_name(member.results)


def _data(member: Member) -> str:
    return str(member.config.get("data.name") or member.config.get("dataset") or "unknown data")


def _names_of(data: str, configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name experiments on the same data by the fields that differ, all of them while few."""
    differing = _differing(configs)
    count = min(NAMED, len(differing))
    while True:
        names = [
            [setting(field, config.get(field, ABSENT)) for field in differing[:count]]
            for config in configs
        ]
        if count == len(differing) or len(set(map(tuple, names))) == len(configs):
            break
        count += 1
    more = [f"and {len(differing) - count} more fields"] if count < len(differing) else []
    return [", ".join([data, *settings, *more]) for settings in names]


def _differing(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name the fields that do not have the same value in all configs."""
    known = dict.fromkeys(field for config in configs for field in config)
    return sorted(
        f for f in known if len({_freeze(config.get(f, ABSENT)) for config in configs}) > 1
    )


def _key(config: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple((field, _freeze(config[field])) for field in sorted(config))


def _freeze(value: Any) -> Any:
    """Make a value of a config fit for a key."""
    if isinstance(value, list | tuple):
        return tuple(_freeze(entry) for entry in value)
    return value if isinstance(value, str | int | float | None) else str(value)


def _order(member: Member) -> tuple[Any, ...]:
    return *_rank({"seed": member.seed}), member.name


def _rank(fields: Mapping[str, Any]) -> tuple[tuple[int, float, str], ...]:
    """Order by the values of fields: numbers by size, before words by letters."""
    return tuple(
        (0, float(value), "") if isinstance(value, int | float) else (1, 0.0, str(value))
        for value in fields.values()
    )
