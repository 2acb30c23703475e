"""Configs: every field has one reader, every bad value one clear line."""

import ast
import dataclasses
import importlib
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from experiments.measuring import evaluate
from experiments.running.command_line import UsageError, available_configs, check_arguments
from experiments.setup import build, checks, data_sets, defaults, optimizers
from experiments.setup.fields import flatten
from flowjax_inv.data.recipes import GENERATED
from flowjax_inv.data.sets import Split
from flowjax_inv.data.sprites import mario_iggy as make_set
from flowjax_inv.training.evidence import Laplace
from flowjax_inv.training.objectives import Objective

ROOT = Path(__file__).parents[1]
CONFIG = "--config=experiments/mario_iggy.py"


def _read_in_sources() -> set[str]:
    """Every config.a.b, section.b, ... that experiments/ reads as an attribute."""
    names = set()
    for path in (ROOT / "experiments").rglob("*.py"):
        if path.name in ("defaults.py",) or "\ndef get_config(" in path.read_text():
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                names.add(node.attr)
    return names


def test_every_field_is_read() -> None:
    """A field belongs to a class of the tables that declares it, or is read by name."""
    tables = {
        "classifier": build.NETWORKS.values(),
        "embedding": build.NETWORKS.values(),
        "transform": build.TRANSFORMS.values(),
        "distribution": build.DISTRIBUTIONS.values(),
        "controller": build.CONTROLLERS.values(),
        "objective": [Objective],
        "laplace": [Laplace],
    }
    read = _read_in_sources()
    for name, _ in flatten(defaults.FIELDS):
        section, _, field = name.partition(".")
        declared = {f.name for cls in tables.get(section, ()) for f in dataclasses.fields(cls)}
        if section == "data":
            declared = set(make_set.__kwdefaults__ or {}) | {"sprites"}
        assert name.rpartition(".")[2] in declared | read, f"nobody reads config.{name}"


def test_every_field_of_a_class_can_be_set() -> None:
    """In its section, or it is filled in from what else is known."""
    filled_in = {
        "parent", "name", "dim", "embed", "periodic", "names", "scales", "anchor", "axis_name",
        "conv", "min_size", "max_size", "centre", "steps", "every", "images", "mean", "std",
    }  # fmt: skip
    for section, classes in (
        ("embedding", build.NETWORKS.values()),
        ("transform", build.TRANSFORMS.values()),
        ("distribution", build.DISTRIBUTIONS.values()),
        ("controller", build.CONTROLLERS.values()),
        ("objective", [Objective]),
        ("laplace", [Laplace]),
    ):
        for cls in classes:
            declared = {field.name for field in dataclasses.fields(cls)}
            assert declared <= filled_in | set(defaults.FIELDS[section]), cls


def test_defaults_agree_with_the_classes() -> None:
    """A class's own default and the field's are one value: no second place for decisions."""
    for section, cls in (
        ("distribution", build.DISTRIBUTIONS["flow"]),
        ("controller", build.CONTROLLERS["band"]),
        ("laplace", Laplace),
    ):
        own = {f.name: f.default for f in dataclasses.fields(cls)}
        for name, field in defaults.FIELDS[section].items():
            if name in own and own[name] is not dataclasses.MISSING and name != "name":
                assert own[name] == field.value, f"{section}.{name}"


@pytest.mark.parametrize("path", available_configs())
def test_every_variant_is_a_valid_config(path: str) -> None:
    source = (ROOT / path).read_text()
    variants = set(re.findall(r"`:(\w+)`", ast.get_docstring(ast.parse(source)) or ""))
    assert {"cpu", "smoke"} <= variants
    module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
    for variant in {"", *variants}:
        checks.check(module.get_config(variant))
    if "none or `:cpu`" in source:
        assert module.get_config("cpu") == module.get_config()


def test_fields_are_locked() -> None:
    config = defaults.get_config()
    with pytest.raises(AttributeError, match="epoch"):
        config.train.epoch = 3


BAD_VALUES = [
    ("transform.half_range", ("abc",), r"half_range is \('abc',\) .*allowed: above 0"),
    ("distribution.level_bias", ("a", "b"), r"level_bias is \('a', 'b'\) .*allowed: -100 .. 100"),
    ("seed", 2**32, r"config.seed is 4294967296 \(.*\); allowed: 0 .. 4294967295"),
    ("train.epochs", 0, r"config.train.epochs is 0 \(.*\); allowed: 1 .. inf"),
    ("optimizer.classifier.learning_rate", float("nan"), "learning_rate is nan .*allowed: above 0"),
    ("optimizer.distribution.learning_rate", -1.0, "learning_rate is -1.0 .*allowed: above 0"),
    ("controller.value", float("inf"), "controller.value is inf"),
    ("objective.copies", -2, "objective.copies is -2"),
    ("data.half_range_degrees", 0.0, "half_range_degrees is 0.0 .*allowed: above 0, at most 90"),
    ("transform.half_range", (90.0, -1.0), r"half_range is \(90.0, -1.0\)"),
    ("distribution.base", "boxx", "base is 'boxx' .*allowed: mixture, box, unit_box; did you mean"),
    ("distribution.name", "flwo", "did you mean flow"),
    ("seed", -1, "config.seed is -1"),
]


@pytest.mark.parametrize(("name", "value", "text"), BAD_VALUES, ids=[b[0] for b in BAD_VALUES])
def test_bad_values_are_refused_with_their_range(name, value, text) -> None:
    config = defaults.get_config()
    *sections, field = name.split(".")
    section = config
    for part in sections:
        section = section[part]
    section[field] = value
    with pytest.raises(ValueError, match=text) as caught:
        checks.check(config)
    assert "\n" not in str(caught.value)


def test_burn_in_must_leave_an_epoch_and_a_batch_fit() -> None:
    config = defaults.get_config()
    config.objective.burn_in_epochs = config.train.epochs
    with pytest.raises(ValueError, match="burn_in_epochs is 250 of config.train.epochs=250"):
        checks.check(config)
    config.objective.burn_in_epochs = 0
    config.train.batch_size = 20_000
    with pytest.raises(ValueError, match="batch_size is 20000; allowed: 1 .. 12000"):
        checks.check(config)


PAIRS = [
    ({"freeze_classifier": True}, "freeze_classifier is True with burn_in_epochs=0"),
    ({"pose_likelihood": True}, "pose_likelihood is True with burn_in_epochs=0"),
    ({"loss": "squared_error"}, "squared_error, which has no probabilities to average"),
    ({"reject_distorted": "burn_in"}, "reject_distorted is burn_in with burn_in_epochs=0"),
    (
        {"loss": "squared_error", "reject_distorted": "always"},
        "reject_distorted is one more class, and squared_error has none",
    ),
    ({"label_smoothing": 0.1, "average": "probs"}, "label_smoothing is for the cross-entropy with"),
    ({"maps": True}, "maps is True with classifier.name=simple_conv .* a unet makes maps"),
]


@pytest.mark.parametrize(("fields", "text"), PAIRS)
def test_fields_that_cannot_go_together(fields, text) -> None:
    config = defaults.get_config()
    config.objective.update(fields)
    with pytest.raises(ValueError, match=text):
        checks.check(config)


def test_maps_of_labels_want_a_unet_and_labels_of_pixels() -> None:
    config = defaults.get_config()
    config.classifier.name = "unet"
    with pytest.raises(ValueError, match="maps is False with classifier.name=unet"):
        checks.check(config)
    config.objective.maps = True
    checks.check(config)
    for section, name, value in (("data", "mirror", True), ("controller", "name", "gap")):
        other = config.copy_and_resolve_references()
        other[section][name] = value
        with pytest.raises(ValueError, match="maps are not mirrored, and there is no gap of"):
            checks.check(other)
    split = Split(np.zeros((2, 8, 8, 1), np.uint8), np.zeros(2, np.int32))
    with pytest.raises(ValueError, match="maps is True, but mario_iggy has no label for every pix"):
        data_sets.targets(config, split)


def test_angles_of_mirrored_pictures_and_of_unknown_poses() -> None:
    config = defaults.get_config()
    config.objective.loss, config.evaluation.average = "squared_error", "logits"
    split = Split(np.zeros((2, 8, 8, 1), np.uint8), np.zeros(2, np.int32))
    config.data.name = "mnist"
    with pytest.raises(ValueError, match="learns poses, but those of mnist are not known; turn"):
        data_sets.targets(config, split)
    known = dataclasses.replace(split, pose_degrees=np.array([3.0, -4.0], np.float32))
    np.testing.assert_array_equal(data_sets.targets(config, known), [3.0, -4.0])
    config.data.mirror = True
    with pytest.raises(ValueError, match="mirrored picture has another angle"):
        checks.check(config)


BAD_LINES = [
    ([], "--config is missing; available: experiments/cifar10.py, "),
    (["--config"], "--config is missing; available"),
    (["--config=experiments/mario.py"], "experiments/mario.py is not a file; available: exp"),
    (["--config=experiments/setup/build.py"], "experiments/setup/build.py has no get_config"),
    ([CONFIG + ":samll"], 'variant "samll" is unknown; allowed: cpu, paper, rivals, rotation,'),
    ([CONFIG, "--config.train.epoch=3"], "no field train.epoch; did you mean train.epochs"),
    ([CONFIG, "--config.distribution.layer=3"], "did you mean distribution.layers"),
    ([CONFIG, "--noconfig.train.shufle"], "no field train.shufle; did you mean train.shuffle"),
    ([CONFIG, "--config.train.epochs=abc"], "--config.train.epochs is 'abc'; it wants a whole"),
    ([CONFIG, "--config.train.epochs=2.5"], "--config.train.epochs is '2.5'; it wants a whole"),
    ([CONFIG, "--config.controller.value=x"], "--config.controller.value is 'x'; it wants a numb"),
    ([CONFIG, "--config.train.shuffle=maybe"], "is 'maybe'; it wants true or false"),
    ([CONFIG, "--bogus=3"], "--bogus is not known; fields of the config are written --config."),
    (
        [CONFIG, "--config.zzz=3"],
        "no field zzz; the fields are listed in experiments/setup/defaults.py",
    ),
]


@pytest.mark.parametrize(("arguments", "text"), BAD_LINES, ids=[b[1][:30] for b in BAD_LINES])
def test_bad_command_lines(arguments, text, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(UsageError, match=re.escape(text)):
        check_arguments(["run.py", *arguments])


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("import nothing_of_that_name", "ModuleNotFoundError: No module named 'nothing_of_that_"),
        ("def get_config(variant):\n    return 1 / 0", "ZeroDivisionError: division by zero"),
        ("def get_config(", "SyntaxError: "),
    ],
)
def test_a_config_file_that_fails_is_named_with_its_line(tmp_path, source, text) -> None:
    path = tmp_path / "mine.py"
    path.write_text(source)
    with pytest.raises(UsageError, match="mine.py cannot be read: ") as caught:
        check_arguments(["run.py", f"--config={path}"])
    assert text in str(caught.value)
    assert ", line " in str(caught.value)


def test_an_outside_network_wants_its_function() -> None:
    config = defaults.get_config()
    config.embedding.name = "outside"
    with pytest.raises(ValueError, match="set config.embedding.function to MODULE:FUNCTION"):
        checks.check(config)


@pytest.mark.parametrize(
    ("section", "field", "value", "text"),
    [
        ("transform", "entries", "", "entries"),
        ("distribution", "levels", (), r"levels=\(\) of InstaAugLRP; want one or more"),
        ("classifier", "features", 1, "config.classifier.features is 1 for 2 outputs; take 0"),
    ],
)
def test_what_is_built_of_nothing_is_refused(section, field, value, text) -> None:
    config = defaults.get_config()
    config.transform.name = "crop" if section == "distribution" else "decoupled"
    config.distribution.name = "instaaug_lrp" if section == "distribution" else "identity"
    config[section][field] = value

    def make() -> None:
        build.distribution(config, build.transform(config), classes=2)
        build.network(config, "classifier", classes=2)

    with pytest.raises(ValueError, match=text):
        make()


@pytest.mark.parametrize(
    "arguments", [["--help"], [CONFIG, "--config.seed=3", "--config.train.shuffle=false"],
                  ["--config", "experiments/mario_iggy.py:smoke", "--workdir=x"]]
)  # fmt: skip
def test_good_command_lines(arguments, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    check_arguments(["run.py", *arguments])


def test_drops_and_warm_up_of_a_step_schedule() -> None:
    """rate(step) = base min(step / warm-up, 1) factor^drops, wherever the drops fall."""
    config = defaults.get_config()
    section = config.optimizer.classifier
    section.name, section.momentum, section.learning_rate = "sgd", 0.0, 0.5
    section.schedule, section.decay_epochs, section.decay_factor = "step", 1, 0.5
    section.warmup_steps = 10
    optimizer = optimizers.from_config(config, total_steps=16, steps_per_epoch=4)
    params: Any = {"classifier": np.ones(2), "distribution": np.ones(2)}
    updates: Any
    state, rates = optimizer.init(params), []
    for _ in range(16):
        updates, state = optimizer.update(params, state, params)
        rates.append(-float(updates["classifier"][0]))
    step = np.arange(16)
    wanted = 0.5 * np.minimum(step / 10, 1) * 0.5 ** (step // 4)
    np.testing.assert_allclose(rates, wanted, rtol=1e-5)


def _density_updates(*, burn_in: int, pose_likelihood: bool = False) -> np.ndarray:
    """Updates of 12 steps with gradients, after `burn_in` epochs of 4 steps without."""
    config = defaults.get_config()
    config.objective.burn_in_epochs = burn_in
    config.objective.pose_likelihood = pose_likelihood
    config.optimizer.distribution.warmup_steps = 3
    first = 4 * burn_in
    optimizer = optimizers.from_config(config, total_steps=first + 12, steps_per_epoch=4)
    params: Any = {"classifier": np.ones(2), "distribution": np.ones(2)}
    state, seen, update = optimizer.init(params), [], jax.jit(optimizer.update)
    for step in range(first + 12):
        slope = {name: x * (0.1 if step >= first else 0.0) for name, x in params.items()}
        updates, state = update(slope, state, params)
        seen.append(np.asarray(updates["distribution"]))
    assert not np.any(seen[:first])
    return np.stack(seen[first:])


@pytest.mark.parametrize("pose_likelihood", [False, True])
def test_in_burn_in_the_optimizer_of_the_density_rests(pose_likelihood: bool) -> None:  # noqa: FBT001
    """Afterwards it is as new; counted on, Adam would begin with steps 6.5 times as long."""
    new = _density_updates(burn_in=0)
    rested = _density_updates(burn_in=25, pose_likelihood=pose_likelihood)
    np.testing.assert_allclose(rested, new, rtol=1e-6)


def test_what_is_redrawn_follows_the_seed_of_the_run() -> None:
    def images(**fields: int) -> np.ndarray:
        config = defaults.get_config()
        config.data.name, config.data.train_size, config.data.test_size = "textures", 20, 20
        config.seed, config.data.seed = fields["run"], fields["data"]
        config.data.redrawn = bool(fields["redrawn"])
        return data_sets.data_set(config).train.images

    third = images(run=0, data=3, redrawn=0)
    np.testing.assert_array_equal(images(run=2, data=1, redrawn=1), third)
    np.testing.assert_array_equal(images(run=2, data=3, redrawn=0), third)
    assert not np.array_equal(images(run=2, data=3, redrawn=1), third)


def test_every_choice_is_in_its_table() -> None:
    for field, table in (
        ("classifier", build.NETWORKS),
        ("embedding", build.NETWORKS),
        ("transform", build.TRANSFORMS),
        ("distribution", build.DISTRIBUTIONS),
        ("controller", build.CONTROLLERS),
    ):
        assert set(defaults.FIELDS[field]["name"].choices) == set(table)
    assert set(defaults.FIELDS["evaluation"]["rules"].choices) == set(evaluate.RULES)
    assert set(GENERATED) == set(data_sets.SETS)
