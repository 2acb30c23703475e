"""Accuracy against the number of labels, by method: one table and one picture."""

import re
import statistics
from collections.abc import Mapping
from pathlib import Path

from experiments.report.formats import MISSING, markdown_line, number, spread
from experiments.report.kept import Kept, read_kept
from experiments.report.verdicts import has_density

__all__ = ["accuracies", "few_labels_table", "of_few_labels"]

# Name of a kept run: few_labels_SET_METHOD_SIZE.
_NAME = re.compile(r"few_labels_(?P<data>\w+)_(?P<method>[a-z]+)_(?P<size>\d+)")
# Set -> method -> size -> its runs; every method and size in the order of `_METHODS`, by size.
Cells = Mapping[str, Mapping[str, Mapping[int, Kept]]]
_METHODS = ("none", "crop", "fixed", "augerino", "instaaug", "gaussian", "flow", "gap", "colour")


def of_few_labels(runs: Kept) -> bool:
    """Say whether runs are of `experiments/few_labels.py`, by their name."""
    return _NAME.fullmatch(runs.name) is not None


def few_labels_table(root: Path) -> str:
    """Make the table, one row per set and number of images, one column per method.

    A cell is the accuracy averaged over views, mean ± deviation over seeds, with the number of
    seeds where it is not that of the row; of "none", the plain one. The best mean of a row is bold.

    Args:
        root: the folder of `NAME/SEED/{results,config}.json`, normally `docs/results`.

    Returns:
        Markdown, without a final line break; empty if there are no such runs.

    Raises:
        ValueError: if the seeds of one name differ in more than their seed.
    """
    cells = _cells(root)
    if not cells:
        return ""
    lines = [
        markdown_line(["data", "images", "seeds", *_METHODS]),
        "|---|" + "---:|" * (2 + len(_METHODS)),
    ]
    for data, methods in cells.items():
        for size in sorted({size for sizes in methods.values() for size in sizes}):
            row = {method: sizes[size] for method, sizes in methods.items() if size in sizes}
            seeds = max(len(runs.results) for runs in row.values())
            best = max(row, key=lambda method: statistics.fmean(_figures(row[method])))
            texts = [_cell(row, method, seeds, best) for method in _METHODS]
            lines.append(markdown_line([data, f"{size:,}", str(seeds), *texts]))
    return "\n".join(lines)


def accuracies(root: Path) -> dict[str, dict[str, dict[int, list[float]]]]:
    """Return set -> method -> number of images -> the percentages of its seeds."""
    return {
        data: {
            method: {size: _figures(runs) for size, runs in sizes.items()}
            for method, sizes in methods.items()
        }
        for data, methods in _cells(root).items()
    }


def _cell(row: Mapping[str, Kept], method: str, seeds: int, best: str) -> str:
    if method not in row:
        return MISSING
    runs = row[method]
    runs.refuse_mixture()
    text = spread(runs.results, _key(runs), 100.0, 2)
    if method == best:
        text = f"**{text}**"
    return text if len(runs.results) == seeds else f"{text} ({len(runs.results)})"


def _cells(root: Path) -> Cells:
    found: dict[str, dict[str, dict[int, Kept]]] = {}
    for runs in read_kept(root):
        name = _NAME.fullmatch(runs.name)
        if name:
            sizes = found.setdefault(name["data"], {}).setdefault(name["method"], {})
            sizes[int(name["size"])] = runs
    return {
        data: {
            method: dict(sorted(methods[method].items()))
            for method in _METHODS
            if method in methods
        }
        for data, methods in sorted(found.items())
    }


def _key(runs: Kept) -> str:
    return "test_accuracy_averaged" if has_density(runs.results[0]) else "test_accuracy"


def _figures(runs: Kept) -> list[float]:
    found = (number(each, _key(runs)) for each in runs.results)
    return [100.0 * value for value in found if value is not None]
