"""What is measured: learned densities (by samples, in degrees) and predictions (in nats)."""

from flowjax_inv.metrics.densities import (
    arc_share,
    circular_mean_degrees,
    circular_std_degrees,
    covered_share,
    entropy,
    half_range_degrees,
    kolmogorov_distance,
    mode_shares,
    nearest_rotation,
    outside_share,
    pairwise_degrees,
    valley_ratio,
    wasserstein_degrees,
    wrap_degrees,
)
from flowjax_inv.metrics.predictions import (
    accuracy,
    auroc,
    calibration_error,
    divergence_per_class,
    kl_divergence,
    negative_log_likelihood,
)

__all__ = [
    "accuracy",
    "arc_share",
    "auroc",
    "calibration_error",
    "circular_mean_degrees",
    "circular_std_degrees",
    "covered_share",
    "divergence_per_class",
    "entropy",
    "half_range_degrees",
    "kl_divergence",
    "kolmogorov_distance",
    "mode_shares",
    "nearest_rotation",
    "negative_log_likelihood",
    "outside_share",
    "pairwise_degrees",
    "valley_ratio",
    "wasserstein_degrees",
    "wrap_degrees",
]
