"""Whole train steps against the same step in PyTorch, on the same parameters and data.

    python -m benchmarks.step [--quick]

Mario-Iggy with the paper's flow (experiments/mario_iggy.py:paper), LeNet on pictures of MNIST's
size (experiments/mnist.py:cpu), and Fixup ResNet-8 on those of CIFAR-10's (experiments/cifar10.py,
256 images with 5 and with 20 copies): embedding, flow, warp, classifier, gradients, optimizer.
Before timing, loss and all gradients are compared at the same drawn numbers, and one optimizer
update at the same gradients. Ours counts more metrics than theirs (norm of the gradient, saturated
share). `experiments.run` trains with the allocator that is called "keep" here.
"""

import math
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from torch.nn import functional

from benchmarks import timing, torch_models
from experiments import build, cifar10, mario_iggy, mnist
from flowjax_inv import training
from flowjax_inv.noise import draw_noise, split_key
from flowjax_inv.objectives import view_cross_entropy

LAYOUTS = {"torch NCHW": torch.contiguous_format, "torch NHWC": torch.channels_last}
STEPS, PER_EPOCH = 1000, 200  # of the schedules
TRAIN_IMAGES = 1024
CLASSIFIERS = {
    "simple_conv": torch_models.simple_conv,
    "lenet": torch_models.lenet,
    "fixup_resnet": torch_models.fixup_resnet,
}
MATRICES = {
    "rotation_translation": torch_models.shifted_turns,
    "affine": torch_models.exponentials,
}


class TorchStep:
    """The step in PyTorch.

    Args:
        config: of the experiment.
        half_range: of its transform.
        params: our tree, where both sides start.
        images: (n, H, W, C) uint8, the train split.
        labels: (n,).
        layout: of pictures and kernels in memory.
    """

    def __init__(
        self,
        config: Any,
        half_range: tuple[float, ...],
        params: Any,
        images: np.ndarray,
        labels: np.ndarray,
        layout: torch.memory_format,
    ):
        self.config, self.half_range, self.layout = config, half_range, layout
        self.images = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(memory_format=layout)
        self.labels = torch.from_numpy(labels).long()
        self.leaves = {
            name: tensor.requires_grad_()
            for name, tensor in torch_models.parameters(params, layout).items()
        }
        self.classifier, self.distribution = (
            torch_models.part(self.leaves, name) for name in ("classifier", "distribution")
        )
        self.embedding = torch_models.part(self.distribution, "embed")
        fields = config.distribution
        self.dim = len(half_range)
        self.flow = torch_models.SquashedFlow(
            self.dim,
            fields.layers,
            fields.log_scale_cap,
            fields.inner_squash,
            fields.tanh_width,
            fields.permutation_seed,
        )
        self.optimizers = [
            self._optimizer(config.optimizer[name], list(part.values()))
            for name, part in (
                ("classifier", self.classifier),
                ("distribution", self.distribution),
            )
        ]
        self.done = 0
        self.totals = torch.zeros(3)

    def _optimizer(self, section: Any, leaves: list[torch.Tensor]) -> torch.optim.Optimizer:
        kind: Any = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[section.name]
        return kind(leaves, lr=section.learning_rate, weight_decay=section.weight_decay, fused=True)

    def draw(self, batch: int) -> tuple[torch.Tensor, ...]:
        """Draw the numbers that a base turns into samples."""
        lead = (self.config.objective.copies, batch)
        if self.config.distribution.base == "box":
            return (torch.rand(*lead, self.dim),)
        components = self.config.distribution.components
        gumbel = -torch.empty(*lead, components).exponential_().log()
        return gumbel, torch.randn(*lead, self.dim)

    def loss(
        self, indices: np.ndarray, drawn: tuple[torch.Tensor, ...], alpha: float
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return loss, accuracy and mean log-density of a batch."""
        chosen = torch.from_numpy(indices)
        images = (self.images[chosen].float() / 255.0).contiguous(memory_format=self.layout)
        labels, fields = self.labels[chosen], self.config.distribution
        embedding = torch_models.simple_conv(self.embedding, images)
        if fields.base == "box":
            z, log_base = torch_models.box_base(self.distribution, embedding, *drawn)
        else:
            z, log_base = torch_models.mixture_base(
                self.distribution, embedding, *drawn, fields.temperature
            )
        theta, log_det = self.flow.forward(self.distribution, z, embedding)
        log_prob = log_base - log_det
        matrices = MATRICES[self.config.transform.subgroup](theta, self.half_range)
        copies = theta.shape[0]
        views = torch_models.warp(images.repeat(copies, 1, 1, 1), matrices.flatten(0, 1))
        original = self.config.objective.include_original
        if original:
            views = torch.cat([images, views])
        views = views.contiguous(memory_format=self.layout)
        logits = CLASSIFIERS[self.config.classifier.name](self.classifier, views)
        logits = logits.unflatten(0, (copies + original, -1))
        of_views = logits[original:]
        if self.config.objective.average == "logits":
            loss = functional.cross_entropy(of_views.mean(0), labels)
        else:
            loss = functional.cross_entropy(of_views.flatten(0, 1), labels.repeat(copies))
        if original:
            loss = loss + functional.cross_entropy(logits[0], labels)
        right = (of_views.argmax(-1) == labels).float().mean()
        return loss + alpha * log_prob.mean(), right, log_prob.mean()

    def alpha(self) -> float:
        """Return the weight of the entropy at this step."""
        fields = self.config.controller
        if fields.name == "constant":
            return fields.value
        return fields.start + (fields.end - fields.start) * min(self.done / STEPS, 1.0)

    def update(self) -> None:
        """Apply the gradients at this step's learning rates."""
        share = 0.5 * (1.0 + math.cos(math.pi * min(self.done / STEPS, 1.0)))
        names = ("classifier", "distribution")
        for name, optimizer in zip(names, self.optimizers, strict=True):
            section = self.config.optimizer[name]
            rate = section.final_fraction + (1.0 - section.final_fraction) * share
            optimizer.param_groups[0]["lr"] = section.learning_rate * rate
            optimizer.step()
        self.done += 1

    def __call__(self, indices: np.ndarray) -> None:
        """Make one step; the loss and the like are added up, not read."""
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss, right, log_prob = self.loss(indices, self.draw(len(indices)), self.alpha())
        loss.backward()
        self.update()
        with torch.no_grad():
            self.totals += torch.stack([loss, right, log_prob])


def _row(
    name: str, config: Any, images: np.ndarray, labels: np.ndarray, classes: int, repeats: int
) -> timing.Row:
    """Check one experiment's step against PyTorch's, and time both."""
    transform = build.transform(config)
    classifier = build.network(config, "classifier", classes=classes)
    distribution = build.distribution(config, transform, classes=classes)
    objective = build.objective(config, distribution)
    optimizer = build.optimizer(config, total_steps=STEPS, steps_per_epoch=PER_EPOCH)
    controller = build.controller(config, total_steps=STEPS, steps_per_epoch=PER_EPOCH)
    batch = config.train.batch_size
    state = training.init_state(
        classifier,
        distribution,
        optimizer,
        controller,
        jnp.asarray(images[:batch]),
        key=jax.random.key(0),
    )
    step = training.make_step(classifier, distribution, transform, optimizer, controller, objective)

    random, key = np.random.default_rng(0), jax.random.key(1)
    indices = random.permutation(len(images))[:batch]

    def ours_loss(params: Any, key: jax.Array) -> jax.Array:
        seen = jnp.asarray(images[indices], jnp.float32) / 255.0
        right = jnp.asarray(labels[indices])
        density: Any = distribution.apply({"params": params["distribution"]}, seen)
        theta, log_prob = density.sample_and_log_prob(seed=key, sample_shape=(objective.copies,))
        views = transform(seen, theta).reshape(-1, *seen.shape[1:])

        def classify(pictures: Any) -> Any:
            return classifier.apply({"params": params["classifier"]}, pictures)

        logits = classify(views).reshape(objective.copies, batch, classes)
        loss = jnp.mean(view_cross_entropy(logits, right, objective.average))
        if objective.include_original:
            original = classify(seen)[None]
            loss += jnp.mean(view_cross_entropy(original, right, "losses"))
        return loss + controller.alpha(state.controller) * jnp.mean(log_prob)

    def drawn(key: jax.Array) -> tuple[jax.Array, ...]:
        copies = objective.copies
        if config.distribution.base == "box":
            return (draw_noise(jax.random.uniform, key, copies, (batch, transform.dim)),)
        key_component, key_normal = split_key(key)
        components = (batch, config.distribution.components)
        return (
            draw_noise(jax.random.gumbel, key_component, copies, components),
            draw_noise(jax.random.normal, key_normal, copies, (batch, transform.dim)),
        )

    # Away from the start, where the flow is near the identity; by the same numbers on both sides.
    params: Any = jax.tree.map(
        lambda leaf: np.asarray(leaf) + 0.02 * random.normal(size=leaf.shape).astype(np.float32),
        state.params,
    )
    sides = {
        side: TorchStep(config, transform.half_range, params, images, labels, layout)
        for side, layout in LAYOUTS.items()
    }
    loss, gradients = jax.jit(jax.value_and_grad(ours_loss))(params, key)
    numbers = tuple(torch.from_numpy(np.array(array)) for array in drawn(key))
    largest = 0.0
    for side, theirs in sides.items():
        torch_loss, *_ = theirs.loss(indices, numbers, theirs.alpha())
        torch_loss.backward()
        largest = max(
            largest, timing.difference(loss, torch_loss.item(), 1e-5, f"{name}, {side}: loss")
        )
        # In their layout: the fused optimizer reads gradients as if they lay as parameters do.
        ours = torch_models.parameters(gradients, theirs.layout)
        for path, leaf in theirs.leaves.items():
            got = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
            what = f"{name}, {side}: gradient of {path}"
            # Outside a view all is equal: which entry of a pooling window is the largest, and gets
            # the gradient, is then up to rounding.
            largest = max(largest, timing.difference(ours[path], got, 1e-2, what))
            leaf.grad = ours[path]
        theirs.update()
        updates, _ = optimizer.update(gradients, state.opt_state, params)
        moved = torch_models.parameters(optax.apply_updates(params, updates))
        for path, leaf in theirs.leaves.items():
            what = f"{name}, {side}: {path} after one update"
            # Of parameters of one number, some happen to be hardly more than the update.
            timing.difference(moved[path], leaf.detach(), 1e-4, what)

    order = [random.permutation(len(images))[:batch] for _ in range(8)]
    images_in, labels_in = jax.device_put((images, labels))
    held = {"state": state, "turn": 0}

    def ours_call() -> None:
        held["state"] = step(held["state"], images_in, labels_in, order[held["turn"] % 8])
        held["turn"] += 1
        jax.block_until_ready(held["state"])

    def torch_call(theirs: TorchStep) -> Callable[[], None]:
        def call() -> None:
            theirs(order[theirs.done % 8])

        return call

    calls = {timing.OURS: ours_call, **{side: torch_call(s) for side, s in sides.items()}}
    row = timing.compare(timing.measure(calls, repeats=repeats))
    copies = objective.copies
    return row | {"work": f"step {name}, {batch} images, {copies} copies", "difference": largest}


def _cifar10(copies: int) -> Any:
    """Return the config of a step of 256 images on which the density learns; both by AdamW."""
    config = cifar10.get_config("cpu")
    config.train.batch_size, config.objective.copies = 256, copies
    config.objective.burn_in_epochs = 0
    config.optimizer.classifier = config.optimizer.distribution
    return config


def _rows(repeats: int) -> list[timing.Row]:
    rows = []
    random = np.random.default_rng(0)
    few, fewer = max(repeats // 4, 3), max(repeats // 8, 3)  # those take seconds
    for name, config, shape, classes, rounds in (
        ("mario_iggy:paper", mario_iggy.get_config("paper"), (32, 32, 3), 2, repeats),
        ("mnist:cpu", mnist.get_config("cpu"), (28, 28, 1), 10, repeats),
        ("cifar10:cpu", _cifar10(5), (32, 32, 3), 10, few),
        ("cifar10:cpu", _cifar10(20), (32, 32, 3), 10, fewer),
    ):
        # Random pictures: what they show does not change the work.
        images = random.integers(0, 256, (TRAIN_IMAGES, *shape), dtype=np.uint8)
        labels = random.integers(0, classes, TRAIN_IMAGES)
        rows.append(_row(name, config, images, labels, classes, rounds))
    return rows


if __name__ == "__main__":
    timing.main(
        "step",
        _rows,
        {"configs": ["mario_iggy:paper", "mnist:cpu", "cifar10:cpu"], "train_images": TRAIN_IMAGES},
        sys.argv[1:],
        about="Whole train steps against the same in PyTorch.",
        allocators="both",
    )
