"""A frozen classifier, and which crops and colours it should be shown at test time.

    python -m flowjax_inv.data prepare cifar10 --from FOLDER_OF_THE_ARCHIVES
    python -m experiments.run --config=experiments/frozen.py:cifar10_flow --workdir=runs/frozen

A classifier is trained without views and stays as it is; then a density learns by images that the
classifier never saw, a fifth of those given, which views of an image are classified like the image.
Accuracy is measured of the image as it is, and over 5, 10 and 50 views of which it is the first. It
stands for ImageNet's classifiers under InstaAug (Table 2), where crops at random cost accuracy and
learned ones win some.

Variants: SET_METHOD. Sets: cifar10, tiny_imagenet (20 classes). Methods: none, the image as it is;
five and ten, the fixed crops that everybody takes; random, crops of any place and of sizes from 0.9
of the side; instaaug, gaussian and flow, that learn place and size in the same box by the loss of
the average over views; colour, the flow over colours as well; score, the flow by the score function
of the loss of each, which asks the classifier for no gradient. None or `:cpu` is `:cifar10_flow`;
`:smoke`, to see that it runs.
"""

from experiments import cifar10
from experiments.setup import defaults, recipes

_SETS = ("cifar10", "tiny_imagenet")
_FIXED = {"five": (0.9375,), "ten": (0.9375, 0.875)}
_LEARNED = ("instaaug", "gaussian", "flow", "colour", "score")
_METHODS = ("none", *_FIXED, "random", *_LEARNED)
_OTHERS = {
    "none": "identity", "five": "crop_grid", "ten": "crop_grid", "random": "fixed",
    "colour": "flow", "score": "flow",
}  # fmt: skip


def get_config(variant: str = "") -> defaults.Config:
    """Return the config of a variant: SET_METHOD, "cpu" or "smoke"."""
    known = {f"{data}_{method}": (data, method) for data in _SETS for method in _METHODS}
    recipes.check_variant(variant, (*known, "cpu", "smoke"))
    data, method = known.get(variant, ("cifar10", "flow"))
    config = cifar10.get_config("cpu")
    config.paper = ""
    config.data.name, config.data.choice = data, "random"
    config.data.train_size = 12_500 if data == "cifar10" else 0
    if data == "tiny_imagenet":
        config.data.classes = "0-19"
    config.transform.name, config.transform.min_size = "crop", 0.9
    density = config.distribution
    density.name = _OTHERS.get(method, method)
    density.start_half_range, density.start_scale, density.loc_std = (0.05,), 0.05, 0.05
    config.objective.freeze_classifier, config.objective.frozen_share = True, 0.2
    config.objective.average, config.objective.copies = "losses", 1
    config.controller.name, config.controller.value = "constant", 0.01
    if method in _FIXED:
        config.transform.min_size = 0.2
        density.sizes = _FIXED[method]
    elif method in _LEARNED:
        density.start_half_range, density.start_scale, density.loc_std = (0.5,), 0.2, 0.1
        config.objective.average, config.objective.copies = "probs", 4  # as at the test
        config.controller.value = 0.1
    config.transform.colour_half_range = (0.3,) * 3
    if method == "colour":
        config.transform.colours = "gains"
    if method == "score":
        config.objective.gradient, config.objective.average = "score", "losses"
    config.train.batch_size, config.train.log_every = 128, 100
    config.train.epochs, config.objective.burn_in_epochs, config.train.least_steps = 16, 14, 1_700
    config.train.checkpoint_every = 500
    config.evaluation.every_epochs, config.evaluation.rules = 100, ("plain",)
    config.evaluation.spread, config.evaluation.view_counts = "stratified", (5, 10, 50)
    config.evaluation.num_samples, config.data.test_size = 10, 2_500 if data == "cifar10" else 0
    # The classifier's rate has fallen by then; so would that of the density.
    config.optimizer.classifier.clip_norm = 4.0
    config.optimizer.distribution.schedule = "constant"
    config.alarms.entropy_floor_per_coordinate = -10.0  # to have learned nothing is an answer here
    if variant == "smoke":
        recipes.smoke(config)
        config.objective.burn_in_epochs, config.objective.frozen_share = 1, 0.5
        config.evaluation.view_counts = (5,)
    return config
