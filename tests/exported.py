"""What is exported in tests: a tiny classifier, density and transform; a predictor of them."""

from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from flowjax_inv import export
from flowjax_inv.data.pixels import Normalization
from flowjax_inv.distributions.box import Identity
from flowjax_inv.distributions.circular import Circular
from flowjax_inv.distributions.flow import Flow
from flowjax_inv.inference import make_predict
from flowjax_inv.networks import PolarConv, SimpleConv
from flowjax_inv.transforms import Affine, Crop

SHAPE = (9, 8, 1)
IMAGES = np.random.RandomState(0).randint(0, 256, (3, *SHAPE)).astype(np.uint8)
NAMES = ("one", "two", "three")
NORMALIZATION = Normalization((0.4,), (0.3,))
SPLINE = {"bijection": "spline", "bins": 4, "base": "box", "circular_shift": True}
COUPLING = {"bijection": "coupling", "base": "mixture", "components": 2}

# Transform and flow: both bijections, all bases, the circle, a matrix exponential, and the crop.
CASES: dict[str, tuple[Any, dict[str, Any] | None]] = {
    "affine_coupling": (Affine("affine"), COUPLING),
    "turns_spline": (Affine("rotation_translation"), SPLINE),
    "crop_spline": (Crop(), SPLINE | {"base": "unit_box", "circular_shift": False}),
    "crop_coupling": (Crop(padding="border"), COUPLING | {"gumbel": "relaxed"}),
    "identity": (Affine("translation"), None),
    "circular": (Affine("rotation"), None),
}


def parts(name: str, *, batch_norm: bool = False, conv: Any = "lax") -> tuple[Any, Any, Any]:
    """A classifier, a density and a transform, tiny."""
    transform, fields = CASES[name]
    classifier = SimpleConv(3, width=1, batch_norm=batch_norm, conv=conv)
    if name == "circular":
        return classifier, Circular(dim=1, embed=PolarConv(8, width=1, mirrored=True)), transform
    if fields is None:
        return classifier, Identity(dim=transform.dim), transform
    flow = Flow(
        dim=transform.dim, periodic=transform.periodic, layers=2, width=4,
        embed=SimpleConv(4, width=1, conv=conv), **fields,
    )  # fmt: skip
    return classifier, flow, transform


def variables(classifier: nn.Module, distribution: nn.Module, seed: int = 0) -> dict[str, Any]:
    """Weights, moved away from their start, where nothing hangs on the image."""
    keys = jax.random.split(jax.random.key(seed))
    images = jnp.zeros((1, *SHAPE))
    start = {
        "classifier": jax.jit(classifier.init)(keys[0], images),
        "distribution": jax.jit(distribution.init)(keys[1], images),
    }
    leaves, structure = jax.tree.flatten(start)
    noise = np.random.RandomState(seed)
    moved = [leaf + 0.3 * noise.normal(size=leaf.shape).astype("f4") for leaf in leaves]
    return jax.tree.unflatten(structure, moved)


def written(folder: Path, name: str = "turns_spline", **fields: Any) -> tuple[Path, Any, Any]:
    """Write a predictor; return its folder, the library's own function, and the weights."""
    modules = parts(name)
    weights = variables(*modules[:2])
    rule: dict[str, Any] = {"num_samples": 2} | fields
    export.write_predictor(
        folder, *modules, weights, image_shape=SHAPE, class_names=NAMES,
        normalization=NORMALIZATION, **rule,
    )  # fmt: skip
    return folder, make_predict(*modules, **rule), weights
