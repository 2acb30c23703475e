"""MNIST, Table 1: LeNet, the full affine group. The paper reports 99.2 ± 0.1 %.

    python -m flowjax_inv.data prepare mnist --from FOLDER_OF_THE_ARCHIVES
    python -m experiments.run --config=experiments/mnist.py:cpu --workdir=runs/mnist

Variants: none, the paper's recipe (a GPU); `:cpu`, 10 minutes on two cores; `:smoke`, to see that
it runs. The control without augmentation: --config.distribution.name=identity.
"""

from experiments.report import papers
from experiments.setup import defaults, recipes


def get_config(variant: str = "") -> defaults.Config:
    """Return the config of a variant: "", "cpu" or "smoke"."""
    recipes.check_variant(variant, ("cpu", "smoke"))
    config = recipes.table_1("mnist")
    config.paper = papers.MNIST["flow"]
    config.data.choice, config.data.train_size = "random", 50_000
    config.classifier.name = "lenet"
    config.distribution.loc_std = 0.5
    config.controller.value = 0.01
    config.train.epochs, config.objective.burn_in_epochs = 100, 1
    config.optimizer.classifier.name = "adam"
    config.optimizer.classifier.decay_epochs = 20
    if variant == "cpu":
        recipes.two_cores(config, epochs=10, learning_rate=2e-3)
        config.optimizer.classifier.learning_rate = 2e-3
        config.controller.value = 0.03
    return recipes.smoke(config) if variant == "smoke" else config
