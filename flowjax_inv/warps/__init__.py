"""Bilinear warps of images: by a matrix (four taps, or the reference) and by a crop box.

Convention, everywhere in this room: positions are normalised, x right and y down, the picture is
[-1, 1] x [-1, 1]; matrices and boxes map OUTPUT positions to INPUT positions. `align_corners=True`
puts -1 and 1 on the centres of the corner pixels, False on the outer edges of the picture. An axis
of a single pixel has no extent between centres: with `align_corners=True` it stays where it is.
"""

from flowjax_inv.warps.sampling import METHODS, PADDINGS, crop, valid_mask, warp

__all__ = ["METHODS", "PADDINGS", "crop", "valid_mask", "warp"]
