"""Where PyTorch's side lies and computes: on the device that JAX takes by default, CPU or CUDA."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import torch

__all__ = ["DEVICE", "LAYOUTS", "exact", "finished", "pictures", "tensor"]

DEVICE = torch.device("cuda" if jax.default_backend() == "gpu" else "cpu")
LAYOUTS = {"torch NCHW": torch.contiguous_format, "torch NHWC": torch.channels_last}


def _round_products(how: str) -> None:
    """Let convolutions and products of float32 on CUDA round ("high": TF32, JAX's default), or not.

    Without a meaning on a CPU.
    """
    torch.set_float32_matmul_precision(how)
    torch.backends.cudnn.allow_tf32 = how == "high"


if DEVICE.type == "cuda":  # at its best
    _round_products("high")
    torch.backends.cudnn.benchmark = True


@contextlib.contextmanager
def exact() -> Iterator[None]:
    """Let both sides compute in float32 throughout, to be compared; on a CPU they always do."""
    if DEVICE.type == "cpu":
        yield
        return
    _round_products("highest")
    with jax.default_matmul_precision("highest"):
        yield
    _round_products("high")


def tensor(array: Any) -> torch.Tensor:
    """Return an array as a tensor on the device."""
    return torch.from_numpy(np.array(array)).to(DEVICE)


def pictures(array: Any, layout: torch.memory_format) -> torch.Tensor:
    """Return pictures (N, H, W, C) as (N, C, H, W), so laid out in memory."""
    return tensor(array).permute(0, 3, 1, 2).contiguous(memory_format=layout)


def finished(call: Callable[[], Any]) -> Callable[[], Any]:
    """Return a call that waits for its result, which on CUDA comes after it returns."""
    if DEVICE.type == "cpu":
        return call

    def waits() -> Any:
        result = call()
        torch.cuda.synchronize()
        return result

    return waits
