"""Put finished runs side by side: one page, one table, and the figures behind them.

    python -m experiments.report runs/*
    python -m experiments.report runs/sweeps/mario_iggy_smoke/* --out runs/sweeps/comparison

Writes report.html, table.md and comparison.json to --out, and nothing into the folders of the runs.
Folders that hold no finished run are named with the reason, the others are compared.
"""

import argparse
import sys
from collections.abc import Sequence

from experiments.report.comparing import compare_runs
from experiments.running.command_line import UsageError, leave

__all__ = ["main"]


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
