"""Learning without labels: two views of an image against those of all others, and a linear probe.

    python -m flowjax_inv.data prepare cifar10 --from FOLDER_OF_THE_ARCHIVES
    python -m experiments.run --config=experiments/contrast.py:flow --workdir=runs/contrast

An encoder learns to find, among 256 views, the one that shows the same image (SimCLR). What is
learned hangs on the views: alike, they are told apart by anything, and nothing is learned. So a
density must give views that differ, by the band that its entropy is kept in, and may choose which.
Afterwards a linear probe of the representation is fitted on the same images with their labels. It
stands for InstaAug's Tiny ImageNet (Table 5).

Variants: `:none`, views that are the image, which is to fail; `:fixed`, crops and colours at random
in a box, as everybody takes them; `:augerino`, `:instaaug`, `:flow`, that start narrower than that
box and are kept in a band about its entropy; none or `:cpu` is `:flow`, some minutes on one core;
`:smoke`, to see that it runs.
"""

import math

from experiments import cifar10
from experiments.setup import defaults, recipes

_METHODS = ("none", "fixed", "augerino", "instaaug", "flow")
# Half-ranges of brightness (intensities), contrast and saturation (log-gains) and hue (degrees).
_COLOURS = (0.4, 0.7, 0.7, 36.0)


def get_config(variant: str = "") -> defaults.Config:
    """Return the config of a variant: METHOD, "cpu" or "smoke"."""
    recipes.check_variant(variant, (*_METHODS, "cpu", "smoke"))
    method = variant if variant in _METHODS else "flow"
    config = cifar10.get_config("cpu")
    config.paper = ""
    config.data.choice, config.data.train_size, config.data.mirror = "random", 10_000, True
    config.transform.name, config.transform.min_size = "crop", 0.4
    config.transform.colours, config.transform.colour_half_range = "jitter", _COLOURS
    density = config.distribution
    density.name = "identity" if method == "none" else method
    density.start_half_range, density.start_scale, density.loc_std = (0.5,), 0.3, 0.3
    config.classifier.name, config.classifier.width = "simple_conv", 12
    config.classifier.features = 128
    config.objective.loss, config.objective.average = "contrast", "losses"
    config.objective.include_original = False
    config.objective.copies = 2
    config.controller.name, config.controller.value = "constant", 0.0
    if method in ("augerino", "instaaug", "flow"):
        # The box has 8 log 2 nats; a band a little below, where boxes have 0.7 to 0.8 of each side.
        config.controller.name = "band"
        config.controller.low, config.controller.high = (8 * math.log(2 * x) for x in (0.7, 0.8))
        config.controller.maximum = 2.0
    config.train.epochs, config.objective.burn_in_epochs, config.train.batch_size = 12, 1, 128
    config.train.log_every, config.train.checkpoint_every = 50, 1_000
    config.evaluation.every_epochs, config.evaluation.rules = 20, ("plain",)
    config.evaluation.num_samples = 10
    for optimizer in (config.optimizer.classifier, config.optimizer.distribution):
        optimizer.name, optimizer.learning_rate, optimizer.schedule = "adamw", 1e-3, "cosine"
        optimizer.scalar_fraction, optimizer.clip_norm = 1.0, 0.0
    if method in ("augerino", "instaaug"):
        # From half the box and by 1e-3 InstaAug widened to all of it in 70 steps, and stayed there.
        density.start_half_range = (0.75,)
        config.optimizer.distribution.learning_rate = 2e-4
    config.alarms.entropy_floor_per_coordinate = -10.0
    return recipes.smoke(config) if variant == "smoke" else config
