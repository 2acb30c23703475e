"""What makes convolutions fast on a CPU; networks choose by one field, `conv`.

"lax" is XLA's own convolution; the others are equal to it to rounding. "onednn" calls the library
that PyTorch calls, and where nothing is differentiated does in the same call what follows: bias,
pooling, ReLU; 3x3 convolutions that are pooled are then Winograd's. "patches" makes do with XLA's
other parts. "auto" is "onednn" on a single CPU device, "patches" there where the library is
missing, and "lax" on accelerators and on several devices. `python -m benchmarks.convolution`
compares them with PyTorch.
"""

from flowjax_inv.networks.convolutions.layer import Conv, Implementation, uniform_fan_in
from flowjax_inv.networks.convolutions.patches import convolve_patches
from flowjax_inv.networks.convolutions.plain import convolve

__all__ = [
    "Conv",
    "Implementation",
    "convolve",
    "convolve_patches",
    "uniform_fan_in",
]
