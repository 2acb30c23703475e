"""Mario-Iggy: two figures turned by up to +-R degrees; the density must find where a class ends.

    python -m experiments.run --config=experiments/mario_iggy.py --workdir=runs/mario_iggy

Variants: none or `:cpu`, two minutes on two cores; `:paper`, the paper's flow (four couplings on
a learned uniform box) on the same budget; `:rivals`, for every --config.distribution.name alike,
the first epoch without views, as InstaAug needs it; `:rotation`, turns alone and the classifier
frozen after its first epoch: the sharpest density, whose mean-shift ends within two degrees and,
trained on 45 degrees, makes turned digits of a class differ less pixel by pixel, though not in
their angles; `:smoke`, seconds, to see that it runs.
Other sets: --config.data.half_range_degrees=45.
"""

from experiments.setup import defaults, recipes


def get_config(variant: str = "") -> defaults.Config:
    """Return the config of a variant: "", "cpu", "paper", "rivals", "rotation" or "smoke"."""
    recipes.check_variant(variant, ("cpu", "paper", "rivals", "rotation", "smoke"))
    config = defaults.get_config()
    # The authors train 250 epochs at 1e-3 with a controlled alpha. On two cores there is time for
    # seven, so the rates are three times theirs and alpha rises with what the classifier can bear.
    # After four the range is as exact, but turned copies of a figure end 2.5 degrees apart.
    config.train.epochs, config.train.batch_size = 7, 64
    config.classifier.width = 8
    for optimizer in (config.optimizer.classifier, config.optimizer.distribution):
        optimizer.learning_rate, optimizer.final_fraction = 3e-3, 0.02
    # Half a half-width: from further out a thin figure cannot be told up from down, and the density
    # of a classifier that cannot tell runs away.
    config.transform.translation_half_range = 0.5
    config.controller.name, config.controller.start, config.controller.end = "ramp", 0.3, 0.8
    flow = config.distribution
    flow.base = "box"
    if variant == "paper":
        flow.layers, flow.width = 4, 32
    else:
        flow.bijection, flow.layers, flow.bins = "spline", 2, 8
        flow.tanh_width = 0.5  # the box, at its widest, then reaches 0.96 of the way to the edge
        flow.circular_shift = True
    if variant == "rivals":
        config.train.epochs = 4
        # A range of InstaAug's grows both ways: with a classifier that knows little yet it is the
        # whole circle within 40 steps, and stays so. By a bonus of 0.3 from the first step two
        # seeds of three end off the arc (Wasserstein 16 and 19 degrees).
        config.objective.burn_in_epochs = 1
        config.controller.start = 0.1
    if variant == "rotation":
        turns_alone(config)
        config.objective.copies, config.train.epochs = 8, 8
        config.controller.start, config.controller.end = 1.0, 0.6
    if variant == "smoke":
        flow.layers = 1  # compiles faster
        config.data.train_size, config.data.test_size = 64, 40
        config.train.epochs, config.train.batch_size = 2, 8
        config.train.log_every, config.train.checkpoint_every = 4, 5
        config.evaluation.poses, config.evaluation.density_samples = 6, 50
        config.evaluation.batch_size, config.evaluation.num_samples = 20, 3
        config.evaluation.straighten_steps = 0
    return config


def turns_alone(config: defaults.Config) -> None:
    """Change a config to turns alone, the classifier frozen after its first epochs."""
    config.transform.subgroup = "rotation"
    embedding = config.embedding
    embedding.name, embedding.activation, embedding.features = "lenet", "relu", 72
    config.optimizer.distribution.learning_rate = 1e-3
    # The classifier first, then frozen, as the authors do with three modes: one that sees every
    # view as its class learns to tolerate what lies outside, and the density then blurs and moves
    # with no pose.
    config.objective.freeze_classifier, config.objective.burn_in_epochs = True, 1
