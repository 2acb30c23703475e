"""What predictions of turned images are worth, with and without a gate."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from flowjax_inv import metrics
from flowjax_inv.inference import fit_gate, gate_score
from flowjax_inv.inference.robustness import c8_average, judged

__all__ = ["CLOSED", "Probabilities", "Seen", "behind_gate"]

CLOSED = 99.0  # nats, how a gate that nothing passes is written

# By the name of the way (N, classes), and "evidence" (N,): what `turning.Ways` makes.
Probabilities = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Seen:
    """What every way to predict makes of the turned test images.

    Attributes:
        labels: (N,) of the images.
        classes: how many there are.
        degrees: by which all images were turned, one angle after the other.
        at: predictions at each of them.
        anyhow: predictions of images turned each by its own angle.
    """

    labels: np.ndarray
    classes: int
    degrees: list[float]
    at: list[Probabilities]
    anyhow: Probabilities

    @property
    def upright(self) -> Probabilities:
        """Predictions of the images as they are."""
        return self.at[self._upright]

    @property
    def _upright(self) -> int:
        return int(np.argmin(np.abs(self.degrees)))

    def record(self, name: str, gate: float | None = None) -> dict[str, Any]:
        """Judge one way at every angle; behind a gate, only what scores above it is acted on."""

        def gated(found: Probabilities) -> np.ndarray:
            return found[name] if gate is None else _gated(found, name, gate)

        upright = gated(self.upright)
        sweep = judged(np.stack([gated(found) for found in self.at]), self.labels, self.degrees)
        divergence = metrics.divergence_per_class(
            jnp.asarray(upright), jnp.asarray(gated(self.anyhow)), jnp.asarray(self.labels),
            self.classes,
        )  # fmt: skip
        return {
            "accuracy": sweep.accuracy.tolist(),
            "negative_log_likelihood": sweep.negative_log_likelihood.tolist(),
            "calibration_error": sweep.calibration_error.tolist(),
            "upright_accuracy": float(sweep.accuracy[self._upright]),
            "c8_accuracy": c8_average(sweep),
            "clean_change": _changed(upright, self.upright["plain"]),
            "divergence": [float(x) if np.isfinite(x) else None for x in divergence],
        }


def _gated(found: Probabilities, name: str, gate: float) -> np.ndarray:
    acts = gate_score(found["evidence"], found[name], found["plain"]) > gate
    return np.where(acts[:, None], found[name], found["plain"])


def _changed(probabilities: np.ndarray, plain: np.ndarray) -> float:
    return float(np.mean(np.argmax(probabilities, -1) != np.argmax(plain, -1)))


def behind_gate(
    seen: Seen,
    name: str,
    clean: Probabilities,
    checked: Probabilities,
    confidence: float,
    max_clean_loss: float,
) -> dict[str, Any]:
    """Judge one way behind the gate that held-out upright images (`clean`) set for a promise.

    Whether it is kept, `clean_change`, is seen on the upright test images `checked`.
    """
    changes = clean[name].argmax(-1) != clean["plain"].argmax(-1)
    score = gate_score(clean["evidence"], clean[name], clean["plain"])
    contract = fit_gate(score, changes, max_clean_loss=max_clean_loss, confidence=confidence)
    return (
        dataclasses.asdict(contract)
        | seen.record(name, contract.gate)
        | {
            "gate": min(contract.gate, CLOSED),  # JSON has no infinity
            "clean_change": _changed(_gated(checked, name, contract.gate), checked["plain"]),
        }
    )
