"""Your own pictures: FOLDER/CLASS/*.jpg in, a classifier and the density of every picture out.

    python -m experiments.run --config=experiments/pictures.py --config.data.dir=FOLDER

Pictures may have any size and kind; what cannot be read is named and left out. A fifth of every
class is drawn for the test split (--config.data.seed=1 draws another). They are padded to squares,
black, and shrunk to 32 pixels a side (--config.data.size=64), in colour (--config.data.channels=1:
grey). Learned are turns and shifts. The report in the run folder shows the person's own pictures:
views, how far each class may be turned and shifted, and pictures straightened by mean-shift.

Variants: none or `:cpu`, three minutes on two cores for a few hundred pictures, longer for more;
`:smoke`, seconds, to see that it runs.
"""

from experiments.setup import defaults, recipes


def get_config(variant: str = "") -> defaults.Config:
    """Return the config of a variant: "", "cpu" or "smoke"."""
    recipes.check_variant(variant, ("cpu", "smoke"))
    config = defaults.get_config()
    config.data.name, config.data.train_size, config.data.test_size = "picture_classes", 0, 0
    config.data.mean, config.data.std = (0.5,), (0.25,)
    config.transform.translation_half_range = 0.25
    config.classifier.width = 16
    # Few pictures are soon learned by heart: four views of each, and the density begins near them.
    config.objective.copies = 4
    flow = config.distribution
    flow.layers, flow.loc_std, flow.temperature = 4, 0.1, 0.1
    config.controller.name, config.controller.value = "constant", 0.1
    config.train.epochs, config.objective.burn_in_epochs = 20, 4
    # A hundred pictures are three steps an epoch: then there are more epochs.
    config.train.least_steps, config.train.batch_size, config.train.log_every = 1_000, 32, 20
    for optimizer in (config.optimizer.classifier, config.optimizer.distribution):
        optimizer.learning_rate, optimizer.final_fraction = 2e-3, 0.02
    config.evaluation.batch_size, config.evaluation.density_samples = 100, 500
    config.evaluation.straighten_shown = True
    if variant == "smoke":
        recipes.smoke(config)
        config.data.train_size = config.data.test_size = 0  # of the folder: all
        config.train.least_steps, config.train.batch_size = 0, 8
        config.evaluation.straighten_steps = 3
    return config
