"""Which figures the page of a run has, and what is said of them."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from experiments.report import (
    crop_boxes,
    discovery,
    figures,
    label_maps,
    range_curve,
    step_time,
    straightened,
    verdicts,
    view_counts,
)
from experiments.report.formats import ARC_SHARE
from experiments.report.reading import Run, flat

__all__ = ["Plot", "plots_of"]

_UNIT_WORDS = {
    "half-widths": "1 half-width moves the picture by half its width.",
    "log-scale": "0.1 in log-scale is about 10 % larger or smaller.",
    "algebra": "Entries of the logarithm of the matrix have no unit.",
    "room left": "The centre counts in the room that the crop leaves: 1 reaches the edge.",
}

_Arrays = Mapping[str, np.ndarray]


class Plot(NamedTuple):
    """A figure of the page.

    Attributes:
        name: of its file.
        title: above it.
        caption: below it.
        draw: makes it.
        of_evaluation: whether it shows what evaluation.npz holds.
    """

    name: str
    title: str
    caption: str
    draw: Callable[[], Figure]
    of_evaluation: bool = True


def plots_of(run: Run) -> tuple[list[Plot], set[str]]:
    """Return the figures of a run in their order, and the names of those that it does not have."""
    evaluation: _Arrays = run.evaluation or {}
    poses, images = _of_poses(evaluation), _of_images(run, evaluation)
    known = verdicts.poses_known(run.results)
    absent = {"translation", "entries", "straightened"} - set(evaluation)
    of_points = "image_labels" in evaluation and "shown_images" not in evaluation
    absent |= {"views"} if of_points else set()
    absent |= set() if "shown_boxes" in evaluation else {"crop_boxes"}
    if not known:
        absent |= {"density"} if "rotation_degrees" not in evaluation else set()
        followed = any(key.startswith(ARC_SHARE) for line in run.metrics for key in line)
        absent |= set() if followed else {"arcs"}
        absent |= set() if "shown_straightened" in evaluation else {"pairs"}
        absent |= set() if "map_labels" in evaluation else {"label_maps"}
        absent |= set() if view_counts.accuracies_by_views(run.results) else {"view_counts"}
        absent |= set() if label_maps.errors_by_views(run.results) else {"equivariance"}
    chosen = [plot for plot in (poses if known else images) if plot.name not in absent]
    if "map_labels" in evaluation and not verdicts.has_density(run.results):
        chosen = [plot for plot in chosen if plot.name == "label_maps"]
    if not verdicts.has_density(run.results) and run.evaluation is None:
        chosen = []
    others = {plot.name for plot in poses + images} - {plot.name for plot in chosen}
    return [*chosen, *_of_training(run)], others


def _of_poses(evaluation: _Arrays) -> list[Plot]:
    """Figures where poses are known."""
    return [
        Plot(
            "density",
            "The learned density beside the truth",
            "Each circle takes one test image (small picture) and turns it by rotations sampled "
            "from the density that was learned for it; blue shows where the picture then points. "
            "A right density fills the outlined wedge and stops at its edges, wherever the "
            "input itself points.",
            lambda: figures.polar_densities(evaluation),
        ),
        Plot(
            "half_range",
            "Does the density know where the input points?",
            "Half the width of the learned arc, image by image. If the same arc is found from "
            "every pose, the lines lie flat on the dashed one.",
            lambda: figures.half_ranges(evaluation),
        ),
        Plot(
            "entries",
            "Are free entries tied into turns?",
            "Each dot is one sampled transformation: two entries of the logarithm of its matrix. "
            "The line holds the turns; colour says how far a sample is from the nearest one.",
            lambda: discovery.sampled_entries(evaluation),
        ),
        _views(evaluation),
        Plot(
            "straightened",
            "Straightening by mean-shift",
            "Every figure is turned step by step towards where its density is centred. If the "
            "density moves with the figure, all lines of a class end at one pose.",
            lambda: straightened.straightened(evaluation),
        ),
        Plot(
            "translation",
            "Where the picture is moved",
            "Each dot is one sampled translation, drawn as the movement of the content; the "
            "middle means that it stays where it is.",
            lambda: figures.translations(evaluation),
        ),
    ]


def _of_images(run: Run, evaluation: _Arrays) -> list[Plot]:
    """Figures of images whose pose nobody knows."""
    return [
        Plot(
            "label_maps",
            "A label for every pixel",
            "Test images, their labels, and what is predicted: of the image as it is, and averaged "
            "over views, each view's map brought back to the image.",
            lambda: label_maps.label_maps(evaluation),
        ),
        Plot(
            "equivariance",
            "Does the prediction turn with the image?",
            "Test images are turned by any angle, and what is predicted of the turned image is "
            "compared with the turned prediction: of maps, half the sum of the differences of the "
            "probabilities, over pixels near the middle; of values, the absolute difference. 0 is "
            "a prediction that moves with its image.",
            lambda: label_maps.equivariance(run.results),
            of_evaluation=False,
        ),
        Plot(
            "view_counts",
            "What more views are worth",
            "Accuracy averaged over views drawn from the density, the first being the image as it "
            "is.",
            lambda: view_counts.accuracy_against_views(
                {"": view_counts.accuracies_by_views(run.results)}
            ),
            of_evaluation=False,
        ),
        Plot(
            "arcs",
            "How far each class may be turned, as training went on",
            "The shortest arc that holds 98 % of the sampled rotations, as a share of the circle "
            "(a uniform over half the circle: 0.5), averaged over some test images of the class.",
            lambda: figures.arc_shares(run.metrics),
        ),
        Plot(
            "density",
            "Where images are turned to",
            "Each circle takes one test image (small picture) as it is and turns it by rotations "
            "sampled from the density that was learned for it; blue shows where its top then "
            "points. The radius is the density, 1 the uniform over the circle.",
            lambda: figures.polar_densities(evaluation),
        ),
        Plot(
            "pairs",
            "Straightened by mean-shift",
            "Test images as they came, and moved step by step to where their densities are "
            "centred: what the density holds for upright. Below them the turn, counter-clockwise.",
            lambda: straightened.pairs(evaluation),
        ),
        _views(evaluation),
        Plot(
            "crop_boxes",
            "Where the crops are cut",
            "Test images, and on each the frames of ten views sampled from its learned density.",
            lambda: crop_boxes.crop_boxes(evaluation),
        ),
        Plot(
            "ranges",
            "How far each class may be transformed",
            "Half the width of the learned density, coordinate by coordinate, over the test "
            f"images that were measured. {_units_in_words(evaluation)}".rstrip(),
            lambda: figures.ranges(evaluation),
        ),
        Plot(
            "entropies",
            "How wide the density is",
            "The entropy of the learned density, image by image: the further right, the wider. "
            "At the floor a density counts as collapsed; at the maximum it is uniform over the "
            "whole box, whatever the image shows.",
            lambda: figures.entropies(evaluation, run.results),
        ),
    ]


def _views(evaluation: _Arrays) -> Plot:
    return Plot(
        "views",
        "What the classifier gets to see",
        "Left, framed, the input; beside it, views sampled from its learned density. Every "
        "view should still be of the class that the row names.",
        lambda: figures.view_sheet(evaluation),
    )


def _of_training(run: Run) -> list[Plot]:
    """Figures of how the run went."""
    caption = "Faint lines are the values as logged, strong ones their running mean."
    if verdicts.has_density(run.results):
        caption = (
            "The entropy should settle between its two dashed lines while the accuracies stay "
            f"high. {caption}"
        )
    plots = [
        Plot(
            "curves",
            "How the run went",
            caption,
            lambda: figures.learning_curves(run.metrics, run.results),
            of_evaluation=False,
        )
    ]
    curve = range_curve.range_curve(flat(run.config), run.results, run.metrics)
    if curve is not None:
        plots.append(
            Plot(
                "range",
                "How far the range of all images reached",
                "Half the width of the one interval of turns, step by step; dashed, what images "
                "were turned by, where that is known.",
                lambda: range_curve.ranges_over_steps({"": curve}),
                of_evaluation=False,
            )
        )
    if run.profile:
        plots.append(
            Plot(
                "step_time",
                "Where a step's time goes",
                f"{step_time.in_words(run.profile)} While several operations run at once, each "
                "gets an equal share of the time; forward and backward count together, what the "
                "compiler fused counts where it ends. Times depend on the machine and on what "
                "else it was doing.",
                lambda: step_time.step_time(run.profile),
                of_evaluation=False,
            )
        )
    return plots


def _units_in_words(evaluation: _Arrays) -> str:
    """Explain the units of the coordinates that are not plain."""
    units = {str(unit) for unit in evaluation.get("coordinate_units", ())}
    return " ".join(words for unit, words in _UNIT_WORDS.items() if unit in units)
