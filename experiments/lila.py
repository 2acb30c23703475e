"""LILA: a range for all images, learned by the evidence; and what the other methods find there.

    python -m flowjax_inv.data prepare mnist --from FOLDER_OF_THE_ARCHIVES
    python -m experiments.run --config=experiments/lila.py:rotated_lila

MNIST of 1,250 images, each moved once for all, and a network with one hidden layer. Every image is
seen from eight sides, and the mean of the logits counts. The weights are the most probable ones
under a normal prior; every ten steps the range climbs the marginal likelihood of the images, by
Laplace's approximation, and so does the prior's precision. There is no bonus, no alpha, and nothing
held out.

Variants: MOVED_METHOD. MOVED, as in experiments/invariant_weights.py: `:regular_lila`,
`:rotated_lila` (any angle), `:half_rotated_lila` (+-90 degrees), `:translated_lila` (+-8/14 of a
half-width), `:scaled_lila` (by 1/2 to 2; the whole affine group is learned). METHOD: lila, or on
the same images, steps and network none, `:rotated_none`; fixed, the true range given (regular: 14
degrees); augerino, instaaug, gaussian, flow, with the alpha of experiments/few_labels.py for MNIST;
or weights, the bound of experiments/invariant_weights.py by the first recipe of it, 512 features.
None or `:cpu` is `:rotated_lila`, six minutes on one core; `:smoke`, to see that it runs. More
images: --config.data.train_size=5000 --config.train.epochs=100.

LILA's own recipe for such a network has 1,000 hidden units, 31 views and 1,000 epochs.
"""

import math

from experiments import few_labels, invariant_weights
from experiments.setup import defaults, recipes

__all__ = ["METHODS", "MOVED", "get_config"]

# What the images were moved by, as shares of the box: of turns, of shifts, of log-scales.
MOVED = {
    "regular": 0.08, "rotated": 1.0, "half_rotated": 0.5, "translated": 8 / 14,
    "scaled": math.log(2.0),
}  # fmt: skip
METHODS = ("none", "fixed", "augerino", "instaaug", "gaussian", "flow", "weights", "lila")
_VIEWS = 8
_LEAST = 1e-3  # of the box: coordinates along which nothing was moved


def get_config(variant: str = "") -> defaults.Config:
    """Return the config of a variant: MOVED_METHOD, "cpu" or "smoke"."""
    known = {f"{moved}_{method}": (moved, method) for moved in MOVED for method in METHODS}
    recipes.check_variant(variant, (*known, "cpu", "smoke"))
    moved, method = known.get(variant, ("rotated", "lila"))
    config = invariant_weights.get_config(moved)
    config.data.choice, config.data.train_size = "random", 1_250
    config.train.epochs, config.train.batch_size = 250, 125
    config.objective.copies, config.evaluation.every_epochs = _VIEWS, 10
    for optimizer in (config.optimizer.classifier, config.optimizer.distribution):
        optimizer.learning_rate, optimizer.scalar_fraction = 1e-2, 1.0
    if method == "weights":
        classifier = config.classifier
        classifier.width, classifier.frequency, classifier.variance = 512, 0.3, 1.0
        return config
    config.classifier.name, config.classifier.hidden = "mlp", (256,)
    config.classifier.activation = "tanh"
    config.objective.burn_in_epochs = 10
    config.optimizer.classifier.learning_rate = 3e-3
    if method == "lila":
        config.objective.judge, config.laplace.rate = "evidence", 0.15
        return recipes.smoke(config) if variant == "smoke" else config
    config.objective.average, config.objective.include_original = "losses", True
    config.objective.copies = _VIEWS - 1
    config.optimizer.distribution.learning_rate = 2e-3
    config.distribution.name = "identity" if method == "none" else method
    if method == "fixed":
        half = MOVED[moved]
        box = {"translated": (half, half), "scaled": (*(_LEAST,) * 3, half, *(_LEAST,) * 2)}
        config.distribution.box_high = box.get(moved, (half,))
        config.distribution.box_low = tuple(-h for h in config.distribution.box_high)
    elif method != "none":
        config.controller.value = few_labels.CHOSEN["mnist"][method]
    return config
