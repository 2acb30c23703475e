"""The learned density of a run beside the truth, where poses are known."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.measuring.densities import Subject, verdict
from flowjax_inv import metrics
from flowjax_inv.data.sprites import load_sprites, turned
from flowjax_inv.training import Stream, edge_share
from flowjax_inv.transforms import Transform

__all__ = ["by_pose"]

_MOST_CLASSES = 8  # whose poses are measured
_VIEWS = 12  # per shown image


def by_pose(subject: Subject, variables: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Measure the density at poses over the whole first arc of every class.

    Returns:
        Figures for results.json, and arrays for evaluation.npz (see report/evaluation.py).
    """
    transform, figures = subject.transform, _Figures.of(subject)
    classes, poses = figures.pose.shape
    images = figures.images

    @jax.jit
    def samples(variables: Any, images: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        pixels = subject.normalization(images)
        density: Any = subject.distribution.apply(variables, pixels, train=False)
        return density.sample_and_log_prob(
            seed=key, sample_shape=(subject.section.density_samples,)
        )

    flat = jnp.asarray(images.reshape(-1, *images.shape[2:]))
    theta, log_prob = samples(variables, flat, subject.fold_key(Stream.DENSITY))
    theta = jnp.moveaxis(theta, 0, 1).reshape(classes, poses, -1, transform.dim)
    rotation, distance = _turns_of(transform, theta)
    found = figures.judge(rotation)
    results = {
        "true_half_range_degrees": figures.half_range,
        "gaps_between_classes": figures.gaps,
        **_summaries(found),
        **verdict(float(jnp.median(found["range"])), images.shape[2]),
        "entropy": float(-jnp.mean(log_prob)),
        "saturated_share": float(
            edge_share(theta, transform.periodic, subject.distribution.discrete)
        ),
    }
    shown = (poses * np.array([0.1, 0.3, 0.5, 0.7, 0.9])).astype(int)
    arrays = {
        "class_names": figures.names,
        "pose_degrees": figures.pose.astype(np.float32),
        "rotation_degrees": np.asarray(rotation, np.float32),
        "half_range_degrees": np.asarray(found["half"], np.float32),
        "centres_degrees": figures.centres,
        "arc_half_range_degrees": np.float32(figures.half_range),
        "images": images,
        "view_index": shown,
        "views": _views(subject, images[:, shown], theta[:, shown, :_VIEWS]),
    }
    if distance is not None:
        results |= {
            "rotation_distance": float(jnp.median(distance)),
            "rotation_distance_90": float(jnp.percentile(distance, 90.0)),
        }
        free = np.asarray(transform.half_range, np.float32)
        arrays["entry_names"] = np.asarray(transform.names)
        arrays["entries"] = np.asarray(theta[:, shown] * free)
        arrays["entry_distance"] = np.asarray(distance[:, shown])
    if "translation_x" in transform.names:
        start = transform.names.index("translation_x")
        width = np.asarray(transform.half_range[start : start + 2], np.float32)
        arrays["translation"] = np.asarray(theta[..., start : start + 2]) * width
    return results, arrays


@dataclasses.dataclass(frozen=True)
class _Figures:
    """Figures at known poses, and the arcs they may be turned within.

    Attributes:
        names: of the classes, (classes,).
        centres: degrees of every class's arcs (classes, arcs).
        others: those of the class it alternates with.
        half_range: of an arc, degrees.
        pose: degrees (classes, poses), over the first arc.
        images: (classes, poses, H, W, C) uint8.
        gaps: whether there is room between the arcs of two classes.
    """

    names: np.ndarray
    centres: np.ndarray
    others: np.ndarray
    half_range: float
    pose: np.ndarray
    images: np.ndarray
    gaps: bool

    @classmethod
    def of(cls, subject: Subject) -> "_Figures":
        """Draw figures of all classes, or of some of many, evenly."""
        data, section = subject.data, subject.config.data
        centres, half_range = data.centres_degrees, data.arc_half_range_degrees
        if centres is None or half_range is None:
            raise ValueError("the poses of this set are not known; use densities.on_images.")
        classes, poses = min(len(data.class_names), _MOST_CLASSES), subject.section.poses
        measured = np.linspace(0, len(data.class_names) - 1, classes).astype(int)
        centres = centres[measured]
        # Middles of equal parts: at the very end of an arc two classes share one picture.
        offsets = ((np.arange(poses) + 0.5) / poses * 2 - 1) * half_range
        # A first centre of -180 is shown as 180: poses then run upward without a jump.
        first = np.where(centres[:, :1] == -180.0, 180.0, centres[:, :1])
        pose = first + offsets
        figure = measured // (len(data.class_names) // 2)
        sprites = load_sprites(section.sprites)
        images = turned(sprites[np.repeat(figure, poses)], pose.reshape(-1), section.align_corners)
        return cls(
            names=np.asarray(data.class_names)[measured],
            centres=centres,
            others=centres[np.arange(classes) ^ 1],
            half_range=float(half_range),
            pose=pose,
            images=images.reshape(classes, poses, *images.shape[1:]),
            gaps=half_range * centres.shape[1] < 90.0 and not section.sectors,
        )

    def judge(self, rotation: jax.Array) -> dict[str, jax.Array]:
        """Measure what rotations (classes, poses, samples), degrees, make of the poses.

        Returns:
            Measures (classes, poses) of the resulting poses against the arcs of the class.
        """
        several, half_range = self.centres.shape[1] > 1, self.half_range

        @jax.jit
        def judged(
            rotation: jax.Array, centres: jax.Array, others: jax.Array
        ) -> dict[str, jax.Array]:
            result = metrics.wrap_degrees(rotation + self.pose[..., None])

            def against(measure: Callable[..., Any], of: jax.Array, *fields: float) -> Any:
                return jax.vmap(lambda pose, arcs: measure(pose, arcs, *fields))(result, of)

            half, raw = (
                against(metrics.half_range_degrees, centres)
                if several
                else metrics.half_range_degrees(rotation)
            )
            # Where classes touch, what leaves one is in another. Up and down are neighbours.
            other = (
                jnp.maximum(1.0 - against(metrics.outside_share, others, half_range, 0.0), 0.0)
                if self.gaps
                else against(metrics.outside_share, centres, half_range, 0.0)
            )
            found = {
                "half": half,
                # Several modes, each a point, are turns all the same: the way between them counts.
                "range": metrics.arc_share(rotation) * 180.0 if several else half,
                "raw": raw,
                "outside": against(metrics.outside_share, centres, half_range),
                "other": other,
                "kolmogorov": against(metrics.kolmogorov_distance, centres, half_range),
                "wasserstein": against(metrics.wasserstein_degrees, centres, half_range),
                "covered": against(metrics.covered_share, centres, half_range),
            }
            if several:
                shares = against(metrics.mode_shares, centres, half_range)
                found["share_error"] = jnp.max(jnp.abs(shares - 1.0 / centres.shape[1]), axis=-1)
                found["valley"] = against(metrics.valley_ratio, centres, half_range)
            return found

        return judged(rotation, jnp.asarray(self.centres), jnp.asarray(self.others))


def _summaries(found: dict[str, jax.Array]) -> dict[str, float]:
    """Summarise measures over all figures, by the names they have in results.json."""

    def of(summary: Callable[[jax.Array], jax.Array], name: str) -> float:
        return float(summary(found[name]))

    results = {
        "half_range_degrees": of(jnp.median, "half"),
        "half_range_raw_degrees": of(jnp.median, "raw"),
        "outside_share": of(jnp.median, "outside"),
        "outside_share_mean": of(jnp.mean, "outside"),
        "kolmogorov_distance": of(jnp.median, "kolmogorov"),
        "kolmogorov_distance_worst": of(jnp.max, "kolmogorov"),
        "wasserstein_degrees": of(jnp.median, "wasserstein"),
        "covered_share": of(jnp.median, "covered"),
        "other_class_share": of(jnp.median, "other"),
        "other_class_share_mean": of(jnp.mean, "other"),
    }
    if "valley" in found:
        results |= {
            "mode_share_error": of(jnp.median, "share_error"),
            "mode_share_error_worst": of(jnp.max, "share_error"),
            "outside_share_worst": of(jnp.max, "outside"),
            "valley_ratio": of(jnp.median, "valley"),
            "valley_ratio_worst": of(jnp.max, "valley"),
        }
    return results


def _views(subject: Subject, images: np.ndarray, theta: jax.Array) -> np.ndarray:
    """Return views (classes, shown, n, H, W, C) uint8 of images by theta (classes, shown, n, d)."""
    normalization = subject.normalization
    seen = subject.transform(normalization(jnp.asarray(images)), jnp.moveaxis(theta, 2, 0))
    return np.asarray(jnp.round(normalization.undo(jnp.moveaxis(seen, 0, 2)) * 255), np.uint8)


def _turns_of(transform: Transform, theta: jax.Array) -> tuple[jax.Array, jax.Array | None]:
    """Return the angles (degrees) of theta (..., d), and how far it is from turns, if it can be."""
    if "rotation" in transform.names:
        axis = transform.names.index("rotation")
        return theta[..., axis] * transform.half_range[axis], None
    return metrics.nearest_rotation(transform.matrix(theta))
