"""What a config stands for, made once: data, modules, devices, and how many steps there are."""

import dataclasses
import functools
import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.setup import build, checks, data_sets, defaults, optimizers
from flowjax_inv import training
from flowjax_inv.data.batches import batch_indices, drawn_indices, steps_per_epoch
from flowjax_inv.data.pixels import Normalization
from flowjax_inv.data.sets import DataSet
from flowjax_inv.distributions.base import ConditionalDistribution
from flowjax_inv.training.feed import Feed
from flowjax_inv.training.objectives import Objective
from flowjax_inv.training.placement import Placement
from flowjax_inv.transforms import Transform

__all__ = ["Assembly", "assemble"]


@dataclasses.dataclass(frozen=True)
class Assembly:
    """The parts of a run.

    Attributes:
        config: of the run.
        place: devices.
        data: with its two splits.
        targets, test_targets: what is predicted of their images.
        for_density: how many of the train images, the last ones, the density alone learns by, the
            others being the classifier's; 0: each learns by all.
        held_out: train images taken out of `data`, with what is predicted of them: those by which
            a controller measures the gap; None where none does.
        normalization: of stored pixels.
        transform: theta -> views.
        classifier, distribution: Linen modules.
        objective: how the loss is put together.
        optimizer: over the parameters of both modules.
        controller: of alpha.
        learner: by which the evidence teaches the density; None where the loss does.
        epoch_steps, burn_in_steps, total_steps: of one epoch, of burn-in, of all epochs.
    """

    config: defaults.Config
    place: Placement
    data: DataSet
    targets: np.ndarray
    test_targets: np.ndarray
    for_density: int
    held_out: tuple[np.ndarray, np.ndarray] | None
    normalization: Normalization
    transform: Transform
    classifier: nn.Module
    distribution: ConditionalDistribution
    objective: Objective
    optimizer: optax.GradientTransformation
    controller: training.Controller
    learner: training.Laplace | None
    epoch_steps: int
    burn_in_steps: int
    total_steps: int

    @property
    def evidence(self) -> bool:
        """Whether the loss is minus a bound on the marginal likelihood, nats per image."""
        prior = hasattr(self.classifier, "divergence") and not getattr(self.classifier, "point", 0)
        alone = not self.objective.include_original and not self.objective.equivariance
        return prior and alone and self.config.controller.value == 0

    def init_state(self) -> training.TrainState:
        """Return the state before the first step, on every device."""
        state = training.init_state(
            self.classifier,
            self.distribution,
            self.optimizer,
            self.controller,
            self.data.train.images[: self.config.train.batch_size],
            key=jax.random.key(self.config.seed),
            objective=self.objective,
            learner=self.learner,
        )
        return self.place.replicate(state)

    def feed(self) -> Feed:
        """Return what gives every step its batch."""
        section = self.config.train
        order = functools.partial(
            batch_indices,
            batch_size=section.batch_size,
            seed=self.config.seed,
            shuffle=section.shuffle,
        )
        every, kept = len(self.data.train), self.for_density

        def indices(step: int) -> np.ndarray:
            if not kept:
                return order(step, size=every)
            if step < self.burn_in_steps:
                return order(step, size=every - kept)
            return every - kept + order(step, size=kept)

        return build.feed(
            self.config, self.data.train.images, self.targets, indices, end=self.total_steps
        )

    def make_step(
        self, *, burn_in: bool = False, resident: bool
    ) -> Callable[..., training.TrainState]:
        """Return the compiled step, see `training.make_step`."""
        return training.make_step(
            self.classifier,
            self.distribution,
            self.transform,
            self.optimizer,
            self.controller,
            self.objective,
            burn_in=burn_in,
            normalization=self.normalization,
            mirror=self.config.data.mirror,
            placement=self.place,
            resident=resident,
        )

    def make_follow_up(self) -> Callable[[int, training.TrainState], training.TrainState]:
        """Return what follows so many steps: (steps, state) -> state, state donated.

        It moves alpha where the controller watches images that are held out, the density where the
        evidence teaches it; else the state is given back as it is.
        """
        if self.learner is not None:
            return self._by_evidence(self.learner)
        if self.held_out is None or not self.distribution.has_density:
            return lambda _, state: state
        measure = training.make_alpha_step(
            self.classifier,
            self.distribution,
            self.transform,
            self.controller,
            self.objective,
            calibrated=self.config.controller.calibrated,
            normalization=self.normalization,
            placement=self.place,
        )
        images = self.place.replicate(self.held_out)
        config, size = self.config, len(self.held_out[1])

        def after(steps: int, state: training.TrainState) -> training.TrainState:
            if steps <= self.burn_in_steps or steps % config.controller.every_steps:
                return state
            indices = drawn_indices(
                steps, size=size, batch_size=config.train.batch_size, seed=config.seed
            )
            return measure(state, *images, indices)

        return after

    def _by_evidence(
        self, learner: training.Laplace
    ) -> Callable[[int, training.TrainState], training.TrainState]:
        section, number = self.config.laplace, len(self.data.train)
        learn = training.make_evidence_step(
            self.classifier,
            self.distribution,
            self.transform,
            learner,
            self.objective,
            normalization=self.normalization,
            placement=self.place,
        )
        images = self.place.replicate((self.data.train.images, self.targets))

        def after(steps: int, state: training.TrainState) -> training.TrainState:
            if steps <= self.burn_in_steps or steps % section.every_steps:
                return state
            seen = min(section.images or number, number)
            indices = drawn_indices(steps, size=number, batch_size=seen, seed=self.config.seed)
            return learn(state, *images, indices)

        return after


def _with_least_steps(config: defaults.Config, steps_per_epoch: int) -> defaults.Config:
    """Return the config with as many epochs as `train.least_steps` asks for."""
    epochs = config.train.epochs
    wanted = max(epochs, math.ceil(config.train.least_steps / steps_per_epoch))
    if wanted == epochs:
        return config
    config = config.copy_and_resolve_references()
    config.objective.burn_in_epochs = config.objective.burn_in_epochs * wanted // epochs
    config.train.epochs = wanted
    return config


def assemble(config: defaults.Config, data: DataSet | None = None) -> Assembly:
    """Make the parts of a run.

    Args:
        config: of the run.
        data: in place of those of `config.data`.

    Raises:
        ValueError: if a field is out of range, or the data are not there.
    """
    checks.check(config)
    place = build.placement(config)
    data = data or data_sets.data_set(config)
    if data.pictures == (config.transform.name == "points"):
        raise ValueError(
            f"config.data.name is {config.data.name} with transform.name={config.transform.name}; "
            "clusters and molecules go with points, pictures with any other."
        )
    data, aside = data_sets.held_out(config, data)
    data, for_density = data_sets.kept_for_density(config, data)
    classes = data_sets.outputs(config, data.class_names)
    targets, test_targets = (data_sets.targets(config, split) for split in (data.train, data.test))
    normalization = data_sets.normalization(config)
    first = normalization(jnp.asarray(data.train.images[:1]))  # refuses means of other channels
    transform = build.transform(config)
    jax.eval_shape(transform, first, transform.identity)  # refuses colours of grey pictures
    distribution = build.distribution(config, transform, classes=classes)
    objective = build.objective(config, distribution, transform, images=len(data.train))
    classifier = build.network(config, "classifier", classes=classes)
    build.check_gradient(classifier, distribution, objective, first)
    per_epoch = steps_per_epoch(len(data.train), config.train.batch_size)
    config = _with_least_steps(config, per_epoch)
    total = per_epoch * config.train.epochs
    burn_in = per_epoch * config.objective.burn_in_epochs
    return Assembly(
        config=config,
        place=place,
        data=data,
        targets=targets,
        test_targets=test_targets,
        for_density=for_density,
        held_out=None if aside is None else (aside.images, data_sets.targets(config, aside)),
        normalization=normalization,
        transform=transform,
        classifier=classifier,
        distribution=distribution,
        objective=objective,
        optimizer=optimizers.from_config(config, total_steps=total, steps_per_epoch=per_epoch),
        controller=build.controller(config, total_steps=total - burn_in, steps_per_epoch=per_epoch),
        learner=build.learner(config, steps=total - burn_in),
        epoch_steps=per_epoch,
        burn_in_steps=burn_in,
        total_steps=total,
    )
