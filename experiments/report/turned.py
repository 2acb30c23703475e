"""What `experiments.robustness` found, as one self-contained page with its figures."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator

from experiments.report.colours import BLACK, CYCLE, GREY, RED
from experiments.report.formats import MISSING, as_percent, fixed
from experiments.report.rendering import Section, as_png, inlined, render, write

__all__ = [
    "accuracies",
    "bounds",
    "divergences",
    "gate_curve",
    "write_robustness",
]

_HEADS = ("", "upright (%)", "C8 average (%)", "C8 NLL (nats)", "C8 calibration error",
          "changed upright (%)", "gate (nats)", "promised (%)", "bound (%)")  # fmt: skip
# The two that nothing is done by: as the pictures come, and as one turns them who knows.
_FIXED_COLOURS = {"plain": BLACK, "turn known": GREY}


def write_robustness(workdir: Path | str, found: Mapping[str, Any]) -> Path:
    """Draw the figures and write `robustness.html` and `figures/robustness_*.png`.

    Args:
        workdir: folder of the run.
        found: what robustness.json holds.

    Returns:
        Path of the page.
    """
    folder = Path(workdir)
    (folder / "figures").mkdir(exist_ok=True)
    page = render(
        "turned.html.j2",
        name=folder.resolve().name,
        sentence=_sentence(found),
        heads=_HEADS,
        lines=[*_lines(found, "ways", ""), *_lines(found, "gates", ", gated")],
        facts=_facts(found),
        sections=_sections(found, folder / "figures"),
    )
    return write(folder / "robustness.html", page.encode("utf-8"))


def _sections(found: Mapping[str, Any], folder: Path) -> list[Section]:
    plots: list[tuple[str, str, str, Callable[[Mapping[str, Any]], Figure]]] = [
        (
            "accuracy",
            "Accuracy of turned pictures",
            "Every picture is turned by the angle below, counter-clockwise, and then predicted. "
            "Dashed: the same behind the gate.",
            accuracies,
        )
    ]
    if found["curve"]:
        plots.append(
            (
                "gate",
                "What robustness costs upright pictures",
                "Each line is one way to predict, each dot on it a gate fitted on held-out "
                "training images to another promise; at the right end there is no gate.",
                gate_curve,
            )
        )
    if found.get("bound"):
        plots.append(
            (
                "bound",
                "The invariance bound beside what was measured",
                "Each dot is a test image turned by some angle: how far its averaged prediction "
                "moved at most, and how far it may move by the density alone, whatever the "
                "classifier. The bound holds where turning twice is turning once. Of a turned "
                "picture corners are lost and pixels blurred: dots above the line are that.",
                bounds,
            )
        )
    plots.append(
        (
            "divergence",
            "How much predictions change, class by class",
            "Mean divergence KL(p(c | I) ‖ p(c | turned I)), every test image turned once by up to "
            f"±{found['turn_degrees']:g}°, over the number of training images of its class.",
            divergences,
        )
    )
    sections = []
    for name, title, caption, draw in plots:
        picture = as_png(draw(found))
        write(folder / f"robustness_{name}.png", picture)
        sections.append(Section(title, caption, source=inlined(picture)))
    return sections


def accuracies(found: Mapping[str, Any]) -> Figure:
    """Draw the accuracy over the angle, a line for each way, dashed behind the gate."""
    figure, panel = _panel(9.0, 4.6)
    degrees = np.append(found["degrees"], 180.0)
    colours = _colours(found)
    for name, way in found["ways"].items():
        values = 100 * np.array(way["accuracy"])
        panel.plot(degrees, np.append(values, values[0]), color=colours[name], label=name,
                   lw=2.0 if name in _FIXED_COLOURS else 1.5)  # fmt: skip
        gated = found["gates"].get(name)
        if gated:
            values = 100 * np.array(gated["accuracy"])
            panel.plot(degrees, np.append(values, values[0]), color=colours[name], lw=1.2, ls="--")
    panel.set(xlabel="turned by (degrees)", ylabel="accuracy (%)", xlim=(-180, 180), ylim=(0, None))
    panel.xaxis.set_major_locator(MultipleLocator(45))
    figure.legend(loc="outside right upper", frameon=False)
    return figure


def gate_curve(found: Mapping[str, Any]) -> Figure:
    """Draw the C8 average over the accuracy that upright images lose, gate by gate."""
    figure, panel = _panel(8.0, 4.6)
    plain = found["ways"]["plain"]
    panel.plot(0, 100 * plain["c8_accuracy"], "o", color=BLACK, label="plain", zorder=9)
    colours = _colours(found)
    for name in found["gates"]:
        entries = [entry for entry in found["curve"] if entry["way"] == name]
        entries = [*entries, found["ways"][name]]
        loss = [100 * (plain["upright_accuracy"] - e["upright_accuracy"]) for e in entries]
        c8 = [100 * e["c8_accuracy"] for e in entries]
        panel.plot(loss, c8, "o-", color=colours[name], label=name)
    aim = 90 * plain["upright_accuracy"]
    panel.axhline(aim, color=GREY, ls=":", lw=1)
    panel.annotate("90 % of the upright accuracy", (0.99, aim), xycoords=("axes fraction", "data"),
                   ha="right", va="bottom", color=GREY, fontsize=9)  # fmt: skip
    panel.set(xlabel="accuracy lost on upright pictures (points)", ylabel="C8 average (%)")
    figure.legend(loc="outside right upper", frameon=False)
    return figure


def bounds(found: Mapping[str, Any]) -> Figure:
    """Draw how far averaged predictions moved over how far the bound lets them."""
    figure, panel = _panel(5.2, 4.6)
    bound, measured = np.array(found["bound"]["bound"]), np.array(found["bound"]["measured"])
    panel.plot([0, 1], [0, 1], color=RED, lw=1, label="bound")
    panel.plot(bound, measured, "o", ms=4, alpha=0.7)
    panel.set(xlabel="bound, (M − m) TV", ylabel="measured change of a probability",
              xlim=(0, 1.02), ylim=(0, 1.02), aspect="equal")  # fmt: skip
    return figure


def divergences(found: Mapping[str, Any]) -> Figure:
    """Draw the divergence of a class over its size, a line for each of some ways."""
    figure, panel = _panel(8.0, 4.2)
    sizes = np.array(found["class_sizes"])
    order = np.argsort(-sizes, kind="stable")
    colours = _colours(found)
    for name, way in found["ways"].items():
        values = np.array(way["divergence"], float)[order]
        label = f"{name} ({fixed(float(np.nanmean(values)), 2)})"
        panel.plot(np.arange(len(order)), values, "o-", color=colours[name], label=label, ms=4)
    panel.set_xticks(np.arange(len(order)), [str(size) for size in sizes[order]])
    panel.set(xlabel="training images of the class", ylabel="divergence (nats)", ylim=(0, None))
    figure.legend(loc="outside right upper", frameon=False, title="mean over classes")
    return figure


def _colours(found: Mapping[str, Any]) -> dict[str, str]:
    """Return a colour for every way, the same in all figures."""
    others = iter(CYCLE)
    return {name: _FIXED_COLOURS.get(name) or next(others) for name in found["ways"]}


def _panel(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    panel = cast("Axes", figure.subplots())
    panel.grid(alpha=0.3)
    return figure, panel


def _lines(found: Mapping[str, Any], key: str, words: str) -> list[list[str]]:
    """Write a row of the table for every way."""
    degrees = np.array(found["degrees"])
    eighths = np.abs((degrees + 22.5) % 45.0 - 22.5) < 1e-3
    lines = []
    for name, way in found[key].items():
        loss, calibration = (
            float(np.mean(np.array(way[score])[eighths]))
            for score in ("negative_log_likelihood", "calibration_error")
        )
        promise = [MISSING] * 3
        if "gate" in way:
            promise = [fixed(way["gate"], 2), as_percent(way["max_clean_loss"]),
                       as_percent(way["bound"])]  # fmt: skip
        lines.append(
            [
                name + words,
                as_percent(way["upright_accuracy"]),
                as_percent(way["c8_accuracy"]),
                fixed(loss, 2),
                fixed(calibration, 3),
                as_percent(way["clean_change"]),
                *promise,
            ]
        )
    return lines


def _sentence(found: Mapping[str, Any]) -> str:
    return (
        f"{found['images']} test images of {found['data']}, turned bicubically by angles round the "
        f"circle (method “{found['method']}”). C8: the mean over the eight multiples of 45°. "
        "Changed: upright images that get another prediction than as they are."
    )


def _facts(found: Mapping[str, Any]) -> list[str]:
    """Say what the table does not."""
    facts = []
    if found["gates"]:
        facts.append(
            f"Gates were fitted on {found['held_out_images']} upright training images that the run "
            f"left out: with confidence {as_percent(found['confidence'], 0)} no more than the "
            "promised share of upright predictions changes. What changes was counted on "
            f"{found['checked_images']} upright test images."
        )
    elif "auroc" in found:
        facts.append("No gate: the run left no training images out (data.train_size).")
    if "auroc" in found:
        facts.append(
            "Telling a turned picture from an upright one by its density: AUROC "
            f"{fixed(found['auroc'], 3)}."
        )
    if "adaptive" in found:
        few = found["adaptive"]
        facts.append(
            f"Adaptive number of views: {fixed(few['mean_samples'], 1)} on average for a standard "
            f"error of {few['standard_error']:g}, accuracy {as_percent(few['accuracy'])} on "
            f"turned pictures, with 100 views {as_percent(few['accuracy_of_100'])}."
        )
    if found.get("bound"):
        bound, measured = np.array(found["bound"]["bound"]), np.array(found["bound"]["measured"])
        facts.append(
            f"Invariance bound: mean {fixed(float(bound.mean()), 2)}, measured change "
            f"{fixed(float(measured.mean()), 2)}; above the bound in "
            f"{int(np.sum(measured > bound))} of {len(bound)} images."
        )
    if found["mean_shift_validated"]:
        facts.append(
            "Mean-shift, accuracy on turned held-out images: "
            + ", ".join(
                f"{name} {as_percent(share)}"
                for name, share in found["mean_shift_validated"].items()
            )
            + f". To rest: “{found['mean_shift_to_rest']}”."
        )
    return facts
