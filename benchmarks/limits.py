"""What a device gives at best, and how near every way of warping comes to it: ours alone.

    python -m benchmarks.limits [--quick]

A copy of the pictures (bytes read and written), a product of two square matrices in float32 and in
bfloat16, and the affine warp of as many pictures, its values and its derivative in the matrices, by
every `method`: milliseconds, and the share of the copy's rate. Needs no PyTorch.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.stored import RESULTS, store
from flowjax_inv import warps
from flowjax_inv.native import foreign
from flowjax_inv.transforms import Affine

__all__ = ["limits", "section"]

_ON_CARD = ((20_480, 32, 32, 3), (5_120, 32, 32, 3), (512, 224, 224, 3))
_ON_CPU = ((128, 32, 32, 3), (16, 224, 224, 3))


def limits(repeats: int, sizes: Sequence[tuple[int, ...]], side: int) -> Iterator[dict[str, Any]]:
    """Measure all, and show what there is after every row.

    Args:
        repeats: timed calls; medians count.
        sizes: of the pictures, (N, H, W, C).
        side: rows and columns of the matrices.

    Yields:
        "products": rows of dtype and TFLOP/s; "warps": rows of the pictures' shape, the method,
        milliseconds of values and of values with d/dtheta, and shares of the copy's rate.
    """
    products: list[dict[str, Any]] = []
    found: list[dict[str, Any]] = []
    content = {"products": products, "warps": found}
    for dtype in ("float32", "bfloat16"):
        a = jax.random.normal(jax.random.key(0), (side, side), dtype)
        seconds = _median(jax.jit(jnp.matmul), (a, a), repeats)
        products.append({"dtype": dtype, "tflop_per_second": 2 * side**3 / seconds / 1e12})
        yield content
    for size in sizes:
        images = jax.random.uniform(jax.random.key(1), size)
        theta = jax.random.uniform(jax.random.key(2), (size[0], 1), minval=-1.0)
        copied = _median(jax.jit(lambda x: x + 1.0), (images,), repeats)
        found.append({
            "pictures": list(size), "method": "copy", "ms": 1e3 * copied,
            "gb_per_second": 2 * images.nbytes / copied / 1e9,
        })  # fmt: skip
        yield content
        for method in warps.METHODS:
            ours = foreign.available() if _on_cpu() else jax.default_backend() == "gpu"
            if method == "native" and not ours:
                continue
            found.append(_warped(images, theta, method, copied, repeats))
            yield content


def _warped(
    images: jax.Array, theta: jax.Array, method: str, copied: float, repeats: int
) -> dict[str, Any]:
    turn = Affine("rotation")

    def values(images: jax.Array, theta: jax.Array) -> jax.Array:
        return warps.warp(images, turn.matrix(theta), method=method)

    def both(images: jax.Array, theta: jax.Array) -> Any:
        return jax.value_and_grad(lambda t: jnp.sum(values(images, t) ** 2))(theta)

    forward, backward = (
        _median(jax.jit(call), (images, theta), repeats) for call in (values, both)
    )
    return {
        "pictures": list(images.shape), "method": method, "ms": 1e3 * forward,
        "with_gradient_ms": 1e3 * backward, "share_of_copy": copied / forward,
        # With the derivative the pictures are read twice and written once.
        "with_gradient_share": 1.5 * copied / backward,
    }  # fmt: skip


def _median(call: Callable[..., Any], arguments: tuple[Any, ...], repeats: int) -> float:
    """Return the median seconds of a compiled call, the first one apart."""
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        jax.block_until_ready(call(*arguments))
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])


def _on_cpu() -> bool:
    return jax.default_backend() == "cpu"


def section(content: dict[str, Any]) -> str:
    """Return what was found as Markdown."""
    lines = [
        f"- a product, {row['dtype']}: {row['tflop_per_second']:.3g} TFLOP/s"
        for row in content["products"]
    ]
    head = "| pictures | method | ms | of the copy's rate | with d/dtheta, ms | of the rate |"
    rows = [
        "| {} | {} | {:.3g} | {} | {} | {} |".format(
            "x".join(map(str, row["pictures"])),
            row["method"],
            row["ms"],
            f"{row['share_of_copy']:.0%}"
            if "share_of_copy" in row
            else f"{row['gb_per_second']:.0f} GB/s",
            f"{row['with_gradient_ms']:.3g}" if "with_gradient_ms" in row else "-",
            f"{row['with_gradient_share']:.0%}" if "with_gradient_share" in row else "-",
        )
        for row in content["warps"]
    ]
    return "\n".join([*lines, "", head, "|---|---|---:|---:|---:|---:|", *rows])


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limits", description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="few pictures, to see that it runs")
    parser.add_argument("--out", type=Path, default=RESULTS / "limits.json")
    given = parser.parse_args(arguments)
    sizes = _ON_CPU if _on_cpu() else _ON_CARD
    side = 1_024 if _on_cpu() else 8_192
    repeats = given.repeats
    if given.quick:
        sizes, side, repeats = ((4, 8, 6, 3),), 64, 2
    content: dict[str, Any] = {}
    for content in limits(repeats, sizes, side):
        store(given.out, content)
    print(section(content))


if __name__ == "__main__":
    main(sys.argv[1:])
