"""Printed digits, drawn here: a set for demonstrations, without files or a network."""

import numpy as np

from flowjax_inv.data.sets import DataSet, Split

__all__ = ["printed_digits"]

# Of those that come with matplotlib.
_FONTS = ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSerif",
          "DejaVuSerif-Bold", "DejaVuSerif-Italic", "STIXGeneral", "STIXGeneralBol",
          "STIXGeneralItalic", "cmr10", "cmb10", "cmss10", "cmtt10")  # fmt: skip
_SIZE = 28


def printed_digits(*, train_size: int, test_size: int, seed: int) -> DataSet:
    """Draw digits in fourteen typefaces, sheared, sized and placed at random; upright.

    Args:
        train_size, test_size: images of each split.
        seed: of the choices; the splits have streams of their own.

    Returns:
        Images (N, 28, 28, 1), white on black; ten classes in turn.

    Raises:
        ValueError: if a size is below 1.
    """
    if min(train_size, test_size) < 1:
        raise ValueError(
            f"train_size={train_size}, test_size={test_size}; want at least 1 of each: digits are "
            "drawn, there is no whole set."
        )
    import matplotlib
    from PIL import Image, ImageDraw, ImageFont

    folder = f"{matplotlib.get_data_path()}/fonts/ttf"
    fonts = [ImageFont.truetype(f"{folder}/{name}.ttf", 88) for name in _FONTS]

    def digit(label: int, random: np.random.Generator) -> np.ndarray:
        canvas = Image.new("L", (4 * _SIZE, 4 * _SIZE))
        middle = 2.0 * _SIZE
        font = fonts[random.integers(len(fonts))]
        ImageDraw.Draw(canvas).text((middle, middle), str(label), 255, font=font, anchor="mm")
        shear, *scale = random.uniform((-0.2, 0.9, 0.9), (0.2, 1.25, 1.25))
        shift = random.uniform(-6.0, 6.0, 2)
        rows = np.array([[scale[0], shear], [0.0, scale[1]]])
        offset = middle - rows @ (np.full(2, middle) + shift)
        matrix = np.column_stack([rows, offset]).ravel().tolist()
        drawn = canvas.transform(
            canvas.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR
        )
        return np.asarray(drawn.resize((_SIZE, _SIZE), Image.Resampling.BOX))

    def split(size: int, stream: int) -> Split:
        random = np.random.default_rng((seed, stream))
        labels = (np.arange(size) % 10).astype(np.int32)
        return Split(np.stack([digit(int(k), random) for k in labels])[..., None], labels)

    names = tuple(str(k) for k in range(10))
    return DataSet(split(train_size, 0), split(test_size, 1), names, note="digits drawn in fonts")
