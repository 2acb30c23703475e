"""Residual networks: Fixup ResNet-8, which has no batch norm, and PreActResNet-18."""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from flowjax_inv.networks.convolutions import Conv, Implementation, uniform_fan_in

__all__ = ["FixupResNet", "PreActResNet18", "he_conv", "he_normal", "preact_block"]


class FixupResNet(nn.Module):
    """Fixup ResNet-8, the network of the CIFAR-10 experiments: three stages of one block.

    conv3x3 w; + b; ReLU; blocks of width w, 2w, 4w with strides 1, 2, 2; mean over positions; + b;
    linear. Block(x): a = x + b1a; h = ReLU(conv1(a) + b1b); h = scale conv2(h + b2a) + b2b;
    ReLU(h + shortcut). The shortcut is x at stride 1, else every second pixel of a with as many
    channels of zeros appended. Every b and every scale is one number, a parameter of shape (1,):
    the paper's recipe gives those a tenth of the learning rate. Convolutions have no bias. 74,827
    parameters at width 16, three channels and ten classes, 18,995 at width 8.

    Attributes:
        features: length of the output.
        width: w, channels of the first convolution.
        conv: how convolutions are computed, see `flowjax_inv.networks.convolutions`.

    Convention: the first convolution starts from PyTorch's default; conv1 of a block from
        N(0, 2 / (9 c) / 3) for c channels out and three blocks; conv2 and the linear layer from 0.
    Source: LILA's and the flow paper's code (ResFixup, depth 8).
    """

    features: int
    width: int = 16
    conv: Implementation = "auto"

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> jax.Array:
        """Map images (N, H, W, C) to (N, features); `train` changes nothing here."""
        del train
        _check_images(images, "FixupResNet")
        zeros, ones = nn.initializers.zeros, nn.initializers.ones

        def scalar(name: str, start: nn.initializers.Initializer = zeros) -> jax.Array:
            return self.param(name, start, (1,), jnp.float32)

        def conv3x3(
            name: str, channels: int, start: nn.initializers.Initializer, stride: int = 1
        ) -> Conv:
            return Conv(
                channels,
                3,
                stride=stride,
                padding=1,
                use_bias=False,
                conv=self.conv,
                kernel_init=start,
                name=name,
            )

        x = conv3x3("conv", self.width, uniform_fan_in(9 * images.shape[-1]))(images)
        x = nn.relu(x + scalar("bias"))
        for block in range(3):
            channels, stride = self.width * 2**block, 1 if block == 0 else 2
            start = nn.initializers.normal(math.sqrt(2 / (9 * channels)) / math.sqrt(3))
            a = x + scalar(f"block{block}_bias1a")
            shortcut = x
            if stride == 2:
                every_second = a[:, ::2, ::2]
                shortcut = jnp.concatenate([every_second, jnp.zeros_like(every_second)], axis=-1)
            h = conv3x3(f"block{block}_conv1", channels, start, stride)(a)
            h = nn.relu(h + scalar(f"block{block}_bias1b"))
            h = h + scalar(f"block{block}_bias2a")
            h = conv3x3(f"block{block}_conv2", channels, zeros)(h)
            scaled = scalar(f"block{block}_scale", ones) * h
            x = nn.relu(scaled + scalar(f"block{block}_bias2b") + shortcut)
        x = jnp.mean(x, axis=(1, 2)) + scalar("head_bias")
        return nn.Dense(self.features, kernel_init=zeros, name="head")(x)


class PreActResNet18(nn.Module):
    """PreActResNet-18 of the Tiny-ImageNet experiments.

    conv3x3 w with stride 2; four stages of two blocks, channels w, 2w, 4w, 8w, the first of a
    stage with stride 1, 2, 2, 2; mean over positions; linear. Block(x): a = ReLU(norm(x));
    conv3x3(ReLU(norm(conv3x3(a)))) + shortcut, the stride on the first convolution. The shortcut is
    conv1x1(a) where stride or channels change, else x. Convolutions have no bias; there is no norm
    before the mean. 11,268,616 parameters for width 64, three channels and 200 classes, 11,168,068
    for four classes.

    Attributes:
        features: length of the output.
        width: w, channels of the first convolution.
        conv: how convolutions are computed, see `flowjax_inv.networks.convolutions`.
        axis_name: axis of `pmap` over which batch statistics are averaged.

    Convention: with `train=True` the call needs `mutable=["batch_stats"]`. Convolutions start from
        a normal of variance 2 / fan_in truncated at two standard deviations, the linear layer from
        N(0, 0.01^2) and bias 0.
    Source: InstaAug's code. The running variance averages the biased variances of batches,
        PyTorch's the unbiased ones.
    """

    features: int
    width: int = 64
    conv: Implementation = "auto"
    axis_name: str | None = None

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> jax.Array:
        """Map images (N, H, W, C) to (N, features)."""
        _check_images(images, "PreActResNet18")
        x = he_conv("conv", self.width, 3, 2, self.conv)(images)
        for block in range(8):
            channels, stride = self.width * 2 ** (block // 2), 2 if block in (2, 4, 6) else 1
            x = preact_block(
                x,
                f"block{block}",
                channels,
                stride,
                train=train,
                conv=self.conv,
                axis_name=self.axis_name,
            )
        start = nn.initializers.normal(0.01)
        return nn.Dense(self.features, kernel_init=start, name="head")(jnp.mean(x, axis=(1, 2)))


def he_normal(divisor: float = 1.0) -> nn.initializers.Initializer:
    """Return He's initializer, truncated, its standard deviation divided by `divisor`.

    The variance is that after truncation, as in InstaAug's code: std = sqrt(2 / fan_in) / 0.8796.
    """
    return nn.initializers.variance_scaling(2.0 / divisor**2, "fan_in", "truncated_normal")


def he_conv(name: str, channels: int, kernel: int, stride: int, conv: Implementation) -> Conv:
    """Return a convolution of PreActResNet-18: no bias, and He's start."""
    return Conv(
        channels,
        kernel,
        stride=stride,
        padding=kernel // 2,
        use_bias=False,
        conv=conv,
        kernel_init=he_normal(),
        name=name,
    )


def preact_block(
    x: jax.Array,
    name: str,
    channels: int,
    stride: int,
    *,
    train: bool,
    conv: Implementation,
    axis_name: str | None,
) -> jax.Array:
    """Apply the block of PreActResNet-18, within the `__call__` of a module.

    Args:
        x: (N, H, W, C).
        name: before the names of its layers.
        channels: of the output.
        stride: of the first convolution.
        train, conv, axis_name: as in `PreActResNet18`.

    Returns:
        (N, ceil(H / stride), ceil(W / stride), channels).
    """

    def norm(part: str, x: jax.Array) -> jax.Array:
        return nn.BatchNorm(
            use_running_average=not train,
            momentum=0.9,
            use_fast_variance=False,
            axis_name=axis_name,
            name=f"{name}_{part}",
        )(x)

    a = nn.relu(norm("norm1", x))
    same = stride == 1 and channels == x.shape[-1]
    shortcut = x if same else he_conv(f"{name}_shortcut", channels, 1, stride, conv)(a)
    h = he_conv(f"{name}_conv1", channels, 3, stride, conv)(a)
    h = nn.relu(norm("norm2", h))
    return he_conv(f"{name}_conv2", channels, 3, 1, conv)(h) + shortcut


def _check_images(images: jax.Array, network: str) -> None:
    if images.ndim != 4:
        raise ValueError(f"images have shape {images.shape}; {network} wants (N, H, W, C).")
