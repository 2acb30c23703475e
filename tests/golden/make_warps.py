"""Write warps.npz: PyTorch's affine_grid + grid_sample, values and gradients in the matrix.

Run by hand where PyTorch is installed: python tests/golden/make_warps.py
"""

import math
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

HEIGHT, WIDTH, CHANNELS = 7, 11, 3


def rotation(degrees: float) -> np.ndarray:
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return np.array([[c, -s], [s, c]])


def matrices() -> np.ndarray:
    # Odd offsets keep positions off the pixel centres, where the derivative jumps.
    nudge = (0.0131, -0.0217)
    rows = [
        (np.eye(2), (0.0, 0.0)),  # identity: values only
        (rotation(30.0), nudge),
        (rotation(-155.0), nudge),
        (np.diag([0.63, 1.41]), nudge),
        (np.array([[1.0, 0.37], [0.0, 1.0]]), nudge),
        (np.eye(2), (0.613, -0.427)),  # partly outside
        (np.eye(2), (5.0, 0.3)),  # wholly outside
        (1.2 * rotation(70.0) @ np.array([[1.0, 0.2], [0.2, 0.9]]), (-0.31, 0.18)),
    ]
    full = [np.vstack([np.column_stack([a, t]), [0.0, 0.0, 1.0]]) for a, t in rows]
    return np.stack(full).astype(np.float32)


def main() -> None:
    generator = np.random.default_rng(0)
    images = generator.normal(size=(2, HEIGHT, WIDTH, CHANNELS)).astype(np.float32)
    maps = matrices()
    weights = generator.normal(size=(len(maps), *images.shape)).astype(np.float32)
    out: dict[str, np.ndarray] = {"images": images, "matrices": maps, "weights": weights}
    for align_corners in (True, False):
        for padding in ("zeros", "border"):
            values, gradients = [], []
            for matrix, weight in zip(maps, weights, strict=True):
                m = torch.tensor(matrix, requires_grad=True)
                batch = torch.tensor(images).permute(0, 3, 1, 2)
                grid = functional.affine_grid(
                    m[None, :2].expand(len(images), 2, 3), list(batch.shape), align_corners
                )
                warped = functional.grid_sample(
                    batch, grid, mode="bilinear", padding_mode=padding, align_corners=align_corners
                ).permute(0, 2, 3, 1)
                (warped * torch.tensor(weight)).sum().backward()
                assert m.grad is not None
                values.append(warped.detach().numpy())
                gradients.append(m.grad.numpy())
            name = f"{padding}_{'centres' if align_corners else 'edges'}"
            out[f"values_{name}"] = np.stack(values)
            out[f"gradients_{name}"] = np.stack(gradients)
    np.savez_compressed(Path(__file__).with_name("warps.npz"), **out)


if __name__ == "__main__":
    main()
