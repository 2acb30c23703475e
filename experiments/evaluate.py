"""Accuracies of a run: of images as they are, and of predictions averaged over views."""

from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from experiments.defaults import Config
from flowjax_inv.data.batches import padded_batches
from flowjax_inv.data.pixels import Normalization
from flowjax_inv.data.sets import Split
from flowjax_inv.distributions.base import ConditionalDistribution
from flowjax_inv.inference import average_views, view_logits
from flowjax_inv.placement import Placement
from flowjax_inv.transforms import Transform

__all__ = ["RULES", "averaged_accuracies", "make_accuracy"]

_STREAM_PREDICT = 2  # beside those of training.py and densities.py

# How views are chosen for an averaged prediction: the paper's average; its code's rejection of far
# samples together with the untransformed image.
RULES: dict[str, dict[str, Any]] = {
    "plain": {"include_original": False, "max_norm": None},
    "code": {"include_original": True, "max_norm": 1.0},
}
_AVERAGES = ("probs", "logits")


def _batches(
    split: Split, batch_size: int, placement: Placement
) -> list[tuple[jax.Array, jax.Array]]:
    """Return indices and masks that cover a split, divided among the devices."""
    count = len(placement.devices)
    whole = -(-batch_size // count) * count
    return [
        (placement.divide(index), placement.divide(mask))
        for index, mask in padded_batches(len(split), whole)
    ]


def make_accuracy(
    classifier: nn.Module,
    split: Split,
    batch_size: int,
    *,
    normalization: Normalization,
    placement: Placement,
) -> Callable[[Any], jax.Array]:
    """Return variables -> accuracy of the classifier alone on the whole split, as a device scalar.

    The last batch is padded and masked, so no image is dropped and one shape is compiled.
    """
    images, labels = placement.replicate((split.images, split.labels))
    batches = _batches(split, batch_size, placement)

    @jax.jit
    def correct(
        variables: Any, images: jax.Array, labels: jax.Array, index: jax.Array, mask: jax.Array
    ) -> jax.Array:
        logits: Any = classifier.apply(variables, normalization(images[index]), train=False)
        return jnp.sum((jnp.argmax(logits, -1) == labels[index]) & mask)

    def accuracy(variables: Any) -> jax.Array:
        total = sum(correct(variables, images, labels, index, mask) for index, mask in batches)
        return jnp.asarray(total) / len(split)

    return accuracy


def averaged_accuracies(
    classifier: nn.Module,
    distribution: ConditionalDistribution,
    transform: Transform,
    variables: Mapping[str, Any],
    split: Split,
    section: Config,
    *,
    normalization: Normalization,
    placement: Placement,
    key: jax.Array,
) -> dict[str, Any]:
    """Measure predictions averaged over views, by every rule of `section`, with both averages.

    Returns:
        test_accuracy_RULE_AVERAGE for all, test_accuracy_averaged for the headline, and its names.
    """
    images, labels = placement.replicate((split.images, split.labels))
    batches = _batches(split, section.batch_size, placement)
    key = jax.random.fold_in(key, _STREAM_PREDICT)
    # The views of a point mass are all alike.
    num_samples = section.num_samples if distribution.has_density else 1
    rules = section.rules if distribution.has_density else ("plain",)
    results: dict[str, Any] = {}
    for rule in rules:

        @jax.jit
        def correct(
            variables: Any,
            images: jax.Array,
            labels: jax.Array,
            index: jax.Array,
            mask: jax.Array,
            key: jax.Array,
            rule: str = rule,
        ) -> jax.Array:
            def applied(module: nn.Module, name: str) -> Any:
                return lambda x: module.apply(variables[name], x, train=False)

            logits = view_logits(
                applied(classifier, "classifier"),
                applied(distribution, "distribution"),
                transform,
                normalization(images[index]),
                key=key,
                num_samples=num_samples,
                **RULES[rule],
            )
            answers = jnp.stack([jnp.argmax(average_views(logits, a), -1) for a in _AVERAGES])
            return jnp.sum((answers == labels[index]) & mask, axis=-1)

        total = sum(
            correct(variables, images, labels, index, mask, jax.random.fold_in(key, number))
            for number, (index, mask) in enumerate(batches)
        )
        for average, count in zip(_AVERAGES, np.asarray(total), strict=True):
            results[f"test_accuracy_{rule}_{average}"] = int(count) / len(split)
    return results | {
        "test_accuracy_averaged": results[f"test_accuracy_{rules[0]}_{section.average}"],
        "evaluation_rule": rules[0],
        "evaluation_average": section.average,
        "evaluation_samples": num_samples,
    }
