"""What a machine gives at best, a product of two square matrices, beside what a call takes."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from benchmarks import timing
from benchmarks.torch_device import DEVICE, finished, tensor

__all__ = ["products", "rates"]

SIDE = 1024 if DEVICE.type == "cpu" else 8192  # rows and columns
_NAMES = ("XLA's product", "torch's product")


def products(dtype: str = "float32") -> dict[str, timing.Call]:
    """Return the product in each library, to be timed in the same rounds."""
    a = np.random.default_rng(0).normal(size=(SIDE, SIDE)).astype(np.float32)
    ours, multiply = jnp.asarray(a, dtype), jax.jit(jnp.matmul)
    theirs = tensor(a).to(getattr(torch, dtype))
    calls = (
        lambda: jax.block_until_ready(multiply(ours, ours)),
        finished(lambda: theirs @ theirs),
    )
    return dict(zip(_NAMES, calls, strict=True))


def rates(
    row: timing.Row, seconds: Mapping[str, Sequence[float]], operations: float
) -> dict[str, Any]:
    """Return the GFLOP/s of both sides of a row, and of the faster product.

    Args:
        row: of `timing.compare`.
        seconds: of `timing.measure`, `products` among the calls.
        operations: of one call.
    """
    limit = 2 * SIDE**3 / min(statistics.median(seconds[name]) for name in _NAMES)
    sides = {side: operations / row[f"{side}_ms"]["median"] / 1e6 for side in ("ours", "theirs")}
    return {"gflop_per_second": sides | {"product": limit / 1e9}}
