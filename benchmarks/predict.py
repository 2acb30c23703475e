"""Test-time use against the same in PyTorch: averaged predictions, and mean-shift.

    python -m benchmarks.predict [--quick]

The networks of Mario-Iggy with the paper's flow (experiments/mario_iggy.py:paper). A prediction
is embedding, samples, views, classifier, mean of probabilities; mean-shift is ten times embedding,
samples, mean, and a warp of the originals, with the same noise in every step. Before timing, what
comes out is compared at the same drawn numbers.

Theirs reads all views of an image in one `grid_sample`, as one tall picture, so that images are not
copied for it; it keeps no log-determinants, and classifies all views at once or so many at a time
that what is between layers fits the cache: a few rounds before choose the size for each layout.

In the same rounds both libraries multiply two square matrices. The faster product is what this
machine gives at best, and the operations of a call's convolutions and products, counted by their
shapes, say how near it both sides come: a side that runs at more than half of it cannot be made
twice as fast without fewer operations. Ours takes fewer in pooled 3x3 convolutions (Winograd's).
"""

import math
import statistics
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
import torch
from torch.nn import functional

from benchmarks import cost, timing, torch_models
from benchmarks.products import products, rates
from benchmarks.torch_device import DEVICE, LAYOUTS, exact, finished, pictures, tensor
from experiments import mario_iggy
from experiments.setup import build
from flowjax_inv.distributions.noise import draw_noise
from flowjax_inv.inference import make_mean_shift, make_predict

IMAGES, CLASSES, SHAPE = 64, 2, (32, 32, 3)
SAMPLES = (20, 100)  # of predictions
STEPS, STEP_SIZE, SHIFT_SAMPLES = 10, 0.1, 100
TOLERANCE = 1e-4  # of both sides' results, to the largest
TRIALS = 3  # rounds that choose between these sizes, for each layout
VIEWS_AT_A_TIME = (40, 200)  # of theirs, beside all at once
_RAYLEIGH = 4.6  # as in `inference.shifting`: a circle this even has no mean direction


class TorchPredictor:
    """Prediction and mean-shift in PyTorch.

    Args:
        config: of the experiment.
        transform: ours, for its numbers.
        params: our tree, {"classifier": ..., "distribution": ...}.
        images: (N, H, W, C) float32.
        layout: of pictures and kernels in memory.
    """

    def __init__(
        self,
        config: Any,
        transform: Any,
        params: Any,
        images: np.ndarray,
        layout: torch.memory_format,
    ):
        self.transform, self.layout = transform, layout
        self.images, self.units = pictures(images, layout), torch_models.units(transform.half_range)
        leaves = torch_models.parameters(params, layout)
        self.classifier, self.distribution = (
            torch_models.part(leaves, name) for name in ("classifier", "distribution")
        )
        self.embedding = torch_models.part(self.distribution, "embed")
        fields = config.distribution
        self.flow = torch_models.SquashedFlow(
            transform.dim,
            fields.layers,
            fields.log_scale_cap,
            fields.inner_squash,
            fields.tanh_width,
            fields.permutation_seed,
        )

    def draw(self, samples: int) -> torch.Tensor:
        """Draw the numbers that the base turns into samples."""
        return torch.rand(samples, len(self.images), self.transform.dim, device=DEVICE)

    def sample(self, images: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
        """Return theta (S, N, d) of images at the drawn numbers."""
        embedding = torch_models.simple_conv(self.embedding, images)
        z, _ = torch_models.box_base(self.distribution, embedding, uniform)
        return self.flow.values(self.distribution, z, embedding)

    def views(self, images: torch.Tensor, theta: torch.Tensor) -> torch.Tensor:
        """Warp each of N images by its own theta (N, K, d): (N K, C, H, W), images first."""
        matrices = torch_models.shifted_turns(theta * self.units)
        count, copies = theta.shape[:2]
        channels, height, width = images.shape[1:]
        size = [count * copies, channels, height, width]
        grid = functional.affine_grid(matrices.flatten(0, 1), size, align_corners=True)
        tall = grid.view(count, copies * height, width, 2)
        out = functional.grid_sample(images, tall, padding_mode="zeros", align_corners=True)
        out = out.unflatten(2, (copies, height)).transpose(1, 2)
        if self.layout == torch.channels_last:  # one copy: they come channel by channel
            return out.permute(0, 1, 3, 4, 2).reshape(-1, height, width, channels).movedim(-1, 1)
        return out.reshape(size)

    def predict(self, samples: int, uniform: torch.Tensor | None, at_a_time: int) -> torch.Tensor:
        """Return mean probabilities (N, classes), so many views at a time."""
        with torch.inference_mode():
            uniform = self.draw(samples) if uniform is None else uniform
            theta = self.sample(self.images, uniform).transpose(0, 1)
            few, logits = max(at_a_time // samples, 1), []
            for images, of_images in zip(self.images.split(few), theta.split(few), strict=True):
                for part in of_images.split(at_a_time, dim=1):  # of one image, where few is 1
                    views = self.views(images, part)
                    logits.append(torch_models.simple_conv(self.classifier, views))
            return torch.softmax(torch.cat(logits), -1).unflatten(0, (-1, samples)).mean(1)

    def mean_shift(self, uniform: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return theta (N, d) after all steps, and the images that it makes (N, C, H, W)."""
        with torch.inference_mode():
            uniform = self.draw(SHIFT_SAMPLES) if uniform is None else uniform
            theta = torch.zeros(len(self.images), self.transform.dim, device=DEVICE)
            for _ in range(STEPS):
                drawn = self.sample(self.views(self.images, theta[:, None]), uniform)
                theta = self._wrapped(theta + STEP_SIZE * self._mean(drawn))
            return theta, self.views(self.images, theta[:, None])

    def _mean(self, theta: torch.Tensor) -> torch.Tensor:
        """Return the mean (N, d) of samples, on circles the mean direction where there is one."""
        mean = theta.mean(0)
        for i in np.flatnonzero(self.transform.periodic):
            angle = math.pi * theta[..., i]
            sine, cosine = torch.sin(angle).mean(0), torch.cos(angle).mean(0)
            even = len(theta) * (sine**2 + cosine**2) <= _RAYLEIGH
            mean[:, i] = torch.where(even, 0.0, torch.atan2(sine, cosine) / math.pi)
        return mean

    def _wrapped(self, theta: torch.Tensor) -> torch.Tensor:
        for i in np.flatnonzero(self.transform.periodic):
            theta[:, i] -= 2.0 * torch.floor(0.5 * (theta[:, i] + 1.0))
        return theta


def _row(
    calls: dict[str, Any], work: str, operations: float, largest: float, repeats: int
) -> timing.Row:
    seconds = timing.measure(calls | products(), repeats=repeats)
    row = timing.compare({name: seconds[name] for name in calls})
    medians = {side: row[f"{side}_ms"]["median"] / 1e3 for side in ("ours", "theirs")}
    return row | {
        "work": work,
        "difference": largest,
        "images_per_second": {side: IMAGES / median for side, median in medians.items()},
        **rates(row, seconds, operations),
    }


def _modules(config: Any) -> tuple[Any, Any]:
    """Return the classifier and the distribution of a config."""
    return (
        build.network(config, "classifier", classes=CLASSES),
        build.distribution(config, build.transform(config), classes=CLASSES),
    )


def _rows(repeats: int) -> Iterator[timing.Row]:
    config = mario_iggy.get_config("paper")
    transform = build.transform(config)
    classifier, distribution = _modules(config)
    plain_config = mario_iggy.get_config("paper")
    plain_config.classifier.conv = plain_config.embedding.conv = "lax"
    plain_classifier, plain_distribution = _modules(plain_config)  # whose operations are counted
    random, key = np.random.default_rng(0), jax.random.key(1)
    # Random pictures: what they show does not change the work.
    images = random.uniform(size=(IMAGES, *SHAPE)).astype(np.float32)
    modules = {"classifier": classifier, "distribution": distribution}
    # Away from the start, where the flow is near the identity.
    params: Any = jax.tree.map(
        lambda leaf: np.asarray(leaf) + 0.02 * random.normal(size=leaf.shape).astype(np.float32),
        {
            name: module.init(jax.random.key(0), images)["params"]
            for name, module in modules.items()
        },
    )
    variables, batch = jax.device_put(
        ({name: {"params": tree} for name, tree in params.items()}, images)
    )
    sides = {
        side: TorchPredictor(config, transform, params, images, layout)
        for side, layout in LAYOUTS.items()
    }

    def drawn(samples: int) -> torch.Tensor:
        numbers = draw_noise(jax.random.uniform, key, samples, (IMAGES, transform.dim))
        return tensor(numbers)

    def ready(ours: Callable[..., Any], *arguments: Any) -> timing.Call:
        return lambda: jax.block_until_ready(ours(*arguments))

    def sizes(samples: int) -> dict[str, int]:
        return {"": IMAGES * samples} | {f", {n} views at a time": n for n in VIEWS_AT_A_TIME}

    for samples in SAMPLES:
        predict = make_predict(classifier, distribution, transform, num_samples=samples)
        with exact():
            ours = predict(variables, batch, key)
        calls: dict[str, Any] = {timing.OURS: ready(predict, variables, batch, key)}
        largest = 0.0
        for side, theirs in sides.items():
            candidates = {}
            for name, size in sizes(samples).items():
                with exact():
                    got = theirs.predict(samples, drawn(samples), size)
                what = f"{side}{name}: probabilities"
                largest = max(largest, timing.difference(ours, got, TOLERANCE, what))
                candidates[side + name] = finished(partial(theirs.predict, samples, None, size))
            tried = timing.measure(candidates, repeats=TRIALS)
            best = min(tried, key=lambda name: statistics.median(tried[name]))
            calls[best] = candidates[best]
        plain = make_predict(plain_classifier, plain_distribution, transform, num_samples=samples)
        operations, _ = cost.count(plain, variables, batch, key)
        work = f"predict {IMAGES} images x {samples} samples"
        yield _row(calls, work, operations, largest, repeats)

    # Tolerance 0: no image stops, both sides make all steps.
    fields = {"num_samples": SHIFT_SAMPLES, "step_size": STEP_SIZE, "tolerance": 0.0}
    shift = make_mean_shift(distribution, transform, steps=STEPS, **fields)
    with exact():
        shifted = shift(variables["distribution"], batch, key)
    calls = {timing.OURS: ready(shift, variables["distribution"], batch, key)}
    largest = 0.0
    for side, theirs in sides.items():
        with exact():
            theta, aligned = theirs.mean_shift(drawn(SHIFT_SAMPLES))
        for what, a, b in (
            ("theta", shifted.theta, theta),
            ("aligned images", shifted.images, aligned.movedim(1, -1)),
        ):
            largest = max(largest, timing.difference(a, b, TOLERANCE, f"{side}: {what}"))
        calls[side] = finished(partial(theirs.mean_shift, None))
    plain = make_mean_shift(plain_distribution, transform, steps=STEPS, **fields)
    of_step, _ = cost.count(plain, variables["distribution"], batch, key)  # its loop, once
    work = f"mean-shift {IMAGES} images x {SHIFT_SAMPLES} samples, {STEPS} steps"
    yield _row(calls, work, STEPS * of_step, largest, repeats)


if __name__ == "__main__":
    timing.main(
        "predict",
        _rows,
        {"config": "mario_iggy:paper", "images": IMAGES, "shape": SHAPE, "dtype": "float32"},
        sys.argv[1:],
        about="Averaged predictions and mean-shift against the same in PyTorch.",
        allocators="both",
    )
