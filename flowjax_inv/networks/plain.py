"""Networks without shortcuts: SimpleConv, LeNet, the 13-layer network, MLP."""

from collections.abc import Callable, Sequence
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from flowjax_inv.networks.convolutions import Conv, Implementation, uniform_fan_in
from flowjax_inv.networks.convolutions.pooling import max_pool_2x2

__all__ = ["MLP", "Layer13", "LeNet", "SimpleConv"]

Activation = Literal["relu", "tanh"]


def _activation(name: str) -> Callable[[jax.Array], jax.Array]:
    known: dict[str, Callable[[jax.Array], jax.Array]] = {"relu": nn.relu, "tanh": jnp.tanh}
    if name not in known:
        raise ValueError(f'activation is "{name}"; allowed: relu, tanh.')
    return known[name]


def _dense(features: int, fan_in: int, name: str) -> nn.Dense:
    """Return a linear layer with PyTorch's default start."""
    start = uniform_fan_in(fan_in)
    return nn.Dense(features, kernel_init=start, bias_init=start, name=name)


class SimpleConv(nn.Module):
    """The small convolutional network of the toy experiments.

    conv3x3 c, ReLU; conv3x3 2c, ReLU, pool 2; conv3x3 4c, ReLU, pool 2; conv3x3 8c, ReLU, pool 2;
    max over the remaining positions; linear 8c -> features. All with bias, stride 1, zero padding.

    Attributes:
        features: length of the output.
        width: c, channels of the first convolution.
        batch_norm: normalise before every ReLU (Augerino's version of this network).
        conv: how convolutions are computed, see `flowjax_inv.networks.convolutions`.
        axis_name: axis of `pmap` over which batch statistics are averaged.

    Convention: images (N, H, W, C) with H, W >= 8. At 32x32 (28x28) the last pooling window is the
        4x4 (3x3) of the original; the maximum over positions makes other sizes work as well.
    Source: flow paper, supplement of its code (SimpleConv); Augerino's code has batch norm. Ours
        starts from LeCun's normal weights and zero biases, theirs from PyTorch's uniform ones.
    """

    features: int
    width: int = 32
    batch_norm: bool = False
    conv: Implementation = "auto"
    axis_name: str | None = None

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> jax.Array:
        """Map images (N, H, W, C) to (N, features)."""
        if images.ndim != 4 or min(images.shape[1:3]) < 8:
            raise ValueError(
                f"images have shape {images.shape}; SimpleConv wants (N, H, W, C) with H, W >= 8."
            )
        x = images
        for stage, channels in enumerate((1, 2, 4, 8)):
            x = Conv(
                channels * self.width,
                3,
                padding=1,
                pool=stage > 0 and not self.batch_norm,
                relu=not self.batch_norm,
                conv=self.conv,
                name=f"conv{stage}",
            )(x)
            if self.batch_norm:
                # The slow variance: the fast one loses digits on inputs far from zero.
                x = nn.BatchNorm(
                    use_running_average=not train,
                    use_fast_variance=False,
                    axis_name=self.axis_name,
                    name=f"norm{stage}",
                )(x)
                # ReLU and maximum commute; pooling first leaves the ReLU a quarter of the work.
                x = nn.relu(max_pool_2x2(x) if stage else x)
        return nn.Dense(self.features, name="head")(jnp.max(x, axis=(1, 2)))


class LeNet(nn.Module):
    """The network of the (Fashion-)MNIST experiments.

    conv 5x5, 6; act; pool 2; conv 3x3 (28x28 images) or 5x5 (32x32), 16; act; pool 2; conv 5x5, 120
    to one position; act; linear 84; act; linear features. All with bias, without padding. 60,170
    parameters for 28x28x1 and ten classes, 62,006 for 32x32x3.

    Attributes:
        features: length of the output.
        activation: "tanh" as on (Fashion-)MNIST; "relu" in the variant for colour pictures.
        conv: how convolutions are computed, see `flowjax_inv.networks.convolutions`.

    Convention: images (N, 28, 28, C) or (N, 32, 32, C). Weights and biases start from PyTorch's
        default U(-1/sqrt(fan_in), 1/sqrt(fan_in)).
    Source: LILA's and the flow paper's code (LeNet).
    """

    features: int
    activation: Activation = "tanh"
    conv: Implementation = "auto"

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> jax.Array:
        """Map images (N, H, W, C) to (N, features); `train` changes nothing here."""
        del train
        if images.ndim != 4 or images.shape[1:3] not in ((28, 28), (32, 32)):
            raise ValueError(
                f"images have shape {images.shape}; LeNet wants (N, 28, 28, C) or (N, 32, 32, C)."
            )
        act = _activation(self.activation)
        x = images
        middle = 3 if images.shape[1] == 28 else 5
        for stage, (channels, kernel) in enumerate(((6, 5), (16, middle), (120, 5))):
            start = uniform_fan_in(kernel * kernel * x.shape[-1])
            x = Conv(
                channels,
                kernel,
                # Maximum and an increasing activation commute: pool first, a quarter of the work.
                pool=stage < 2,
                relu=self.activation == "relu",
                conv=self.conv,
                kernel_init=start,
                bias_init=start,
                name=f"conv{stage}",
            )(x)
            x = x if self.activation == "relu" else act(x)
        x = act(_dense(84, 120, "dense")(x.reshape(x.shape[0], -1)))
        return _dense(self.features, 84, "head")(x)


class Layer13(nn.Module):
    """Augerino's "13-layer" network for CIFAR-10 (nine convolutions and a linear layer).

    Block(c): conv3x3 c with bias, batch norm, ReLU. Blocks k, k, 2k; pool 2; dropout; 2k, 2k, 2k;
    pool 2; dropout; 2k, 2k, 2k; dropout; mean over positions; linear. 3,993,482 parameters for
    three channels and ten classes. Dropout removes whole maps.

    Attributes:
        features: length of the output.
        width: k, channels of the first convolution.
        dropout_rate: share of the maps that dropout removes.
        conv: how convolutions are computed, see `flowjax_inv.networks.convolutions`.
        axis_name: axis of `pmap` over which batch statistics are averaged.

    Convention: with `train=True` the call needs `rngs={"dropout": key}` (unless the rate is 0) and
        `mutable=["batch_stats"]`; with `train=False` neither: running statistics, no dropout.
        Weights and biases start from PyTorch's default.
    Source: Augerino's code (layer13s). The flow paper's code never leaves training mode, so it
        tests with dropout and batch statistics; ours tests without. The running variance averages
        the biased variances of batches, PyTorch's the unbiased ones.
    """

    features: int
    width: int = 128
    dropout_rate: float = 0.3
    conv: Implementation = "auto"
    axis_name: str | None = None

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> jax.Array:
        """Map images (N, H, W, C) to (N, features)."""
        if images.ndim != 4 or min(images.shape[1:3]) < 4:
            raise ValueError(
                f"images have shape {images.shape}; Layer13 wants (N, H, W, C) with H, W >= 4."
            )
        x = images
        for layer in range(9):
            start = uniform_fan_in(9 * x.shape[-1])
            x = Conv(
                self.width if layer < 2 else 2 * self.width,
                3,
                padding=1,
                conv=self.conv,
                kernel_init=start,
                bias_init=start,
                name=f"conv{layer}",
            )(x)
            x = nn.BatchNorm(
                use_running_average=not train,
                momentum=0.9,
                use_fast_variance=False,
                axis_name=self.axis_name,
                name=f"norm{layer}",
            )(x)
            # ReLU and maximum commute; pooling first leaves the ReLU a quarter of the work.
            x = nn.relu(max_pool_2x2(x) if layer in (2, 5) else x)
            if layer in (2, 5, 8):
                dropout = nn.Dropout(self.dropout_rate, broadcast_dims=(1, 2))
                x = dropout(x, deterministic=not train)
        return _dense(self.features, 2 * self.width, "head")(jnp.mean(x, axis=(1, 2)))


class MLP(nn.Module):
    """Fully connected network on flattened images.

    Attributes:
        features: length of the output.
        hidden: widths of the hidden layers, each followed by the activation.
        activation: "relu" or "tanh".

    Source: the frozen 3072-256-256-4 ReLU network of rotation discovery in the flow paper's code;
        784-1000-10 with tanh (795,010 parameters) is the MLP of its image experiments.
    """

    features: int
    hidden: Sequence[int] = (256, 256)
    activation: Activation = "relu"

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> jax.Array:
        """Map images (N, ...) to (N, features); `train` changes nothing here."""
        del train
        act = _activation(self.activation)
        x = images.reshape(images.shape[0], -1)
        for layer, width in enumerate(self.hidden):
            x = act(nn.Dense(width, name=f"dense{layer}")(x))
        return nn.Dense(self.features, name="head")(x)
