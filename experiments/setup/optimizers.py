"""The optimizers of a run: one each for its classifier and its density, with their schedules."""

from typing import Any

import jax
import optax

from experiments.setup.defaults import Config

__all__ = ["from_config"]


def from_config(
    config: Config, *, total_steps: int, steps_per_epoch: int
) -> optax.GradientTransformation:
    """Return the two optimizers of `config.optimizer`, each with its schedule and weight decay.

    In burn-in the density's rests: its moments and its schedule begin after it. If it did not, Adam
    would take the burn-in, where it saw no gradient, for evidence of small ones, and the density's
    first updates would be up to 6.5 times its rate. With a pose likelihood two trainings follow
    each other, each with its own schedule.
    """
    objective = config.objective
    first = objective.burn_in_epochs * steps_per_epoch

    def schedule(name: str) -> optax.Schedule:
        section = config.optimizer[name]
        if name == "classifier":
            steps = first if objective.pose_likelihood else total_steps
            return _rate(section, steps, steps_per_epoch)
        return _rate(section, total_steps - first, steps_per_epoch)

    def one(name: str) -> optax.GradientTransformation:
        section, rate = config.optimizer[name], schedule(name)
        decayed = None if section.decay_all else _kernels
        parts = [optax.clip_by_global_norm(section.clip_norm)] if section.clip_norm else []
        if section.name == "adamw":
            parts.append(optax.adamw(rate, weight_decay=section.weight_decay, mask=decayed))
        else:
            parts.append(optax.add_decayed_weights(section.weight_decay, mask=decayed))
            parts.append(
                optax.adam(rate)
                if section.name == "adam"
                else optax.sgd(rate, momentum=section.momentum, nesterov=section.nesterov)
            )
        if section.scalar_fraction != 1.0:
            parts.append(optax.masked(optax.scale(section.scalar_fraction), _scalars))
        return optax.chain(*parts)

    density = one("distribution")
    if first:
        density = optax.conditionally_mask(density, lambda step, **_: step >= first)
    return optax.multi_transform(
        {"classifier": one("classifier"), "distribution": density},
        {"classifier": "classifier", "distribution": "distribution"},
    )


def _kernels(params: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.ndim > 1, params)


def _scalars(params: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.size == 1, params)


def _rate(section: Config, total_steps: int, steps_per_epoch: int) -> optax.Schedule:
    """Return the learning rate as a function of the step."""
    start, warmup = section.learning_rate, section.warmup_steps
    if section.schedule == "cosine":
        rest = max(total_steps - warmup, 1)
        rate = optax.cosine_decay_schedule(start, rest, section.final_fraction)
    elif section.schedule == "step":
        every = section.decay_epochs * steps_per_epoch
        drops = {at: section.decay_factor for at in range(every, total_steps, every)}
        rate = optax.piecewise_constant_schedule(start, drops)
        if warmup:  # a drop that falls into it counts from its own step on
            warm = optax.linear_schedule(0.0, start, warmup)
            share = optax.piecewise_constant_schedule(1.0, drops)
            return optax.join_schedules(
                [lambda step: warm(step) * share(step), lambda step: rate(step + warmup)], [warmup]
            )
    else:
        rate = optax.constant_schedule(start)
    if not warmup:
        return rate
    return optax.join_schedules([optax.linear_schedule(0.0, start, warmup), rate], [warmup])
