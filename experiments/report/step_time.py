"""Where the time of a train step goes: `profile.json` in, one figure out."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from experiments.report.colours import BLUE, GREY
from experiments.report.evaluation import MissingArrayError
from experiments.report.formats import as_percent, fixed

__all__ = ["in_words", "step_time"]

_LABELS = {
    "embedding": "embedding: the network before the density",
    "density": "density: its parameters, samples, log-density",
    "warp": "warp: views of the images",
    "classifier": "classifier",
    "optimizer": "optimizer",
    "batch": "batch: read, normalize",
    "other": "other operations",
}


def in_words(profile: Mapping[str, Any]) -> str:
    """Say in one sentence what was timed."""
    milliseconds = fixed(1e3 * profile["seconds_per_step"], 1)
    return (
        f"A step took {milliseconds} ms from its call to its result, a mean over the steps "
        f"{profile['first_step']} to {profile['last_step']}."
    )


def step_time(profile: Mapping[str, Any]) -> Figure:
    """Draw the parts of a step as bars, the longest first.

    Args:
        profile: `seconds_per_step`, and `parts_seconds_per_step`: part to seconds.

    Returns:
        Figure with one panel, in milliseconds; the last bar is the time when nothing ran.

    Raises:
        MissingArrayError: if no operation was found in the trace.
    """
    parts = profile["parts_seconds_per_step"]
    if not parts:
        words = in_words(profile).removesuffix(".")
        raise MissingArrayError(f"the trace does not say which operations ran. {words}")
    whole = profile["seconds_per_step"]
    bars = [
        (_LABELS.get(part, part), parts[part], BLUE)
        for part in sorted(parts, key=lambda part: -parts[part])
    ]
    bars.append(("no operation runs", max(whole - sum(parts.values()), 0.0), GREY))
    figure = Figure(figsize=(9, 0.42 * len(bars) + 0.9), layout="constrained")
    panel = figure.subplots()
    labels, seconds, colours = zip(*bars, strict=True)
    drawn = panel.barh(labels, [1e3 * value for value in seconds], color=colours, height=0.7)
    words = [f"{fixed(1e3 * value, 2)} ms, {as_percent(value / whole)}" for value in seconds]
    panel.bar_label(drawn, words, padding=4, fontsize=9)
    panel.invert_yaxis()
    panel.margins(x=0.25)
    panel.set_xlabel("milliseconds of a step")
    panel.grid(axis="x", alpha=0.25)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    return figure
