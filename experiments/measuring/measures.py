"""What is measured of a run: a little after every epoch, all of it at the end."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.measuring import densities, evaluate, posed_densities
from experiments.measuring.maps import measure_maps
from experiments.measuring.probing import probe
from experiments.measuring.straighten import straighten
from experiments.measuring.values import measure_values
from experiments.setup.assembly import Assembly
from flowjax_inv.training import TrainState

__all__ = ["Measures"]


class Measures:
    """Measures of the test split.

    Args:
        parts: of the run.
    """

    def __init__(self, parts: Assembly):
        self.parts = parts
        config, normalization = parts.config, parts.normalization
        self.judge = evaluate.Judge(
            parts.objective, parts.data.test.images, parts.test_targets, config.evaluation,
            normalization, parts.place,
        )  # fmt: skip
        self.subject = densities.Subject(
            parts.distribution, parts.transform, parts.data, normalization, config,
            jax.random.key(config.seed),
        )  # fmt: skip
        self._score = self.judge.make_score(parts.classifier)
        self._arcs = densities.make_arc_shares(self.subject)

    def of_epoch(self, state: TrainState) -> dict[str, jax.Array]:
        """Return what metrics.jsonl shows at the end of every epoch, as device scalars."""
        found = self._arcs(_variables(state, "distribution")) if self._arcs else {}
        if self.parts.held_out is not None:  # copied: the next step takes the state's buffers
            found = {"gap": jnp.copy(state.controller.gap), **found}
        if self.parts.learner is not None:
            found = {"evidence": jnp.copy(state.laplace.evidence), **found}
        if not self.parts.data.labelled or self.parts.objective.pairs:
            return found
        score = self._score(_variables(state, "classifier"))
        return {f"test_{self.parts.objective.score_name}": score, **found}

    def of_run(self, state: TrainState) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the figures of results.json and the arrays of evaluation.npz."""
        parts, subject = self.parts, self.subject
        both = {name: _variables(state, name) for name in state.params}
        results, arrays = {}, {}
        if parts.distribution.has_density:
            poses_known = parts.data.centres_degrees is not None and densities.turns(
                parts.transform
            )
            measure = posed_densities.by_pose if poses_known else densities.on_images
            results, arrays = measure(subject, both["distribution"])
            if poses_known:
                more, shown = straighten(subject, both["distribution"], arrays)
                results, arrays = results | more, arrays | shown
        modules = parts.classifier, parts.distribution, parts.transform
        if parts.objective.maps:
            more, shown = measure_maps(self.judge, *modules, both, key=state.key)
            names = np.array(parts.data.class_names)
            results, arrays = results | more, arrays | shown | {"class_names": names}
        elif parts.objective.pairs:
            results |= probe(parts, both, key=state.key)
        elif parts.objective.loss == "absolute_error":
            results |= measure_values(self.judge, *modules, both, key=state.key)
        elif parts.data.labelled:
            results |= self.judge.averaged(*modules, both, key=state.key)
        return results | {k: float(v) for k, v in self.of_epoch(state).items()}, arrays


def _variables(state: TrainState, name: str) -> dict[str, Any]:
    return {"params": state.params[name], "batch_stats": state.batch_stats[name]}
