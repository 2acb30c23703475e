"""What a train step costs: a model on paper, beside XLA's own count, and what it predicts.

    python -m benchmarks.cost

With N images, m = 0 or 1 originals and n views of each, L couplings, a step multiplies and adds

    F = N (3 E + (m + n) 3 C + n (3 L K + W))

floating-point operations: E and C are one image's way through the embedding and the classifier (the
gradient costs twice the value: of the inputs and of the kernels), K one sample's through the
conditioner of one coupling, W one view's warp with its slope. The least bytes it must move:

    B = 4 N (5 A_E + (m + n) 5 A_C + n 4 HWC) + 4 (7 P)

A: numbers that layers put out, each written, read, and read again for the gradient, which is itself
written and read; a view is written and read twice; P: parameters, read twice, with a gradient, two
moments and an update. E, C, K, A are counted from the shapes of convolutions and products alone.

XLA's count is that of the step before it is optimised, without our C, which it cannot count. It
knows what a convolution at the rim of a picture skips, and so does E; it counts what the model
leaves out: normalisation, activations, drawing, optimizer. Its bytes are those of the program
compiled for a CPU.

The prediction for D devices is the roofline, max(F / peak, B / bandwidth), and after it the sum of
the gradients by halving and doubling: 2 (D - 1) / D 4 P bytes through each link, 2 log2 D times its
latency. Nobody measured it: it is what a program that hides nothing could reach at best.
"""

import argparse
import copy
import importlib
import math
import sys
from collections.abc import Sequence
from typing import Any
from unittest import mock

import jax
import numpy as np

from benchmarks.random_pictures import random_pictures
from benchmarks.stored import RESULTS, store
from experiments.setup import build
from experiments.setup.assembly import assemble
from flowjax_inv.native import foreign

# Figures of the makers' data sheets: float32 operations as the matrix units take them (TF32,
# bfloat16 with float32 sums), bytes of memory, bytes of a link in one direction, latency of a hop.
DEVICES = {
    "H100": {"flops": 494e12, "bandwidth": 3.35e12, "link": 50e9, "latency": 5e-6},
    "TPU v5e": {"flops": 197e12, "bandwidth": 0.82e12, "link": 45e9, "latency": 1e-6},
}
COUNTS = (1, 8, 256)
CLASSES, LOWERED = 10, 8  # of the data; images of the step that XLA counts
# config file, side of the picture, copies, couplings
CASES = (
    ("experiments/mario_iggy.py:paper", 32, 1, 12),
    ("experiments/mario_iggy.py:paper", 32, 5, 12),
    ("experiments/mario_iggy.py:paper", 32, 5, 4),
    ("experiments/mario_iggy.py:paper", 64, 5, 12),
    ("experiments/cifar10.py", 32, 1, 12),
    ("experiments/cifar10.py", 32, 5, 12),
    ("experiments/cifar10.py", 32, 20, 12),
    ("experiments/cifar10.py", 32, 20, 4),
    ("experiments/cifar10.py", 64, 5, 12),
)


def count(function: Any, *arguments: Any) -> tuple[float, float]:
    """Return the FLOPs of a function's convolutions and products, and the numbers they put out."""
    flops = numbers = 0.0
    for equation, times in _equations(jax.make_jaxpr(function)(*arguments).jaxpr, 1):
        name, shapes = equation.primitive.name, [v.aval.shape for v in equation.invars]
        out = equation.outvars[0].aval.shape
        if name == "conv_general_dilated":
            flops += times * 2.0 * _taps(equation, shapes, out)
        elif name == "dot_general":
            contracted = equation.params["dimension_numbers"][0][0]
            flops += times * 2.0 * math.prod(out) * math.prod(shapes[0][i] for i in contracted)
        else:
            continue
        numbers += times * math.prod(out)
    return flops, numbers


def _taps(equation: Any, shapes: Sequence[Any], out: Sequence[int]) -> float:
    """Return the multiplications of a convolution; those of the padding are skipped."""
    spec = equation.params["dimension_numbers"]
    image, kernel = shapes
    per_axis = [
        sum(
            0 <= at * stride + tap - low < image[axis]
            for at in range(out[spec.out_spec[2 + i]])
            for tap in range(kernel[spec.rhs_spec[2 + i]])
        )
        for i, (axis, stride, (low, _)) in enumerate(
            zip(
                spec.lhs_spec[2:],
                equation.params["window_strides"],
                equation.params["padding"],
                strict=True,
            )
        )
    ]
    number, features = out[spec.out_spec[0]], out[spec.out_spec[1]]
    return math.prod(per_axis) * number * features * kernel[spec.rhs_spec[1]]


def _equations(jaxpr: Any, times: int) -> Any:
    """Yield every equation, those inside of others as well, and how often it runs."""
    for equation in jaxpr.eqns:
        yield equation, times
        repeats = times * equation.params.get("length", 1)
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from _equations(inner, repeats)


def measure(config_file: str, side: int, copies: int, couplings: int) -> dict[str, Any]:
    """Return the model's figures of one step, and XLA's."""
    path, _, variant = config_file.partition(":")
    module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
    config = module.get_config(variant)
    config.objective.copies, config.distribution.layers = copies, couplings
    for network in (config.classifier, config.embedding):
        network.conv = "lax"
    shape, batch = (side, side, 3), config.train.batch_size
    parts = assemble(config, random_pictures(batch, shape, CLASSES))
    state, step = parts.init_state(), parts.make_step(resident=True)
    images = np.zeros((LOWERED, *shape), np.uint8)
    with mock.patch.object(foreign, "available", return_value=False):
        lowered = step.lower(state, images, np.zeros(LOWERED, np.int32), np.arange(LOWERED))
    xla, compiled = lowered.cost_analysis(), lowered.compile().cost_analysis()
    paper = of_step(config, shape, CLASSES)
    parameters = sum(leaf.size for leaf in jax.tree.leaves(state.params))
    return {
        "config": config_file,
        "side": side,
        "copies": copies,
        "couplings": couplings,
        "batch": batch,
        "parameters": parameters,
        **paper,
        "xla_flops_per_image": xla["flops"] / LOWERED,
        "xla_bytes_per_image": compiled["bytes accessed"] / LOWERED,
        "predicted_ms": {
            name: {str(n): 1e3 * _seconds(device, n, batch, paper, parameters) for n in COUNTS}
            for name, device in DEVICES.items()
        },
    }


def of_step(config: Any, shape: tuple[int, ...], classes: int) -> dict[str, float]:
    """Return FLOPs and bytes of a step per image of (H, W, C), and the classifier's share."""
    plain = copy.deepcopy(config)
    plain.embedding.conv = plain.classifier.conv = "lax"

    def forward(module: Any) -> tuple[float, float]:
        one = jax.ShapeDtypeStruct((1, *shape), np.float32)
        variables = jax.eval_shape(lambda x: module.init(jax.random.key(0), x, train=False), one)
        return count(lambda v, x: module.apply(v, x, train=False), variables, one)

    (embed_flops, embed_numbers), (flops, numbers) = (
        forward(build.network(plain, name, classes=classes)) for name in ("embedding", "classifier")
    )
    couplings, copies = config.distribution.layers, config.objective.copies
    coupling = 2.0 * config.distribution.width * 3 * build.transform(config).dim
    # A view: positions (8), four taps with their weights for value and slope (3 x 8 per channel),
    # and the slope's sums (6).
    warp = math.prod(shape[:2]) * (8 + 6 + 24 * shape[-1])
    originals = int(config.objective.include_original)
    per_image = (
        3 * embed_flops
        + (originals + copies) * 3 * flops
        + copies * (3 * couplings * coupling + warp)
    )
    moved = 5 * embed_numbers + (originals + copies) * 5 * numbers + copies * 4 * math.prod(shape)
    return {
        "flops_per_image": per_image,
        "share_of_classifier": (originals + copies) * 3 * flops / per_image,
        "bytes_per_image": 4 * moved,
    }


def _seconds(
    device: dict[str, float], count: int, batch: int, paper: dict[str, float], parameters: int
) -> float:
    """Return the roofline's seconds of a step of `batch` images on each of `count` devices."""
    work = batch * paper["flops_per_image"] / device["flops"]
    memory = (batch * paper["bytes_per_image"] + 28 * parameters) / device["bandwidth"]
    sent = 2 * (count - 1) / count * 4 * parameters / device["link"]
    return max(work, memory) + sent + 2 * math.log2(count) * device["latency"]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=str(RESULTS / "cost.json"))
    given = parser.parse_args(arguments)
    rows = []
    print("experiment                       side copies couplings  MFLOP/image   XLA's  ratio")
    for case in CASES:
        row = measure(*case)
        rows.append(row)
        ours, theirs = row["flops_per_image"], row["xla_flops_per_image"]
        print(
            f"{case[0]:32} {case[1]:4} {case[2]:6} {case[3]:9}  {ours / 1e6:11.1f} "
            f"{theirs / 1e6:7.1f} {ours / theirs:6.2f}",
            flush=True,
        )
    store(given.out, {"benchmark": "cost", "assumed": DEVICES, "rows": rows})


if __name__ == "__main__":
    main(sys.argv[1:])
