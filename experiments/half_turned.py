"""Half of the classes turned, the others upright: does the density tell the images apart?

    python -m flowjax_inv.data prepare mnist --from FOLDER_OF_THE_ARCHIVES
    python -m experiments.run --config=experiments/half_turned.py:cpu --workdir=runs/half_turned

Images of the classes 0 to 4 are turned by any angle, in training and in the test, those of 5 to 9
stay upright; all are masked to their discs, so that no corner tells. The truth is the whole circle
for the former and 0 for the latter. One distribution for all images cannot have both.

Nothing in a classifier trained on its own views forbids to turn an upright image ever further:
what is seen widely becomes cheap to widen. So evenly turned images stay one more class, and a view
has to look likelier than those (`objective.reject_distorted`).

Variants: none or `:cpu`, MNIST, 5,000 labels, three minutes on two cores; `:rivals`, the same for
methods without that class, with one view more in its place: --config.distribution.name=augerino,
fixed, identity, flow; `:fashion_mnist` and `:fashion_mnist_rivals`; `:smoke`, to see that it runs.
One density for all images, of the flow's shape: --config.embedding.name=blind.
"""

from experiments import fashion_mnist, mnist
from experiments.setup import defaults, recipes

_VARIANTS = ("cpu", "rivals", "fashion_mnist", "fashion_mnist_rivals", "smoke")


def get_config(variant: str = "") -> defaults.Config:
    """Return the config of a variant: "", "cpu", "rivals", of Fashion-MNIST, or "smoke"."""
    recipes.check_variant(variant, _VARIANTS)
    chosen = fashion_mnist if variant.startswith("fashion_mnist") else mnist
    config = chosen.get_config("cpu")
    config.paper = ""
    config.data.choice, config.data.train_size = "first", 5_000
    config.data.rotated_degrees, config.data.rotated_classes = 180.0, "0-4"
    config.data.disc = config.embedding.circular_mask = True
    config.transform.subgroup, config.objective.average = "rotation", "losses"
    # One arc on the circle, without a seam.
    flow = config.distribution
    flow.bijection, flow.base, flow.bins = "spline", "unit_box", 16
    rivals = variant.endswith("rivals")
    config.objective.copies = 4 if rivals else 3
    config.objective.reject_distorted = "no" if rivals else "always"
    # Chosen on 2,000 held-out images, of the first set and of the second: the flow's among 0.25,
    # 0.35, 0.45, Augerino's among 0.05, 0.2, 0.5 (of the second 0.01 as well).
    alphas = (0.5, 0.05) if rivals else (0.45, 0.25)
    config.controller.name = "constant"
    config.controller.value = alphas[chosen is fashion_mnist]
    config.train.batch_size, config.train.log_every = 128, 40
    config.train.epochs, config.objective.burn_in_epochs = 40, 6
    config.optimizer.distribution.learning_rate = 2e-3
    config.evaluation.rules, config.evaluation.arc_images = ("plain",), 100
    # A density that shrinks to a point is right for half of the classes: no alarm.
    config.alarms.entropy_floor_per_coordinate = -10.0
    return recipes.smoke(config) if variant == "smoke" else config
