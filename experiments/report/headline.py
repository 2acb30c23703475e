"""The README's one table: what the house reaches, beside what is asked of it and the seeds."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.report.formats import MISSING, markdown_line, spread
from experiments.report.half_turned import ranges
from experiments.report.kept import Kept, read_kept

__all__ = ["headline_table"]

_HEADS = ("what", "reached", "the paper, or the truth", "seeds")


@dataclasses.dataclass(frozen=True)
class _Row:
    """One line: a sentence about the runs of one name.

    Attributes:
        what: was asked.
        run: name below docs/results.
        figures: of results.json: key, factor, digits, and the words round it, with {}.
        beside: the paper's figure, or the truth.
        measured: the figures of every run, if they are not results.json's own.
    """

    what: str
    run: str
    figures: Sequence[tuple[str, float, int, str]]
    beside: str
    measured: Callable[[Kept], Sequence[Mapping[str, Any]]] = lambda runs: runs.results


_HALF = "half_turned_fashion_mnist"
_AVERAGED = ("test_accuracy_averaged", 100.0, 2, "{} %")
_ROWS = (
    _Row("Two figures turned by ±90°: half-range found", "mario_iggy",
         [("half_range_degrees", 1.0, 1, "{}°")], "90°"),
    _Row("Three arcs a class: mass of an arc, off by", "three_modes",
         [("mode_share_error", 1.0, 3, "{}")], "0"),
    _Row("Every degree a class of its own: half-range found", "none_flow",
         [("half_range_degrees", 1.0, 1, "{}°")], "0.5°"),
    _Row("MNIST's 0, 1, 5, 6, 9: of the circle, a 1 and a 6", "selective_cpu",
         [("arc_share_1", 1.0, 2, "{}"), ("arc_share_6", 1.0, 2, "{}")], "1 and 0.5"),
    _Row("Fashion-MNIST, half of the classes turned: half-range of the turned, of the upright",
         f"{_HALF}_flow", [("turned", 1.0, 0, "{}°"), ("upright", 1.0, 0, "{}°")],
         "180° and 0°", ranges),
    _Row("… accuracy, 5,000 labels", f"{_HALF}_flow", [_AVERAGED], ""),
    _Row("… by one learned range for all images (Augerino)", f"{_HALF}_augerino", [_AVERAGED], ""),
    _Row("… by one range for all, chosen on held-out images", f"{_HALF}_fixed", [_AVERAGED], ""),
    _Row("MNIST, ten epochs", "mnist_cpu", [_AVERAGED], "99.2 ± 0.1 (100 epochs)"),
    _Row("Rotated MNIST, Augerino", "rot_mnist_cpu", [_AVERAGED], "98.9 (a wider network)"),
    _Row("CIFAR-10 (re-encoded), six epochs", "cifar10_cpu", [_AVERAGED],
         "86.8 ± 0.4 (200 epochs)"),
    _Row("Tiny ImageNet, five classes of 150 images", "tinyin_cpu", [_AVERAGED],
         "65.4 (200 classes of 500)"),
)  # fmt: skip


def headline_table(root: Path) -> str:
    """Make the table of the README from runs kept below a folder.

    Args:
        root: the folder of `NAME/SEED/results.json`, normally `docs/results`.

    Returns:
        Markdown, without a final line break: a line for every row whose runs are there; empty if
        none is.
    """
    kept = {runs.name: runs for runs in read_kept(root)}
    lines = [
        markdown_line([row.what, _reached(row, kept[row.run]), row.beside or MISSING,
                       str(len(kept[row.run].results))])
        for row in _ROWS
        if row.run in kept
    ]  # fmt: skip
    return "\n".join([markdown_line(_HEADS), "|---|---|---|---:|", *lines]) if lines else ""


def _reached(row: _Row, runs: Kept) -> str:
    figures = (
        words.format(spread(row.measured(runs), key, factor, digits))
        for key, factor, digits, words in row.figures
    )
    return " and ".join(figures)
