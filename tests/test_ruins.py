"""A density that is ruined in training is named in the epoch it happens, and stays named."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
from smoke_runs import smoke

from experiments.report import verdicts
from experiments.report.alarms import alarms
from experiments.run import train_and_evaluate
from experiments.running import ruins
from experiments.running.command_line import cut_short
from experiments.setup import defaults
from experiments.setup.assembly import assemble
from flowjax_inv.transforms import Affine

BOX = {
    "log_volume": 2 * math.log(2.0), "pixels": [0.02, 0.05], "burn_in_epochs": 0, "chance": 0.1,
}  # fmt: skip


def line(epoch: float, entropy: float | None, views: float = 0.3, originals: float = 0.2) -> Any:
    costs = {"cross_entropy": views, "cross_entropy_original": originals}
    return {"epoch": epoch, "entropy": entropy} | costs


def test_a_pixel_at_the_rim_of_a_picture() -> None:
    turn, shift, *rest = ruins.pixel_half_ranges(
        Affine("rotation_translation", half_range=(0.5, 0.5, 90.0)), 40
    )[::-1]
    assert turn == pytest.approx(math.degrees(0.05) / 90.0)
    assert shift == rest[0] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("entropy", "views", "originals", "found"),
    [
        (1.0, 0.95, 0.2, "blown open"),
        (1.0, 0.85, 0.2, ""),  # well over half as likely
        (0.3, 0.95, 0.2, ""),  # over a nat below the box
        (1.0, 5.0, 0.0, ""),  # originals are not classified
        (math.log(0.04 * 0.1) - 0.01, 0.3, 0.2, "collapsed"),
        (math.log(0.04 * 0.1) + 0.01, 0.3, 0.2, ""),
        (None, 0.3, 0.2, ""),
    ],
)
def test_what_counts_as_a_ruin(entropy: Any, views: float, originals: float, found: str) -> None:
    assert ruins.ruin(line(1.0, entropy, views, originals), **BOX) == found


def test_it_counts_since_the_epoch_it_began_and_not_in_burn_in_or_within_epochs() -> None:
    lines = [line(1.0, -9.0), line(1.5, -9.0), line(2.0, 0.0), line(3.0, -9.0), line(4.0, -9.0)]
    box = BOX | {"burn_in_epochs": 1}
    assert ruins.first_ruin(lines, **box) == ("collapsed", 3.0)
    assert ruins.first_ruin([*lines, line(5.0, 0.0)], **box) == ("", None)


def test_a_classifier_that_guesses_is_named_in_burn_in_too() -> None:
    """Seen on a card, in bfloat16: after 140 steps one of ten classes for every image, for good."""
    box = BOX | {"burn_in_epochs": 5, "chance": 0.1}
    guesses = [line(epoch, 0.0) | {"train_accuracy": 0.101} for epoch in (1.0, 2.0, 3.0, 4.0)]
    assert ruins.first_ruin(guesses[:2], **box) == ("", None)  # of many classes it takes epochs
    assert ruins.first_ruin(guesses, **box) == ("guessing", 3.0)
    learned = line(5.0, 0.0) | {"train_accuracy": 0.3}
    assert ruins.first_ruin([*guesses, learned], **box) == ("", None)
    assert ruins.warning("guessing", 3.0).startswith("WARNING: in epoch 3 the classifier is guess")
    # A handful of images says nothing of chance, an angle or what has no label has none.
    assert ruins.box_of(assemble(smoke()))["chance"] == 0.0
    parts = assemble(smoke(train__log_every=160))
    assert ruins.box_of(parts)["chance"] == 0.25
    unlabelled = dataclasses.replace(parts.data, labelled=False)
    assert ruins.box_of(dataclasses.replace(parts, data=unlabelled))["chance"] == 0.0


def test_one_wide_coordinate_is_no_collapse() -> None:
    """However deep the entropy of the others."""
    parts = assemble(smoke(transform__subgroup="affine"))
    points = dict.fromkeys((f"half_range_{name}" for name in parts.transform.names), 1e-3)
    assert not ruins.moves_a_pixel(points, parts)
    assert ruins.moves_a_pixel(points | {"half_range_scale": 0.7}, parts)
    assert not ruins.moves_a_pixel({}, parts)


def test_the_report_and_the_tables_say_so() -> None:
    (alarm,) = alarms({"ruin": "blown open", "ruin_since_epoch": 2.0}, [])
    assert alarm.startswith("Blown open: since epoch 2 nearly every transform counts as alike")
    assert verdicts.ruined([{"ruin": "collapsed"}, {}]) == "collapsed in 1 of 2"
    assert verdicts.ruined([{"ruin": "collapsed"}] * 2) == "collapsed"
    assert verdicts.ruined([{}]) == ""


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_run_warns_once_and_its_results_name_it(tmp_path: Path, capsys) -> None:
    # Too little time to learn anything in: without a bonus a density that starts as a point stays.
    config = smoke(
        distribution__start_scale=1e-3, controller__name="constant", controller__value=0.0,
        transform__subgroup="rotation", distribution__name="augerino",
        distribution__start_half_range=(1e-3,),
    )  # fmt: skip
    results = train_and_evaluate(config, tmp_path / "run")
    said = [text for text in capsys.readouterr().out.splitlines() if "WARNING" in text]
    assert len(said) == 1
    assert said[0].startswith("WARNING: in epoch 1 the density is collapsed: no image may be moved")
    assert (results["ruin"], results["ruin_since_epoch"]) == ("collapsed", 1.0)
    assert "Collapsed: since epoch 1" in (tmp_path / "run" / "report.html").read_text()
    assert json.loads((tmp_path / "run" / "results.json").read_text())["ruin"] == "collapsed"


def test_fewer_epochs_take_the_rest_of_the_recipe_along() -> None:
    recipe = defaults.get_config()
    recipe.train.epochs, recipe.objective.burn_in_epochs = 200, 10
    recipe.optimizer.classifier.schedule, recipe.optimizer.classifier.decay_epochs = "step", 80

    def cut(epochs: int, *typed: str) -> tuple[str, int, int]:
        config = recipe.copy_and_resolve_references()
        config.train.epochs = epochs
        said = cut_short(config, recipe, {"train.epochs", *typed})
        return said, config.objective.burn_in_epochs, config.optimizer.classifier.decay_epochs

    said, *found = cut(13)
    assert found == [1, 5]
    assert said == (
        "epochs 200 -> 13, and with them objective.burn_in_epochs 10 -> 1, "
        "optimizer.classifier.decay_epochs 80 -> 5; type those fields to keep them"
    )
    assert cut(100, "objective.burn_in_epochs")[1:] == (10, 40)
    assert cut(300)[0] == ""
    untouched = recipe.copy_and_resolve_references()
    assert cut_short(untouched, recipe, set()) == ""
