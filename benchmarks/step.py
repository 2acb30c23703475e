"""Whole train steps against the same step in PyTorch, on the same parameters and data.

    python -m benchmarks.step [--quick]

Mario-Iggy with the paper's flow (experiments/mario_iggy.py:paper), LeNet on pictures of MNIST's
size (experiments/mnist.py:cpu), and Fixup ResNet-8 on those of CIFAR-10's (experiments/cifar10.py,
256 images with 5 and with 20 copies): embedding, flow, warp, classifier, gradients, optimizer.
Before timing, loss and all gradients are compared at the same drawn numbers, and one optimizer
update at the same gradients. Ours counts more metrics than theirs (norm of the gradient, saturated
share). `experiments.run` trains with the allocator that is called "keep" here.

On CUDA theirs is timed compiled by `torch.compile` as well, in rows of its own, and ResNet-8 with a
classifier in bfloat16. In the same rounds both libraries multiply two square matrices.
"""

import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch

from benchmarks import cost, timing, torch_models
from benchmarks.products import products, rates
from benchmarks.random_pictures import random_pictures
from benchmarks.torch_device import DEVICE, LAYOUTS, exact, finished, tensor
from benchmarks.torch_step import TorchStep
from experiments import cifar10, mario_iggy, mnist
from experiments.setup.assembly import Assembly, assemble
from flowjax_inv.distributions.noise import draw_noise, split_key
from flowjax_inv.training.costs import view_cross_entropy

TRAIN_IMAGES = 1024
COMPILED = DEVICE.type == "cuda"  # whether theirs is compiled as well


class OurStep:
    """The step here, and its loss by itself.

    Args:
        parts: of the experiment.
    """

    def __init__(self, parts: Assembly):
        self.parts = parts
        self.state = parts.init_state()
        self.step = parts.make_step(resident=True)
        train = parts.data.train
        self.images, self.labels = jax.device_put((train.images, train.labels))

    def loss(self, params: Any, indices: np.ndarray, key: jax.Array) -> jax.Array:
        """Return the loss of a batch, written out, at what `drawn` draws by the same key."""
        parts, objective = self.parts, self.parts.objective
        images, labels = parts.normalization(self.images[indices]), self.labels[indices]
        density: Any = parts.distribution.apply({"params": params["distribution"]}, images)
        theta, log_prob = density.sample_and_log_prob(seed=key, sample_shape=(objective.copies,))

        def logits(pictures: Any) -> Any:
            flat = pictures.reshape(-1, *images.shape[1:])
            found: Any = parts.classifier.apply({"params": params["classifier"]}, flat)
            return found.reshape(-1, *labels.shape, found.shape[-1])

        views = logits(parts.transform(images, theta))
        loss = jnp.mean(view_cross_entropy(views, labels, objective.average))
        if objective.include_original:
            loss += jnp.mean(view_cross_entropy(logits(images), labels, "losses"))
        return loss + parts.controller.alpha(self.state.controller) * jnp.mean(log_prob)

    def drawn(self, key: jax.Array) -> tuple[torch.Tensor, ...]:
        """Return the numbers that the density's base draws, as `TorchStep.draw` does."""
        config, dim = self.parts.config, self.parts.transform.dim
        copies, batch = config.objective.copies, config.train.batch_size
        if config.distribution.base == "box":
            numbers = (draw_noise(jax.random.uniform, key, copies, (batch, dim)),)
        else:
            key_component, key_normal = split_key(key)
            components = (batch, config.distribution.components)
            numbers = (
                draw_noise(jax.random.gumbel, key_component, copies, components),
                draw_noise(jax.random.normal, key_normal, copies, (batch, dim)),
            )
        return tuple(tensor(array) for array in numbers)

    def __call__(self, indices: np.ndarray) -> None:
        """Make one step, and wait for it."""
        self.state = self.step(self.state, self.images, self.labels, indices)
        jax.block_until_ready(self.state)


def _check(
    name: str, ours: OurStep, sides: dict[str, TorchStep], params: Any, indices: np.ndarray
) -> float:
    """Compare loss, gradients and one update; return the largest difference of the first two."""
    key = jax.random.key(1)
    single = ours.parts.config.classifier.dtype == "float32"
    loss, gradients = jax.jit(jax.value_and_grad(ours.loss))(params, indices, key)
    updates, _ = ours.parts.optimizer.update(gradients, ours.state.opt_state, params)
    moved = torch_models.parameters(optax.apply_updates(params, updates))
    found = []
    for side, theirs in sides.items():
        torch_loss, *_ = theirs.loss(indices, ours.drawn(key), theirs.alpha())
        torch_loss.backward()
        what, tolerance = f"{name}, {side}: loss", 1e-5 if single else 1e-2
        found.append(timing.difference(loss, torch_loss.item(), tolerance, what))
        # In their layout: the fused optimizer reads gradients as if they lay as parameters do.
        wanted = torch_models.parameters(gradients, theirs.layout)
        for path, leaf in theirs.leaves.items():
            got = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
            what = f"{name}, {side}: gradient of {path}"
            # Up to rounding are the entry of a pooling window that gets the gradient, as outside a
            # view all are equal, and the side of a pixel's centre that a position is on. The
            # gradient of one number is a sum over all pixels, which nearly cancel: what is left in
            # bfloat16 is rounding.
            if leaf.numel() > 1 or single:
                tolerance = (1e-2 if leaf.numel() > 1 else 3e-2) if single else 0.1
                found.append(timing.difference(wanted[path], got, tolerance, what))
            leaf.grad = wanted[path]
        theirs.update()
        for path, leaf in theirs.leaves.items():
            what = f"{name}, {side}: {path} after one update"
            # Of parameters of one number, some happen to be hardly more than the update.
            timing.difference(moved[path], leaf.detach(), 1e-4, what)
    return max(found)


def _rows_of(
    name: str, config: Any, shape: tuple[int, ...], classes: int, repeats: int
) -> list[timing.Row]:
    """Check one experiment's step against PyTorch's, and time both: eager, on CUDA compiled too."""
    parts = assemble(config, random_pictures(TRAIN_IMAGES, shape, classes))
    ours, train, batch = OurStep(parts), parts.data.train, config.train.batch_size
    random = np.random.default_rng(0)
    order = [random.permutation(TRAIN_IMAGES)[:batch] for _ in range(8)]
    # Away from the start, where the flow is near the identity.
    params: Any = jax.tree.map(
        lambda leaf: np.asarray(leaf) + 0.02 * random.normal(size=leaf.shape).astype(np.float32),
        ours.state.params,
    )
    ways = ["eager", "torch.compile"] if COMPILED else ["eager"]
    sides = {
        way: {
            side: TorchStep(
                config, parts.transform.half_range, params, train.images, train.labels,
                parts.total_steps, layout, compiled=way != "eager",
            )
            for side, layout in LAYOUTS.items()
        }
        for way in ways
    }  # fmt: skip
    with exact():
        largest = {way: _check(name, ours, sides[way], params, order[0]) for way in ways}

    def in_turn(step: Callable[[np.ndarray], None]) -> timing.Call:
        batches = itertools.cycle(order)
        return lambda: step(next(batches))

    calls = {(way, side): step for way in ways for side, step in sides[way].items()}
    dtype = config.classifier.dtype
    seconds = timing.measure(
        {timing.OURS: in_turn(ours)}
        | {f"{side}, {way}": finished(in_turn(step)) for (way, side), step in calls.items()}
        | products(dtype),
        repeats=repeats,
    )
    operations = batch * cost.of_step(config, shape, classes)["flops_per_image"]
    work = f"step {name}, {batch} images, {parts.objective.copies} copies"
    if dtype != "float32":
        work += f", classifier in {dtype}"
    rows = []
    for way in ways:
        names = (timing.OURS, *(f"{side}, {way}" for side in LAYOUTS))
        row = timing.compare({each: seconds[each] for each in names})
        row |= {"work": work, "difference": largest[way]}
        rows.append(row | rates(row, seconds, operations))
    return rows


def _cifar10(copies: int, dtype: str = "float32") -> Any:
    """Return the config of a step of 256 images on which the density learns; both by AdamW."""
    config = cifar10.get_config("cpu")
    config.classifier.dtype = dtype
    config.train.batch_size, config.objective.copies = 256, copies
    config.objective.burn_in_epochs = 0
    config.optimizer.classifier = config.optimizer.distribution
    return config


def _rows(repeats: int) -> Iterator[timing.Row]:
    few, fewer = max(repeats // 4, 3), max(repeats // 8, 3)  # those take seconds
    cases = [
        ("mario_iggy:paper", mario_iggy.get_config("paper"), (32, 32, 3), 2, repeats),
        ("mnist:cpu", mnist.get_config("cpu"), (28, 28, 1), 10, repeats),
        ("cifar10:cpu", _cifar10(5), (32, 32, 3), 10, few),
    ]
    if repeats > timing.QUICK:  # those take minutes
        cases.append(("cifar10:cpu", _cifar10(20), (32, 32, 3), 10, fewer))
    if DEVICE.type == "cuda":  # on a CPU slower than float32
        cases.append(("cifar10:cpu", _cifar10(20, "bfloat16"), (32, 32, 3), 10, fewer))
    for case in cases:
        yield from _rows_of(*case)


if __name__ == "__main__":
    timing.main(
        "step",
        _rows,
        {"configs": ["mario_iggy:paper", "mnist:cpu", "cifar10:cpu"], "train_images": TRAIN_IMAGES},
        sys.argv[1:],
        about="Whole train steps against the same in PyTorch.",
        allocators="both",
    )
