"""Using a density at test time; nothing here knows training.

`classify` is any function of images to logits, `propose` any function of images to a distribution
over theta.
"""

from flowjax_inv.inference.averaging import (
    Adaptive,
    average_views,
    make_predict,
    predict,
    predict_adaptive,
    view_logits,
)
from flowjax_inv.inference.certifying import InvarianceBound, invariance_bound, sampled_extremes
from flowjax_inv.inference.shifting import (
    Shifted,
    density_modes,
    make_mean_shift,
    mean_offset,
    mean_shift,
)

__all__ = [
    "Adaptive",
    "InvarianceBound",
    "Shifted",
    "average_views",
    "density_modes",
    "invariance_bound",
    "make_mean_shift",
    "make_predict",
    "mean_offset",
    "mean_shift",
    "predict",
    "predict_adaptive",
    "sampled_extremes",
    "view_logits",
]
