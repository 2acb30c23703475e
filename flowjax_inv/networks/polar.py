"""The network that reads an image along its directions, so that its outputs turn with the image."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from flowjax_inv.networks.convolutions import Conv, Implementation

__all__ = ["PolarConv", "polar_image"]


class PolarConv(nn.Module):
    """Convolutions over radius and direction of an image: two outputs per ray.

    Turn the image counter-clockwise by 2 m / K half turns, K = features, and the outputs move by -m
    places round the circle: output k belongs to the turn theta_k = -1 + 2 k / K of the image, as
    `distributions.circular` wants it. For quarter turns this is exact whatever the weights are, if
    K is a multiple of 8; for others up to the interpolation of pixels, if m is even.

    polar image of K / 2 rays; conv3x3 c; conv3x3 2c; conv3x3 2c, pool 2 radii; conv3x3 2c; radii
    joined: linear 4c; two residual convolutions over rays, of 5 neighbours and of 9 spread over the
    whole circle; linear 2. ReLU after all but the last. Rays are padded round the circle, radii
    with zeros. What lies more than a pixel outside the inscribed disc is not seen.

    Attributes:
        features: K, even.
        width: c.
        batch_norm: normalise before every ReLU.
        mirrored: out of training, outputs are the mean with those of the mirrored image, mirrored
            back (output k becomes output -k): for images whose mirror image has the mirrored turn.
        conv: how convolutions are computed, see `flowjax_inv.networks.convolutions`.
        axis_name: axis of `pmap` over which batch statistics are averaged.

    Convention: show it means over 2x2 pixels and, in training, noise (`Shrunk`, `Noisy`); else it
        reads a picture's angle from how it was interpolated and compressed.
    Source: ours; Esteves et al., Polar transformer networks, 2018, read a picture about an origin
        that they learn, to classify it.
    """

    features: int
    width: int = 24
    batch_norm: bool = False
    mirrored: bool = False
    conv: Implementation = "auto"
    axis_name: str | None = None

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> jax.Array:
        """Map images (N, H, W, C) to (N, features)."""
        if images.ndim != 4 or min(images.shape[1:3]) < 8 or self.features % 2:
            raise ValueError(
                f"PolarConv of {self.features} directions got images of shape {images.shape}; it "
                "wants (N, H, W, C) with H, W >= 8 and an even number of directions."
            )

        def activate(x: jax.Array, name: str) -> jax.Array:
            if self.batch_norm:
                x = nn.BatchNorm(
                    use_running_average=not train,
                    use_fast_variance=False,
                    momentum=0.95,  # runs of few epochs: the statistics must keep up
                    axis_name=self.axis_name,
                    name=f"norm_{name}",
                )(x)
            return nn.relu(x)

        def around(x: jax.Array, channels: int, name: str) -> jax.Array:
            x = jnp.pad(x, ((0, 0), (1, 1), (0, 0), (0, 0)))
            x = jnp.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0)), mode="wrap")
            return Conv(channels, 3, conv=self.conv, name=name)(x)

        if doubled := self.mirrored and not train:
            images = jnp.concatenate([images, images[:, :, ::-1]])
        c = self.width
        x = polar_image(images, self.features // 2)
        x = activate(around(x, c, "conv0"), "conv0")
        x = activate(around(x, 2 * c, "conv1"), "conv1")
        x = around(x, 2 * c, "conv2")
        rows = x.shape[1] // 2 * 2
        x = activate(jnp.maximum(x[:, 0:rows:2], x[:, 1:rows:2]), "conv2")
        x = activate(around(x, 2 * c, "conv3"), "conv3")
        rays = x.shape[2]
        x = jnp.moveaxis(x, 1, 2).reshape(images.shape[0], rays, -1)
        x = activate(nn.Dense(4 * c, name="radii")(x), "radii")
        for name, size, step in (("near", 5, 1), ("circle", 9, max(1, rays // 9))):
            layer = nn.Conv(4 * c, (size,), kernel_dilation=(step,), padding="CIRCULAR", name=name)
            x = x + activate(layer(x), name)
        out = nn.Dense(2, name="head")(x).reshape(images.shape[0], self.features)
        if not doubled:
            return out
        straight, mirror = jnp.split(out, 2)
        return (straight + jnp.roll(mirror[:, ::-1], 1, axis=1)) / 2


def polar_image(images: jax.Array, directions: int) -> jax.Array:
    """Read images along rays from their middle, bilinearly.

    Args:
        images: (N, H, W, C).
        directions: K.

    Returns:
        (N, R, K, C), R = min(H, W) // 2 - 1 radii evenly from the middle to the last pixels. Ray k
        points at -theta_k = (1 - 2 k / K) 180 degrees, counter-clockwise from the right as seen: an
        image turned by theta has on ray k what it had, unturned, on the ray of theta_k + theta.
    """
    height, width = images.shape[1:3]
    radii = min(height, width) // 2 - 1
    radius = (np.arange(radii) + 0.5) / radii * (min(height, width) - 1) / 2
    angle = np.pi * (1.0 - 2.0 * np.arange(directions) / directions)
    # Rows count downwards.
    x = (width - 1) / 2 + radius[:, None] * np.cos(angle)
    y = (height - 1) / 2 - radius[:, None] * np.sin(angle)
    # Quarter turns are exact only if the rounding of cos and sin does not move a position.
    x, y = np.round(x, 9), np.round(y, 9)
    column, row = np.floor(x).astype(int), np.floor(y).astype(int)
    right, below = x - column, y - row
    out = jnp.zeros((), images.dtype)
    for j, vertical in ((row, 1 - below), (row + 1, below)):
        for i, across in ((column, 1 - right), (column + 1, right)):
            weight = jnp.asarray((vertical * across)[..., None], images.dtype)
            out += weight * images[:, np.minimum(j, height - 1), np.minimum(i, width - 1)]
    return out
