"""The crops that everybody takes at test time: corners and middle, nothing learned."""

from collections.abc import Sequence

import distrax
import jax
import jax.numpy as jnp
import numpy as np

from flowjax_inv.distributions.base import ConditionalDistribution
from flowjax_inv.distributions.crop_densities import CropCategorical
from flowjax_inv.distributions.crops import check_crops, crop_coordinates
from flowjax_inv.transforms import Crop

__all__ = ["CropGrid"]

_CORNERS = np.array([[0, 0], [-1, -1], [1, -1], [-1, 1], [1, 1]], float)  # and the middle, first


class CropGrid(ConditionalDistribution):
    """A fixed list of crops, the same for every image: of each size the middle and four corners.

    Every crop has the same mass, of the counting measure. One size below 1 makes five crops, two
    ten; size 1 is the whole picture, one crop.

    Attributes:
        sizes: shares of the picture's side, each once.
        min_size, max_size, centre, names: those of the `Crop` to be served.

    Raises:
        ValueError: for another transform than `Crop`, or sizes that it does not allow.
    """

    discrete = True

    sizes: Sequence[float] = (0.75,)
    min_size: float = 0.25
    max_size: float = 1.0
    centre: str = "room"
    names: Sequence[str] = Crop().names

    def __post_init__(self) -> None:
        """Refuse sizes that make no crops."""
        check_crops(self)
        sizes = tuple(self.sizes)
        allowed = [self.min_size - 1e-6 <= size <= self.max_size + 1e-6 for size in sizes]
        if not sizes or len(set(sizes)) < len(sizes) or not all(allowed):
            raise ValueError(
                f"sizes={sizes} of CropGrid; want one or more in {self.min_size:g} .. "
                f"{self.max_size:g}, the transform's, each once."
            )
        super().__post_init__()

    def __call__(self, images: jax.Array, *, train: bool = False) -> distrax.Distribution:
        """Return the same choice of crops for every image in (N, H, W, C)."""
        del train
        boxes = [
            np.hstack([(1.0 - size) * middle, np.full(2, size)])
            for size in self.sizes
            for middle in (_CORNERS if size < 1.0 else _CORNERS[:1])
        ]
        crop = Crop(self.min_size, self.max_size, self.centre)
        atoms = jnp.clip(crop_coordinates(crop, np.stack(boxes)), -1.0, 1.0)
        return CropCategorical(jnp.zeros((images.shape[0], len(boxes))), atoms)

    def regularizer(self, distribution: distrax.Distribution, log_prob: jax.Array) -> jax.Array:
        """Return 0: nothing is learned."""
        del distribution, log_prob
        return jnp.zeros(())
