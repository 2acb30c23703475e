"""Networks that map images to a vector: class logits, or the embedding a density is conditioned on.

Every network is a Linen module with the call `network(images, train=False)`. `train` is a Python
bool: it chooses batch statistics and dropout where a network has them. A network with batch norm
has the field `axis_name`: the axis of `pmap` over which statistics are averaged. The field `conv`
chooses how convolutions are computed, see `flowjax_inv.networks.convolutions`. A new network is one
class here and one line in `experiments/setup/build.py`.
"""

from flowjax_inv.networks.blind import Blind
from flowjax_inv.networks.inputs import CircularMask, Noisy, Shrunk
from flowjax_inv.networks.maps import UNet
from flowjax_inv.networks.outside import Outside, find_function
from flowjax_inv.networks.plain import MLP, Layer13, LeNet, SimpleConv
from flowjax_inv.networks.points import PairNet
from flowjax_inv.networks.polar import PolarConv
from flowjax_inv.networks.precision import Bfloat16
from flowjax_inv.networks.projected import Projected
from flowjax_inv.networks.residual import FixupResNet, PreActResNet18
from flowjax_inv.networks.shallow import Shallow, warped_filters

__all__ = [
    "MLP",
    "Bfloat16",
    "Blind",
    "CircularMask",
    "FixupResNet",
    "Layer13",
    "LeNet",
    "Noisy",
    "Outside",
    "PairNet",
    "PolarConv",
    "PreActResNet18",
    "Projected",
    "Shallow",
    "Shrunk",
    "SimpleConv",
    "UNet",
    "find_function",
    "warped_filters",
]
