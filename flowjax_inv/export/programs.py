"""The programs that are exported: the averaged predictor, and the aligner."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from flowjax_inv.data.pixels import Normalization
from flowjax_inv.export.files import write
from flowjax_inv.inference import Average, mean_shift, predict
from flowjax_inv.transforms import Chain, Spatial, Transform

__all__ = ["with_plain_convolutions", "write_aligner", "write_predictor"]


def write_predictor(
    folder: str | Path,
    classifier: nn.Module,
    distribution: nn.Module,
    transform: Transform,
    variables: Mapping[str, Any],
    *,
    image_shape: Sequence[int],
    class_names: Sequence[str],
    num_samples: int,
    average: Average = "probs",
    include_original: bool = False,
    max_norm: float | None = None,
    normalization: Normalization = Normalization(),  # noqa: B008  # frozen
) -> Path:
    """Write `inference.predict` for two Linen modules, normalisation of pixels included.

    Args:
        folder: to be made.
        classifier, distribution: Linen modules.
        transform: theta -> views.
        variables: {"classifier": variables, "distribution": variables}.
        image_shape: (H, W, C).
        class_names: one per logit.
        num_samples, average, include_original, max_norm: as in `inference.predict`.
        normalization: of stored pixels.

    Returns:
        The folder. Its program gives {"probabilities": (N, classes) float32}, equal to those of
        `inference.make_predict` with the same key.

    Raises:
        FileExistsError: if the folder is there.
        ImportError: without flatbuffers or safetensors.
        ValueError: if there are more or fewer names than logits; as `inference.predict`.
    """
    classifier = with_plain_convolutions(classifier)
    distribution = with_plain_convolutions(distribution)

    def predictor(
        variables: Mapping[str, Any], images: jax.Array, key: jax.Array
    ) -> dict[str, jax.Array]:
        probabilities = predict(
            _applied(classifier, variables["classifier"]),
            _applied(distribution, variables["distribution"]),
            transform,
            normalization(images),
            key=key,
            num_samples=num_samples,
            average=average,
            include_original=include_original,
            max_norm=max_norm,
        )
        if probabilities.shape[-1] != len(class_names):
            raise ValueError(
                f"class_names are {len(class_names)}, the classifier's logits "
                f"{probabilities.shape[-1]}; give one name for each."
            )
        return {"probabilities": probabilities}

    about = {
        "kind": "averaged predictor",
        "class_names": list(class_names),
        **_conventions(transform, normalization),
        "average": {
            "over": average,
            "num_samples": num_samples,
            "include_original": include_original,
            "max_norm": max_norm,
        },
    }
    outputs = {"probabilities": "of the classes, in the order of class_names"}
    return write(
        folder, predictor, variables, image_shape=image_shape, outputs=outputs, about=about
    )


def write_aligner(
    folder: str | Path,
    distribution: nn.Module,
    transform: Transform,
    variables: Any,
    *,
    image_shape: Sequence[int],
    normalization: Normalization = Normalization(),  # noqa: B008  # frozen
    **fields: Any,
) -> Path:
    """Write `inference.mean_shift` for a Linen module, normalisation of pixels included.

    Args:
        folder: to be made.
        distribution: Linen module.
        transform: theta -> views.
        variables: of the distribution.
        image_shape: (H, W, C).
        normalization: of stored pixels.
        **fields: of `inference.mean_shift`: steps, num_samples, step_size ...

    Returns:
        The folder. Its program gives "theta" (N, d), "images" (N, H, W, C) uint8 and "converged"
        (N,), equal to those of `inference.make_mean_shift` with the same key.

    Raises:
        FileExistsError: if the folder is there.
        ImportError: without flatbuffers or safetensors.
        TypeError, ValueError: as `inference.mean_shift`.
    """
    distribution = with_plain_convolutions(distribution)

    def aligner(variables: Any, images: jax.Array, key: jax.Array) -> dict[str, jax.Array]:
        propose = _applied(distribution, variables)
        found = mean_shift(propose, transform, normalization(images), key=key, **fields)
        seen = jnp.round(normalization.undo(found.images) * 255).astype(jnp.uint8)
        return {"theta": found.theta, "images": seen, "converged": found.converged}

    about = {
        "kind": "aligner",
        **_conventions(transform, normalization),
        "mean_shift": fields,
    }
    outputs = {
        "theta": "what was done: coordinates of the transform, times half_range in units",
        "images": "straightened, pixels as stored",
        "converged": "whether it came to rest",
    }
    return write(folder, aligner, variables, image_shape=image_shape, outputs=outputs, about=about)


def _conventions(transform: Transform, normalization: Normalization) -> dict[str, Any]:
    """Return what a card says of pixels and coordinates."""
    return {
        "normalization": {
            "mean": list(normalization.mean),
            "std": list(normalization.std),
            "about": "inside the program: (images / 255 - mean) / std",
        },
        "transform": {
            "name": type(transform).__name__,
            **_of_positions(transform),
            "coordinates": list(transform.names),
            "units": list(transform.units),
            "half_range": list(transform.half_range),
            "periodic": list(transform.periodic),
        },
    }


def _of_positions(transform: Transform) -> dict[str, Any]:
    """Return how pixels are read, of a transform that moves them."""
    part = transform.spatial if isinstance(transform, Chain) else transform
    if not isinstance(part, Spatial):
        return {}
    return {"padding": part.padding, "align_corners": part.align_corners}


def _applied(module: nn.Module, variables: Any) -> Callable[[jax.Array], Any]:
    return lambda images: module.apply(variables, images, train=False)


def with_plain_convolutions(module: nn.Module) -> nn.Module:
    """Return a module that computes as this one, by XLA's own convolutions.

    What `conv="auto"` becomes depends on the machine; a program for all of them has one form. Sets
    the field `conv` to "lax" where a module has it, and in the modules among its fields. Warps have
    one form without this: for a symbolic number of images "auto" is never "flat" or "native".
    """

    def is_module(value: Any) -> bool:
        return isinstance(value, nn.Module)

    def inner(value: Any) -> Any:
        return with_plain_convolutions(value) if is_module(value) else value

    fields = {field.name for field in dataclasses.fields(module)} - {"parent", "name"}
    changes = {
        name: jax.tree.map(inner, getattr(module, name), is_leaf=is_module) for name in fields
    }
    if "conv" in fields:
        changes["conv"] = "lax"
    return module.clone(**changes)
