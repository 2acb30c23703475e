"""Any finished runs side by side: read, compared, printed, written."""

from collections.abc import Iterable
from pathlib import Path

from experiments.report.compare import compare
from experiments.report.compare_page import write_comparison
from experiments.report.compare_table import markdown
from experiments.running.command_line import UsageError
from experiments.setup import defaults

__all__ = ["compare_runs"]


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
