"""A frozen classifier that turns pictures back, and promises to leave upright ones alone.

It works on the host, not under `jit`: an image that shows no evidence of another pose costs one
call of the classifier, which may be any function, traceable or not.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np

from flowjax_inv import transforms
from flowjax_inv.inference.averaging import Average, average_views, check_images, check_logits
from flowjax_inv.inference.contracts import Contract, fit_gate
from flowjax_inv.naming import check_name
from flowjax_inv.transforms import Transform

if TYPE_CHECKING:  # slow to import, and only named
    import distrax

__all__ = [
    "ACTS",
    "Answer",
    "Wrapped",
    "gate_score",
    "most_likely",
    "off_pose_evidence",
    "wrap",
]

ACTS = ("averaged", "aligned")
_DRAWS = 100  # samples that the most likely theta is taken from
_NEAR = 16  # points about the identity
_MOST = 20.0  # nats
# Nats of score for a nat of confidence gained: the best of 0, 2, 4, 8 on images held out from
# re-encoded CIFAR-10, behind a promise of 1 %.
_WEIGHT = 2.0


def off_pose_evidence(
    density: Any, theta: jax.Array, log_prob: jax.Array, transform: Transform, *, radius: float
) -> jax.Array:
    """Evidence that images are off-pose: max_k log g(T_k) - max_j log g(P_j), in nats.

    Args:
        density: of N images.
        theta, log_prob: (S, N, d) samples T_k of it and their log g (S, N).
        transform: whose identity counts.
        radius: box units. The points P_j lie evenly within it, in every coordinate; they leave the
            image as it is. Of a rotation, 0.125 is 22.5 degrees.

    Returns:
        (N,) nats within +-20; below 0 where nothing is likelier than to leave the image alone.
    """
    # The same points for every image, the identity first.
    near = jax.random.uniform(jax.random.key(0), (_NEAR, transform.dim), minval=-1.0)
    points = transform.identity + radius * near.at[0].set(0.0)
    inside = jnp.max(
        jax.vmap(lambda p: density.log_prob(jnp.broadcast_to(p, (theta.shape[1], transform.dim))))(
            points
        ),
        axis=0,
    )
    away = jnp.abs(transforms.wrap(theta - transform.identity, transform.periodic))
    outside = jnp.where(jnp.max(away, axis=-1) > radius, log_prob, -jnp.inf)
    within = jnp.maximum(inside, jnp.max(jnp.where(outside == -jnp.inf, log_prob, -jnp.inf), 0))
    return jnp.clip(jnp.nan_to_num(jnp.max(outside, axis=0) - within), -_MOST, _MOST)


def most_likely(theta: jax.Array, log_prob: jax.Array) -> jax.Array:
    """Return, of samples theta (S, N, d) with log g (S, N), the most likely ones (N, d)."""
    best = jnp.argmax(log_prob, axis=0)
    return jnp.take_along_axis(theta, best[None, :, None], axis=0)[0]


def gate_score(evidence: np.ndarray, acted: np.ndarray, plain: np.ndarray) -> np.ndarray:
    """Score (N,) in nats that a gate is put on: evidence + 2 (log max acted - log max plain).

    What is turned back right is classified with more confidence. Where the evidence is not above 0
    nobody looks further: -inf.

    Args:
        evidence: (N,), see `off_pose_evidence`.
        acted, plain: (N, classes) probabilities with and without acting.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        gained = np.log(np.max(acted, axis=-1)) - np.log(np.max(plain, axis=-1))
    score = evidence + _WEIGHT * np.nan_to_num(gained, nan=-np.inf)
    return np.where(evidence > 0, score, -np.inf)


class Answer(NamedTuple):
    """What a wrapped classifier says of N images.

    Attributes:
        prediction: (N,) int, the class; -1 where it abstained.
        action: (N,) of "left alone", "averaged", "aligned", and "abstained" where the classifier's
            output is not finite.
        theta: (N, d), box units: of images acted on, the most likely sample of their density; the
            identity for the others.
        score: (N,) nats, see `gate_score`.
        probabilities: (N, classes).
        calls: of the classifier per image, on average.
    """

    prediction: np.ndarray
    action: np.ndarray
    theta: np.ndarray
    score: np.ndarray
    probabilities: np.ndarray
    calls: float


@dataclasses.dataclass(frozen=True)
class Wrapped:
    """A classifier behind a gate, made by `wrap`; call it with images and a key.

    Attributes:
        classify: images (M, H, W, C) -> logits (M, classes).
        draw: images, key -> theta (K, N, d) to look at, evidence (N,), most likely theta (N, d).
        transform: images, theta -> views.
        act: "averaged" or "aligned".
        average: of the views, as in `average_views`.
        batch_size: images at a time.
        contract: the gate and its promise; None: every image is acted on.
    """

    classify: Callable[[jax.Array], Any]
    draw: Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array, jax.Array]]
    transform: Transform
    act: Literal["averaged", "aligned"]
    average: Average
    batch_size: int
    contract: Contract | None

    def __call__(self, images: jax.Array, *, key: jax.Array) -> Answer:
        """Classify images (N, H, W, C), acting on those above the gate.

        Raises:
            TypeError: if images are not floating point.
            ValueError: if images are not (N, H, W, C), or the classifier makes no logits of them.
        """
        check_images(images)
        looks, evidence, likely = self._drawn(images, key)
        count = len(images)
        gate = -np.inf if self.contract is None else self.contract.gate
        tried = np.ones(count, bool) if self.contract is None else (evidence > 0) & (gate < np.inf)
        index = np.flatnonzero(tried)
        plain = self._probabilities(images, None, np.arange(count))
        acted = plain.copy()
        if len(index):
            acted[index] = self._probabilities(images, looks, index)
        score = gate_score(evidence, acted, plain)
        acts = tried if self.contract is None else tried & (score > gate)
        probabilities = np.where(acts[:, None], acted, plain)
        lost = ~np.all(np.isfinite(probabilities), axis=-1)
        best = np.argmax(np.where(lost[:, None], 0.0, probabilities), axis=-1)
        return Answer(
            prediction=np.where(lost, -1, best),
            action=np.where(lost, "abstained", np.where(acts, self.act, "left alone")),
            theta=np.where((acts & ~lost)[:, None], likely, np.asarray(self.transform.identity)),
            score=score,
            probabilities=probabilities,
            calls=float(1 + len(looks) * np.mean(tried)),
        )

    def _drawn(self, images: jax.Array, key: jax.Array) -> tuple[np.ndarray, ...]:
        """Return theta (K, N, d), evidence (N,) and most likely theta (N, d), by batches."""
        parts = [
            self.draw(jnp.asarray(images)[rows], jax.random.fold_in(key, number))
            for number, rows in enumerate(_batches(np.arange(len(images)), self.batch_size))
        ]
        joined = zip(*parts, strict=True)
        looks, evidence, likely = (
            np.concatenate([np.asarray(part) for part in each], axis=axis)
            for each, axis in zip(joined, (1, 0, 0), strict=True)
        )
        count = len(images)
        return looks[:, :count], evidence[:count], likely[:count]

    def _probabilities(
        self, images: jax.Array, theta: np.ndarray | None, index: np.ndarray
    ) -> np.ndarray:
        """Return probabilities (len(index), classes), averaged over theta (K, N, d) if given."""
        found = [np.zeros((0, 0), np.float32)]
        for rows in _batches(index, self.batch_size):
            seen = jnp.asarray(images)[rows]
            if theta is not None:
                seen = _views(self.transform, seen, jnp.asarray(theta[:, rows]))
            flat = seen.reshape(-1, *images.shape[1:])
            logits: Any = self.classify(flat)
            check_logits(logits, flat)
            by_view = np.asarray(logits).reshape(-1, len(rows), logits.shape[-1])
            found.append(np.asarray(average_views(jnp.asarray(by_view), self.average)))
        return np.concatenate(found[1:])[: len(index)] if len(index) else found[0]


@functools.partial(jax.jit, static_argnames="transform")
def _views(transform: Transform, images: jax.Array, theta: jax.Array) -> jax.Array:
    return transform(images, theta)


def _batches(index: np.ndarray, batch_size: int) -> list[np.ndarray]:
    """Cut an index into batches of one size, a power of two at most; the last row is repeated."""
    if not len(index):
        return []
    size = min(batch_size, 1 << (len(index) - 1).bit_length())
    starts = range(0, len(index), size)
    return [index[np.minimum(np.arange(s, s + size), len(index) - 1)] for s in starts]


def wrap(
    classify: Callable[[jax.Array], Any],
    propose: Callable[[jax.Array], distrax.Distribution],
    transform: Transform,
    calibration_images: jax.Array,
    *,
    key: jax.Array,
    max_clean_loss: float | None = 0.01,
    confidence: float = 0.95,
    act: Literal["averaged", "aligned"] = "averaged",
    average: Average = "probs",
    num_samples: int = 20,
    radius: float = 0.125,
    batch_size: int = 256,
) -> Wrapped:
    """Put a density and a gate before a frozen classifier.

    An image that is off-pose by its density, and more confidently classified when turned back
    (`gate_score` above the gate), is predicted from views, any other as it is. With probability
    `confidence` over calibration sets, of upright images like those at most the share
    `max_clean_loss` gets another prediction than without; so their accuracy falls by no more.

    Args:
        classify: images (M, H, W, C) -> logits (M, classes); any function, traced or not.
        propose: images (N, H, W, C) -> distribution with batch (N,), event (d,).
        transform: images, theta -> views.
        calibration_images: (N, H, W, C) float, upright, seen in no training.
        key: PRNG key, of the calibration.
        max_clean_loss: in (0, 1). None: no gate and no promise; every image is acted on.
        confidence: in (0, 1).
        act: "averaged" over `num_samples` samples; "aligned", the view by the most likely of 100
            samples, one call of the classifier.
        average: of the views, as in `average_views`.
        num_samples: in 1 .. 100.
        radius: of `off_pose_evidence`.
        batch_size: images at a time; the classifier is called with as many, and where the
            evidence is above 0 with num_samples times as many.

    Raises:
        TypeError: if images are not floating point.
        ValueError: for numbers or names out of range; if the calibration images are too few for
            what is asked; if the classifier's output on them is not finite.
    """
    check_images(calibration_images)
    check_name("act", act, ACTS)
    check_name("average", average, get_args(Average))
    if not 1 <= num_samples <= _DRAWS or batch_size < 1 or not radius > 0:
        raise ValueError(
            f"num_samples={num_samples}, batch_size={batch_size}, radius={radius}; want 1 to "
            f"{_DRAWS} samples, batches of at least 1 and a radius above 0."
        )

    @jax.jit
    def draw(images: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        density: Any = propose(images)
        theta, log_prob = density.sample_and_log_prob(seed=key, sample_shape=(_DRAWS,))
        likely = most_likely(theta, log_prob)
        looks = likely[None] if act == "aligned" else theta[:num_samples]
        evidence = off_pose_evidence(density, theta, log_prob, transform, radius=radius)
        return looks, evidence, likely

    open_gate = Wrapped(classify, draw, transform, act, average, batch_size, None)
    if max_clean_loss is None:
        return open_gate
    everything = Contract(-np.inf, max_clean_loss, confidence, 0, 0, 1.0)
    nothing = dataclasses.replace(everything, gate=np.inf)
    acted, plain = (
        dataclasses.replace(open_gate, contract=contract)(calibration_images, key=key)
        for contract in (everything, nothing)
    )
    lost = int(np.sum(plain.action == "abstained"))
    if lost:
        raise ValueError(
            f"classify() gave numbers that are not finite for {lost} of {len(plain.action)} "
            "calibration images; mend it, or leave them out."
        )
    changes = acted.prediction != plain.prediction
    contract = fit_gate(acted.score, changes, max_clean_loss=max_clean_loss, confidence=confidence)
    return dataclasses.replace(open_gate, contract=contract)
