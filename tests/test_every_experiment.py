"""Every experiment's `:smoke` and every part of a config, from command to report."""

import importlib
import json
from pathlib import Path

import jax
import numpy as np
import pytest
from smoke_runs import smoke

from experiments import robustness
from experiments.run import train_and_evaluate
from experiments.setup.assembly import assemble
from experiments.setup.fields import flatten
from flowjax_inv.data import stored
from flowjax_inv.data.sets import DataSet, Split

VARIANTS = {
    "identity": {"distribution__name": "identity"},
    "lrp, pmap": {
        "transform__name": "crop", "transform__centre": "picture",
        "distribution__name": "instaaug_lrp", "distribution__levels": (2, -1),
        "parallel": "pmap", "num_devices": 0, "classifier__batch_norm": True,
        "controller__name": "band",
    },
    "instaaug": {
        "distribution__name": "instaaug", "controller__name": "patient_band",
        "objective__burn_in_epochs": 1, "objective__copies": 4, "objective__copies_per_chunk": 2,
        "evaluation__straighten_steps": 2,
    },
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", VARIANTS)
def test_every_part_trains_end_to_end(name: str, tmp_path: Path) -> None:
    results = train_and_evaluate(smoke(**VARIANTS[name]), tmp_path / name)
    assert 0 <= results["test_accuracy_averaged"] <= 1
    assert (tmp_path / name / "report.html").stat().st_size > 10_000
    if name == "lrp, pmap":  # 8 x 8 crops of a 32 x 32 picture, and the whole
        assert results["log_volume"] == pytest.approx(np.log(65))
        assert 0 <= results["entropy"] <= results["log_volume"]
        assert results["units"][0] == "half-widths"
    if name != "instaaug":
        assert "half_range_degrees" not in results
    else:
        assert np.isfinite(results["half_range_degrees"])
    straightened = tmp_path / name / "figures" / "straightened.png"
    assert straightened.is_file() == (name == "instaaug")
    assert ("straightened_std_degrees" in results) == (name == "instaaug")


DRAWN = [
    "three_modes", "rotation_discovery", "lamps", "scenes", "molecules",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", DRAWN)
def test_every_experiment_on_drawn_images_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("experiments.measuring.maps.VIEWS", (1, 4))  # a program for every number
    module = importlib.import_module(f"experiments.{name}")
    config = module.get_config("smoke")
    config.num_devices = 1  # compiles faster
    if name == "scenes":  # a level less to compile
        config.classifier.levels = 2
    if name == "lamps":  # more of them than by default
        config.transform.colours = "all"
    results = train_and_evaluate(config, tmp_path / name)
    if name == "lamps":
        units = dict(zip(results["coordinates"], results["units"], strict=True))
        assert {units["hue"], units["tint"]} == {"degrees", "intensity"}
        assert all(results[f"half_range_{colour}"] > 0 for colour in units)
        return
    if name == "scenes":
        assert 0 <= results["test_mean_iou_averaged"] <= results["test_accuracy_averaged"] <= 1
        assert 0 <= results["equivariance_error_4"] <= 1
        assert (tmp_path / name / "figures" / "label_maps.png").is_file()
        with pytest.raises(ValueError, match="labels pixels, which turn with the image; what is"):
            robustness.measure(tmp_path / name)
        return
    if name == "molecules":
        assert results["test_error_averaged"] > 0
        assert results["equivariance_error_4"] > 0
        assert results["half_range_rotation_z"] > 0
        assert (tmp_path / name / "figures" / "equivariance.png").is_file()
        assert not (tmp_path / name / "figures" / "views.png").exists()
        return
    assert np.isfinite(results["half_range_degrees"])
    if name != "three_modes":  # where the way between modes counts
        assert results["invariance_found"] == (
            results["half_range_degrees"] > results["least_turn_degrees"]
        )
    if name == "rotation_discovery":
        assert 0 <= results["rotation_distance"] <= results["rotation_distance_90"]
        assert (tmp_path / name / "figures" / "entries.png").is_file()
    if name == "three_modes":
        assert 0 <= results["mode_share_error"] <= 1


SETS = {  # experiment: side, channels, classes, images per class
    "mnist": (28, 1, 10, 20),
    "half_turned": (28, 1, 10, 20),
    "frozen": (32, 3, 10, 20),
    "contrast": (32, 3, 10, 20),
    "invariant_weights": (28, 1, 10, 20),
    "lila": (28, 1, 10, 20),
    "rot_mnist": (28, 1, 10, 20),
    "olivetti": (64, 1, 40, 8),
    "tinyin": (64, 3, 200, 20),
}


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", SETS)
def test_every_experiment_runs(name: str, tmp_path: Path, monkeypatch) -> None:
    """Every `:smoke`, on noise in the shape of its set."""
    side, channels, classes, each = SETS[name]
    random = np.random.default_rng(0)

    def split(each: int) -> Split:
        labels = np.tile(np.arange(classes, dtype=np.int32), each)
        shape = (len(labels), side, side, channels)
        return Split(random.integers(0, 256, shape, dtype=np.uint8), labels)

    names = tuple(f"class {label}" for label in range(classes))
    data = DataSet(split(each), split(10), names, note="noise")
    monkeypatch.setattr(stored, "load", lambda *_, **__: data)
    config = importlib.import_module(f"experiments.{name}").get_config("smoke")
    config.data.train_size = 32  # four steps: these networks are slow here
    if name not in ("contrast", "lila"):  # which look at the whole batch: on all devices
        config.num_devices = 1
    if name == "tinyin":  # its PreActResNet-18 alone compiles for half a minute; see below
        config.classifier.name = "simple_conv"
    if name != "mnist":  # the second rule compiles the networks once more
        config.evaluation.rules = config.evaluation.rules[:1]
    results = train_and_evaluate(config, tmp_path / name)
    if name == "olivetti":
        assert 0 <= results["test_error_degrees_averaged"] < 180
    else:
        assert 0 <= results["test_accuracy_averaged"] <= 1
    assert ("test_accuracy_views_5" in results) == (name == "frozen")
    assert ("probe" in results) == (name == "contrast")
    frames = tmp_path / name / "figures" / "crop_boxes.png"
    assert frames.is_file() == (name in ("contrast", "frozen", "tinyin"))
    assert results["evaluation_rule"] == "plain"
    assert np.isfinite(results["entropy"])
    assert ("bound" in results) == (name == "invariant_weights")
    assert ("evidence" in results) == (name == "lila")
    if name == "invariant_weights":  # its epochs are a line each
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        assert results["bound"] == pytest.approx(-json.loads(lines[-1])["loss"])
    followed = [key for key in results if key.startswith("arc_share_class ")]
    assert len(followed) == {
        "half_turned": 10,
        "invariant_weights": 10,
        "lila": 10,
    }.get(name, 0)
    assert "noise" in (tmp_path / name / "report.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "side", "classes", "parameters"),
    [("cifar10_layer13", 32, 10, 8_000), ("tinyin", 64, 200, 11_168_068)],
)
def test_large_networks_are_put_together(
    name: str, side: int, classes: int, parameters: int, monkeypatch
) -> None:
    """Traced, not compiled: rot_mnist runs the 13 layers above, test_networks the other."""
    labels = np.tile(np.arange(classes, dtype=np.int32), 20)
    split = Split(np.zeros((len(labels), side, side, 3), np.uint8), labels)
    data = DataSet(split, split, tuple(f"class {label}" for label in range(classes)))
    monkeypatch.setattr(stored, "load", lambda *_, **__: data)
    module = importlib.import_module(f"experiments.{name}")
    config = module.get_config("smoke")
    config.classifier.width = module.get_config().classifier.width
    parts = assemble(config)
    step = parts.make_step(burn_in=False, resident=False)
    state = jax.eval_shape(parts.init_state)
    batch = jax.ShapeDtypeStruct((16, side, side, 3), np.uint8)
    after = jax.eval_shape(step, state, batch, jax.ShapeDtypeStruct((16,), np.int32))
    assert jax.tree.structure(after) == jax.tree.structure(state)
    weights = jax.tree.leaves(state.params["classifier"])
    assert sum(leaf.size for leaf in weights) >= parameters


@pytest.mark.parametrize(
    ("name", "other", "but"),
    [
        ("fashion_mnist", "mnist", set()),
        ("cifar10_lt", "cifar10", set()),
        ("crops", "tinyin", set()),
        ("cifar10", "mnist", {"classifier.name"}),  # the network is that of frozen
        ("few_labels", "mnist", {"objective.include_original", "evaluation.rules"}),
        (
            "selective",
            "half_turned",
            {
                "classifier.name",
                "embedding.circular_mask",
                "objective.reject_distorted",
                "evaluation.arc_images",
            },
        ),
        (
            "no_invariance",
            "mario_iggy",
            {"distribution.start_half_range", "evaluation.poses", "objective.burn_in_epochs"},
        ),
    ],
)
def test_some_are_others_on_other_images(name: str, other: str, but: set[str]) -> None:
    """So they need no run of their own above: what is compiled differs in numbers alone."""
    parts = ("classifier", "embedding", "distribution", "transform", "objective", "evaluation")
    first, second = (
        {
            field: value
            for field, value in flatten(
                importlib.import_module(f"experiments.{each}").get_config("smoke")
            )
            if field.startswith(parts) and not isinstance(value, float)
        }
        for each in (name, other)
    )
    assert {field for field in first if first[field] != second[field]} == but
