"""Archives of a few random pictures, laid out as the official ones are."""

import gzip
from pathlib import Path

import numpy as np
from PIL import Image

IDX_SIZES = {"train": 7, "t10k": 4}
WNIDS = ("n00000003", "n00000001", "n00000002")


def write_idx(folder: Path, *, packed: bool = True) -> dict[str, np.ndarray]:
    """Write MNIST's four files; return their arrays by name."""
    folder.mkdir(parents=True, exist_ok=True)
    random, arrays = np.random.default_rng(0), {}
    for prefix, size in IDX_SIZES.items():
        arrays[f"{prefix}-images-idx3-ubyte"] = random.integers(0, 256, (size, 28, 28), np.uint8)
        arrays[f"{prefix}-labels-idx1-ubyte"] = (np.arange(size) * 3 % 10).astype(np.uint8)
    for name, array in arrays.items():
        data = idx_bytes(array)
        path = folder / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(data) if packed else data)
    return arrays


def idx_bytes(array: np.ndarray) -> bytes:
    """Return the uncompressed contents of an idx file."""
    sizes = np.array(array.shape, ">u4").tobytes()
    return bytes((0, 0, 8, array.ndim)) + sizes + array.tobytes()


def write_cifar(folder: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Write CIFAR-10's six .bin files; return images (N, 32, 32, 3) and labels by split."""
    folder.mkdir(parents=True, exist_ok=True)
    random, splits = np.random.default_rng(1), {"train": [], "test": []}
    for name in [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]:
        rows = random.integers(0, 256, (2, 3073), np.uint8)
        rows[:, 0] %= 10
        (folder / f"{name}.bin").write_bytes(rows.tobytes())
        splits["test" if name == "test_batch" else "train"].append(rows)
    joined = {split: np.concatenate(rows) for split, rows in splits.items()}
    return {
        split: (rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), rows[:, 0])
        for split, rows in joined.items()
    }


def write_tiny(folder: Path) -> None:
    """Write tiny-imagenet-200 with three classes, one grey picture, and one class of two."""
    random = np.random.default_rng(2)

    def jpeg(path: Path, *, grey: bool = False) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 256, (64, 64) if grey else (64, 64, 3), np.uint8)
        Image.fromarray(pixels).save(path, "JPEG")

    for number, wnid in enumerate(WNIDS):
        for k in range(2 if number == 0 else 1):
            jpeg(folder / "train" / wnid / "images" / f"{wnid}_{k + 9}.JPEG", grey=number == 1)
    (folder / "wnids.txt").write_text("".join(f"{wnid}\n" for wnid in WNIDS))
    lines = (f"{wnid}\tword{wnid[-1]}, other name\n" for wnid in WNIDS)
    (folder / "words.txt").write_text("".join(lines) + "n99999999\tnot ours\n")
    rows = []
    for k, wnid in enumerate(WNIDS[::-1]):
        jpeg(folder / "val" / "images" / f"val_{k}.JPEG")
        rows.append(f"val_{k}.JPEG\t{wnid}\t0\t0\t62\t62\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(rows))


def write_faces(folder: Path) -> None:
    """Write the Olivetti faces' 400 pictures of noise as arrays."""
    folder.mkdir(parents=True, exist_ok=True)
    images = np.random.default_rng(4).integers(0, 256, (400, 112, 92), np.uint8)
    np.savez(folder / "faces.npz", images=images, person=np.repeat(np.arange(40), 10))


def write_folder(folder: Path, *, size: tuple[int, int] = (6, 8), grey: bool = False) -> None:
    """Write train/CLASS and test/CLASS with PNG pictures of (height, width)."""
    random = np.random.default_rng(3)
    for split, count in (("train", 3), ("test", 1)):
        for class_name in ("cats", "dogs"):
            place = folder / split / class_name
            place.mkdir(parents=True, exist_ok=True)
            for k in range(count):
                shape = size if grey else (*size, 3)
                pixels = random.integers(0, 256, shape, np.uint8)
                Image.fromarray(pixels).save(place / f"{k}.png")
