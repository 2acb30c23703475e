"""Long-tailed CIFAR-10 (rho 10), Table 1: as cifar10.py. The paper reports 78.1 ± 1 %.

    python -m flowjax_inv.data prepare cifar10 --from FOLDER_OF_THE_ARCHIVES
    python -m experiments.run --config=experiments/cifar10_lt.py:cpu --workdir=runs/cifar10_lt

Variants: none, the paper's recipe (a GPU); `:cpu`, 20 minutes on two cores; `:smoke`, to see that
it runs. The longer tail: --config.data.long_tail=100.
"""

from experiments import cifar10
from experiments.report import papers
from experiments.setup import defaults, recipes


def get_config(variant: str = "") -> defaults.Config:
    """Return the config of a variant: "", "cpu" or "smoke"."""
    recipes.check_variant(variant, ("cpu", "smoke"))
    config = cifar10.get_config("cpu" if variant == "cpu" else "")
    config.paper = papers.CIFAR10_LT["flow"]
    config.data.long_tail = 10.0
    if variant == "cpu":
        config.train.epochs, config.objective.burn_in_epochs = 12, 2  # of 20,431 images
    else:
        config.transform.translation_half_range = 0.5
        config.distribution.loc_std = 0.5
        config.controller.value = 0.05
        config.train.epochs = 100
        config.optimizer.classifier.decay_factor = 0.05
    return recipes.smoke(config) if variant == "smoke" else config
