"""Points in space: how far may a cluster or a molecule be turned, sheared, scaled, and be the same?

    python -m experiments.run --config=experiments/molecules.py:energy_augerino

Twelve coordinates, any linear map and shift of space, in one density; the network knows nothing but
that the order of the points does not matter. Clusters of charged points are drawn by code: their
energies do not change when they are turned, and their dipoles turn along, so that those of a view
are brought back before they are judged. Nothing else leaves either as it is. It stands for QM9, on
which Augerino learns turns.

Variants: VALUE_METHOD. Values: energy and dipole, of clusters; ase, energies of the small molecules
of the package `ase` (pip install "flowjax_inv[molecules]"), trained as the package has them and
tested turned. Methods: none; fixed, all turns given; augerino, instaaug, flow. None or `:cpu` is
`:energy_augerino`, two minutes on one core; `:smoke`, to see that it runs.
"""

from experiments.setup import defaults, recipes

_VALUES = ("energy", "dipole", "ase")
_METHODS = ("none", "fixed", "augerino", "instaaug", "flow")


def get_config(variant: str = "") -> defaults.Config:
    """Return the config of a variant: VALUE_METHOD, "cpu" or "smoke"."""
    known = {f"{value}_{method}": (value, method) for value in _VALUES for method in _METHODS}
    recipes.check_variant(variant, (*known, "cpu", "smoke"))
    value, method = known.get(variant, ("energy", "augerino"))
    config = defaults.get_config()
    config.data.name = "molecules" if value == "ase" else "clusters"
    config.data.value = "dipole" if value == "dipole" else "energy"
    config.data.train_size, config.data.test_size = 1_000, 1_000
    config.transform.name, config.transform.subgroup = "points", "affine"
    config.transform.translation_half_range = 1.0
    density = config.distribution
    density.name = "identity" if method == "none" else method
    density.start_half_range, density.start_scale, density.loc_std = (0.1,), 0.1, 0.1
    if method == "fixed":
        config.transform.subgroup = "rotation"
    config.classifier.name, config.classifier.width = "pair_net", 48
    config.embedding.name, config.embedding.width = "pair_net", 16
    config.objective.loss, config.objective.vectors = "absolute_error", value == "dipole"
    config.objective.copies = 2
    config.controller.name, config.controller.value = "constant", 0.02
    if value == "ase" and method not in ("none", "fixed"):
        config.controller.value = 0.005  # by 0.02 every range grows to its end
    config.train.epochs, config.objective.burn_in_epochs, config.train.batch_size = 200, 20, 100
    config.train.log_every, config.train.checkpoint_every = 50, 1_000
    config.evaluation.every_epochs, config.evaluation.rules = 20, ("plain",)
    config.evaluation.average = "logits"
    for optimizer in (config.optimizer.classifier, config.optimizer.distribution):
        optimizer.learning_rate, optimizer.final_fraction = 3e-3, 0.02
    if method == "augerino":  # its twelve numbers would not reach as far
        config.optimizer.distribution.learning_rate = 1e-2
    config.alarms.entropy_floor_per_coordinate = -10.0
    return recipes.smoke(config) if variant == "smoke" else config
