"""Fashion-MNIST, Table 1: LeNet, the full affine group. The paper reports 92.3 ± 1.4 %.

    python -m flowjax_inv.data prepare fashion_mnist --from FOLDER_OF_THE_ARCHIVES
    python -m experiments.run --config=experiments/fashion_mnist.py:cpu --workdir=runs/fashion_mnist

Variants: none, the paper's recipe (a GPU); `:cpu`, 11 minutes on two cores; `:smoke`, to see that
it runs. The control without augmentation: --config.distribution.name=identity.
"""

from experiments.report import papers
from experiments.setup import defaults, recipes


def get_config(variant: str = "") -> defaults.Config:
    """Return the config of a variant: "", "cpu" or "smoke"."""
    recipes.check_variant(variant, ("cpu", "smoke"))
    config = recipes.table_1("fashion_mnist")
    config.paper = papers.FASHION_MNIST["flow"]
    config.data.choice, config.data.train_size = "random", 50_000
    config.classifier.name = "lenet"
    config.transform.translation_half_range = 0.5
    config.distribution.loc_std = 0.5
    config.controller.value = 0.03
    config.train.epochs, config.objective.burn_in_epochs = 200, 10
    classifier, density = config.optimizer.classifier, config.optimizer.distribution
    # 0.03 is what the authors' script says, thirty times the usual rate of Adam.
    classifier.name, classifier.learning_rate = "adam", 0.03
    classifier.decay_epochs, classifier.decay_factor = 80, 0.05
    density.learning_rate = 1e-3
    if variant == "cpu":
        recipes.two_cores(config, epochs=10, learning_rate=2e-3)
        classifier.learning_rate = 2e-3
    return recipes.smoke(config) if variant == "smoke" else config
