"""Scenes with a label for every pixel: outputs that turn back with what turned the image.

    python -m experiments.run --config=experiments/scenes.py:flow --workdir=runs/scenes

Figures and digits lie on a rough ground, and each scene was turned once for all, by N(0, 1)
radians. A small U-Net labels every pixel of a view; its map is brought back by the inverse of the
view's transform, and the loss is there. So a transform costs only what the network cannot undo, and
the prediction averaged over views moves with the image. It stands for rotCamVid, on which Augerino
shows the same.

Variants: `:none`; `:fixed`, every turn of the circle given; `:augerino`, `:gaussian`, `:flow`; none
or `:cpu` is `:flow`, two to three minutes on one core; `:smoke`, to see that it runs. Shifts as
well: --config.transform.subgroup=rotation_translation.

Tried with scenes of another seed: of the flow and Augerino an alpha of 0.05, with 256 scenes and
fewer steps; of these and the Gaussian 0.1; of Augerino 0.5, in which its half-range is 70 degrees
for 20, and its maps are better.
"""

from experiments.setup import defaults, recipes

_METHODS = ("none", "fixed", "augerino", "gaussian", "flow")


def get_config(variant: str = "") -> defaults.Config:
    """Return the config of a variant: METHOD, "cpu" or "smoke"."""
    recipes.check_variant(variant, (*_METHODS, "cpu", "smoke"))
    method = variant if variant in _METHODS else "flow"
    config = defaults.get_config()
    config.data.name, config.data.train_size, config.data.test_size = "scenes", 128, 512
    config.data.seed = 1
    config.data.mean, config.data.std = (0.4,), (0.2,)
    config.transform.subgroup = "rotation"
    density = config.distribution
    density.name = "identity" if method == "none" else method
    config.classifier.name, config.classifier.width = "unet", 12
    config.objective.maps, config.objective.copies = True, 1
    config.controller.name, config.controller.value = "constant", 0.1
    if method == "augerino":
        config.controller.value = 0.5
    config.train.epochs, config.objective.burn_in_epochs, config.train.batch_size = 240, 40, 32
    config.train.log_every, config.train.checkpoint_every = 40, 480
    config.evaluation.every_epochs, config.evaluation.rules = 20, ("plain",)
    for optimizer in (config.optimizer.classifier, config.optimizer.distribution):
        optimizer.learning_rate, optimizer.final_fraction = 3e-3, 0.02
    config.evaluation.batch_size = 64
    config.alarms.entropy_floor_per_coordinate = -10.0
    return recipes.smoke(config) if variant == "smoke" else config
