"""Mario-Iggy: two figures turned by up to +-R degrees; the density must find where a class ends.

    python -m experiments.run --config=experiments/mario_iggy.py --workdir=runs/mario_iggy

Variants: none, two minutes on two CPU cores; `:paper`, the paper's flow (four couplings, learned
uniform box) on the same budget; `:smoke`, some seconds, to see that it runs.
Other sets: --config.data.half_range_degrees=45; three modes: --config.data.modes=3
--config.data.half_range_degrees=30. Rotation alone: --config.transform.subgroup=rotation.
"""

import ml_collections

from experiments import defaults


def get_config(variant: str = "") -> ml_collections.ConfigDict:
    """Return the config of a variant: "", "paper" or "smoke"."""
    config = defaults.get_config()
    return config
