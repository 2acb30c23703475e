"""The networks, the flow and the warp of a training step in PyTorch, on our own parameters.

Functions of a dictionary of tensors, named and shaped as in our tree of parameters (kernels of
convolutions apart), so that both sides can start from the same values and gradients be compared.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import flax.traverse_util
import jax
import numpy as np
import torch
from torch.nn import functional

from benchmarks.torch_device import DEVICE, tensor

__all__ = [
    "SquashedFlow",
    "box_base",
    "exponentials",
    "fixup_resnet",
    "gaussian_base",
    "gaussian_parameters",
    "lenet",
    "mixture_base",
    "parameters",
    "part",
    "shifted_turns",
    "simple_conv",
    "squash",
    "units",
    "warp",
]

Tensors = Mapping[str, torch.Tensor]


def parameters(
    tree: Any, layout: torch.memory_format = torch.contiguous_format
) -> dict[str, torch.Tensor]:
    """Return a tree of our arrays (parameters or gradients) as tensors by "path/of/name"."""
    flat = flax.traverse_util.flatten_dict(jax.device_get(tree), sep="/")
    tensors = {name: tensor(leaf) for name, leaf in flat.items()}
    for name, leaf in tensors.items():
        if leaf.ndim == 4:  # height, width, in, out -> out, in, height, width
            tensors[name] = leaf.permute(3, 2, 0, 1).contiguous(memory_format=layout)
    return tensors


def part(tensors: Tensors, name: str, joint: str = "/") -> dict[str, torch.Tensor]:
    """Return the tensors below a name."""
    head = name + joint
    return {k.removeprefix(head): v for k, v in tensors.items() if k.startswith(head)}


def _dense(p: Tensors, name: str, x: torch.Tensor) -> torch.Tensor:
    return torch.addmm(p[f"{name}/bias"], x, p[f"{name}/kernel"])


def simple_conv(p: Tensors, images: torch.Tensor) -> torch.Tensor:
    """Map images (N, C, H, W) as `networks.SimpleConv` does without batch norm."""
    x = images
    for stage in range(4):
        x = functional.conv2d(x, p[f"conv{stage}/kernel"], p[f"conv{stage}/bias"], padding=1)
        x = torch.relu(functional.max_pool2d(x, 2) if stage else x)
    return _dense(p, "head", x.amax(dim=(2, 3)))


def lenet(p: Tensors, images: torch.Tensor) -> torch.Tensor:
    """Map images (N, 1, 28, 28) as `networks.LeNet` does."""
    x = images
    for stage in range(3):
        x = functional.conv2d(x, p[f"conv{stage}/kernel"], p[f"conv{stage}/bias"])
        x = torch.tanh(functional.max_pool2d(x, 2) if stage < 2 else x)
    return _dense(p, "head", torch.tanh(_dense(p, "dense", x.flatten(1))))


def fixup_resnet(p: Tensors, images: torch.Tensor) -> torch.Tensor:
    """Map images (N, C, H, W) as `networks.FixupResNet` does."""
    x = torch.relu(functional.conv2d(images, p["conv/kernel"], padding=1) + p["bias"])
    for block in range(3):
        own = part(p, f"block{block}", "_")
        a, stride = x + own["bias1a"], 1 if block == 0 else 2
        shortcut = x
        if stride == 2:
            every_second = a[:, :, ::2, ::2]
            shortcut = torch.cat([every_second, torch.zeros_like(every_second)], dim=1)
        h = functional.conv2d(a, own["conv1/kernel"], stride=stride, padding=1)
        h = torch.relu(h + own["bias1b"]) + own["bias2a"]
        h = functional.conv2d(h, own["conv2/kernel"], padding=1)
        x = torch.relu(own["scale"] * h + own["bias2b"] + shortcut)
    return _dense(p, "head", x.mean(dim=(2, 3)) + p["head_bias"])


def units(half_range: Sequence[float]) -> torch.Tensor:
    """Return what theta is multiplied by: half-ranges, that of the angle in radians."""
    return tensor([*half_range[:2], math.radians(half_range[2]), *half_range[3:]]).float()


def shifted_turns(scaled: torch.Tensor) -> torch.Tensor:
    """Return (..., 2, 3) of `Affine("rotation_translation")`: translations, then the rotation."""
    x, y, angle = scaled.unbind(-1)
    cos, sin = torch.cos(angle), torch.sin(angle)
    return torch.stack([cos, -sin, x, sin, cos, y], dim=-1).unflatten(-1, (2, 3))


def exponentials(scaled: torch.Tensor) -> torch.Tensor:
    """Return (..., 2, 3) of `Affine("affine")` in Augerino's basis."""
    x, y, angle, scale, stretch, shear = scaled.unbind(-1)
    zero = torch.zeros_like(x)
    rows = [scale + stretch, shear - angle, x, shear + angle, scale - stretch, y, zero, zero, zero]
    return torch.matrix_exp(torch.stack(rows, dim=-1).unflatten(-1, (3, 3)))[..., :2, :]


def warp(images: torch.Tensor, matrices: torch.Tensor) -> torch.Tensor:
    """Sample images (N, C, H, W) bilinearly by (N, 2, 3), as `warps.warp` does."""
    grid = functional.affine_grid(matrices, list(images.shape), align_corners=True)
    return functional.grid_sample(images, grid, padding_mode="zeros", align_corners=True)


class SquashedFlow:
    """The paper's flow as `distributions.flow.Flow` makes it: affine couplings, squashed to a box.

    Args:
        dim: coordinates.
        layers: couplings.
        log_scale_cap, inner_squash, tanh_width, permutation_seed: as there.
    """

    def __init__(
        self,
        dim: int,
        layers: int,
        log_scale_cap: float = 3.0,
        inner_squash: float = 6.0,
        tanh_width: float = 1.0,
        permutation_seed: int = 0,
    ):
        self.kept, self.layers, self.log_scale_cap = (dim + 1) // 2, layers, log_scale_cap
        self.inner_squash, self.tanh_width, self.dim = inner_squash, tanh_width, dim
        random = np.random.RandomState(permutation_seed)
        orders = [[1, 0] if dim == 2 else random.permutation(dim).tolist() for _ in range(layers)]
        self.orders = [tensor(order) for order in orders]

    def forward(
        self, p: Tensors, z: torch.Tensor, embedding: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Map z (n, N, d) given the embedding (N, E): theta, log |d theta / dz| (n, N)."""
        log_det = torch.zeros(z.shape[:-1], device=DEVICE)
        for layer in range(self.layers):
            z, log_scale = self._coupling(p, layer, z, embedding)
            z, change = squash(z, self.inner_squash, self.inner_squash)
            log_det = log_det + log_scale.sum(-1) + change
        z, change = squash(z, 1.0, self.tanh_width)
        return z, log_det + change

    def values(self, p: Tensors, z: torch.Tensor, embedding: torch.Tensor) -> torch.Tensor:
        """Map as `forward` does, without the log-determinant."""
        for layer in range(self.layers):
            z, _ = self._coupling(p, layer, z, embedding)
            z = self.inner_squash * torch.tanh(z / self.inner_squash)
        return torch.tanh(z / self.tanh_width)

    def _coupling(
        self, p: Tensors, layer: int, z: torch.Tensor, embedding: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return z coupled and permuted, and the log-scales."""
        kernel = p[f"coupling{layer}/kernel0"]
        # The embedding's share once per image, and only the outputs that are used.
        context = torch.addmm(p[f"coupling{layer}/bias0"], embedding, kernel[self.dim :])
        kept, moved = z[..., : self.kept], z[..., self.kept :]
        hidden = torch.relu(kept @ kernel[: self.kept] + context)
        outputs = hidden @ p[f"coupling{layer}/kernel1"][:, 2 * self.kept :]
        outputs = outputs + p[f"coupling{layer}/bias1"][2 * self.kept :]
        cap = self.log_scale_cap
        log_scale = cap * torch.tanh(outputs[..., 1::2] / cap)
        z = torch.cat([kept, moved * torch.exp(log_scale) + outputs[..., 0::2]], dim=-1)
        return z[..., self.orders[layer]], log_scale


def squash(z: torch.Tensor, limit: float, width: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return limit tanh(z / width) and its log-determinant."""
    u = z / width
    each = 2.0 * (math.log(2.0) - u - functional.softplus(-2.0 * u)) + math.log(limit / width)
    return limit * torch.tanh(u), each.sum(-1)


def _bounded(x: torch.Tensor, low: float, high: float) -> torch.Tensor:
    middle, half = (low + high) / 2, (high - low) / 2
    return middle + half * torch.tanh((x - middle) / half)


def _parameter(p: Tensors, name: str, embedding: torch.Tensor) -> torch.Tensor:
    projected = _dense(p, f"{name}_projection", embedding)
    return p[name] + projected.unflatten(-1, p[name].shape)


def box_base(
    p: Tensors, embedding: torch.Tensor, uniform: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return z and log density of the learned box at the drawn numbers (n, N, d) in [0, 1]."""
    log_width = _bounded(_parameter(p, "log_width", embedding), -6.0, math.log(2.0))
    z = _parameter(p, "loc", embedding) + (uniform - 0.5) * torch.exp(log_width)
    return z, (-log_width.sum(-1)).expand(z.shape[:-1])


def gaussian_base(
    p: Tensors, embedding: torch.Tensor, normal: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return z and log density of one Gaussian (a mixture of one) at normal numbers (n, N, d)."""
    loc, log_scale = gaussian_parameters(p, embedding)
    log_prob = (-0.5 * normal**2 - log_scale - 0.5 * math.log(2.0 * math.pi)).sum(-1)
    return loc + torch.exp(log_scale) * normal, log_prob


def gaussian_parameters(p: Tensors, embedding: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return loc and log_scale (N, d) of the mixture of one."""
    loc = _bounded(_parameter(p, "loc", embedding), -1.0, 1.0)
    log_scale = _bounded(_parameter(p, "log_scale", embedding), -6.0, math.log(2.0))
    return loc[:, 0], log_scale[:, 0]


def mixture_base(
    p: Tensors,
    embedding: torch.Tensor,
    gumbel: torch.Tensor,
    normal: torch.Tensor,
    temperature: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return z and log density of the mixture at its drawn numbers (n, N, K) and (n, N, d)."""
    loc = _bounded(_parameter(p, "loc", embedding), -1.0, 1.0)
    log_scale = _bounded(_parameter(p, "log_scale", embedding), -6.0, math.log(2.0))
    log_weights = torch.log_softmax(_parameter(p, "logits", embedding), dim=-1)
    scores = log_weights + gumbel
    soft = torch.softmax(scores / temperature, dim=-1)
    chosen = functional.one_hot(scores.argmax(-1), scores.shape[-1]) + (soft - soft.detach())
    centre = torch.einsum("...k,...kd->...d", chosen, loc)
    z = centre + torch.einsum("...k,...kd->...d", chosen, torch.exp(log_scale)) * normal
    standard = (z[..., None, :] - loc) * torch.exp(-log_scale)
    each = -0.5 * standard**2 - log_scale - 0.5 * math.log(2.0 * math.pi)
    return z, torch.logsumexp(log_weights + each.sum(-1), dim=-1)
