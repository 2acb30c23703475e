"""CIFAR-10, Table 2: Augerino's 13-layer network. The paper reports 94.3 %.

    python -m flowjax_inv.data prepare cifar10 --from FOLDER_OF_THE_ARCHIVES
    python -m experiments.run --config=experiments/cifar10_layer13.py --workdir=runs/cifar10_layer13

Variants: none, the paper's recipe (a GPU); `:cpu`, 35 minutes on two cores, on the first 2,000
images; `:smoke`, to see that it runs.
"""

from experiments import cifar10
from experiments.report import papers
from experiments.setup import defaults, recipes


def get_config(variant: str = "") -> defaults.Config:
    """Return the config of a variant: "", "cpu" or "smoke"."""
    recipes.check_variant(variant, ("cpu", "smoke"))
    config = cifar10.get_config("")
    config.paper = papers.CIFAR10_LAYER13["flow"]
    config.classifier.name, config.classifier.width = "layer13", 128
    config.optimizer.classifier.scalar_fraction = 1.0
    config.objective.copies, config.train.batch_size = 5, 100
    config.evaluation.batch_size = 100
    if variant == "cpu":
        config.data.train_size, config.data.test_size = 2000, 1000
        config.distribution.layers, config.objective.copies = 4, 1
        config.train.epochs, config.objective.burn_in_epochs = 4, 1
        config.evaluation.num_samples, config.evaluation.rules = 5, ("plain",)
        for optimizer in (config.optimizer.classifier, config.optimizer.distribution):
            optimizer.schedule, optimizer.final_fraction = "cosine", 0.02
    return recipes.smoke(config) if variant == "smoke" else config
