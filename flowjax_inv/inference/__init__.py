"""Using a density at test time; nothing here knows training.

`classify` is any function of images to logits, `propose` any function of images to a distribution
over theta.
"""

from flowjax_inv.inference.averaging import (
    Adaptive,
    Average,
    average_views,
    make_predict,
    predict,
    predict_adaptive,
    view_logits,
)
from flowjax_inv.inference.certifying import InvarianceBound, invariance_bound, sampled_extremes
from flowjax_inv.inference.contracts import Contract, change_bound, fit_gate, least_images
from flowjax_inv.inference.maps import LabelMap, average_maps, predict_map, view_maps
from flowjax_inv.inference.shifting import (
    Shifted,
    density_modes,
    make_mean_shift,
    mean_offset,
    mean_shift,
)
from flowjax_inv.inference.values import view_values
from flowjax_inv.inference.wrapping import (
    Answer,
    Wrapped,
    gate_score,
    most_likely,
    off_pose_evidence,
    wrap,
)

__all__ = [
    "Adaptive",
    "Answer",
    "Average",
    "Contract",
    "InvarianceBound",
    "LabelMap",
    "Shifted",
    "Wrapped",
    "average_maps",
    "average_views",
    "change_bound",
    "density_modes",
    "fit_gate",
    "gate_score",
    "invariance_bound",
    "least_images",
    "make_mean_shift",
    "make_predict",
    "mean_offset",
    "mean_shift",
    "most_likely",
    "off_pose_evidence",
    "predict",
    "predict_adaptive",
    "predict_map",
    "sampled_extremes",
    "view_logits",
    "view_maps",
    "view_values",
    "wrap",
]
