"""Textures under lamps: which colours may an image take, and stay what it is?

    python -m experiments.run --config=experiments/lamps.py:flow --workdir=runs/lamps

Five patterns in four palettes, drawn by code and seen in the light of two lamps in training, of
forty others in the test. What a lamp changes can be learned from: by colours that move, brightness,
contrast, saturation, hue and the grey point, six coordinates in one density, for each image its
own. It stands for RawFooT, on which InstaAug learns colours.

Variants: `:none`, `:fixed`, a jitter of half the box in exposure and a quarter in the others,
`:augerino`, `:instaaug`, `:gaussian`, `:flow`; none or `:cpu` is `:flow`, two minutes on one core;
`:smoke`, to see that it runs. More lamps: --config.data.lamps=8.
"""

from experiments.setup import defaults, recipes

__all__ = ["METHODS", "get_config"]

METHODS = ("none", "fixed", "augerino", "instaaug", "gaussian", "flow")


def get_config(variant: str = "") -> defaults.Config:
    """Return the config of a variant: METHOD, "cpu" or "smoke"."""
    recipes.check_variant(variant, (*METHODS, "cpu", "smoke"))
    method = variant if variant in METHODS else "flow"
    config = defaults.get_config()
    config.data.name, config.data.train_size, config.data.test_size = "textures", 1_200, 1_000
    config.data.lamps, config.data.lamp_half_range = 4, 0.4
    config.data.mean, config.data.std = (0.35,), (0.2,)
    config.transform.name, config.transform.colours = "colour", "gains"
    config.distribution.name = "identity" if method == "none" else method
    config.distribution.start_half_range, config.distribution.start_scale = (0.1,), 0.05
    config.distribution.loc_std = 0.05
    if method == "fixed":
        half = (0.58,) * 3
        config.distribution.box_high = half
        config.distribution.box_low = tuple(-each for each in half)
    config.classifier.name, config.classifier.width = "simple_conv", 8
    config.objective.copies, config.controller.name, config.controller.value = 3, "constant", 0.03
    config.train.epochs, config.objective.burn_in_epochs, config.train.batch_size = 20, 3, 60
    config.train.log_every, config.train.checkpoint_every = 20, 400
    config.evaluation.every_epochs, config.evaluation.rules = 5, ("plain",)
    for optimizer in (config.optimizer.classifier, config.optimizer.distribution):
        optimizer.learning_rate, optimizer.final_fraction = 2e-3, 0.02
    config.alarms.entropy_floor_per_coordinate = -10.0
    return recipes.smoke(config) if variant == "smoke" else config
