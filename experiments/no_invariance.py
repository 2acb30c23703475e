"""A set without invariance: the label of a figure changes with every degree it is turned by.

    python -m experiments.run --config=experiments/no_invariance.py --workdir=runs/no_invariance

Mario-Iggy round the whole circle, one class per degree and figure: the only truth is half a degree
to either side. The verdict of a run, for every method alike: an invariance counts as found if the
learned half-range moves the rim of the picture by more than a pixel.
Rivals: --config.distribution.name=augerino, and so on.

Variants: none or `:cpu`, two minutes on two CPU cores; `:smoke`, seconds, to see that it runs.
"""

from experiments import mario_iggy
from experiments.setup import defaults, recipes


def get_config(variant: str = "") -> defaults.Config:
    """Return the config of a variant: "", "cpu" or "smoke"."""
    recipes.check_variant(variant, ("cpu", "smoke"))
    config = mario_iggy.get_config("smoke" if variant == "smoke" else "rivals")
    config.data.sectors, config.data.train_size, config.data.test_size = 360, 14_400, 720
    config.evaluation.poses, config.train.epochs = 10, 10
    config.objective.burn_in_epochs = 4  # until degrees are told apart
    # From within a few degrees, and slowly: a density that starts as wide as on other sets runs
    # from losses this steep, and may end with all pictures turned by one angle, which the
    # classifier then learns: it tells views, warped twice, from pictures.
    config.distribution.start_scale, config.distribution.start_half_range = 0.02, (0.02,)
    config.optimizer.distribution.learning_rate = 1e-3
    # A density as wide as what the classifier cannot tell times the root of 3 alpha: at the 0.8 of
    # the other sets, which have four classes, it is 5.5 degrees.
    config.controller.name, config.controller.value = "constant", 0.1
    # A density that shrinks to a point is right here: no alarm.
    config.alarms.entropy_floor_per_coordinate = -10.0
    if variant == "smoke":
        config.data.sectors, config.data.train_size, config.data.test_size = 12, 240, 48
        config.train.epochs, config.objective.burn_in_epochs = 2, 1
    return config
