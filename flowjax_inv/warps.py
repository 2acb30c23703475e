"""Bilinear warps of images: by a matrix (four-tap gather, or the reference) and by a crop box.

The derivative in the matrices, what training needs, has two ways of reading the taps. "gather"
keeps the axes of the batch, so a sharded batch stays on its devices. "flat" reads number by number
with one index over all images (fewer than 2^31 numbers), and sums both directions of the slope in
one pass, as a complex number: on two CPU cores one and a half to three times as fast for colour
pictures, little for grey ones (`python -m benchmarks.warp`). Values are computed alike.

Convention, everywhere in this file: positions are normalised, x right and y down, the picture is
[-1, 1] x [-1, 1]; matrices and boxes map OUTPUT positions to INPUT positions. `align_corners=True`
puts -1 and 1 on the centres of the corner pixels, False on the outer edges of the picture. An axis
of a single pixel has no extent between centres: with `align_corners=True` it stays where it is.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jax.scipy import ndimage
from jax.typing import ArrayLike

from flowjax_inv.naming import check_name

__all__ = ["METHODS", "PADDINGS", "crop", "valid_mask", "warp"]

METHODS = ("auto", "gather", "flat", "map_coordinates")
CROP_METHODS = ("auto", "products", "flat")
PADDINGS = ("zeros", "border")

# Entries beyond this act as this: the largest product with a pixel position, and sums of three of
# them, stay finite in float32 (no inf - inf), and every such position is far outside anyhow.
_LARGEST_ENTRY = 1e9
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
        method: how derivatives read the taps, "gather" or "flat", see the head of this file;
            "auto", "flat" on a single CPU device, else "gather"; or "map_coordinates", the
            reference.
        padding: "zeros", pixels outside are 0; or "border", positions outside move to the edge.
        align_corners: the pixel-centre rule, see the head of this file.

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
        method = "flat" if _reads_flat(images) else "gather"
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
        method: "products", or "flat", see the head of this file; "auto": "flat" for colour
            pictures on a single CPU device, else "products".
        padding: "zeros" or "border", as in `warp`.
        align_corners: the pixel-centre rule, see the head of this file.

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
    if method == "flat" or (method == "auto" and channels > 1 and _reads_flat(images)):
        x, y, across, down = jnp.moveaxis(boxes, -1, 0)
        zero = jnp.zeros_like(x)
        rows = [[across, zero, x], [zero, down, y], [zero, zero, zero + 1.0]]
        matrices = jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)
        return _warp(images, matrices, lead, "flat", padding, align_corners)
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
        align_corners: the pixel-centre rule, see the head of this file.

    Returns:
        (..., H, W) bool; False where the position is NaN.

    Raises:
        ValueError: if matrices do not end in (3, 3).
    """
    return _valid_mask(_floats(matrices, "matrices", (3, 3)), height, width, align_corners)


def _reads_flat(images: jax.Array) -> bool:
    """Whether number by number with one index is the fastest way here."""
    single = jax.default_backend() == "cpu" and jax.device_count() == 1
    # Exported for any batch, the size is no number, and the program is for other devices too.
    small = isinstance(images.size, int) and images.size < 2**31  # indices are int32
    return single and small and images.shape[-1] <= _FEW_CHANNELS


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
    if method != "map_coordinates":
        out = _gather(images, matrices, lead, method, padding, align_corners)
        return out.astype(images.dtype)
    height, width, channels = images.shape[-3:]
    x, y = _positions(matrices, height, width, align_corners=align_corners)
    x, y = _clamp(x, width, padding), _clamp(y, height, padding)

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
    (u, across), (v, down) = (_pixels(n, align_corners=align_corners) for n in (width, height))
    boxes = jnp.clip(boxes, -_LARGEST_ENTRY, _LARGEST_ENTRY)[..., None]
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
    x, y = _positions(matrices, height, width, align_corners=align_corners)
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


def _pixels(size: int, *, align_corners: bool) -> tuple[jax.Array, float]:
    """Return pixel centres counted from the middle (exact in float32), and pixels per unit."""
    return jnp.arange(size) - (size - 1) / 2, (size - 1 if align_corners else size) / 2


def _grid(height: int, width: int, *, align_corners: bool) -> tuple[jax.Array, jax.Array]:
    """Return u, v, 1 of every output pixel (3, H, W), and (2, 3) pixels per entry of a matrix."""
    (u, across), (v, down) = (_pixels(n, align_corners=align_corners) for n in (width, height))
    grid = jnp.stack([*jnp.broadcast_arrays(u, v[:, None]), jnp.ones((height, width))])
    # A single pixel counts 0 from the middle, so what its ratio is does not matter.
    units = [[1.0, across / (down or 1.0), across], [down / (across or 1.0), 1.0, down]]
    return grid, jnp.array(units)


def _positions(
    matrices: jax.Array, height: int, width: int, *, align_corners: bool
) -> tuple[jax.Array, jax.Array]:
    """Return input pixel positions x, y (..., H, W) of every output pixel.

    The matrix is rescaled to pixels counted from the middle instead of the positions to [-1, 1]:
    so the identity and quarter turns are exact.
    """
    m = jnp.clip(matrices, -_LARGEST_ENTRY, _LARGEST_ENTRY)[..., :2, :]
    grid, units = _grid(height, width, align_corners=align_corners)
    # A product, not a sum of three terms: its result is stored, once. XLA would compute a sum again
    # in every fusion that needs it, rounded differently (fused multiply-add or not), and where that
    # straddles a pixel centre the taps of one rounding would get the weights of the other.
    rows = jnp.moveaxis(m * units, -2, 0)
    both = _along_basis(rows, grid)
    x, y = both[0] + (width - 1) / 2, both[1] + (height - 1) / 2
    return x, y


def _limits(size: int, padding: str) -> tuple[float, float]:
    """Return where positions are held: the edge ("border"), or all taps outside ("zeros")."""
    return (0.0, size - 1.0) if padding == "border" else (-2.0, size + 1.0)


def _clamp(position: jax.Array, size: int, padding: str) -> jax.Array:
    """Hold positions within the limits."""
    low, high = _limits(size, padding)
    # lax.clamp has derivative 0 at its ends; jnp.clip has 1/2, of a neighbour that is not there.
    return lax.clamp(low, position, high)


@partial(jax.custom_jvp, nondiff_argnums=(2, 3, 4, 5))
def _gather(
    images: jax.Array,
    matrices: jax.Array,
    lead: tuple[int, ...],
    method: str,
    padding: str,
    align_corners: bool,  # noqa: FBT001 - static by position
) -> jax.Array:
    """Blend four taps per pixel; `method` is for the derivative in matrices, `_gather_jvp`."""
    del method
    height, width = images.shape[-3:-1]
    x, y = _positions(matrices, height, width, align_corners=align_corners)
    return _blend(images, _clamp(x, width, padding), _clamp(y, height, padding), lead)


@partial(_gather.defjvp, symbolic_zeros=True)
def _gather_jvp(
    lead: tuple[int, ...],
    method: str,
    padding: str,
    align_corners: bool,  # noqa: FBT001 - static by position
    primals: tuple[jax.Array, jax.Array],
    tangents: tuple[Any, Any],
) -> tuple[jax.Array, jax.Array]:
    """Weigh the taps by the tangents of their weights.

    Positions are linear in the matrix, so their tangents are one product with the basis (u, v, 1);
    transposed, that is one matrix product, where autodiff's own sums over pixels are fused with
    the gathers and cost many times as much on a CPU.
    """
    images, matrices = primals
    d_images, d_matrices = tangents
    height, width = images.shape[-3:-1]
    x, y = _positions(matrices, height, width, align_corners=align_corners)
    held_x, held_y = _clamp(x, width, padding), _clamp(y, height, padding)
    out = _blend(images, held_x, held_y, lead)
    change = jnp.zeros_like(out)
    if not isinstance(d_matrices, SymbolicZero):
        grid, units = _grid(height, width, align_corners=align_corners)
        rows = jnp.moveaxis(d_matrices[..., :2, :] * units, -2, 0)
        if method == "flat":  # both rows in one number: transposed, one pass over the taps
            both = _along_basis(lax.complex(rows[0], rows[1]), grid)
            dx, dy = both.real, both.imag
        else:
            dx, dy = _along_basis(rows, grid)
        # As in `_clamp`: a position at or beyond a limit does not move.
        (left, right), (top, bottom) = (_limits(n, padding) for n in (width, height))
        dx = jnp.where((x > left) & (x < right), dx, 0.0)
        dy = jnp.where((y > top) & (y < bottom), dy, 0.0)
        corners, r, b = _corners(held_x, held_y)
        weights = (  # tangents of those in `_blend`
            -(1.0 - b) * dx - (1.0 - r) * dy,
            (1.0 - b) * dx - r * dy,
            (1.0 - r) * dy - b * dx,
            b * dx + r * dy,
        )
        kept = [
            jnp.where(_inside(i, j, height, width), weight, 0.0)
            for (i, j), weight in zip(corners, weights, strict=True)
        ]
        if method == "flat":  # transposed, a sum over channels that is written out
            taps = zip(*(_channels(images, i, j, lead) for i, j in corners), strict=True)
            change = jnp.stack([_dot(kept, channel) for channel in taps], axis=-1)
        else:
            taps = [_tap(images, i, j, lead) for i, j in corners]
            change = _dot([w[..., None] for w in kept], taps)
    if not isinstance(d_images, SymbolicZero):
        change = change + _blend(d_images, held_x, held_y, lead)
    return out, change


def _along_basis(steps: jax.Array, grid: jax.Array) -> jax.Array:
    """Return a u + b v + c of every pixel: steps (..., 3) and grid (3, H, W) give (..., H, W)."""
    basis = grid.reshape(3, -1).T.astype(steps.dtype)
    moved = jnp.einsum("...k,pk->...p", steps, basis, precision="highest")
    return moved.reshape(*steps.shape[:-1], *grid.shape[1:])


def _corners(
    x: jax.Array, y: jax.Array
) -> tuple[list[tuple[jax.Array, jax.Array]], jax.Array, jax.Array]:
    """Return column and row of the four neighbours, and where between them, x and y in [0, 1)."""
    x0, y0 = jnp.floor(x), jnp.floor(y)
    column, row = x0.astype(jnp.int32), y0.astype(jnp.int32)
    corners = [(i, j) for j in (row, row + 1) for i in (column, column + 1)]
    return corners, x - x0, y - y0


def _inside(i: jax.Array, j: jax.Array, height: int, width: int) -> jax.Array:
    return (i >= 0) & (i < width) & (j >= 0) & (j < height)


def _nearest(i: jax.Array, j: jax.Array, height: int, width: int) -> jax.Array:
    """Return the index, row by row, of pixel (i, j) or of the nearest one there is."""
    return jnp.clip(j, 0, height - 1) * width + jnp.clip(i, 0, width - 1)


def _blend(images: jax.Array, x: jax.Array, y: jax.Array, lead: tuple[int, ...]) -> jax.Array:
    """Return the bilinear value at positions x, y (..., H, W) in pixels, clamped."""
    corners, right, below = _corners(x, y)
    left, above = 1.0 - right, 1.0 - below
    weights = (above * left, above * right, below * left, below * right)
    kept = [
        # 0 times, not 0: a NaN position must stay visible.
        jnp.where(_inside(i, j, *images.shape[-3:-1]), weight, 0.0 * weight)[..., None]
        for (i, j), weight in zip(corners, weights, strict=True)
    ]
    return _dot(kept, [_tap(images, i, j, lead) for i, j in corners])


def _dot(weights: Sequence[jax.Array], taps: Sequence[jax.Array]) -> jax.Array:
    return sum((w * tap for w, tap in zip(weights, taps, strict=True)), jnp.zeros(()))


def _tap(images: jax.Array, i: jax.Array, j: jax.Array, lead: tuple[int, ...]) -> jax.Array:
    """Return pixels i, j (..., H, W) of the images, or their nearest: (..., H, W, C)."""
    height, width, channels = images.shape[-3:]
    # Real leading axes of the images become batch axes of the gather, the others vanish: no copy
    # per matrix, and (unlike one flat index over the batch) a sharded batch stays on its devices.
    offset = len(lead) - (images.ndim - 3)
    batch = tuple(n + offset for n, size in enumerate(images.shape[:-3]) if size != 1)
    k = len(batch)
    pixels = images.reshape(*(lead[n] for n in batch), height * width, channels)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(len(lead) + 2,),
        collapsed_slice_dims=(k,),
        start_index_map=(k,),
        operand_batching_dims=tuple(range(k)),
        start_indices_batching_dims=batch,
    )
    index = jnp.broadcast_to(_nearest(i, j, height, width), (*lead, height, width))[..., None]
    return lax.gather(pixels, index, numbers, (1,) * (k + 1) + (channels,),
                      mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS)  # fmt: skip


def _channels(
    images: jax.Array, i: jax.Array, j: jax.Array, lead: tuple[int, ...]
) -> list[jax.Array]:
    """Return the channels of `_tap` (..., H, W), read by one index over all images."""
    *batch, height, width, channels = images.shape
    first = jnp.arange(math.prod(batch), dtype=jnp.int32).reshape(*batch, 1, 1) * (height * width)
    index = (_nearest(i, j, height, width) + first) * channels
    index = jnp.broadcast_to(index, (*lead, height, width))
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,)
    )
    mode = lax.GatherScatterMode.PROMISE_IN_BOUNDS
    return [
        lax.gather(images.reshape(-1), (index + channel)[..., None], numbers, (1,), mode=mode)
        for channel in range(channels)
    ]


def _interpolation(position: jax.Array, size: int, padding: str) -> jax.Array:
    """Return the (..., output, input) matrix of bilinear weights along one axis."""
    position = _clamp(position, size, padding)[..., None]
    first = jnp.floor(position)
    part, pixel = position - first, jnp.arange(size)
    # 0 times, not 0: a NaN position must stay visible.
    left = jnp.where(pixel == first, 1.0 - part, 0.0 * part)
    return left + jnp.where(pixel == first + 1.0, part, 0.0)
