"""What several experiment files share: the recipe of Table 1, and how to shrink a run."""

from collections.abc import Sequence

from experiments import defaults

__all__ = ["check_variant", "smoke", "table_1"]


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
    classifier, density = config.optimizer.classifier, config.optimizer.distribution
    classifier.schedule, classifier.weight_decay, classifier.decay_all = "step", 1e-4, True
    density.name, density.learning_rate, density.schedule = "adam", 1e-4, "constant"
    config.evaluation.rules = ("plain", "code")
    config.evaluation.batch_size = 250
    config.evaluation.density_samples = 200
    return config


def smoke(config: defaults.Config) -> defaults.Config:
    """Shrink a config in place to about a minute on two cores, most of it compilation."""
    config.data.train_size, config.data.test_size = 64, 32
    config.train.epochs, config.train.batch_size = 2, 16
    config.train.log_every, config.train.checkpoint_every = 2, 4
    config.objective.copies, config.objective.burn_in_epochs = 2, 0
    config.distribution.layers = min(config.distribution.layers, 2)
    evaluation = config.evaluation
    evaluation.batch_size, evaluation.num_samples = 16, 3
    evaluation.density_images, evaluation.density_samples = 16, 20
    return config
