"""Three modes: figures turned into three arcs of ±30°; the density must find all of them.

    python -m experiments.run --config=experiments/three_modes.py --workdir=runs/three_modes

The classes alternate round the circle and touch: what lies between two arcs of one is an arc of the
other (the flow paper's Figure 3d). Rivals: --config.distribution.name=instaaug, and so on.
Variants: none or `:cpu`, a minute and a half on two quiet CPU cores; `:smoke`, seconds, to see it
run.
"""

from experiments import mario_iggy
from experiments.setup import defaults, recipes


def get_config(variant: str = "") -> defaults.Config:
    """Return the config of a variant: "", "cpu" or "smoke"."""
    recipes.check_variant(variant, ("cpu", "smoke"))
    config = mario_iggy.get_config(variant)
    config.data.modes, config.data.half_range_degrees = 3, 30.0
    mario_iggy.turns_alone(config)
    # A frozen classifier need not be a convolution. With this one a step takes less than a third
    # of the time, and what it allows, exp(-CE / alpha), has even masses at every pose as well.
    config.classifier.name, config.classifier.hidden = "mlp", (64, 64)
    # Where two arcs touch, a picture and its neighbour want densities with nothing in common: there
    # more images tell more than more epochs. The worst share of a run, off a third: 24,000 images
    # for thirteen epochs 0.015 to 0.045, 48,000 for seven, as many steps, 0.016 to 0.023; five runs
    # each.
    config.data.train_size, config.embedding.features = 48_000, 128
    # A circular spline alone stays in one mode: the mixture's components find the others. They
    # start everywhere on the circle, and their weights learn without bias: by straight-through
    # gradients the modes kept the shares they began with, up to 0.19 off a third.
    flow = config.distribution
    flow.bijection, flow.base, flow.components = "coupling", "mixture", 30
    flow.layers, flow.width, flow.circular_shift = 4, 32, False
    flow.loc_start, flow.gumbel, flow.temperature = "even", "score", 0.5
    flow.pathwise_entropy = True
    config.objective.copies, config.train.epochs, config.objective.burn_in_epochs = 8, 7, 1
    config.optimizer.distribution.learning_rate = 2e-3
    # High at first: no mode is left before it is judged.
    config.controller.name, config.controller.start, config.controller.end = "ramp", 1.5, 0.6
    # The worst of 864 shares is judged; each is then known to 0.004.
    config.evaluation.density_samples = 16_000
    if variant == "smoke":
        config.data.train_size, config.data.test_size = 48, 36  # 12 arcs in all
        config.train.epochs, config.objective.burn_in_epochs = 2, 1
        config.evaluation.density_samples = 50
    return config
