"""Learned, image-conditional invariance in JAX.

Importing the package imports nothing heavy: take what you need from its rooms, for example
`from flowjax_inv.transforms import Affine`.
"""

__version__ = "0.1.0"
