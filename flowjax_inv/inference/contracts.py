"""The gate of a wrapped classifier, fitted so that a bound on the harm it does holds."""

import dataclasses
import math

import numpy as np

__all__ = ["Contract", "change_bound", "fit_gate", "least_images"]

# In nats, tried in this order, so that one test after another is fair.
_GATES = np.append(np.inf, np.linspace(20.0, -20.0, 2001))


@dataclasses.dataclass(frozen=True)
class Contract:
    """What is promised of upright images, and what was seen.

    Attributes:
        gate: nats; images whose score is above it are acted on, the others left alone.
        max_clean_loss: promised: at most this share of upright predictions changes,
        confidence: with this probability over calibration sets.
        images: number of upright images the gate was fitted on.
        changed: how many predictions changed.
        bound: upper confidence bound of their share, <= max_clean_loss.
    """

    gate: float
    max_clean_loss: float
    confidence: float
    images: int
    changed: int
    bound: float


def change_bound(changed: np.ndarray | int, images: int, confidence: float) -> np.ndarray:
    """Exact upper confidence bound of a share of which `changed` of `images` were seen.

    The largest p with P(Binomial(images, p) <= changed) >= 1 - confidence.

    Source: Clopper and Pearson, The use of confidence or fiducial limits, 1934.
    """
    from scipy.stats import beta  # slow to import

    changed = np.asarray(changed)
    bound = beta.ppf(confidence, changed + 1, np.maximum(images - changed, 1))
    return np.where(changed >= images, 1.0, bound)


def least_images(max_clean_loss: float, confidence: float) -> int:
    """Return how many images show a promise if none of them changes: (1 - loss)^n <= 1 - c.

    Raises:
        ValueError: if a number is not between 0 and 1.
    """
    if not 0 < max_clean_loss < 1 or not 0 < confidence < 1:
        raise ValueError(
            f"max_clean_loss={max_clean_loss}, confidence={confidence}; want both above 0 and "
            "below 1."
        )
    return math.ceil(math.log1p(-confidence) / math.log1p(-max_clean_loss))


def fit_gate(
    score: np.ndarray, changes: np.ndarray, *, max_clean_loss: float, confidence: float
) -> Contract:
    """Open the gate as far as the bound allows.

    Gates are tried from infinity, where nothing is acted on, and from 20 down to -20 nats in steps
    of 0.02, until the bound on the share of changed predictions is above max_clean_loss. In this
    fixed order the level of one test is that of all.

    Args:
        score: (N,) nats, of upright images.
        changes: (N,) bool, whether acting on the image changes its prediction.
        max_clean_loss: in (0, 1).
        confidence: in (0, 1).

    Raises:
        ValueError: if numbers are out of range, or even no change at all among so few images would
            not show it.
    Source: Angelopoulos and others, Learn then test, 2021 (fixed sequences).
    """
    images = len(score)
    needed = least_images(max_clean_loss, confidence)
    if images < needed:
        raise ValueError(
            f"{images} calibration images cannot show a loss of at most {max_clean_loss:g} with "
            f"confidence {confidence:g}, even if nothing changes; give at least {needed:,}, or ask "
            "for less."
        )
    counts = np.sum(changes & (score > _GATES[:, None]), axis=-1)
    bounds = change_bound(counts, images, confidence)
    # At infinity nothing changes and the images suffice, whatever the bound is rounded to.
    chosen = max(int(np.argmax(np.append(bounds > max_clean_loss, True))) - 1, 0)
    return Contract(
        float(_GATES[chosen]), max_clean_loss, confidence, images,
        int(counts[chosen]), min(float(bounds[chosen]), max_clean_loss),
    )  # fmt: skip
