"""The train step of `benchmarks.step` in PyTorch."""

import contextlib
import math
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from benchmarks import torch_models
from benchmarks.torch_device import DEVICE, pictures, tensor

__all__ = ["TorchStep"]

_CLASSIFIERS = {
    "simple_conv": torch_models.simple_conv,
    "lenet": torch_models.lenet,
    "fixup_resnet": torch_models.fixup_resnet,
}
_MATRICES = {
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
        steps: of the schedules.
        layout: of pictures and kernels in memory.
        compiled: by `torch.compile`: all but the gradients' update.
    """

    def __init__(
        self,
        config: Any,
        half_range: tuple[float, ...],
        params: Any,
        images: np.ndarray,
        labels: np.ndarray,
        steps: int,
        layout: torch.memory_format,
        *,
        compiled: bool = False,
    ):
        self.config, self.steps, self.layout = config, steps, layout
        self.images, self.labels = pictures(images, layout), tensor(labels).long()
        self.mean, self.std = (
            tensor(config.data[name]).float().reshape(-1, 1, 1) for name in ("mean", "std")
        )
        self.units = torch_models.units(half_range)
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
        self.measured = torch.compile(self._measured) if compiled else self._measured
        self.done = 0
        self.totals = torch.zeros(3, device=DEVICE)

    def _optimizer(self, section: Any, leaves: list[torch.Tensor]) -> torch.optim.Optimizer:
        kind: Any = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[section.name]
        return kind(leaves, lr=section.learning_rate, weight_decay=section.weight_decay, fused=True)

    def draw(self, batch: int) -> tuple[torch.Tensor, ...]:
        """Draw the numbers that a base turns into samples."""
        lead = (self.config.objective.copies, batch)
        if self.config.distribution.base == "box":
            return (torch.rand(*lead, self.dim, device=DEVICE),)
        components = self.config.distribution.components
        gumbel = -torch.empty(*lead, components, device=DEVICE).exponential_().log()
        return gumbel, torch.randn(*lead, self.dim, device=DEVICE)

    def loss(
        self, indices: np.ndarray, drawn: tuple[torch.Tensor, ...], alpha: float
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return loss, accuracy and mean log-density of a batch."""
        cross_entropy, right, log_prob = self.measured(tensor(indices), *drawn)
        return cross_entropy + alpha * log_prob, right, log_prob

    def _measured(self, chosen: torch.Tensor, *drawn: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return cross-entropy, accuracy and mean log-density of a batch."""
        scaled = (self.images[chosen].float() / 255.0 - self.mean) / self.std
        images = scaled.contiguous(memory_format=self.layout)
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
        matrices = _MATRICES[self.config.transform.subgroup](theta * self.units)
        copies = theta.shape[0]
        views = torch_models.warp(images.repeat(copies, 1, 1, 1), matrices.flatten(0, 1))
        original = self.config.objective.include_original
        if original:
            views = torch.cat([images, views])
        views = views.contiguous(memory_format=self.layout)
        with self._precision():
            logits = _CLASSIFIERS[self.config.classifier.name](self.classifier, views)
        logits = logits.float().unflatten(0, (copies + original, -1))
        of_views = logits[original:]
        if self.config.objective.average == "logits":
            loss = functional.cross_entropy(of_views.mean(0), labels)
        else:
            loss = functional.cross_entropy(of_views.flatten(0, 1), labels.repeat(copies))
        if original:
            loss = loss + functional.cross_entropy(logits[0], labels)
        right = (of_views.argmax(-1) == labels).float().mean()
        return loss, right, log_prob.mean()

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context in which the classifier computes."""
        dtype = getattr(torch, self.config.classifier.dtype)
        return torch.autocast(DEVICE.type, dtype, enabled=dtype != torch.float32)

    def alpha(self) -> float:
        """Return the weight of the entropy at this step."""
        fields = self.config.controller
        if fields.name == "constant":
            return fields.value
        return fields.start + (fields.end - fields.start) * min(self.done / self.steps, 1.0)

    def update(self) -> None:
        """Apply the gradients at this step's learning rates."""
        share = 0.5 * (1.0 + math.cos(math.pi * min(self.done / self.steps, 1.0)))
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
