"""Fully rotated MNIST: every digit turned once by any angle. Augerino reports 98.9 %.

    python -m flowjax_inv.data prepare mnist --from FOLDER_OF_THE_ARCHIVES
    python -m experiments.run --config=experiments/rot_mnist.py:cpu --workdir=runs/rot_mnist

The rotation should be learned up to the whole circle. Others: --config.distribution.name=flow.

Variants: none, the 13-layer network of the paper and its 75 epochs (a GPU); `:cpu`, an eighth as
wide, without dropout, ten epochs, eight minutes on two quiet CPU cores; `:smoke`, to see that it
runs. `:cpu` with --config.classifier.width=24 --config.train.epochs=20 reaches the paper's figure,
in 100 minutes where three runs share the cores.
"""

from experiments.report import papers
from experiments.setup import defaults, recipes


def get_config(variant: str = "") -> defaults.Config:
    """Return the config of a variant: "", "cpu" or "smoke"."""
    recipes.check_variant(variant, ("cpu", "smoke"))
    config = defaults.get_config()
    config.paper = papers.ROT_MNIST["augerino"]
    config.data.name, config.data.train_size, config.data.test_size = "mnist", 0, 0
    config.data.rotated_degrees = 180.0
    config.transform.subgroup = "affine"
    config.classifier.name, config.classifier.width = "layer13", 128
    config.objective.include_original = False
    config.distribution.name, config.distribution.bonus = "augerino", "code"
    # Full widths of 0.007, of the rotation 1.3 rad, as its code begins.
    config.distribution.start_half_range = (0.0034, 0.0034, 0.21, 0.0034, 0.0034, 0.0034)
    config.controller.name, config.controller.value = "constant", 0.1
    config.train.epochs, config.train.batch_size = 75, 50
    classifier, density = config.optimizer.classifier, config.optimizer.distribution
    for optimizer in (classifier, density):
        optimizer.name, optimizer.learning_rate, optimizer.schedule = "adam", 1e-2, "constant"
    classifier.weight_decay, classifier.decay_all = 1e-4, True
    config.evaluation.num_samples, config.evaluation.average = 12, "logits"
    config.evaluation.batch_size, config.evaluation.density_samples = 250, 200
    # All but the rotation start, and are right to stay, near nothing: no alarm.
    config.alarms.entropy_floor_per_coordinate = -10.0
    if variant == "cpu":
        # After 300 steps 61 % of the train images are right with dropout, without it 90 %.
        config.classifier.width, config.classifier.dropout_rate = 16, 0.0
        config.train.epochs, config.train.batch_size, config.train.log_every = 10, 128, 50
        classifier.name, classifier.learning_rate, classifier.weight_decay = "adamw", 5e-3, 1e-4
        classifier.schedule, classifier.final_fraction = "cosine", 0.02
    return recipes.smoke(config) if variant == "smoke" else config
