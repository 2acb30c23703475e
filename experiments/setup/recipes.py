"""What several experiment files share: the recipe of Table 1, and how to shrink a run."""

from collections.abc import Sequence

from experiments.setup import defaults

__all__ = ["check_variant", "smoke", "table_1", "two_cores"]


def check_variant(variant: str, allowed: Sequence[str]) -> None:
    """Refuse a variant that an experiment file does not have.

    Raises:
        ValueError: naming the variants there are.
    """
    if variant not in ("", *allowed):
        raise ValueError(f'variant "{variant}" is unknown; allowed: {", ".join(allowed)}, or none.')


def table_1(name: str) -> defaults.Config:
    """Return what the runs of the flow paper's Table 1 have in common, on the prepared set `name`.

    The full affine group; a flow of 12 couplings on 10 Gaussians drawn by a straight-through
    Gumbel at 0.1; 20 views per image whose logits are averaged, without the original.

    Source: the flow paper's code (lila_exp.py, flow_invariance.py). Its conditioners have 32 hidden
        units where the paper says 64; here 64. Weight decay 1e-4 is its routine's default.
    """
    config = defaults.get_config()
    config.data.name, config.data.train_size, config.data.test_size = name, 0, 0
    config.transform.subgroup = "affine"
    config.distribution.temperature = 0.1
    config.objective.copies, config.objective.average = 20, "logits"
    config.objective.include_original = False
    config.controller.name = "constant"
    config.train.batch_size, config.train.log_every = 256, 20
    # An accelerator's epoch takes two seconds: what is measured and kept in between must not count.
    config.evaluation.every_epochs, config.train.checkpoint_every = 5, 1000
    classifier, density = config.optimizer.classifier, config.optimizer.distribution
    classifier.schedule, classifier.weight_decay, classifier.decay_all = "step", 1e-4, True
    density.name, density.learning_rate, density.schedule = "adam", 1e-4, "constant"
    config.evaluation.rules = ("plain", "code")
    config.evaluation.batch_size = 250
    config.evaluation.density_samples = 200
    return config


def two_cores(config: defaults.Config, *, epochs: int, learning_rate: float) -> defaults.Config:
    """Turn a recipe in place into one that two CPU cores finish in minutes.

    Four couplings and four views instead of 12 and 20. In so few steps the density must not first
    find its way back: it starts near the identity, moves at most a quarter of a half-width, learns
    as fast as the classifier, and the original images stay in the loss as its anchor.

    Args:
        config: from `table_1`.
        epochs: over the whole train split, the rates falling by a cosine.
        learning_rate: of the distribution.
    """
    config.data.choice, config.data.train_size = "first", 0
    config.distribution.layers, config.distribution.loc_std = 4, 0.1
    config.transform.translation_half_range = 0.25
    config.objective.copies, config.objective.include_original = 4, True
    config.evaluation.every_epochs, config.train.checkpoint_every = 1, 200
    config.train.epochs, config.objective.burn_in_epochs = epochs, 0
    config.optimizer.distribution.learning_rate = learning_rate
    for optimizer in (config.optimizer.classifier, config.optimizer.distribution):
        optimizer.schedule, optimizer.final_fraction = "cosine", 0.02
    return config


def smoke(config: defaults.Config) -> defaults.Config:
    """Shrink a config in place to about a minute on two cores, most of it compilation."""
    config.data.train_size, config.data.test_size = 64, 32
    config.train.epochs, config.train.batch_size, config.train.least_steps = 2, 16, 0
    config.train.log_every, config.train.checkpoint_every = 2, 4
    config.objective.copies, config.objective.burn_in_epochs = 2, 0
    config.classifier.width = min(config.classifier.width, 8)
    config.distribution.layers = min(config.distribution.layers, 1)
    evaluation = config.evaluation
    evaluation.batch_size, evaluation.num_samples, evaluation.every_epochs = 16, 3, 1
    evaluation.density_images, evaluation.density_samples = 16, 20
    return config
