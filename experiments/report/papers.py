"""What papers report, method by method: one table per experiment, in % where no unit stands.

An experiment's `config.paper` is the figure of its own method, taken from here; a run of another
method shows that method's.

Source: flow paper, Tables 1 and 2 (its random crop is `fixed` on crops); Augerino's paper.
"""

from collections.abc import Mapping
from typing import Any

__all__ = [
    "CIFAR10",
    "CIFAR10_LAYER13",
    "CIFAR10_LT",
    "FASHION_MNIST",
    "MNIST",
    "OLIVETTI",
    "ROT_MNIST",
    "TINY_IMAGENET",
    "paper_figure",
]

MNIST = {
    "identity": "99.1 ± 0.02 (baseline, Table 1)",
    "augerino": "98.3 ± 0.1 (Augerino, Table 1)",
    "flow": "99.2 ± 0.1 (flow, Table 1)",
}
FASHION_MNIST = {
    "identity": "89.6 ± 0.2 (baseline, Table 1)",
    "augerino": "90.1 ± 0.1 (Augerino, Table 1)",
    "flow": "92.3 ± 1.4 (flow, Table 1)",
}
CIFAR10 = {
    "identity": "74.1 ± 0.5 (baseline, Table 1)",
    "augerino": "79.0 ± 1 (Augerino, Table 1)",
    "flow": "86.8 ± 0.4 (flow, Table 1)",
}
CIFAR10_LT = {
    "identity": "70.8 ± 0.8 (baseline, Table 1)",
    "augerino": "63.6 ± 1.3 (Augerino, Table 1)",
    "flow": "78.1 ± 1 (flow, Table 1)",
}
CIFAR10_LAYER13 = {
    "identity": "90.6 (no augmentation, Table 2)",
    "augerino": "93.8 (Augerino, Table 2)",
    "flow": "94.3 (flow, Table 2)",
}
TINY_IMAGENET = {
    "identity": "55.1 (baseline, Table 1)",
    "fixed": "64.5 (random crop, Table 1)",
    "augerino": "55.0 (Augerino, Table 1)",
    "instaaug": "54.4 (InstaAug, Table 1)",
    "instaaug_lrp": "66.0 (InstaAug with LRP, Table 1)",
    "flow": "65.4 (flow, Table 1)",
    "flow_lrp": "66.0 (flow with LRP, Table 1)",
}
ROT_MNIST = {"augerino": "98.9 (Augerino, section 4.1)"}
OLIVETTI = {"augerino": "support 0.003 rad (Augerino, section 4.3)"}

_AFFINE = {"transform.subgroup": "affine", "data.rotated_degrees": 0.0}
_FIXUP = _AFFINE | {"data.name": "cifar10", "classifier.name": "fixup_resnet"}
_TABLES: tuple[tuple[Mapping[str, str], Mapping[str, Any]], ...] = (  # and what its configs share
    (MNIST, _AFFINE | {"data.name": "mnist", "classifier.name": "lenet", "data.long_tail": 1.0}),
    (FASHION_MNIST, _AFFINE | {"data.name": "fashion_mnist", "classifier.name": "lenet"}),
    (CIFAR10, _FIXUP | {"data.long_tail": 1.0}),
    (CIFAR10_LT, _FIXUP | {"data.long_tail": 10.0}),
    (CIFAR10_LAYER13, _AFFINE | {"data.name": "cifar10", "classifier.name": "layer13"}),
    (TINY_IMAGENET, {"data.name": "tiny_imagenet", "transform.name": "crop"}),
    (
        ROT_MNIST,
        {"data.name": "mnist", "data.rotated_degrees": 180.0, "transform.subgroup": "affine"},
    ),
    (OLIVETTI, {"data.name": "olivetti"}),
)

_FEWEST = 10_000  # train images: below, a run is about few labels


def paper_figure(results: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Return what is reported of a run's method; empty if nothing is.

    Args:
        results: `paper` and `method`, as in `results.json`. A `paper` that is in no table, set by
            hand, stands for itself.
        config: flat names to values; they tell the table of a run that states no `paper`. Rivals
            were run without one while the flow's was the only one that could be stated. Of few
            labels no paper says anything.
    """
    stated = str(results.get("paper") or "")
    if not stated and 0 < int(config.get("data.train_size") or 0) < _FEWEST:
        return ""
    for figures, fields in _TABLES:
        if stated in figures.values() or (not stated and fields.items() <= config.items()):
            return figures.get(str(results.get("method")), "")
    return stated
