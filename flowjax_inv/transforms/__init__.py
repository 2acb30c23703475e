"""Transforms: coordinates theta in the unit box -> matrices, crop boxes or colours -> images.

Convention, of all of them: matrices map OUTPUT to INPUT. Of positions, normalised, x right and
y down, the picture [-1, 1] x [-1, 1]. So a positive rotation turns the picture counter-clockwise
as seen, a positive translation samples further right or down (the content moves left or up), and
a positive log-scale samples further out (the content shrinks).
"""

from flowjax_inv.transforms.affine import Affine, Decoupled
from flowjax_inv.transforms.base import Spatial, Transform, wrap
from flowjax_inv.transforms.chain import Chain
from flowjax_inv.transforms.colour import Colour, Gains, Light
from flowjax_inv.transforms.crop import Crop
from flowjax_inv.transforms.points import Points

__all__ = [
    "Affine",
    "Chain",
    "Colour",
    "Crop",
    "Decoupled",
    "Gains",
    "Light",
    "Points",
    "Spatial",
    "Transform",
    "wrap",
]
