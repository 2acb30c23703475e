"""Pictures as users have them, of any size and mode, brought to what a network sees."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from flowjax_inv.data.sets import DataSet, Split

__all__ = [
    "ENDINGS",
    "MOST_PIXELS",
    "find_pictures",
    "open_picture",
    "open_within_limit",
    "padded",
    "picture_classes",
    "picture_set",
    "warped",
]

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".pgm", ".ppm", ".tif", ".tiff", ".webp")
MOST_PIXELS = 50_000_000  # above it a picture is not decoded: a small file may hold a huge one


def find_pictures(folder: str | Path, *, deep: bool = False) -> list[Path]:
    """Return the files of a folder that end as pictures do, by name.

    A link to a picture that is found as well is passed over: it would count twice.

    Args:
        folder: of pictures.
        deep: enter its subfolders.

    Raises:
        ValueError: if it is no folder, or holds none.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder; give the folder that holds the pictures.")
    files = folder.rglob("*") if deep else folder.iterdir()
    found = sorted(p for p in files if p.suffix.lower() in ENDINGS and p.is_file())
    own = {p.resolve() for p in found if not p.is_symlink()}
    found = [p for p in found if not p.is_symlink() or p.resolve() not in own]
    if not found:
        raise ValueError(f"{folder} holds no pictures; want files ending in {', '.join(ENDINGS)}.")
    return found


def open_within_limit(file: Path | IO[bytes]) -> Any:
    """Open a picture with PIL, not yet decoded.

    Raises:
        ValueError: if it has more than `MOST_PIXELS` pixels. PIL raises its own kinds.
    """
    from PIL import Image

    with warnings.catch_warnings():
        # PIL warns of large pictures; what is too large is refused below.
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        picture = Image.open(file)
    width, height = picture.size
    if width * height > MOST_PIXELS:
        picture.close()
        raise ValueError(f"{width}x{height} pixels, more than {MOST_PIXELS:,}")
    return picture


def open_picture(path: Path, *, channels: int) -> Any:
    """Open a picture as PIL's "L" (1 channel) or "RGB" (3): turned as its EXIF says, first frame.

    Grey becomes colour by repetition, colour grey by luminance; palettes and CMYK are converted;
    16-bit grey is scaled to 8; what is transparent shows black.

    Raises:
        ValueError: if it cannot be decoded or has more than `MOST_PIXELS` pixels.
    """
    from PIL import Image, ImageOps

    try:
        with open_within_limit(path) as opened:
            picture = ImageOps.exif_transpose(opened)
            if picture.mode.startswith(("I", "F")):
                values = np.asarray(picture, np.float64)
                top = 65535.0 if values.max() > 255 else 255.0
                picture = Image.fromarray((values * 255.0 / top).clip(0, 255).astype(np.uint8))
            if "A" in picture.getbands() or "transparency" in picture.info:
                picture = picture.convert("RGBA")
                black = Image.new("RGBA", picture.size, "black")
                picture = Image.alpha_composite(black, picture)
            return picture.convert("L" if channels == 1 else "RGB")
    except Exception as error:  # PIL raises nearly every kind for damaged files
        what = str(error).replace(str(path), "the file").replace("\n", " ")
        raise ValueError(f"{path.name} cannot be read ({what})") from error


def picture_set(
    folder: str | Path, *, size: int, channels: int, train_size: int = 0, seed: int = 0
) -> DataSet:
    """Read a folder of pictures, and its subfolders, as a set without labels.

    Each is put on a square canvas, black around it, and brought to the size; what cannot be read
    is left out and named in the set's note. The order is drawn, so that no split is one subfolder.

    Args:
        folder: of pictures that are upright.
        size: pixels of a side.
        channels: 1, grey, or 3.
        train_size: pictures to train on, the others test; 0: four fifths.
        seed: of the order.

    Raises:
        ValueError: if it is no folder, holds too few pictures that can be read, or there are
            neither 1 nor 3 channels.
    """
    images, _, lost = _read(find_pictures(folder, deep=True), size=size, channels=channels)
    train_size = train_size or len(images) * 4 // 5
    if not 0 < train_size < len(images):
        raise ValueError(
            f"{folder} holds {len(images)} pictures that can be read; want more than "
            f"{max(train_size, 1)}: some to train on, some to test."
        )
    order = np.random.default_rng(seed).permutation(len(images))
    stack, labels = images[order], np.zeros(len(images), np.int32)
    train = Split(stack[:train_size], labels[:train_size])
    test = Split(stack[train_size:], labels[train_size:])
    return DataSet(train, test, ("picture",), note=_left_out(lost), labelled=False)


def picture_classes(folder: str | Path, *, size: int, channels: int, seed: int = 0) -> DataSet:
    """Read FOLDER/CLASS/*, subfolders of a class too, as a set with labels.

    Pictures become images as in `picture_set`. Of every class a fifth, one at least, is drawn for
    the test split; a class of a single picture has none to spare and is left out. What is left out
    is named in the set's note.

    Args:
        folder: with a subfolder for each class.
        size: pixels of a side.
        channels: 1, grey, or 3.
        seed: of the split and the order.

    Raises:
        ValueError: if it is no folder, has fewer than two classes of two pictures that can be
            read, or there are neither 1 nor 3 channels.
    """
    root = Path(folder)
    found = find_pictures(root, deep=True)
    places = [path.relative_to(root).parts for path in found]
    lost = [f"{path.name} lies in no class's folder" for path in found if path.parent == root]
    within = [path for path in found if path.parent != root]
    images, read, unread = _read(within, size=size, channels=channels)
    of = np.array([path.relative_to(root).parts[0] for path in read], dtype=object)
    names = sorted({parts[0] for parts in places if len(parts) > 1})
    counts = {name: int(np.sum(of == name)) for name in names}
    lost += unread + [
        f"class {name} has {count} picture{'s' * (count != 1)} that can be read, of two it takes"
        for name, count in counts.items()
        if count < 2
    ]
    kept = [name for name in names if counts[name] > 1]
    if len(kept) < 2:
        raise ValueError(
            f"{folder} has {len(kept)} subfolders with two pictures or more that can be read; want "
            "FOLDER/CLASS/PICTURE, at least two classes."
        )
    random = np.random.default_rng(seed)
    parts: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for name in kept:
        index = random.permutation(np.flatnonzero(of == name))
        tested = max(len(index) // 5, 1)
        parts[0].append(index[tested:])
        parts[1].append(index[:tested])
    splits = []
    for part in parts:
        order = random.permutation(np.concatenate(part))
        labels = np.array([kept.index(name) for name in of[order]], np.int32)
        splits.append(Split(images[order], labels))
    return DataSet(splits[0], splits[1], tuple(kept), note=_left_out(lost))


def _read(
    paths: Sequence[Path], *, size: int, channels: int
) -> tuple[np.ndarray, list[Path], list[str]]:
    """Return images (N, size, size, channels), their paths, and why the others cannot be read."""
    if channels not in (1, 3):
        raise ValueError(f"channels is {channels}; want 1, grey, or 3, colour.")
    images, read, lost = [], [], []
    for path in paths:
        try:
            picture = padded(open_picture(path, channels=channels), (size, size), [0] * channels)
        except ValueError as error:
            lost.append(str(error))
            continue
        images.append(np.asarray(picture.resize((size, size))).reshape(size, size, channels))
        read.append(path)
    shape = (len(images), size, size, channels)
    return np.asarray(images, np.uint8).reshape(shape), read, lost


def _left_out(lost: Sequence[str]) -> str:
    """Say what was left out, in a line; of many the first ten."""
    more = f"; and {len(lost) - 10} more" if len(lost) > 10 else ""
    return f"{len(lost)} left out: {'; '.join(lost[:10])}{more}" if lost else ""


def padded(picture: Any, shape: Sequence[int], fill: Sequence[int]) -> Any:
    """Put a PIL picture in the middle of the smallest canvas with the aspect of shape (H, W).

    Args:
        picture: "L" or "RGB".
        shape: (H, W) of the network's images; a rotation of a canvas of another aspect would
            shear.
        fill: intensity around it, 0 to 255, one per channel.
    """
    from PIL import Image

    height, width = shape
    unit = max(picture.width / width, picture.height / height)
    size = max(round(unit * width), picture.width), max(round(unit * height), picture.height)
    canvas = Image.new(picture.mode, size, _colour(fill))
    canvas.paste(picture, ((size[0] - picture.width) // 2, (size[1] - picture.height) // 2))
    return canvas


def warped(picture: Any, matrix: np.ndarray, fill: Sequence[int], *, align_corners: bool) -> Any:
    """Warp a PIL picture by a matrix (3, 3) of `flowjax_inv.transforms`, bilinearly.

    As `warps.warp`, but of one picture of any size, without compiling for it.

    Args:
        picture: "L" or "RGB".
        matrix: output to input, normalised positions.
        fill: intensity outside, one per channel.
        align_corners: the pixel-centre rule of the transform.
    """
    from PIL import Image

    # PIL counts from the outer edge of the first pixel: centres lie at halves.
    scale = np.array(picture.size) / 2.0
    if align_corners:
        scale = np.maximum(scale - 0.5, 1e-6)
    to_pixels = np.diag([*scale, 1.0])
    to_pixels[:2, 2] = np.array(picture.size) / 2.0
    whole = to_pixels @ np.asarray(matrix, np.float64) @ np.linalg.inv(to_pixels)
    return picture.transform(
        picture.size, Image.Transform.AFFINE, whole[:2].ravel().tolist(),
        resample=Image.Resampling.BILINEAR, fillcolor=_colour(fill),
    )  # fmt: skip


def _colour(fill: Sequence[int]) -> Any:
    """Return a colour as PIL wants it: a number for one channel, else a tuple."""
    return int(fill[0]) if len(fill) == 1 else tuple(int(value) for value in fill)
