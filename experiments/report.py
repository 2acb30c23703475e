"""Put finished runs side by side: one page, one table, and the figures behind them.

    python -m experiments.report runs/*
    python -m experiments.report runs/sweeps/mario_iggy_smoke/* --out runs/sweeps/comparison

Writes report.html, table.md and comparison.json to --out, and nothing into the folders of the runs.
Folders that hold no finished run are named with the reason, the others are compared.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments import defaults
from experiments.running.command_line import UsageError, leave
from flowjax_inv.report.compare import compare
from flowjax_inv.report.compare_page import write_comparison
from flowjax_inv.report.compare_table import markdown

__all__ = ["compare_runs", "main"]


def compare_runs(folders: Iterable[str | Path], out: str | Path) -> Path:
    """Compare runs, print the table and what is wrong with which run, write the comparison.

    Args:
        folders: of runs; what comparisons and sweeps wrote beside them may be among them, as in
            runs/*, and is passed over.
        out: folder of the comparison, made if absent.

    Returns:
        Path of the page.

    Raises:
        UsageError: if no folder holds a finished run, or `out` lies in the folder of a run.
    """
    place = Path(out).resolve()
    runs = [Path(folder) for folder in folders]
    for run in runs:
        inside = place.is_relative_to(run.resolve()) and (run / "config.json").is_file()
        if inside:
            raise UsageError(f"--out={out} lies in the run {run}; give a folder beside the runs.")
    usual = defaults.without_places(defaults.get_config())
    comparison = compare([run for run in runs if not _passed_over(run)], defaults=usual)
    if not comparison.experiments:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in comparison.left_out[:3])
        more = len(comparison.left_out) - 3
        raise UsageError(
            f"none of {len(comparison.left_out)} folders holds a finished run"
            f"{f' ({reasons}' if reasons else ''}{f'; and {more} more' if more > 0 else ''}"
            f"{')' if reasons else ''}; give folders that python -m experiments.run has finished."
        )
    page = write_comparison(comparison, out)
    print(markdown(comparison), end="")
    return page


def _passed_over(path: Path) -> bool:
    """Say whether a path is a comparison or the record of a sweep: no run that went wrong."""
    return (path / "comparison.json").is_file() or path.name == "sweep.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare runs; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", nargs="+", metavar="FOLDER", help="folder of a run")
    parser.add_argument("--out", default="runs/comparison", help="default: runs/comparison")
    parsed = parser.parse_args(arguments)
    try:
        page = compare_runs(parsed.runs, parsed.out)
    except (UsageError, OSError) as error:
        leave(error)
    else:
        print(f"\nreport: {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
