"""Rotation discovery: which entries of a matrix are tied, found from pictures and labels alone.

    python -m experiments.run --config=experiments/rotation_discovery.py --workdir=runs/discovery
    python -m experiments.sweep --config=experiments/rotation_discovery.py \
        --grid "controller.value=0.01,0.03,0.1,0.3;distribution.name=flow,gaussian,instaaug"

The density moves free entries b and d of the matrix's logarithm; turns are the line b = -d (the
flow paper's Figures 3b and 5). The classifier is trained first, then frozen, and a sample is judged
by its distance to the nearest rotation, beside the range of turns that was learned: a wider
density is further off.

The paper's classifier tolerates shears that keep a figure recognisable. Here its labels are
smoothed: it may then be too sure of itself, and what does not look like the data costs
(--config.objective.label_smoothing=0 is the paper's). Four outputs do not hold six entries, though:
`:all`, which frees all of them, teaches the classifier a fifth class instead, of images distorted
evenly over the box, and takes eight views an image. Variants: none or `:cpu`, two minutes on two
cores, `:all` three; `:smoke`, to see that it runs.
"""

from experiments import mario_iggy
from experiments.setup import defaults, recipes


def get_config(variant: str = "") -> defaults.Config:
    """Return the config of a variant: "", "cpu", "all" or "smoke"."""
    recipes.check_variant(variant, ("cpu", "all", "smoke"))
    config = mario_iggy.get_config("smoke" if variant == "smoke" else "")
    config.data.half_range_degrees = 45.0
    config.transform.name = "decoupled"
    config.transform.entries = "abcdef" if variant == "all" else "bd"
    config.classifier.name, config.classifier.hidden = "mlp", (256, 256)
    flow = config.distribution
    flow.bijection, flow.base, flow.components = "coupling", "mixture", 30
    flow.layers, flow.width, flow.circular_shift = 12, 32, False
    flow.loc_start, flow.loc_std, flow.start_scale, flow.tanh_width = "random", 0.2, 0.1, 1.0
    config.objective.freeze_classifier, config.objective.label_smoothing = True, 0.1
    config.objective.burn_in_epochs = 5
    config.train.epochs, config.train.batch_size = 20, 128
    config.controller.name, config.controller.value = "constant", 0.03
    if variant == "all":
        config.objective.label_smoothing, config.objective.reject_distorted = 0.0, "burn_in"
        # Adam divides a small bonus by the noise of the cross-entropy; eight views leave less of
        # it. By one, a density of 35.5 degrees is 0.126 from turns, by eight 0.106.
        config.objective.copies = 8
        config.controller.value = 0.6
    if variant == "smoke":
        config.train.epochs, config.train.batch_size = 2, 32
        config.objective.burn_in_epochs, flow.layers = 1, 2
    return config
