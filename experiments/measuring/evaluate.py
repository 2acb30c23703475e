"""Scores of a run (accuracies, or errors of a regression): of images, and averaged over views."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from experiments.setup.defaults import Config
from flowjax_inv.data.batches import padded_batches
from flowjax_inv.data.pixels import Normalization
from flowjax_inv.distributions.base import ConditionalDistribution
from flowjax_inv.distributions.noise import SpreadKey
from flowjax_inv.inference import average_views, view_logits
from flowjax_inv.inference.averaging import POOL
from flowjax_inv.training import Stream
from flowjax_inv.training.objectives import Objective
from flowjax_inv.training.placement import Placement
from flowjax_inv.transforms import Transform

__all__ = ["RULES", "Judge"]


# How views are chosen for an averaged prediction: the paper's average; its code's rejection of far
# samples together with the untransformed image.
RULES: dict[str, dict[str, Any]] = {
    "plain": {"include_original": False, "max_norm": None},
    "code": {"include_original": True, "max_norm": 1.0},
}
# How views (K, N, C) become one prediction.
_AVERAGES: dict[str, dict[str, Callable[[jax.Array], jax.Array]]] = {
    "cross_entropy": {
        "probs": lambda logits: average_views(logits, "probs"),
        "logits": lambda logits: average_views(logits, "logits"),
    },
    "squared_error": {"logits": lambda outputs: jnp.mean(outputs, axis=0)},
}


@dataclasses.dataclass(frozen=True)
class Judge:
    """What scores are taken on, and how.

    The last batch is padded and masked, so no image is dropped and one shape is compiled.

    Attributes:
        objective: whose score is taken.
        images, targets: of the test split.
        section: the fields of the evaluation.
        normalization: of stored pixels.
        placement: devices, which share a batch.
    """

    objective: Objective
    images: np.ndarray
    targets: np.ndarray
    section: Config
    normalization: Normalization
    placement: Placement

    def __post_init__(self) -> None:
        """Refuse before the training what its end would refuse."""
        if "code" in self.section.rules and self.section.num_samples > POOL:
            raise ValueError(
                f"config.evaluation.num_samples is {self.section.num_samples} with the rule code, "
                f"which takes them from {POOL} draws; take at most {POOL}, or the rule plain."
            )

    def make_score(self, classifier: nn.Module) -> Callable[[Any], jax.Array]:
        """Return variables -> mean score of the classifier alone, as a device scalar."""
        images, targets = self.placement.replicate((self.images, self.targets))
        batches = self._batches()

        @jax.jit
        def total(
            variables: Any, images: jax.Array, targets: jax.Array, index: jax.Array, mask: jax.Array
        ) -> jax.Array:
            outputs: Any = classifier.apply(
                variables, self.normalization(images[index]), train=False
            )
            return jnp.sum(self.objective.score(outputs, targets[index]) * mask)

        def score(variables: Any) -> jax.Array:
            sums = sum(total(variables, images, targets, index, mask) for index, mask in batches)
            return jnp.asarray(sums) / len(self.targets)

        return score

    def averaged(
        self,
        classifier: nn.Module,
        distribution: ConditionalDistribution,
        transform: Transform,
        variables: Mapping[str, Any],
        *,
        key: jax.Array,
    ) -> dict[str, Any]:
        """Score predictions averaged over views, by every rule of `section`, with all averages.

        Returns:
            test_SCORE_RULE_AVERAGE for all, test_SCORE_averaged for the headline, and its names;
            test_SCORE_views_K for every K of `view_counts`: the image as it is, and K - 1 views.
        """
        section, key = self.section, jax.random.fold_in(key, Stream.PREDICT)
        # The views of a point mass are all alike.
        num_samples = section.num_samples if distribution.has_density else 1
        rules = section.rules if distribution.has_density else ("plain",)
        name = f"test_{self.objective.score_name}"
        modules = classifier, distribution, transform
        results: dict[str, Any] = {}
        for rule in rules:
            found = self._by_average(
                *modules, variables, key=key, num_samples=num_samples, **RULES[rule]
            )
            results |= {f"{name}_{rule}_{average}": value for average, value in found.items()}
        for count in section.view_counts if distribution.has_density else ():
            found = self._by_average(
                *modules, variables, key=key, num_samples=count - 1, include_original=True,
                max_norm=None,
            )  # fmt: skip
            results[f"{name}_views_{count}"] = found[section.average]
        return results | {
            f"{name}_averaged": results[f"{name}_{rules[0]}_{section.average}"],
            "evaluation_rule": rules[0],
            "evaluation_average": section.average,
            "evaluation_samples": num_samples,
        }

    def _by_average(
        self,
        classifier: nn.Module,
        distribution: ConditionalDistribution,
        transform: Transform,
        variables: Mapping[str, Any],
        *,
        key: jax.Array,
        num_samples: int,
        include_original: bool,
        max_norm: float | None,
    ) -> dict[str, float]:
        """Return the mean score of so many views, averaged in every way."""
        images, targets = self.placement.replicate((self.images, self.targets))
        averages = _AVERAGES[self.objective.loss]

        @jax.jit
        def totals(
            variables: Any,
            images: jax.Array,
            targets: jax.Array,
            index: jax.Array,
            mask: jax.Array,
            key: jax.Array,
        ) -> jax.Array:
            def applied(module: nn.Module, name: str) -> Any:
                return lambda x: module.apply(variables[name], x, train=False)

            outputs = view_logits(
                applied(classifier, "classifier"),
                applied(distribution, "distribution"),
                transform,
                self.normalization(images[index]),
                key=self._spread(key),
                num_samples=num_samples,
                include_original=include_original,
                max_norm=max_norm,
            )
            scores = [
                self.objective.correct(average(self.objective.answers(outputs)), targets[index])
                for average in averages.values()
            ]
            return jnp.sum(jnp.stack(scores) * mask, axis=-1)

        sums = sum(
            totals(variables, images, targets, index, mask, jax.random.fold_in(key, number))
            for number, (index, mask) in enumerate(self._batches())
        )
        return {
            average: float(value) / len(self.targets)
            for average, value in zip(averages, np.asarray(sums), strict=True)
        }

    def _spread(self, key: jax.Array) -> Any:
        """Return a key whose draws lie as `section.spread` says."""
        return key if self.section.spread == "independent" else SpreadKey(key, self.section.spread)

    def _batches(self) -> list[tuple[jax.Array, jax.Array]]:
        """Return indices and masks that cover the split, divided among the devices."""
        count = len(self.placement.devices)
        whole = -(-self.section.batch_size // count) * count
        return [
            (self.placement.divide(index), self.placement.divide(mask))
            for index, mask in padded_batches(len(self.targets), whole)
        ]
