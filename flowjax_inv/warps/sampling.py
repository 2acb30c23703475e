"""Warps by a matrix and by a crop box; the convention is in the head of `flowjax_inv.warps`."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.scipy import ndimage
from jax.typing import ArrayLike

from flowjax_inv.naming import check_name
from flowjax_inv.native import foreign
from flowjax_inv.warps.positions import (
    LARGEST_ENTRY,
    clamp,
    pixel_centres,
    pixel_rows,
    positions,
)
from flowjax_inv.warps.resample import resample

__all__ = ["METHODS", "PADDINGS", "crop", "valid_mask", "warp"]

METHODS = ("auto", "gather", "flat", "native", "map_coordinates")
CROP_METHODS = ("auto", "products", "flat", "native")
PADDINGS = ("zeros", "border")

# Channels up to which "auto" reads them one by one: pictures, not feature maps.
_FEW_CHANNELS = 4
# Rounding of a position (about 1e-6 of the width) must not push an edge pixel out of the picture.
_MASK_SLACK_PIXELS = 1e-3


def warp(
    images: ArrayLike,
    matrices: ArrayLike,
    *,
    method: str = "auto",
    padding: str = "zeros",
    align_corners: bool = True,
) -> jax.Array:
    """Sample images bilinearly at the positions that matrices give.

    A(I)(x) = I(M x), x the centre of an output pixel; the output is as large as the input.

    Args:
        images: (..., H, W, C) float.
        matrices: (..., 3, 3), last row (0, 0, 1) (not read). Leading axes broadcast as in numpy:
            images (N, H, W, C) with matrices (n, N, 3, 3) give (n, N, H, W, C), without n copies
            of the images unless `method` is "map_coordinates".
        method: "native", C on a CPU and a kernel on CUDA, see `flowjax_inv.native`; "gather" or
            "flat", see `warps.taps`; "auto", of a few channels on a single CPU device "native"
            where its library is, on a single CPU or GPU else "flat", and "gather" for all others;
            or "map_coordinates", the reference.
        padding: "zeros", pixels outside are 0; or "border", positions outside move to the edge.
        align_corners: the pixel-centre rule, see `flowjax_inv.warps`.

    Returns:
        (..., H, W, C), dtype of images. The identity gives the images bit for bit. At a position
        exactly on a pixel centre the derivative is the one to the right and down (0 on the edge of
        "border"). Huge and infinite entries are outside; NaN entries give NaN pixels; a NaN pixel
        spreads to its neighbours.
    Convention: output to input, x right, y down; translation > 0 moves the content left or up;
        [[cos, -sin], [sin, cos]] turns it counter-clockwise as seen. All is in normalised
        positions: on a picture that is not square a rotation also shears, as in PyTorch.

    Raises:
        TypeError: if images are not floating point.
        ValueError: for shapes that do not fit, or an unknown method or padding.
    Source: Augerino's warp; equal to PyTorch's affine_grid and grid_sample (a golden file).
    """
    check_name("method", method, METHODS)
    images, matrices, lead = _check(images, matrices, "matrices", (3, 3), padding)
    height, width, channels = images.shape[-3:]
    shape = (*lead, height, width, channels)
    if 0 in shape:
        return jnp.zeros(shape, images.dtype)
    if method == "auto":
        method = _fastest(images, matrices) or "gather"
    return _warp(images, matrices, lead, method, padding, align_corners)


def crop(
    images: ArrayLike,
    boxes: ArrayLike,
    *,
    method: str = "auto",
    padding: str = "zeros",
    align_corners: bool = True,
) -> jax.Array:
    """Cut boxes out of images and resize them to the size of the image, bilinearly.

    Equals `warp` with [[half_width, 0, centre_x], [0, half_height, centre_y], [0, 0, 1]], but
    separable: R_y I R_x^T with two small matrices per box, so two matrix products. A CPU reads the
    four taps of a colour picture faster: there it is that `warp`.

    Args:
        images: (..., H, W, C) float.
        boxes: (..., 4): centre_x, centre_y, half_width, half_height, normalised; (0, 0, 1, 1) is
            the whole picture. Leading axes broadcast as in `warp`.
        method: "products"; "native" or "flat", as in `warp`; "auto": of a few channels on a single
            CPU device "native" where its library is, else "flat" for colour pictures, and
            "products" for all others.
        padding: "zeros" or "border", as in `warp`.
        align_corners: the pixel-centre rule, see `flowjax_inv.warps`.

    Returns:
        (..., H, W, C), dtype of images. No antialiasing: a box larger than the picture skips
        pixels. A pixel that is not finite may spread over its rows and columns.
    Convention: output to input, x right, y down; a smaller box shows the content larger.

    Raises:
        TypeError: if images are not floating point.
        ValueError: for shapes that do not fit, or an unknown method or padding.
    """
    check_name("method", method, CROP_METHODS)
    images, boxes, lead = _check(images, boxes, "boxes", (4,), padding)
    height, width, channels = images.shape[-3:]
    if 0 in (shape := (*lead, height, width, channels)):
        return jnp.zeros(shape, images.dtype)
    if method == "auto":
        method = (jax.default_backend() == "cpu" and _fastest(images, boxes)) or "products"
        if method == "flat" and channels == 1:
            method = "products"
    if method != "products":
        x, y, across, down = jnp.moveaxis(boxes, -1, 0)
        zero = jnp.zeros_like(x)
        rows = [[across, zero, x], [zero, down, y], [zero, zero, zero + 1.0]]
        matrices = jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)
        return _warp(images, matrices, lead, method, padding, align_corners)
    return _crop(images, boxes, padding, align_corners)


def valid_mask(
    matrices: ArrayLike, height: int, width: int, *, align_corners: bool = True
) -> jax.Array:
    """Tell which output pixels are sampled inside the picture.

    Inside means -1 <= x <= 1 and -1 <= y <= 1 for the normalised input position, up to 1e-3 pixel:
    between the centres of the outer pixels if `align_corners` (padding then has no part in the
    pixel), else between the outer edges (padding "zeros" then has up to half of an edge pixel).

    Args:
        matrices: (..., 3, 3), output to input.
        height: of the picture, in pixels.
        width: of the picture, in pixels.
        align_corners: the pixel-centre rule, see `flowjax_inv.warps`.

    Returns:
        (..., H, W) bool; False where the position is NaN.

    Raises:
        ValueError: if matrices do not end in (3, 3).
    """
    return _valid_mask(_floats(matrices, "matrices", (3, 3)), height, width, align_corners)


def _fastest(images: jax.Array, guide: jax.Array) -> str | None:
    """Return what reads the four taps fastest of a few channels on a single CPU or GPU device.

    With the derivative "flat" takes, on one H100, 0.9 of the time of "gather" for 20,480 pictures
    of 32 x 32, 0.55 for 5,120 and 0.96 for 512 of 224 x 224; without it both are alike
    (`python -m benchmarks.limits`).
    """
    single = jax.default_backend() in ("cpu", "gpu") and jax.device_count() == 1
    # Exported for any batch, the size is no number, and the program is for other devices too.
    known = isinstance(images.size, int) and isinstance(guide.size, int)
    if not (single and known and images.shape[-1] <= _FEW_CHANNELS):
        return None
    ours = jax.default_backend() == "cpu" and foreign.available()
    if ours and images.dtype == guide.dtype == jnp.float32:
        return "native"
    return "flat" if images.size < 2**31 else None  # its indices are int32


# Compiled also where the caller does not: outside jit some sixty small programs would be
# dispatched one by one. Checks stay outside, so that signatures keep their types.
@partial(jax.jit, static_argnums=(2, 3, 4, 5))
def _warp(
    images: jax.Array,
    matrices: jax.Array,
    lead: tuple[int, ...],
    method: str,
    padding: str,
    align_corners: bool,  # noqa: FBT001 - static by position
) -> jax.Array:
    height, width, channels = images.shape[-3:]
    rows = pixel_rows(matrices, height, width, align_corners=align_corners)
    if method != "map_coordinates":
        return resample(images, rows, lead, method, padding).astype(images.dtype)
    x, y = positions(rows, height, width)
    x, y = clamp(x, width, padding), clamp(y, height, padding)

    def channel(plane: jax.Array, y: jax.Array, x: jax.Array) -> jax.Array:
        mode = "constant" if padding == "zeros" else "nearest"
        return ndimage.map_coordinates(plane, [y, x], order=1, mode=mode)

    shape = (*lead, height, width, channels)
    flat = jnp.broadcast_to(images, shape).reshape(-1, height, width, channels)
    x, y = (jnp.broadcast_to(p, shape[:-1]).reshape(-1, height, width) for p in (x, y))
    image = jax.vmap(channel, in_axes=(-1, None, None), out_axes=-1)
    return jax.vmap(image)(flat, y, x).reshape(shape).astype(images.dtype)


@partial(jax.jit, static_argnums=(2, 3))
def _crop(
    images: jax.Array,
    boxes: jax.Array,
    padding: str,
    align_corners: bool,  # noqa: FBT001 - static by position
) -> jax.Array:
    height, width = images.shape[-3:-1]
    (u, across), (v, down) = (
        pixel_centres(n, align_corners=align_corners) for n in (width, height)
    )
    boxes = jnp.clip(boxes, -LARGEST_ENTRY, LARGEST_ENTRY)[..., None]
    x = boxes[..., 2, :] * u + boxes[..., 0, :] * across + (width - 1) / 2
    y = boxes[..., 3, :] * v + boxes[..., 1, :] * down + (height - 1) / 2
    pick_rows, pick_columns = _interpolation(y, height, padding), _interpolation(x, width, padding)
    # The highest precision: accelerators would otherwise round the pixels to bfloat16 or TF32.
    rows = jnp.einsum("...vh,...hwc->...vwc", pick_rows, images, precision="highest")
    cut = jnp.einsum("...uw,...vwc->...vuc", pick_columns, rows, precision="highest")
    return cut.astype(images.dtype)


@partial(jax.jit, static_argnums=(1, 2, 3))
def _valid_mask(
    matrices: jax.Array,
    height: int,
    width: int,
    align_corners: bool,  # noqa: FBT001 - static by position
) -> jax.Array:
    rows = pixel_rows(matrices, height, width, align_corners=align_corners)
    x, y = positions(rows, height, width)
    low = (0.0 if align_corners else -0.5) - _MASK_SLACK_PIXELS
    inside_x = (x >= low) & (x <= width - 1 - low)
    return inside_x & (y >= low) & (y <= height - 1 - low)


def _floats(array: ArrayLike, name: str, tail: tuple[int, ...]) -> jax.Array:
    """Check the last axes and lift to float32 at least: positions need 24 bits."""
    array = jnp.asarray(array)
    if array.shape[max(array.ndim - len(tail), 0) :] != tail:
        wanted = ", ".join(("...", *map(str, tail)))
        raise ValueError(f"{name} have shape {array.shape}; want ({wanted}).")
    return array.astype(jnp.promote_types(array.dtype, jnp.float32))


def _check(
    images: ArrayLike, guide: ArrayLike, name: str, tail: tuple[int, ...], padding: str
) -> tuple[jax.Array, jax.Array, tuple[int, ...]]:
    """Refuse what cannot be warped; return both as arrays, and the leading axes of the result."""
    check_name("padding", padding, PADDINGS)
    images, guide = jnp.asarray(images), _floats(guide, name, tail)
    if not jnp.issubdtype(images.dtype, jnp.floating):
        raise TypeError(
            f"images are {images.dtype}; bilinear sampling wants floats: convert to float first, "
            "for example images.astype(jnp.float32) / 255."
        )
    if images.ndim < 3:
        raise ValueError(
            f"images have shape {images.shape}; want (..., height, width, channels): at least "
            "three axes. Add the channel axis by images[..., None]."
        )
    leads = images.shape[:-3], guide.shape[: guide.ndim - len(tail)]
    try:
        lead = jnp.broadcast_shapes(*leads)
    except ValueError:
        raise ValueError(
            f"images have leading axes {leads[0]}, {name} {leads[1]}: they do not broadcast. "
            f"{name.capitalize()} go one per image, (N, ...), or (n, N, ...) for n copies."
        ) from None
    return images, guide, lead


def _interpolation(position: jax.Array, size: int, padding: str) -> jax.Array:
    """Return the (..., output, input) matrix of bilinear weights along one axis."""
    position = clamp(position, size, padding)[..., None]
    first = jnp.floor(position)
    part, pixel = position - first, jnp.arange(size)
    # 0 times, not 0: a NaN position must stay visible.
    left = jnp.where(pixel == first, 1.0 - part, 0.0 * part)
    return left + jnp.where(pixel == first + 1.0, part, 0.0)
