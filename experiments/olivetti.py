"""Olivetti faces: the angle of a face is learned, so no turn may be left in the density.

    python -m flowjax_inv.data prepare olivetti --from FOLDER_OF_THE_ARCHIVES
    python -m experiments.run --config=experiments/olivetti.py:cpu --workdir=runs/olivetti

Every face is turned 30 times within ±90 degrees; a network predicts the angle (squared error in
degrees) from turned and otherwise transformed views. Augerino's paper: the support of the rotation
shrinks to 0.003 rad, that of every other generator stays below 0.1. Others:
--config.distribution.name=flow.

Variants: none, the paper's 200 epochs and its widths; `:cpu`, 10 minutes on two cores; `:smoke`, to
see that it runs.
"""

from experiments.report import papers
from experiments.setup import defaults, recipes


def get_config(variant: str = "") -> defaults.Config:
    """Return the config of a variant: "", "cpu" or "smoke"."""
    recipes.check_variant(variant, ("cpu", "smoke"))
    config = defaults.get_config()
    config.paper = papers.OLIVETTI["augerino"]
    config.data.name, config.data.train_size, config.data.test_size = "olivetti", 0, 0
    # 45 of 64 pixels: no corner from outside tells the angle.
    config.data.repeats, config.data.rotated_degrees, config.data.centre_crop = 30, 90.0, 45
    config.transform.subgroup = "affine"
    config.classifier.batch_norm = True
    config.objective.loss, config.evaluation.average = "squared_error", "logits"
    config.objective.include_original = False
    config.distribution.name, config.distribution.bonus = "augerino", "code"
    # The others begin at full widths of 0.007, the rotation at 0.69 rad, as in its code.
    config.distribution.start_half_range = (0.0034, 0.0034, 0.11, 0.0034, 0.0034, 0.0034)
    config.controller.name, config.controller.value = "constant", 0.01
    config.train.epochs, config.train.batch_size = 200, 128
    for optimizer in (config.optimizer.classifier, config.optimizer.distribution):
        optimizer.name, optimizer.learning_rate, optimizer.schedule = "adam", 1e-2, "constant"
    config.evaluation.batch_size, config.evaluation.density_samples = 500, 200
    # A turn that may not be is right to vanish: no alarm.
    config.alarms.entropy_floor_per_coordinate = -10.0
    if variant == "cpu":
        config.classifier.width, config.train.epochs = 8, 20
        config.optimizer.classifier.schedule = "cosine"
        config.optimizer.classifier.final_fraction = 0.02
        # A width h shrinks by a rate that falls with h itself: in a tenth of the paper's steps it
        # comes as far only at a higher rate (at 1e-2: 0.067 rad after 20 epochs).
        config.optimizer.distribution.learning_rate = 0.2
    if variant == "smoke":
        recipes.smoke(config)
        config.data.repeats, config.objective.copies = 2, 1
    return config
