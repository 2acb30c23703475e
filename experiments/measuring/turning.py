"""The ways to predict a turned picture that `robustness.py` compares, of one run."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.running.trained import Trained
from flowjax_inv.data.batches import padded_batches
from flowjax_inv.inference import (
    average_views,
    mean_shift,
    most_likely,
    off_pose_evidence,
    view_logits,
)

__all__ = ["KNOWN", "SHIFTS", "WAYS", "Ways", "over_batches"]

# No way to predict, as it is told by how much a picture is turned: what the others can reach.
KNOWN = "turn known"

# In the order of the table; without a density there is the first alone.
WAYS = (
    "plain",
    "averaged",
    "averaged by confidence",
    "most likely",
    "mean-shift, 10 steps",
    "mean-shift to rest",
    "mean-shift to rest, averaged",
    KNOWN,
)

# Mean-shift as the paper makes it on CIFAR-10, and to rest: to where the mean is, or from the
# most likely sample to the nearest mode. Which of the last two, the validation says.
SHIFTS: dict[str, dict[str, Any]] = {
    "10 steps of 0.1": {"steps": 10, "step_size": 0.1},
    "to rest": {"steps": 20, "step_size": 0.5},
    "from the most likely to rest": {"steps": 20, "step_size": 0.5, "bandwidth": 0.1},
}
_PAPER = "10 steps of 0.1"
_VIEWS, _DRAWS, _BATCH = 20, 100, 250


def over_batches(fn: Callable[..., Any], images: np.ndarray, key: jax.Array) -> dict[str, Any]:
    """Call fn(images, key) -> dict of arrays on batches of one shape; join what comes back."""
    parts = [
        fn(jnp.asarray(images[index]), jax.random.fold_in(key, number))
        for number, (index, _) in enumerate(padded_batches(len(images), _BATCH))
    ]
    return {
        name: np.concatenate([np.asarray(part[name]) for part in parts])[: len(images)]
        for name in parts[0]
    }


@dataclasses.dataclass(frozen=True)
class Ways:
    """All predictions of a run for a batch, and what they are made from.

    Attributes:
        run: finished.
        key: of all samples; the same for every angle.
    """

    run: Trained
    key: jax.Array

    def make(self, rest: str) -> Callable[[np.ndarray], dict[str, np.ndarray]]:
        """Return images (N, H, W, C) uint8 -> probabilities (N, classes) by the name of the way.

        With them "evidence" (N,), see `inference.off_pose_evidence`.

        Args:
            rest: one of `SHIFTS`: how mean-shift goes to rest.
        """
        run = self.run

        @jax.jit
        def predicted(stored: jax.Array, key: jax.Array) -> dict[str, jax.Array]:
            pixels = run.normalization(stored)
            found = {"plain": jax.nn.softmax(run.classify(pixels))}
            if not run.distribution.has_density:
                return found
            keys = jax.random.split(key, 4)
            density = run.propose(pixels)
            theta, log_prob = density.sample_and_log_prob(seed=keys[0], sample_shape=(_DRAWS,))
            found["evidence"] = off_pose_evidence(
                density, theta, log_prob, run.transform, radius=0.125
            )
            logits = self._views(pixels, keys[1])
            found["averaged"] = average_views(logits, "probs")
            found["averaged by confidence"] = average_views(logits, "confident")
            likely = most_likely(theta, log_prob)
            found["most likely"] = jax.nn.softmax(run.classify(run.transform(pixels, likely)))
            for name, shift in (("mean-shift, 10 steps", _PAPER), ("mean-shift to rest", rest)):
                moved = self._shifted(shift, pixels, likely, keys[2])
                found[name] = jax.nn.softmax(run.classify(moved))
                if name == "mean-shift to rest":
                    logits = self._views(moved, keys[3])
                    found["mean-shift to rest, averaged"] = average_views(logits, "probs")
            return found

        return lambda images: over_batches(predicted, images, self.key)

    def make_known(self) -> Callable[[np.ndarray, Any], np.ndarray]:
        """Return images (N, H, W, C), degrees () or (N,) -> probabilities (N, classes).

        By how many degrees the images were turned is known, and undone: what aligning can reach.
        """
        run, transform = self.run, self.run.transform
        axis = transform.names.index("rotation")

        @jax.jit
        def predicted(stored: jax.Array, back: jax.Array) -> jax.Array:
            theta = jnp.tile(transform.identity, (len(stored), 1)).at[:, axis].set(back)
            return jax.nn.softmax(run.classify(transform(run.normalization(stored), theta)))

        def known(images: np.ndarray, degrees: Any) -> np.ndarray:
            back = np.broadcast_to(-np.asarray(degrees) / transform.half_range[axis], len(images))
            parts = [
                predicted(jnp.asarray(images[index]), jnp.asarray(back[index]))
                for index, _ in padded_batches(len(images), _BATCH)
            ]
            return np.concatenate([np.asarray(part) for part in parts])[: len(images)]

        return known

    def validated(self, images: np.ndarray, labels: np.ndarray) -> dict[str, float]:
        """Return the accuracy on turned validation images of every way to shift them."""
        run = self.run

        @jax.jit
        def predicted(stored: jax.Array, key: jax.Array) -> dict[str, jax.Array]:
            pixels = run.normalization(stored)
            theta, log_prob = run.propose(pixels).sample_and_log_prob(
                seed=key, sample_shape=(_DRAWS,)
            )
            likely = most_likely(theta, log_prob)
            return {
                name: jnp.argmax(run.classify(self._shifted(name, pixels, likely, key)), axis=-1)
                for name in SHIFTS
            }

        found = over_batches(predicted, images, self.key)
        return {name: float(np.mean(label == labels)) for name, label in found.items()}

    def _views(self, pixels: jax.Array, key: jax.Array) -> jax.Array:
        run = self.run
        return view_logits(
            run.classify, run.propose, run.transform, pixels, key=key, num_samples=_VIEWS
        )

    def _shifted(
        self, name: str, pixels: jax.Array, likely: jax.Array, key: jax.Array
    ) -> jax.Array:
        fields: dict[str, Any] = dict(SHIFTS[name])
        if "bandwidth" in fields:
            fields["start"] = likely
        run = self.run
        return mean_shift(
            run.propose, run.transform, pixels, key=key, num_samples=_DRAWS, tolerance=5e-3,
            **fields,
        ).images  # fmt: skip
