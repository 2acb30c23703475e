"""One self-contained page per run: reads the run folder, draws, writes `report.html`.

The page needs nothing but itself: pictures are embedded, there are no scripts and no links.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from flowjax_inv.report import tables
from flowjax_inv.report.formats import ARC_SHARE
from flowjax_inv.report.reading import Run, as_stored, flat, read_run
from flowjax_inv.report.rendering import Section, as_png, inlined, render, write

__all__ = ["write_report"]


_Plot = tuple[str, str, str, Callable[[], Any]]  # file, title, caption, how to draw

_UNIT_WORDS = {
    "half-widths": "1 half-width moves the picture by half its width.",
    "log-scale": "0.1 in log-scale is about 10 % larger or smaller.",
    "algebra": "Entries of the logarithm of the matrix have no unit.",
    "room left": "The centre counts in the room that the crop leaves: 1 reaches the edge.",
}


def write_report(workdir: Path | str, *, defaults: Mapping[str, Any] | None = None) -> Path:
    """Draw the figures of a run and write `report.html` and `figures/*.png` into its folder.

    Every file is written beside its place and then renamed, so an interrupted call leaves the old
    report whole.

    Args:
        workdir: the folder of a finished run.
        defaults: nested config to compare with; fields that differ are then listed first.

    Returns:
        Path of `report.html`.

    Raises:
        IncompleteRunError: if the folder, config, metrics or results are missing.
        ValueError: if a JSON file cannot be read.
    """
    folder = Path(workdir)
    run = read_run(folder)
    config = flat(run.config)
    usual = flat(as_stored(defaults)) if defaults is not None else {}
    page = render(
        "page.html.j2",
        name=run.name,
        sentence=_sentence(run),
        note=str(run.results.get("data_note") or ""),
        poses_known=tables.poses_known(run.results),
        has_density=tables.has_density(run.results),
        alarms=tables.alarms(run.results, run.metrics),
        rows=tables.headline(run.results),
        facts=_facts(run),
        sections=list(_sections(run, folder / "figures")),
        command=run.config.get("command", ""),
        config=config,
        changed={
            key: (usual.get(key, "not there"), value)
            for key, value in config.items()
            if defaults is not None and usual.get(key, "not there") != value
        },
        compared=defaults is not None,
        environment=flat(run.environment),
    )
    return write(folder / "report.html", page.encode("utf-8"))


def _sections(run: Run, folder: Path) -> Iterator[Section]:
    """Draw one figure after the other; one that cannot be drawn says why instead."""
    # Here, because matplotlib takes half a second to import.
    from flowjax_inv.report import discovery, figures, step_time, straightened

    folder.mkdir(exist_ok=True)
    evaluation: Mapping[str, np.ndarray] = run.evaluation or {}
    views = (
        "views",
        "What the classifier gets to see",
        "Left, framed, the input; beside it, views sampled from its learned density. Every "
        "view should still be of the class that the row names.",
        lambda: figures.view_sheet(evaluation),
    )
    poses: list[_Plot] = [
        (
            "density",
            "The learned density beside the truth",
            "Each circle takes one test image (small picture) and turns it by rotations sampled "
            "from the density that was learned for it; blue shows where the picture then points. "
            "A right density fills the outlined wedge and stops at its edges, wherever the "
            "input itself points.",
            lambda: figures.polar_densities(evaluation),
        ),
        (
            "half_range",
            "Does the density know where the input points?",
            "Half the width of the learned arc, image by image. If the same arc is found from "
            "every pose, the lines lie flat on the dashed one.",
            lambda: figures.half_ranges(evaluation),
        ),
        (
            "entries",
            "Are free entries tied into turns?",
            "Each dot is one sampled transformation: two entries of the logarithm of its matrix. "
            "The line holds the turns; colour says how far a sample is from the nearest one.",
            lambda: discovery.sampled_entries(evaluation),
        ),
        views,
        (
            "straightened",
            "Straightening by mean-shift",
            "Every figure is turned step by step towards where its density is centred. If the "
            "density moves with the figure, all lines of a class end at one pose.",
            lambda: straightened.straightened(evaluation),
        ),
        (
            "translation",
            "Where the picture is moved",
            "Each dot is one sampled translation, drawn as the movement of the content; the "
            "middle means that it stays where it is.",
            lambda: figures.translations(evaluation),
        ),
    ]
    images: list[_Plot] = [
        (
            "arcs",
            "How far each class may be turned, as training went on",
            "The shortest arc that holds 98 % of the sampled rotations, as a share of the circle "
            "(a uniform over half the circle: 0.5), averaged over some test images of the class.",
            lambda: figures.arc_shares(run.metrics),
        ),
        (
            "density",
            "Where images are turned to",
            "Each circle takes one test image (small picture) as upright and turns it by rotations "
            "sampled from the density that was learned for it; blue shows where its top then "
            "points. The radius is the density, 1 the uniform over the circle.",
            lambda: figures.polar_densities(evaluation),
        ),
        views,
        (
            "ranges",
            "How far each class may be transformed",
            "Half the width of the learned density, coordinate by coordinate, over the test "
            f"images that were measured. {_units_in_words(evaluation)}".rstrip(),
            lambda: figures.ranges(evaluation),
        ),
        (
            "entropies",
            "How wide the density is",
            "The entropy of the learned density, image by image: the further right, the wider. "
            "At the floor a density counts as collapsed; at the maximum it is uniform over the "
            "whole box, whatever the image shows.",
            lambda: figures.entropies(evaluation, run.results),
        ),
    ]
    caption = "Faint lines are the values as logged, strong ones their running mean."
    if tables.has_density(run.results):
        caption = (
            "The entropy should settle between its two dashed lines while the accuracies stay "
            f"high. {caption}"
        )
    curves: _Plot = (
        "curves",
        "How the run went",
        caption,
        lambda: figures.learning_curves(run.metrics, run.results),
    )
    chosen: list[_Plot] = [*(poses if tables.poses_known(run.results) else images), curves]
    if not tables.has_density(run.results) and run.evaluation is None:
        chosen = [curves]
    if run.profile:
        chosen.append(
            (
                "step_time",
                "Where a step's time goes",
                f"{step_time.in_words(run.profile)} While several operations run at once, each "
                "gets an equal share of the time; forward and backward count together, what the "
                "compiler fused counts where it ends. Times depend on the machine and on what "
                "else it was doing.",
                lambda: step_time.step_time(run.profile),
            )
        )
    absent = {"translation", "entries", "straightened"} - set(evaluation)
    if not tables.poses_known(run.results):
        absent |= {"density"} if "rotation_degrees" not in evaluation else set()
        followed = any(key.startswith(ARC_SHARE) for line in run.metrics for key in line)
        absent |= set() if followed else {"arcs"}
    chosen = [plot for plot in chosen if plot[0] not in absent]
    # A picture of an earlier report would contradict this one.
    for name in {plot[0] for plot in poses + images} - {plot[0] for plot in chosen}:
        (folder / f"{name}.png").unlink(missing_ok=True)
    for name, title, caption, draw in chosen:
        path = folder / f"{name}.png"
        if name not in ("curves", "step_time") and run.evaluation is None:
            path.unlink(missing_ok=True)
            yield Section(title, caption, missing=f"Not drawn: {run.evaluation_note}.")
            continue
        try:
            figure = draw()
        except figures.MissingArrayError as error:
            path.unlink(missing_ok=True)
            yield Section(title, caption, missing=f"Not drawn: {error}.")
            continue
        picture = as_png(figure)
        write(path, picture)
        yield Section(title, caption, source=inlined(picture))


def _units_in_words(evaluation: Mapping[str, np.ndarray]) -> str:
    """Explain the units of the coordinates that are not plain."""
    units = {str(unit) for unit in evaluation.get("coordinate_units", ())}
    return " ".join(words for unit, words in _UNIT_WORDS.items() if unit in units)


def _sentence(run: Run) -> str:
    """Say in one sentence what the run is."""
    method = str(run.results.get("method") or "unknown")
    data = run.config.get("data")
    data = data.get("name") if isinstance(data, Mapping) else data or run.config.get("dataset")
    where = f" on {data}" if isinstance(data, str) and data else ""
    if not tables.has_density(run.results):
        return f"A classifier was trained{where} without any invariance (method “{method}”)."
    if run.results.get("pose_likelihood"):
        return (
            f"Beside a frozen classifier, a density of the pose was learned{where} from images "
            f"alone, taken as upright and turned by any angle (method “{method}”)."
        )
    return (
        f"A classifier was trained{where} together with a density over transformations that is "
        f"predicted for every image (method “{method}”): as wide as it can be without "
        "changing the image's class."
    )


def _facts(run: Run) -> list[tuple[str, str]]:
    """List what the run cost and how large it was, as far as it is known."""
    results = run.results
    facts = [
        (label, f"{results[key]:,}" if isinstance(results[key], int) else str(results[key]))
        for key, label in (
            ("seed", "Seed"),
            ("steps", "Steps"),
            ("train_images", "Training images"),
            ("test_images", "Test images"),
            ("parameters_classifier", "Parameters of the classifier"),
            ("parameters_distribution", "Parameters of the density"),
        )
        if results.get(key) is not None and not (key.startswith("parameters_") and not results[key])
    ]
    if isinstance(results.get("seconds"), int | float):
        facts.append(("Time", f"{results['seconds'] / 60:.1f} minutes"))
    if isinstance(results.get("seconds_to_first_step"), int | float):
        facts.append(("First step after", f"{results['seconds_to_first_step']:.1f} seconds"))
    return facts
