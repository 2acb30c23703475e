"""The picture of accuracy against the number of labels.

Numbers in, a matplotlib Figure out; no file is touched.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from experiments.report.colours import CYCLE, MARKERS
from experiments.report.evaluation import plain

__all__ = ["accuracy_against_labels"]


def accuracy_against_labels(
    panels: Mapping[str, Mapping[str, Mapping[int, Sequence[float]]]],
) -> Figure:
    """Draw one panel per set: mean accuracy of every method, with bands of one deviation.

    Args:
        panels: set -> method -> number of images -> accuracies of its seeds, percent.

    Returns:
        Figure; numbers of images on a logarithm, no band where there is one seed.
    """
    count = len(panels)
    figure = Figure(figsize=(7.5 if count == 1 else 5.2 * count, 4.6), layout="constrained")
    axes = figure.subplots(1, count, squeeze=False)[0]
    names = list(dict.fromkeys(name for methods in panels.values() for name in methods))
    for panel, (title, methods) in zip(axes, panels.items(), strict=True):
        for name, sizes in methods.items():
            i = names.index(name)  # a method has one colour in all panels
            style: dict[str, Any] = {"color": CYCLE[i % 8], "marker": MARKERS[(i + i // 8) % 8]}
            style["linestyle"] = "-" if i < 8 else "--"
            x = list(sizes)
            mean = [statistics.fmean(values) for values in sizes.values()]
            off = [statistics.stdev(v) if len(v) > 1 else 0.0 for v in sizes.values()]
            panel.plot(x, mean, label=plain(name), linewidth=1.4, markersize=5, **style)
            low = [m - o for m, o in zip(mean, off, strict=True)]
            high = [m + o for m, o in zip(mean, off, strict=True)]
            panel.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)
        ticks = sorted({size for sizes in methods.values() for size in sizes})
        panel.set(title=plain(title), xscale="log", xlabel="training images, all labelled")
        panel.xaxis.set_major_locator(FixedLocator(ticks))
        panel.xaxis.set_minor_locator(NullLocator())
        panel.set_xticklabels([f"{tick:,}" for tick in ticks])
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("test accuracy, averaged over 20 views (%)")
    # Not every set has every method: the legend is of all panels.
    lines = {line.get_label(): line for panel in axes for line in panel.get_lines()}
    axes[-1].legend(handles=[*lines.values()], frameon=False, loc="lower right")
    return figure
