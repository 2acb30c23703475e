"""The loss over copies and its terms: cross-entropies in nats, squared errors in squared units."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, get_args

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import lax

from flowjax_inv.naming import check_name

__all__ = [
    "AVERAGES",
    "Average",
    "Loss",
    "Objective",
    "map_cross_entropy",
    "pair_contrast",
    "pairs_found",
    "score_function_term",
    "view_absolute_error",
    "view_cross_entropy",
    "view_squared_error",
]

Average = Literal["losses", "logits", "probs"]
AVERAGES: tuple[Average, ...] = ("losses", "logits", "probs")
Loss = Literal["cross_entropy", "squared_error", "absolute_error", "contrast"]
Reject = Literal["no", "burn_in", "always"]
Judge = Literal["loss", "evidence"]
Gradient = Literal["samples", "score"]


def view_cross_entropy(
    logits: jax.Array, labels: jax.Array, average: Average, label_smoothing: float = 0.0
) -> jax.Array:
    """Cross-entropy of n views per image, averaged in one of three places.

    "losses": mean over views of CE(logits)        (paper eq. 9-10: an upper bound on "probs")
    "logits": CE(mean over views of logits)        (the authors' Table 1 code)
    "probs":  -log mean over views of p(label)     (the loss of the averaged prediction)

    Args:
        logits: (n, N, C).
        labels: (N,) int.
        average: which of the three.
        label_smoothing: share of a label's mass that is spread evenly over all C classes. With it
            a prediction may be too sure: what an image turns into must look like the data, not
            only like its class.

    Returns:
        (N,) nats.

    Raises:
        ValueError: if `average` is none of the three, or "probs" with smoothed labels.
    """

    def cross_entropy(logits: jax.Array) -> jax.Array:
        right = optax.softmax_cross_entropy_with_integer_labels(
            logits, jnp.broadcast_to(labels, logits.shape[:-1])
        )
        if not label_smoothing:
            return right
        spread = -jnp.mean(jax.nn.log_softmax(logits), axis=-1)
        return (1.0 - label_smoothing) * right + label_smoothing * spread

    if average == "losses":
        return jnp.mean(cross_entropy(logits), axis=0)
    if average == "logits":
        return cross_entropy(jnp.mean(logits, axis=0))
    if average == "probs" and label_smoothing:
        raise ValueError(
            f'label_smoothing is {label_smoothing} with average="probs"; it is for "losses" and '
            '"logits".'
        )
    if average == "probs":
        log_p = jnp.take_along_axis(
            jax.nn.log_softmax(logits), labels[None, :, None].repeat(logits.shape[0], 0), axis=-1
        )[..., 0]
        return jnp.log(logits.shape[0]) - jax.nn.logsumexp(log_p, axis=0)
    raise ValueError(f'average is "{average}"; allowed: {", ".join(AVERAGES)}.')


def map_cross_entropy(
    logits: jax.Array, maps: jax.Array, shown: jax.Array | None, average: Average
) -> jax.Array:
    """Cross-entropy per pixel of maps of n views, each brought back to its image.

    The three places of `view_cross_entropy`, pixel by pixel, over the views that show the pixel;
    then the mean over the pixels that any view shows.

    Args:
        logits: (n, N, H, W, C), as they lie in the image.
        maps: (N, H, W) int, labels.
        shown: (n, N, H, W) bool, which pixels of the image a view shows; None: all.
        average: which of the three. "losses" counts a pixel once for every view that shows it.

    Returns:
        (N,) nats; 0 of an image of which no view shows anything.

    Raises:
        ValueError: if `average` is none of the three.
    """
    weight = jnp.ones(logits.shape[:-1]) if shown is None else shown.astype(logits.dtype)
    total = jnp.sum(weight, axis=0)
    seen = jnp.asarray(total > 0, logits.dtype)
    if average == "losses":
        each = optax.softmax_cross_entropy_with_integer_labels(
            logits, jnp.broadcast_to(maps, logits.shape[:-1])
        )
        cost, count = jnp.sum(weight * each, axis=0), total
    elif average == "logits":
        mean = jnp.sum(weight[..., None] * logits, axis=0) / jnp.maximum(total, 1.0)[..., None]
        cost, count = seen * optax.softmax_cross_entropy_with_integer_labels(mean, maps), seen
    elif average == "probs":
        log_p = jnp.take_along_axis(
            jax.nn.log_softmax(logits),
            jnp.broadcast_to(maps, logits.shape[:-1])[..., None],
            axis=-1,
        )[..., 0]
        kept = jnp.where(weight > 0, log_p, -jnp.inf)
        kept = jnp.where(seen > 0, kept, 0.0)  # of a pixel that no view shows, a number
        cost = seen * (jnp.log(jnp.maximum(total, 1.0)) - jax.nn.logsumexp(kept, axis=0))
        count = seen
    else:
        raise ValueError(f'average is "{average}"; allowed: {", ".join(AVERAGES)}.')
    return jnp.sum(cost, axis=(1, 2)) / jnp.maximum(jnp.sum(count, axis=(1, 2)), 1.0)


def view_squared_error(outputs: jax.Array, values: jax.Array, average: Average) -> jax.Array:
    """Squared error of n views per image, averaged in one of two places; angles are not wrapped.

    "losses": mean over views of (y - t)^2;  "logits": (mean over views of y - t)^2

    Args:
        outputs: (n, N, 1) y.
        values: (N,) t.
        average: which of the two.

    Returns:
        (N,) squared units of the values.

    Raises:
        ValueError: if `average` is neither, or there is more than one output.
    """
    if outputs.shape[-1] != 1:
        raise ValueError(f"outputs have shape {outputs.shape}; a squared error wants (n, N, 1).")
    if average == "losses":
        return jnp.mean((outputs[..., 0] - values) ** 2, axis=0)
    if average == "logits":
        return (jnp.mean(outputs[..., 0], axis=0) - values) ** 2
    raise ValueError(f'average is "{average}"; a squared error allows: losses, logits.')


def view_absolute_error(outputs: jax.Array, values: jax.Array, average: Average) -> jax.Array:
    """Absolute error of n views per image, mean over m outputs, averaged in one of two places.

    "losses": mean over views of |y - t|;  "logits": |mean over views of y - t|

    Args:
        outputs: (n, N, m) y.
        values: (N, m) t.
        average: which of the two.

    Returns:
        (N,) units of the values.

    Raises:
        ValueError: if `average` is neither, or there are not as many outputs as values.
    """
    if outputs.shape[1:] != values.shape:
        raise ValueError(
            f"outputs have shape {outputs.shape} for values {values.shape}; an absolute error "
            "wants (n, N, m) for (N, m)."
        )
    if average == "losses":
        return jnp.mean(jnp.abs(outputs - values), axis=(0, -1))
    if average == "logits":
        return jnp.mean(jnp.abs(jnp.mean(outputs, axis=0) - values), axis=-1)
    raise ValueError(f'average is "{average}"; an absolute error allows: losses, logits.')


def pair_contrast(outputs: jax.Array, temperature: float) -> jax.Array:
    """Contrast of two views of every image against all other views (NT-Xent).

    Of view i and its partner j, over the 2N views:
    l_i = -log exp(s_ij / t) / sum_{k != i} exp(s_ik / t),  s the cosine of two outputs

    Args:
        outputs: (2, N, m).
        temperature: t.

    Returns:
        (N,) nats, the mean of an image's two l; 0 at least, log(2N - 1) where all look alike.
    Source: Chen et al., A simple framework for contrastive learning, 2020.
    """
    logits = _similar(outputs) / temperature
    each = optax.softmax_cross_entropy_with_integer_labels(logits, _partners(outputs))
    return jnp.mean(each.reshape(outputs.shape[:2]), axis=0)


def pairs_found(outputs: jax.Array) -> jax.Array:
    """Return (N,), the share of an image's two views (2, N, m) to which its partner is nearest."""
    nearest = jnp.argmax(_similar(outputs), axis=-1) == _partners(outputs)
    return jnp.mean(nearest.reshape(outputs.shape[:2]).astype(jnp.float32), axis=0)


def _similar(outputs: jax.Array) -> jax.Array:
    """Return the cosines (2N, 2N) of all pairs of views, -inf of a view with itself."""
    flat = outputs.reshape(-1, outputs.shape[-1])
    unit = flat * lax.rsqrt(jnp.sum(flat**2, axis=-1, keepdims=True) + 1e-12)
    cosines = jnp.matmul(unit, unit.T, precision="highest")
    return jnp.where(jnp.eye(len(flat), dtype=bool), -jnp.inf, cosines)


def _partners(outputs: jax.Array) -> jax.Array:
    number = outputs.shape[1]
    return jnp.roll(jnp.arange(2 * number), number)


def score_function_term(
    losses: jax.Array,
    log_prob: jax.Array,
    *,
    baseline: bool = True,
    over_devices: Callable[[jax.Array], jax.Array] = lambda value: value,
    devices: int = 1,
) -> jax.Array:
    """Zero in value; its gradient is that of E[loss] for samples that carry none.

    grad = mean(stop(losses - b) grad log g), b = mean over the other samples, or 0

    Args:
        losses: (n, N) loss of every sample.
        log_prob: (n, N) log g of the same samples.
        baseline: subtract b; without it the gradient is the same on average, and noisier. A sample
            that is alone has none.
        over_devices: mean over the devices that hold other parts of the batch.
        devices: their number.

    Source: Williams, Simple statistical gradient-following algorithms, 1992.
    """
    total = losses.size * devices
    baseline = baseline and total > 1
    # Leaving x out of the mean is a factor: x - (S - x) / (M - 1) = M / (M - 1) (x - S / M).
    centred = losses - over_devices(jnp.mean(losses))
    weight = lax.stop_gradient(centred * (total / (total - 1)) if baseline else losses)
    return jnp.mean(weight * (log_prob - lax.stop_gradient(log_prob)))


@dataclasses.dataclass(frozen=True)
class Objective:
    """How the loss is put together.

    loss = L of views [+ L of the original images] + alpha * regularizer
           [- equivariance * mean log g(T - dT; A_dT I)] [+ divergence / images]

    Attributes:
        loss: L, the cross-entropy of labels, the squared error of angles in degrees, the absolute
            error of values, or, without any labels, the contrast of two views (`pair_contrast`).
        temperature: of the contrast.
        vectors: of the absolute error: the three outputs are a vector in space, which is brought
            back from the view by the inverse of its transform (`Points.undo_vectors`).
        label_smoothing: of the cross-entropy, see `view_cross_entropy`.
        maps: a label for every pixel: the classifier makes a map of logits of a view, it is brought
            back to the image by the inverse of the view's transform, and the loss is there. What a
            transform may do is then what the network can undo.
        judge: what the density learns by. "evidence": not by this loss, but by the marginal
            likelihood, between the steps (`evidence.make_evidence_step`); the classifier's weights
            then have a normal prior, -log p(w) / images is in the loss, and views are averaged as
            "logits", without the originals.
        gradient: how the density learns what a view costs: "samples", through them; "score", by the
            score function, which asks the classifier for no gradient and has more noise. Samples
            that carry none learn by "score" whatever it says.
        freeze_classifier: after burn-in the classifier stays as it is, in evaluation mode: the
            density alone learns, and only views are classified.
        reject_distorted: every image is seen once more, by a theta drawn evenly from the box, as
            one more class, the classifier's last; never predicted. What does not look like the
            data then costs, not only what looks like another class (ours; noise-contrastive
            estimation). "burn_in": until the density learns; "always": views keep having to look
            likelier than distorted images, and what is seen widely does not become cheap to widen
            by itself. With even views the probability of the label is at best g / (g + u) where
            the data have no turns and (g + u) / (g + 2 u) where they have all of them, u even: so
            below alpha 1/2 the former draw together, above 1/6 the latter stay wide.
        copies: n, sampled views per image.
        equivariance: weight of the last term, T ~ g(.; I) without gradient, dT evenly from
            +-`equivariance_range`: it teaches a density to move with its image, by images alone,
            and so makes `inference.invariance_bound` small. For densities of full support: what
            lies outside one teaches nothing. For transforms whose order does not matter.
        equivariance_range: share of the box in (0, 1], how far images are moved.
        pose_likelihood: after burn-in the density learns from images alone, taken as upright:
            loss = -mean log g(-dT; A_dT I), dT as above. No label, no view and no alpha is in it,
            and the classifier stays as it is. The optimum, the posterior of the pose under even
            dT, moves with its image exactly where dT goes round a circle (ours).
        average: where the views are averaged, see `view_cross_entropy`.
        include_original: add the loss of the untransformed images.
        baseline: of the score function, see `score_function_term`.
        copies_per_chunk: views that go through the classifier together; they are made and
            classified again when the gradient needs them, so memory holds one chunk, for one more
            forward pass. 0: all at once.
        chunk_statistics: allow chunks with batch norm, whose statistics are then a chunk's own.
        images: N, train images: what the divergence of a classifier's weights from their prior
            (nats, where it has one: `divergence(params)`) is divided by, so that the loss is minus
            a bound on the marginal likelihood per image. 0: not known.

    Raises:
        ValueError: if the loss is neither, chunks do not divide the copies, a pose likelihood or
            the evidence has other terms, or maps have what is for labels of whole images.
    """

    loss: Loss = "cross_entropy"
    temperature: float = 0.5
    vectors: bool = False
    label_smoothing: float = 0.0
    maps: bool = False
    judge: Judge = "loss"
    gradient: Gradient = "samples"
    freeze_classifier: bool = False
    reject_distorted: Reject = "no"
    copies: int = 1
    equivariance: float = 0.0
    equivariance_range: float = 1.0
    pose_likelihood: bool = False
    average: Average = "losses"
    include_original: bool = True
    baseline: bool = True
    copies_per_chunk: int = 0
    chunk_statistics: bool = False
    images: int = 0

    def __post_init__(self) -> None:
        """Refuse an unknown loss, and chunks that leave a rest: every size compiles again."""
        check_name("loss", self.loss, get_args(Loss))
        check_name("reject_distorted", self.reject_distorted, get_args(Reject))
        check_name("judge", self.judge, get_args(Judge))
        check_name("gradient", self.gradient, get_args(Gradient))
        if self.copies_per_chunk and self.copies % self.copies_per_chunk:
            raise ValueError(
                f"copies_per_chunk is {self.copies_per_chunk} of {self.copies} copies; take a "
                "divisor, or 0 for all at once."
            )
        if self.pose_likelihood and self.equivariance:
            raise ValueError(
                f"equivariance is {self.equivariance} with pose_likelihood=True, which asks for it "
                "by itself; set it to 0."
            )
        if self.vectors and self.loss != "absolute_error":
            raise ValueError(
                f"vectors is True with the loss {self.loss}; vectors want absolute_error."
            )
        if self.pairs and (
            (self.copies, self.include_original) != (2, False)
            or dataclasses.replace(
                self,
                loss="cross_entropy",
                copies=1,
                include_original=True,
                temperature=0.5,
                images=0,
            )
            != Objective()
        ):
            raise ValueError(
                'loss is "contrast", of two views of every image against all others; take '
                "copies=2, include_original=False, and no other term."
            )
        if self.maps and (
            self.loss != "cross_entropy"
            or self.label_smoothing
            or self.judge == "evidence"
            or self.reject_distorted != "no"
        ):
            raise ValueError(
                "maps is True, a label for every pixel; that wants the cross-entropy without label "
                'smoothing, judge="loss", and reject_distorted="no".'
            )
        if self.judge == "evidence" and dataclasses.replace(
            self, judge="loss", copies=1, images=0
        ) != Objective(average="logits", include_original=False):
            raise ValueError(
                'judge is "evidence", which is that of the mean of the views\' logits; take '
                'average="logits", include_original=False, and no other term.'
            )

    @property
    def pairs(self) -> bool:
        """Whether two views of an image are compared, and nothing is known of it."""
        return self.loss == "contrast"

    def check_chunks(self, classifier: nn.Module, batch_stats: Any) -> None:
        """Refuse chunks of a classifier with batch norm, unless `chunk_statistics` allows them.

        Raises:
            ValueError: if its statistics would be those of a chunk.
        """
        chunk = self.copies_per_chunk or self.copies
        if chunk < self.copies and jax.tree.leaves(batch_stats) and not self.chunk_statistics:
            raise ValueError(
                f"copies_per_chunk is {chunk} and {type(classifier).__name__} has batch norm: its "
                "statistics would be those of a chunk; allow it by chunk_statistics=True, or take "
                "copies_per_chunk=0."
            )

    @property
    def score_name(self) -> str:
        """What `score` is, in names of figures: accuracy, absolute error, or pairs found."""
        names = {
            "squared_error": "error_degrees",
            "absolute_error": "error",
            "contrast": "pairs_found",
        }
        return names.get(self.loss, "accuracy")

    @property
    def logged(self) -> tuple[str, ...]:
        """Names of the figures that a step adds up."""
        return (
            "steps",
            "loss",
            self.loss,
            f"{self.loss}_original",
            f"train_{self.score_name}",
            "entropy",
            "alpha",
            "saturated_share",
            "gradient_norm",
        )

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """Names of those figures that are NaN once the density learns: no view is classified."""
        if not self.pose_likelihood:
            return ()
        return (self.loss, f"{self.loss}_original", f"train_{self.score_name}")

    def cost(
        self,
        outputs: jax.Array,
        targets: jax.Array,
        average: Average,
        shown: jax.Array | None = None,
    ) -> jax.Array:
        """Return L (N,) of outputs (n, N, C) for targets (N,), the views averaged in `average`.

        Of maps (n, N, H, W, C) for targets (N, H, W), where they are `shown` (n, N, H, W).
        """
        if self.loss == "squared_error":
            return view_squared_error(outputs, targets, average)
        if self.loss == "absolute_error":
            return view_absolute_error(outputs, targets, average)
        if self.pairs:
            return pair_contrast(outputs, self.temperature)
        if self.maps:
            return map_cross_entropy(outputs, targets, shown, average)
        return view_cross_entropy(outputs, targets, average, self.label_smoothing)

    def score(self, outputs: jax.Array, targets: jax.Array) -> jax.Array:
        """Return right (1) or wrong (0), or the absolute error (N,), of outputs (N, C)."""
        return self.correct(self.answers(outputs), targets)

    def correct(self, answers: jax.Array, targets: jax.Array) -> jax.Array:
        """Return the same of outputs that are all answers, or of averages of them; of maps shares.

        Of maps (..., N, H, W, C) the share of right pixels, shown by a view or not.
        """
        if self.loss == "squared_error":
            return jnp.abs(answers[..., 0] - targets)
        if self.loss == "absolute_error":
            return jnp.mean(jnp.abs(answers - targets), axis=-1)
        right = jnp.asarray(jnp.argmax(answers, -1) == targets, jnp.float32)
        return jnp.mean(right, axis=(-2, -1)) if self.maps else right

    def answers(self, outputs: jax.Array) -> jax.Array:
        """Return outputs (..., C) without that of distorted images, which is no answer."""
        return outputs if self.reject_distorted == "no" else outputs[..., :-1]
