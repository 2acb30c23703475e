"""Convolutions of the training steps against PyTorch's, and against a bare matrix product in XLA.

    python -m benchmarks.convolution [--quick]

Each layer of SimpleConv at the width of Mario-Iggy and of LeNet: forward, gradient of the input,
gradient of the kernel. "product" is XLA's own matrix product of as many multiplications, on patches
that lie ready in memory: where it is slower than PyTorch's whole convolution, no way of writing the
convolution in XLA's products can be as fast.
"""

import statistics
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from benchmarks import timing
from flowjax_inv.convolutions import convolve, convolve_patches

# Images, side, channels in, channels out, kernel, padding.
LAYERS = {
    "SimpleConv 1": (128, 32, 3, 8, 3, 1),
    "SimpleConv 2": (128, 32, 8, 16, 3, 1),
    "SimpleConv 3": (128, 16, 16, 32, 3, 1),
    "SimpleConv 4": (128, 8, 32, 64, 3, 1),
    "LeNet 1": (1280, 28, 1, 6, 5, 0),
    "LeNet 2": (1280, 12, 6, 16, 3, 0),
    "LeNet 3": (1280, 5, 16, 120, 5, 0),
}


def _call(function: Any, *arguments: jax.Array) -> timing.Call:
    compiled = jax.jit(function)
    return lambda: jax.block_until_ready(compiled(*arguments))


def _rows_of(name: str, layer: tuple[int, ...], repeats: int) -> list[timing.Row]:
    """Time the three passes of one layer."""
    number, side, channels, features, width, padding = layer
    out = side + 2 * padding - width + 1
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
    tx, tg = (
        torch.from_numpy(a).permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
        for a in (images, pull)
    )
    tk = torch.from_numpy(kernel).permute(3, 2, 0, 1)
    tk = tk.contiguous(memory_format=torch.channels_last)
    patches = jnp.asarray(
        random.normal(size=(number * out * out, width * width * channels)), x.dtype
    )
    flat_kernel, flat_pull = k.reshape(-1, features), g.reshape(-1, features)

    def passes(conv: Any) -> list[Any]:
        return [
            lambda x, k, g: conv(x, k, 1, padding),
            lambda x, k, g: jax.vjp(lambda x: conv(x, k, 1, padding), x)[1](g)[0],
            lambda x, k, g: jax.vjp(lambda k: conv(x, k, 1, padding), k)[1](g)[0],
        ]

    def torch_backward(which: int) -> torch.Tensor:
        wanted, same, none = [i == which for i in range(3)], [1, 1], [0, 0]
        transposed, groups = False, 1
        return torch.ops.aten.convolution_backward(
            tg, tx, tk, None, same, [padding] * 2, same, transposed, none, groups, wanted
        )[which]

    theirs = (
        (lambda: torch.nn.functional.conv2d(tx, tk, padding=padding), (0, 2, 3, 1)),
        (lambda: torch_backward(0), (0, 2, 3, 1)),
        (lambda: torch_backward(1), (2, 3, 1, 0)),
    )
    products = (
        _call(lambda p, k: p @ k, patches, flat_kernel),
        _call(lambda g, k: g @ k.T, flat_pull, flat_kernel),
        _call(lambda p, g: p.T @ g, patches, flat_pull),
    )
    rows = []
    for what, mine, plain, (other, axes), product in zip(
        ("forward", "d/dinput", "d/dkernel"),
        passes(convolve_patches), passes(convolve), theirs, products,
        strict=True,
    ):  # fmt: skip
        work = f"{name}: {what}"
        wanted = other().permute(*axes)
        difference = timing.difference(jax.jit(mine)(x, k, g), wanted, 1e-4, work)
        seconds = timing.measure(
            {
                timing.OURS: _call(mine, x, k, g),
                "torch NHWC": other,
                "XLA's convolution": _call(plain, x, k, g),
                "XLA's product": product,
            },
            repeats=repeats,
        )
        row = timing.compare({n: seconds[n] for n in (timing.OURS, "torch NHWC")})
        extra = {
            f"{label}_ms": statistics.median(seconds[n]) * 1e3
            for label, n in (("lax", "XLA's convolution"), ("product", "XLA's product"))
        }
        rows.append(row | extra | {"work": work, "difference": difference})
    return rows


if __name__ == "__main__":
    timing.main(
        "convolution",
        lambda repeats: [
            r for name, layer in LAYERS.items() for r in _rows_of(name, layer, repeats)
        ],
        {"layers": LAYERS, "dtype": "float32"},
        sys.argv[1:],
        about="Convolutions of the training steps against PyTorch's.",
    )
