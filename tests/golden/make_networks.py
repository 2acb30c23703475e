"""Write networks.npz: outputs and gradient norms of the networks as PyTorch computes them.

    .venv/bin/python tests/golden/make_networks.py

Needs the extra `bench` (PyTorch). Nothing random and no stored weights: parameters and pictures
follow from `formula` by their names, which tests/test_networks.py repeats. The modules carry the
names of ours. Per network: `logits` in evaluation, and, in training mode, `train_logits` and the
norms over all parameters and over the pictures of the gradient of sum(logits * formula("pull")).
"""

import zlib
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def formula(path, shape):
    """Return numbers in [-1, 1]: squares modulo 1009, started by the checksum of the name."""
    i = np.arange(np.prod(shape), dtype=np.int64)
    u = (7 * i * i + 13 * i + zlib.crc32(path.encode())) % 1009 / 504 - 1
    kind = path.rpartition("/")[2]
    if kind == "kernel":
        u = u * np.sqrt(3 / np.prod(shape[:-1]))  # variance 1 / fan_in
    elif kind.endswith("scale") or kind == "var":
        u = 1 + 0.2 * u
    elif kind not in ("images", "pull"):
        u = 0.2 * u
    return u.reshape(shape).astype(np.float32)


def conv(c, d, k, stride=1, padding=0, bias=True):
    return nn.Conv2d(c, d, k, stride, padding, bias=bias)


class SimpleConv(nn.Module):
    def __init__(self, width, features, channels):
        super().__init__()
        widths = [channels, *(width * m for m in (1, 2, 4, 8))]
        for i in range(4):
            self.add_module(f"conv{i}", conv(widths[i], widths[i + 1], 3, padding=1))
        self.head = nn.Linear(widths[-1], features)

    def forward(self, x):
        for i in range(4):
            x = F.relu(self.get_submodule(f"conv{i}")(x))
            x = F.max_pool2d(x, 2) if i else x
        return self.head(F.max_pool2d(x, x.shape[-1]).flatten(1))


class LeNet(nn.Module):
    def __init__(self, middle, channels, act):
        super().__init__()
        self.act = act
        self.conv0, self.conv1 = conv(channels, 6, 5), conv(6, 16, middle)
        self.conv2 = conv(16, 120, 5)
        self.dense, self.head = nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(self.act(self.conv0(x)), 2)
        x = F.max_pool2d(self.act(self.conv1(x)), 2)
        x = self.act(self.conv2(x).flatten(1))
        return self.head(self.act(self.dense(x)))


class FixupResNet(nn.Module):
    def __init__(self, w, features=10):
        super().__init__()
        self.conv, self.head = conv(3, w, 3, 1, 1, bias=False), nn.Linear(4 * w, features)
        self.bias, self.head_bias = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
        width = w
        for b in range(3):
            out = w * 2**b
            self.add_module(f"block{b}_conv1", conv(width, out, 3, 1 if b == 0 else 2, 1, False))
            self.add_module(f"block{b}_conv2", conv(out, out, 3, 1, 1, bias=False))
            for name in ("bias1a", "bias1b", "bias2a", "scale", "bias2b"):
                self.register_parameter(f"block{b}_{name}", nn.Parameter(torch.zeros(1)))
            width = out

    def forward(self, x):
        x = F.relu(self.conv(x) + self.bias)
        for b in range(3):
            p = {n.removeprefix(f"block{b}_"): v for n, v in self.named_parameters()}
            a = x + p["bias1a"]
            h = F.relu(self.get_submodule(f"block{b}_conv1")(a) + p["bias1b"])
            h = self.get_submodule(f"block{b}_conv2")(h + p["bias2a"])
            h = h * p["scale"] + p["bias2b"]
            if b:
                a = F.avg_pool2d(a, 1, 2)
                x = torch.cat((a, torch.zeros_like(a)), dim=1)
            x = F.relu(h + x)
        return self.head(x.mean((2, 3)) + self.head_bias)


class Layer13(nn.Module):
    def __init__(self, k):
        super().__init__()
        c = 3
        for i in range(9):
            d = k if i < 2 else 2 * k
            self.add_module(f"conv{i}", conv(c, d, 3, padding=1))
            self.add_module(f"norm{i}", nn.BatchNorm2d(d))
            c = d
        self.head = nn.Linear(2 * k, 10)

    def forward(self, x):
        for i in range(9):
            x = F.relu(self.get_submodule(f"norm{i}")(self.get_submodule(f"conv{i}")(x)))
            x = F.max_pool2d(x, 2) if i in (2, 5) else x
        return self.head(x.mean((2, 3)))


class PreActResNet18(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.conv, self.head = conv(3, 64, 3, 2, 1, bias=False), nn.Linear(512, features)
        c = 64
        for b in range(8):
            d, s = 64 * 2 ** (b // 2), 2 if b in (2, 4, 6) else 1
            self.add_module(f"block{b}_norm1", nn.BatchNorm2d(c))
            self.add_module(f"block{b}_norm2", nn.BatchNorm2d(d))
            self.add_module(f"block{b}_conv1", conv(c, d, 3, s, 1, bias=False))
            self.add_module(f"block{b}_conv2", conv(d, d, 3, 1, 1, bias=False))
            if c != d:
                self.add_module(f"block{b}_shortcut", conv(c, d, 1, s, bias=False))
            c = d

    def forward(self, x):
        x = self.conv(x)
        for b in range(8):
            part = {n.removeprefix(f"block{b}_"): m for n, m in self.named_modules()}
            a = F.relu(part["norm1"](x))
            x = part["shortcut"](a) if "shortcut" in part else x
            x = part["conv2"](F.relu(part["norm2"](part["conv1"](a)))) + x
        return self.head(x.mean((2, 3)))


class MLP(nn.Module):
    def __init__(self, size, hidden):
        super().__init__()
        self.dense0, self.head = nn.Linear(size, hidden), nn.Linear(hidden, 10)

    def forward(self, x):
        # Ours flattens rows, columns, channels.
        x = x.permute(0, 2, 3, 1).flatten(1)
        return self.head(torch.tanh(self.dense0(x)))


NETWORKS = {
    "simple_conv_28": (lambda: SimpleConv(8, 32, 1), (28, 28, 1)),
    "simple_conv_32": (lambda: SimpleConv(8, 32, 3), (32, 32, 3)),
    "lenet_28": (lambda: LeNet(3, 1, torch.tanh), (28, 28, 1)),
    "lenet_32": (lambda: LeNet(5, 3, F.relu), (32, 32, 3)),
    "fixup_resnet": (lambda: FixupResNet(16), (32, 32, 3)),
    "layer13": (lambda: Layer13(8), (16, 16, 3)),
    "preact_resnet18": (lambda: PreActResNet18(4), (32, 32, 3)),
    "mlp": (lambda: MLP(144, 20), (12, 12, 1)),
}


def our_path(name, ndim):
    """Turn conv0.weight into conv0/kernel; Fixup's scalars have no dot and keep their name."""
    *module, kind = name.split(".")
    renamed = {"running_mean": "mean", "running_var": "var"}
    if kind == "weight":
        kind = "kernel" if ndim > 1 else "scale"
    return "/".join((*module, renamed.get(kind, kind)))


def fill(net):
    """Give every parameter and statistic its formula, in the order of our axes."""
    for name, value in net.state_dict().items():
        if name.endswith("num_batches_tracked"):
            continue
        shape = tuple(value.shape)
        ours = {4: lambda s: (s[2], s[3], s[1], s[0]), 2: lambda s: s[::-1]}
        theirs = {4: (3, 2, 0, 1), 2: (1, 0)}
        path = our_path(name, len(shape))
        array = formula(path, ours.get(len(shape), lambda s: s)(shape))
        value.copy_(torch.from_numpy(array.transpose(theirs.get(len(shape), range(array.ndim)))))


def main():
    stored = {}
    for name, (make, shape) in NETWORKS.items():
        net = make()
        fill(net)
        images = torch.from_numpy(formula("images", (4, *shape)).transpose(0, 3, 1, 2).copy())
        images.requires_grad_()
        stored[f"{name}/logits"] = net.eval()(images).detach().numpy()
        logits = net.train()(images)
        stored[f"{name}/train_logits"] = logits.detach().numpy()
        pull = torch.from_numpy(formula("pull", tuple(logits.shape)))
        (logits * pull).sum().backward()
        squares = sum(p.grad.double().square().sum() for p in net.parameters())
        stored[f"{name}/gradient_norm"] = np.float32(squares.sqrt().item())
        stored[f"{name}/image_gradient_norm"] = np.float32(images.grad.norm().item())
        print(name, stored[f"{name}/logits"].std(), stored[f"{name}/gradient_norm"])
    np.savez_compressed(Path(__file__).with_name("networks.npz"), **stored)


if __name__ == "__main__":
    main()
