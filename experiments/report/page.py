"""One self-contained page per run: reads the run folder, draws, writes `report.html`.

The page needs nothing but itself: pictures are embedded, there are no scripts and no links.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from experiments.report import tables, verdicts
from experiments.report.alarms import alarms
from experiments.report.papers import paper_figure
from experiments.report.reading import Run, as_stored, flat, read_run
from experiments.report.rendering import Section, as_png, inlined, render, write

__all__ = ["write_report"]


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
        poses_known=verdicts.poses_known(run.results),
        has_density=verdicts.has_density(run.results),
        alarms=alarms(run.results, run.metrics),
        rows=tables.headline({**run.results, "paper": paper_figure(run.results, config)}),
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
    from experiments.report.evaluation import MissingArrayError
    from experiments.report.run_plots import plots_of

    folder.mkdir(exist_ok=True)
    chosen, others = plots_of(run)
    # A picture of an earlier report would contradict this one.
    for name in others:
        (folder / f"{name}.png").unlink(missing_ok=True)
    for plot in chosen:
        path = folder / f"{plot.name}.png"
        try:
            if plot.of_evaluation and run.evaluation is None:
                raise MissingArrayError(run.evaluation_note)
            picture = as_png(plot.draw())
        except MissingArrayError as error:
            path.unlink(missing_ok=True)
            yield Section(plot.title, plot.caption, missing=f"Not drawn: {error}.")
            continue
        write(path, picture)
        yield Section(plot.title, plot.caption, source=inlined(picture))


def _sentence(run: Run) -> str:
    """Say in one sentence what the run is."""
    method = str(run.results.get("method") or "unknown")
    data = run.config.get("data")
    data = data.get("name") if isinstance(data, Mapping) else data or run.config.get("dataset")
    where = f" on {data}" if isinstance(data, str) and data else ""
    if not verdicts.has_density(run.results):
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
    if results.get("resumed_at_step"):
        facts.append(("Continued from step", f"{results['resumed_at_step']:,}"))
    if isinstance(results.get("seconds"), int | float):
        facts.append(("Time", f"{results['seconds'] / 60:.1f} minutes"))
    if isinstance(results.get("seconds_to_first_step"), int | float):
        facts.append(("First step after", f"{results['seconds_to_first_step']:.1f} seconds"))
    return facts
