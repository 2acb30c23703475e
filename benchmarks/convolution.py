"""Convolutions of the training steps against PyTorch's.

    python -m benchmarks.convolution [--quick]

Each layer of SimpleConv at the width of Mario-Iggy, of LeNet and of a Fixup ResNet-8: forward,
gradient of the input, gradient of the kernel. Ours is `conv="onednn"`; beside it "patches", which
stands in where that library is missing, and XLA's own convolution.
"""

import statistics
import sys
from typing import Any

import jax
import numpy as np
import torch

from benchmarks import timing
from benchmarks.torch_device import exact, finished, pictures, tensor
from flowjax_inv.native.convolutions import convolve_onednn
from flowjax_inv.networks.convolutions import convolve, convolve_patches

# Images, side, channels in, channels out, kernel, stride, padding.
LAYERS = {
    "SimpleConv 1": (128, 32, 3, 8, 3, 1, 1),
    "SimpleConv 2": (128, 32, 8, 16, 3, 1, 1),
    "SimpleConv 3": (128, 16, 16, 32, 3, 1, 1),
    "SimpleConv 4": (128, 8, 32, 64, 3, 1, 1),
    "LeNet 1": (1280, 28, 1, 6, 5, 1, 0),
    "LeNet 2": (1280, 12, 6, 16, 3, 1, 0),
    "LeNet 3": (1280, 5, 16, 120, 5, 1, 0),
    "ResNet 1": (1280, 32, 3, 16, 3, 1, 1),
    "ResNet 2": (1280, 32, 16, 16, 3, 1, 1),
    "ResNet 3": (1280, 32, 16, 32, 3, 2, 1),
    "ResNet 4": (1280, 16, 32, 32, 3, 1, 1),
}


def _call(function: Any, *arguments: jax.Array) -> timing.Call:
    compiled = jax.jit(function)
    return lambda: jax.block_until_ready(compiled(*arguments))


def _rows_of(name: str, layer: tuple[int, ...], repeats: int) -> list[timing.Row]:
    """Time the three passes of one layer."""
    number, side, channels, features, width, stride, padding = layer
    out = (side + 2 * padding - width) // stride + 1
    random = np.random.default_rng(0)
    images, kernel, pull = (
        random.normal(size=size).astype(np.float32)
        for size in (
            (number, side, side, channels),
            (width, width, channels, features),
            (number, out, out, features),
        )
    )
    x, k, g = jax.device_put((images, kernel, pull))
    tx, tg = (pictures(a, torch.channels_last) for a in (images, pull))
    tk = tensor(kernel).permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)

    def passes(conv: Any) -> list[Any]:
        return [
            lambda x, k, g: conv(x, k, stride, padding),
            lambda x, k, g: jax.vjp(lambda x: conv(x, k, stride, padding), x)[1](g)[0],
            lambda x, k, g: jax.vjp(lambda k: conv(x, k, stride, padding), k)[1](g)[0],
        ]

    def torch_backward(which: int) -> torch.Tensor:
        wanted, none = [i == which for i in range(3)], [0, 0]
        window, transposed, groups = ([stride] * 2, [padding] * 2, [1, 1]), False, 1
        return torch.ops.aten.convolution_backward(
            tg, tx, tk, None, *window, transposed, none, groups, wanted
        )[which]

    theirs = (
        (lambda: torch.nn.functional.conv2d(tx, tk, None, stride, padding), (0, 2, 3, 1)),
        (lambda: torch_backward(0), (0, 2, 3, 1)),
        (lambda: torch_backward(1), (2, 3, 1, 0)),
    )
    rows = []
    ours, patches, plain = (passes(f) for f in (convolve_onednn, convolve_patches, convolve))
    for i, what in enumerate(("forward", "d/dinput", "d/dkernel")):
        work, (other, axes) = f"{name}: {what}", theirs[i]
        with exact():
            wanted = other().permute(*axes)
            difference = timing.difference(jax.jit(ours[i])(x, k, g), wanted, 1e-4, work)
        seconds = timing.measure(
            {
                timing.OURS: _call(ours[i], x, k, g),
                "torch NHWC": finished(other),
                "patches": _call(patches[i], x, k, g),
                "lax": _call(plain[i], x, k, g),
            },
            repeats=repeats,
        )
        row = timing.compare({n: seconds[n] for n in (timing.OURS, "torch NHWC")})
        extra = {f"{n}_ms": statistics.median(seconds[n]) * 1e3 for n in ("patches", "lax")}
        rows.append(row | extra | {"work": work, "difference": difference})
    return rows


if __name__ == "__main__":
    timing.main(
        "convolution",
        lambda repeats: (
            r for name, layer in LAYERS.items() for r in _rows_of(name, layer, repeats)
        ),
        {"layers": LAYERS, "dtype": "float32"},
        sys.argv[1:],
        about="Convolutions of the training steps against PyTorch's.",
    )
