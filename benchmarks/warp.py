"""Affine warp and crop against PyTorch's affine_grid and grid_sample: values, and d/dtheta.

    python -m benchmarks.warp [--quick]

Training needs the derivative in the matrices (boxes), not in the images: both sides take that one.
Beside affine warps, as flat_ms, our own time where the C library is missing (`method="flat"`), and
beside their values, as taps_ms, what XLA takes to read the four taps and sum them with indices and
weights that lie ready: no way of writing the warp in XLA's gathers can be faster than that. Beside
crops, as products_ms, that of `method="products"`. Beside all values, as copy_ms, a copy of the
pictures: the bytes that a warp must read and write at least.
"""

import functools
import statistics
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.nn import functional

from benchmarks import timing
from benchmarks.torch_device import LAYOUTS, exact, finished, pictures, tensor
from flowjax_inv import warps
from flowjax_inv.transforms import Affine

SIZES = ((128, 28, 28, 1), (128, 32, 32, 3), (128, 64, 64, 3), (16, 224, 224, 3))


def _torch_matrix(boxes: torch.Tensor) -> torch.Tensor:
    """Return the (N, 2, 3) matrices of crop boxes."""
    x, y, width, height = boxes.unbind(-1)
    zero = torch.zeros_like(x)
    return torch.stack([width, zero, x, zero, height, y], dim=-1).reshape(-1, 2, 3)


def _torch_warp(images: torch.Tensor, matrices: torch.Tensor) -> torch.Tensor:
    grid = functional.affine_grid(matrices, list(images.shape), align_corners=True)
    return functional.grid_sample(images, grid, padding_mode="zeros", align_corners=True)


def _pictures(size: tuple[int, ...]) -> np.ndarray:
    """Return smooth pictures.

    At a pixel centre the slope jumps, and rounding decides which of two slopes a side takes: on
    noise those few pixels would hide whether the derivatives are equal.
    """
    number, height, width, channels = size
    random = np.random.default_rng(0)
    frequency, phase = random.uniform(-3.0, 3.0, (2, 2, number, 1, 1, channels))
    y, x = (np.linspace(-1.0, 1.0, n) for n in (height, width))
    across = np.sin(frequency[0] * x[:, None] + phase[0])
    wave = across * np.cos(frequency[1] * y[:, None, None] + phase[1])
    return wave.astype(np.float32)


def _taps(images: np.ndarray, matrices: np.ndarray) -> Callable[[], jax.Array]:
    """Return the call that only reads and sums the four taps of an affine warp."""
    number, height, width, channels = images.shape
    y, x = np.meshgrid(np.linspace(-1, 1, height), np.linspace(-1, 1, width), indexing="ij")
    positions = np.stack([x, y, np.ones_like(x)], axis=-1).reshape(-1, 3) @ matrices[:, :2].mT
    sides = np.array([width, height])
    pixel = np.clip((positions + 1) / 2 * (sides - 1), 0, sides - 2.001)
    first = pixel.astype(np.int32)
    index = first[..., 1] * width + first[..., 0] + height * width * np.arange(number)[:, None]
    right, down = np.moveaxis(pixel - first, -1, 0).astype(np.float32)
    weights = [(1 - down) * (1 - right), (1 - down) * right, down * (1 - right), down * right]

    @jax.jit
    def read(images: jax.Array, index: jax.Array, weights: list[jax.Array]) -> jax.Array:
        flat = images.reshape(-1, channels)
        steps = (0, 1, width, width + 1)
        taps = [jnp.take(flat, index + step, axis=0, mode="clip") for step in steps]
        return functools.reduce(
            jnp.add, [t * w[..., None] for t, w in zip(taps, weights, strict=True)]
        )

    arguments = jax.device_put((images, index.astype(np.int32), weights))
    return lambda: jax.block_until_ready(read(*arguments))


def _rows(
    kind: str,
    size: tuple[int, ...],
    ours: Callable[[jax.Array, jax.Array], jax.Array],
    theirs: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    guide: np.ndarray,
    torch_guide: np.ndarray,
    repeats: int,
) -> Iterator[timing.Row]:
    """Time values, and values with d/dguide, of one warp at one size."""
    images, pull = _pictures(size), np.random.default_rng(0).normal(size=size).astype(np.float32)
    ours_in = jax.device_put((images, guide, pull))

    @functools.partial(jax.jit, static_argnums=0)
    def gradient(warp: Any, images: jax.Array, guide: jax.Array, pull: jax.Array) -> Any:
        out, back = jax.vjp(lambda guide: warp(images, guide), guide)
        return out, back(pull)[0]

    forward, flat = jax.jit(ours), functools.partial(warps.warp, method="flat")
    forward_flat = jax.jit(flat)
    calls: tuple[dict[str, Any], dict[str, Any]] = (
        {timing.OURS: lambda: jax.block_until_ready(forward(*ours_in[:2]))},
        {timing.OURS: lambda: jax.block_until_ready(gradient(ours, *ours_in))},
    )
    copy = jax.jit(jnp.copy)
    calls[0]["copy"] = lambda: jax.block_until_ready(copy(ours_in[0]))
    if kind == "affine":
        calls[0]["taps"] = _taps(images, guide)
        calls[0]["flat"] = lambda: jax.block_until_ready(forward_flat(*ours_in[:2]))
        calls[1]["flat"] = lambda: jax.block_until_ready(gradient(flat, *ours_in))
    else:
        products = functools.partial(warps.crop, method="products")
        multiplied = jax.jit(products)
        calls[0]["products"] = lambda: jax.block_until_ready(multiplied(*ours_in[:2]))
        calls[1]["products"] = lambda: jax.block_until_ready(gradient(products, *ours_in))
    for name, layout in LAYOUTS.items():
        batch, cotangent = (pictures(array, layout) for array in (images, pull))
        leaf = tensor(torch_guide).requires_grad_()

        def torch_forward(batch: torch.Tensor = batch, leaf: torch.Tensor = leaf) -> torch.Tensor:
            with torch.no_grad():
                return theirs(batch, leaf)

        def torch_gradient(
            batch: torch.Tensor = batch,
            leaf: torch.Tensor = leaf,
            cotangent: torch.Tensor = cotangent,
        ) -> tuple[torch.Tensor, torch.Tensor]:
            out = theirs(batch, leaf)
            return out.detach(), torch.autograd.grad(out, leaf, cotangent)[0]

        calls[0][name], calls[1][name] = finished(torch_forward), finished(torch_gradient)

    with exact():
        out, slope = gradient(ours, *ours_in)
        torch_out, torch_slope = calls[1]["torch NCHW"]()
    values = timing.difference(out, torch_out.permute(0, 2, 3, 1), 1e-4, f"{kind} {size}, values")
    if kind == "affine":
        slope = slope[:, :2]
    slopes = timing.difference(slope, torch_slope, 1e-4, f"{kind} {size}, d/dtheta")
    label = f"{kind} {'x'.join(map(str, size))}"
    for call, work, d in (
        (calls[0], f"{label} forward", values),
        (calls[1], f"{label} forward + d/dtheta", slopes),
    ):
        seconds = timing.measure(call, repeats=repeats)
        beside = {
            f"{name}_ms": statistics.median(seconds.pop(name)) * 1e3
            for name in ("flat", "taps", "products", "copy")
            if name in seconds
        }
        yield timing.compare(seconds) | {"work": work, "difference": d} | beside


def _all_rows(repeats: int) -> Iterator[timing.Row]:
    transform = Affine("rotation_translation", half_range=(0.5, 0.5, 180.0))
    for size in SIZES:
        random = np.random.default_rng(1)
        theta = random.uniform(-1.0, 1.0, (size[0], 3)).astype(np.float32)
        matrices = np.array(transform.matrix(jnp.asarray(theta)))
        yield from _rows(
            "affine", size, warps.warp, _torch_warp, matrices, matrices[:, :2].copy(), repeats
        )
        centre = random.uniform(-0.4, 0.4, (size[0], 2))
        boxes = np.concatenate([centre, random.uniform(0.2, 1.0, (size[0], 2))], axis=-1)
        boxes = boxes.astype(np.float32)
        yield from _rows(
            "crop",
            size,
            warps.crop,
            lambda images, boxes: _torch_warp(images, _torch_matrix(boxes)),
            boxes,
            boxes,
            repeats,
        )


if __name__ == "__main__":
    timing.main(
        "warp",
        _all_rows,
        {"sizes": SIZES, "dtype": "float32", "padding": "zeros", "align_corners": True},
        sys.argv[1:],
        about="Affine warp and crop against PyTorch's grid_sample.",
        allocators="both",
    )
