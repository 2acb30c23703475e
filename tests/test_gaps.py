"""Alpha by the gap between views and images: met where the answer is known, and resumable."""

import json
import math
from pathlib import Path
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from poses import blobs
from small_densities import circular
from smoke_runs import smoke
from steps import ONE, ROTATION, build, changed, copy

from experiments.report.tables import headline
from experiments.run import train_and_evaluate
from experiments.setup import checks
from flowjax_inv import training
from flowjax_inv.data.pixels import Normalization
from flowjax_inv.training.controllers import Gap
from flowjax_inv.training.objectives import Objective
from flowjax_inv.training.placement import Placement

GRID = jnp.linspace(-1.0, 1.0, 401)[:-1, None, None]
SAME = Normalization()


class LooksUpright(nn.Module):
    """Sure of class 0 where the blob is right of the middle, and ever less so as it turns."""

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> jax.Array:
        """Return logits (N, 2)."""
        del train
        upright = blobs(jnp.zeros(1))[0]
        match = jnp.sum(images * upright, axis=(1, 2, 3)) / jnp.sum(upright**2)
        self.param("unused", nn.initializers.zeros, ())
        return jnp.stack([8.0 * match - 4.0, jnp.zeros_like(match)], axis=-1)


def costs() -> np.ndarray:
    """Cross-entropy of the blob turned by every angle of the grid, nats."""
    image = SAME(jnp.asarray(255.0 * blobs(jnp.zeros(1))).astype(jnp.uint8))
    views = ROTATION(image, GRID)[:, 0]
    logits: Any = LooksUpright().apply({"params": {"unused": 0.0}}, views)
    return np.asarray(-jax.nn.log_softmax(logits)[:, 0], np.float64)


def gap_of(alpha: float, cost: np.ndarray) -> float:
    """E[CE] - CE(upright) under g ~ p^(1 / alpha)."""
    weight = np.exp(-(cost - cost.min()) / alpha)
    return float(weight @ cost / weight.sum() - cost[len(cost) // 2])


@pytest.mark.slow
@pytest.mark.parametrize("asked", [0.1, 0.5])
def test_the_gap_is_met_where_the_best_density_is_known(asked: float) -> None:
    """The classifier stays as it is, so that g is to be p^(1 / alpha), whatever alpha it takes."""
    steps, every = 1500, 5
    images = jnp.broadcast_to(255.0 * blobs(jnp.zeros(1)), (256, 21, 21, 1)).astype(jnp.uint8)
    labels, few, all_of_them = jnp.zeros(256, jnp.int32), jnp.arange(16), jnp.arange(256)
    classifier, density = LooksUpright(), circular(bins=24)
    controller = Gap(asked, value=1.0, rate=0.02, decay=0.95)
    objective = Objective(freeze_classifier=True, copies=8)
    state, step = build(
        classifier, density, controller, objective, images,
        optimizer=optax.adam(optax.cosine_decay_schedule(5e-2, steps)),
    )  # fmt: skip
    parts = (classifier, density, ROTATION, controller, objective)
    alpha_step = training.make_alpha_step(*parts, placement=ONE)
    alphas = []
    for at in range(steps):
        state = step(state, images, labels, few)
        if at % every == every - 1:
            state = alpha_step(state, images, labels, all_of_them)
            alphas.append(float(controller.alpha(state.controller)))
    variables = {"params": state.params["distribution"]}
    found: Any = density.apply(variables, SAME(images[:1]))
    log_prob = found.log_prob(GRID)[:, 0]
    weight, cost = np.exp(np.asarray(log_prob, np.float64)), costs()
    met = weight @ cost / weight.sum() - cost[len(cost) // 2]
    assert met == pytest.approx(asked, rel=0.05)
    assert gap_of(float(np.mean(alphas[-60:])), cost) == pytest.approx(asked, rel=0.1)


@pytest.mark.slow
def test_only_the_controller_changes_and_the_samples_hang_on_key_and_step() -> None:
    images = jnp.broadcast_to(255.0 * blobs(jnp.zeros(1)), (4, 21, 21, 1)).astype(jnp.uint8)
    labels, indices = jnp.zeros(4, jnp.int32), jnp.arange(4)
    parts = (LooksUpright(), circular(), Gap(0.1), Objective())
    state, _ = build(*parts, images)
    classifier, density, controller, objective = parts
    alpha_step = training.make_alpha_step(
        classifier, density, ROTATION, controller, objective, placement=ONE
    )
    first, again, later = (
        alpha_step(copy(each), images, labels, indices)
        for each in (state, state, state.replace(step=state.step + 1))
    )
    assert float(first.controller.gap) == float(again.controller.gap) > 0
    assert float(first.controller.gap) != float(later.controller.gap)
    for name in ("classifier", "distribution"):
        assert not changed(state, first, name)


class Surer(nn.Module):
    """`LooksUpright`, its logits times a factor."""

    factor: float

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> jax.Array:
        return self.factor * LooksUpright()(images, train=train)


def _gap_of_56(classifier: nn.Module, placement: Placement = ONE, *, calibrated: bool) -> float:
    """Return the gap of 56 equal images of which one has the wrong label."""
    images = jnp.broadcast_to(255.0 * blobs(jnp.zeros(1)), (56, 21, 21, 1)).astype(jnp.uint8)
    labels, indices = jnp.zeros(56, jnp.int32).at[0].set(1), jnp.arange(56)
    density, controller, objective = circular(), Gap(0.1), Objective()
    state, _ = build(classifier, density, controller, objective, images)
    step = training.make_alpha_step(
        classifier, density, ROTATION, controller, objective,
        calibrated=calibrated, placement=placement,
    )  # fmt: skip
    whole = placement.replicate((state, images, labels))
    return float(step(*whole, placement.divide(indices)).controller.gap)


@pytest.mark.devices(4)
@pytest.mark.parametrize("parallel", ["jit", "pmap"])
def test_the_gap_is_one_on_every_device(parallel: Literal["jit", "pmap"]) -> None:
    """The wrong label is on the first of four: each alone would take another temperature."""
    spread = Placement(jax.devices()[:4], parallel)
    one, four = (_gap_of_56(Surer(2.0), place, calibrated=True) for place in (ONE, spread))
    assert one == pytest.approx(four, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "as_if"), [(2.0, 1.0), (0.5, 0.5)])
def test_a_classifier_that_is_too_sure_is_compared_as_it_should_be(
    factor: float, as_if: float
) -> None:
    """Of 56 labels one is wrong: log 55 = 4.007 nats fit, `LooksUpright` has 4."""

    def gap(factor: float, calibrated: bool = False) -> float:
        return _gap_of_56(Surer(factor), calibrated=calibrated)

    assert gap(factor, calibrated=True) == pytest.approx(gap(as_if), rel=1e-4)
    assert (gap(factor) == pytest.approx(gap(as_if), rel=1e-4)) is (factor == as_if)


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_run_holds_images_out_and_logs_the_gap(tmp_path: Path) -> None:
    config = smoke(
        controller__name="gap",
        controller__every_steps=1,
        controller__held_out=0.25,
        train__epochs=4,
        evaluation__every_epochs=2,
    )
    results = train_and_evaluate(config, tmp_path / "run")
    assert results["train_images"] == config.data.train_size * 3 // 4
    assert math.isfinite(results["gap"])
    said = [row for row in headline(results) if row.name.startswith("Views are classified worse")]
    assert [row.target for row in said] == ["allowed 0.10 nats"]
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    *_, last = logged = [json.loads(line) for line in lines]
    assert [line["epoch"] for line in logged if "test_accuracy" in line] == [2.0, 4.0]
    assert "gap" in last
    assert last["alpha"] != config.controller.value


@pytest.mark.parametrize(
    "fields",
    [
        {"objective__loss": "squared_error", "evaluation__average": "logits"},
        {"objective__pose_likelihood": True},
    ],
)
def test_without_two_cross_entropies_there_is_no_gap(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="controller.name is gap, which compares cross-entropies"):
        checks.check(smoke(controller__name="gap", **fields))
