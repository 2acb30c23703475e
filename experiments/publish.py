"""Keep the figures of finished runs; write the tables of the documents and draw from them.

    python -m experiments.publish mario_iggy runs/seed0 runs/seed1 runs/seed2
    python -m experiments.publish                    # only tables and pictures, of what is kept

Copies config, environment and results of each run to docs/results/NAME/SEED/, and what was measured
of it later.
"""

import argparse
import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from experiments.report.evidence import evidence_table
from experiments.report.few_labels import accuracies, few_labels_table
from experiments.report.half_turned import half_turned_table
from experiments.report.headline import headline_table
from experiments.report.image_tables import (
    aligned_table,
    images_table,
    replace_between_markers,
    turned_table,
)
from experiments.report.method_tables import METHOD_TABLES
from experiments.report.moved import moved_table
from experiments.report.reading import read_object
from experiments.report.sprite_tables import (
    discovery_table,
    modes_table,
    results_table,
    rotation_distances,
)
from experiments.running.command_line import UsageError, leave

__all__ = ["PAGES", "draw", "main", "publish", "with_tables"]

ROOT = Path(__file__).parents[1]
_KEPT = ("config.json", "environment.json", "results.json")
_KEPT_IF_THERE = ("robustness.json", "alignment_*.json", "card.json")
# Page, below the project's folder: its tables, by the name of their markers.
PAGES: dict[str, dict[str, Callable[[Path], str]]] = {
    "README.md": {"headline": headline_table},
    "docs/results.md": {
        "results": results_table,
        "modes": modes_table,
        "discovery": discovery_table,
        "few_labels": few_labels_table,
        "half_turned": half_turned_table,
        "evidence": evidence_table,
        "moved": moved_table,
        **METHOD_TABLES,
        "images": images_table,
        "turned": turned_table,
        "aligned": aligned_table,
    },
}


def publish(name: str, runs: Sequence[Path], results: Path) -> None:
    """Copy the figures of runs to `results`/NAME/SEED/.

    Args:
        name: of the row in the table.
        runs: folders of finished runs, one per seed.
        results: docs/results, or another folder.

    Raises:
        UsageError: if there is no run, one is not finished, two have the same seed, or the name is
            no folder's.
        ValueError: if a results.json is damaged.
    """
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise UsageError(f'"{name}" is no name of a row; want letters, digits, "_", "-" and ".".')
    if not runs:
        raise UsageError(f'no runs to publish as "{name}"; give their folders after the name.')
    by_seed: dict[str, Path] = {}
    for run in runs:
        missing = [file for file in _KEPT if not (run / file).is_file()]
        if missing:
            raise UsageError(f"{run} has no {missing[0]}; give the folder of a finished run.")
        found = read_object(run / "results.json")
        if "seed" not in found:
            raise UsageError(f"{run}/results.json names no seed; give the folder of a run.")
        seed = str(found["seed"])
        other = by_seed.setdefault(seed, run)
        if other != run:
            raise UsageError(f"{other} and {run} have both seed {seed}; give one run per seed.")
    for seed, run in by_seed.items():
        target = results / name / seed
        target.mkdir(parents=True, exist_ok=True)
        # What was measured of the run that stood there before is not this one's.
        for path in (
            path for pattern in (*_KEPT_IF_THERE, "*.png") for path in target.glob(pattern)
        ):
            path.unlink()
        more = [path.name for pattern in _KEPT_IF_THERE for path in run.glob(pattern)]
        for file in (*_KEPT, *more):
            shutil.copyfile(run / file, target / file)


def with_tables(text: str, page: str, results: Path) -> str:
    """Return the text of one of `PAGES` with its tables made from `results`.

    Raises:
        ValueError: if there are no runs, or a table has rows and no markers for its place.
    """
    for name, make in PAGES[page].items():
        table = make(results)
        if table or f"<!-- {name}:" in text:
            text = replace_between_markers(text, table, name)
    return text


def draw(results: Path, folder: Path) -> None:
    """Draw what the tables show less well.

    Args:
        results: docs/results. NAME/SEED/turned.png and gates.png are written there, for runs with
            gates: accuracy over the angle, and what it costs upright pictures.
        folder: of rotation_distance.png and few_labels.png, if there are runs for them.
    """
    # Matplotlib takes a second to import.
    from experiments.report import discovery, label_curves, turned
    from experiments.report.rendering import as_png

    curves = rotation_distances(results)
    if curves:
        picture = as_png(discovery.distance_against_half_range(curves))
        (folder / "rotation_distance.png").write_bytes(picture)
    by_labels = {  # one number of images is no curve
        name: methods
        for name, methods in accuracies(results).items()
        if len({size for sizes in methods.values() for size in sizes}) > 1
    }
    if by_labels:
        picture = as_png(label_curves.accuracy_against_labels(by_labels))
        (folder / "few_labels.png").write_bytes(picture)
    for path in results.glob("*/*/robustness.json"):
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["gates"]:
            path.with_name("turned.png").write_bytes(as_png(turned.accuracies(found)))
            path.with_name("gates.png").write_bytes(as_png(turned.gate_curve(found)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Publish the runs named on the command line, and write the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.publish",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="?", help="of the row in the table")
    parser.add_argument("runs", nargs="*", type=Path, help="folders of its runs, one per seed")
    parsed = parser.parse_args(arguments)
    results = ROOT / "docs" / "results"
    try:
        if parsed.name:
            publish(parsed.name, parsed.runs, results)
        texts = {
            page: with_tables((ROOT / page).read_text(encoding="utf-8"), page, results)
            for page in PAGES
        }
    except (UsageError, ValueError) as error:
        leave(error)
    else:
        for page, text in texts.items():
            (ROOT / page).write_text(text, encoding="utf-8")
        draw(results, ROOT / "docs")
        count = len(list(results.glob("*/*/results.json")))
        print(f"tables in {' and '.join(PAGES)}: {count} runs")


if __name__ == "__main__":
    main()
