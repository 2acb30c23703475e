"""How the loss over copies is put together, of the costs of `costs.py`."""

import dataclasses
from typing import Any, Literal, get_args

import flax.linen as nn
import jax
import jax.numpy as jnp

from flowjax_inv.naming import check_name
from flowjax_inv.training.costs import (
    Average,
    map_cross_entropy,
    pair_contrast,
    view_absolute_error,
    view_cross_entropy,
    view_squared_error,
)

__all__ = ["Loss", "Objective"]

Loss = Literal["cross_entropy", "squared_error", "absolute_error", "contrast"]
Reject = Literal["no", "burn_in", "always"]
Judge = Literal["loss", "evidence"]
Gradient = Literal["samples", "score"]


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
