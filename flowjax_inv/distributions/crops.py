"""Networks that score the crops their units see: a categorical over crops, a flow around them."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import distrax
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from flowjax_inv.distributions.base import ConditionalDistribution
from flowjax_inv.distributions.crop_densities import CropCategorical, CropFlow
from flowjax_inv.distributions.flow import Flow
from flowjax_inv.naming import check_name
from flowjax_inv.networks.convolutions import Conv, Implementation
from flowjax_inv.networks.residual import he_conv, he_normal, preact_block
from flowjax_inv.transforms import Crop
from flowjax_inv.transforms.matrices import assemble

__all__ = ["FlowLRP", "InstaAugLRP", "check_crops", "crop_coordinates"]

_WHOLE = -1  # the level of the whole picture
# Level -> pixels that a unit sees (3, 11, 23, 47), rounded up by one as in InstaAug's code.
_SEEN = {0: 4, 1: 12, 2: 24, 3: 48}
# Level -> first preference b of the level as a whole; supervised [2, 3, -1] is (0, 1, 3).
_PREFERENCE = {0: 0.0, 1: 0.0, 2: 0.0, 3: 1.0, _WHOLE: 3.0}
_NAMES = Crop().names


@dataclasses.dataclass(frozen=True)
class _Cells:
    """Crops of all levels, and the cells of theta around them.

    Attributes:
        boxes: (K, 4) centre_x, centre_y, width, height.
        steps: (K, 2) from one centre to the next, x and y.
        kept: per level, the units that have a crop.
    """

    boxes: np.ndarray
    steps: np.ndarray
    kept: list[np.ndarray]

    def theta(self, crop: Crop) -> jax.Array:
        """Return the coordinates (K, 4) of the crops; none leaves the box, up to rounding."""
        return jnp.clip(crop_coordinates(crop, self.boxes), -1.0, 1.0)

    def cells(self, crop: Crop) -> tuple[jax.Array, jax.Array]:
        """Return middle and half-width (K, 4) of disjoint cells of theta, one around each crop.

        Centres: half a step to each side ("room": of the room that the crop's size leaves; the
        whole picture, which has none left, gets all of it). Sizes: half the gap to the next size,
        width and height each; beyond the smallest and the largest as far as on their other side, or
        to the bounds where there is one size alone. Then cut at the box.
        """
        sizes = self.boxes[:, 2:]
        limits = [_limits(axis, crop.min_size, crop.max_size) for axis in sizes.T]
        low, high = (np.stack([each[i] for each in limits], axis=-1) for i in (0, 1))
        room = 1.0 - sizes if crop.centre == "room" else np.ones_like(sizes)
        full = room < 1e-6
        reach = np.where(full, 1.0, 0.5 * self.steps / np.where(full, 1.0, room))
        centre = self.theta(crop)[:, :2]
        middle = np.zeros_like(sizes)
        edges = [
            jnp.concatenate(
                [
                    centre + sign * reach,
                    crop_coordinates(crop, np.hstack([middle, size]))[:, 2:],
                ],
                axis=-1,
            )
            for sign, size in ((-1.0, low), (1.0, high))
        ]
        low, high = (jnp.clip(edge, -1.0, 1.0) for edge in edges)
        return 0.5 * (low + high), 0.5 * (high - low)


class _OverCrops(ConditionalDistribution):
    """What the distributions over crops share: the network, its crops, and their cells.

    Every unit of a level's feature map stands for the square that it sees: centre x from its
    column, centre y from its row. Of a map with n columns, column c is at -1 + (2c + 1) / n, the
    middle of the block of pixels it stands for; with `align_corners=False` in the transform that is
    where the crop is cut, else up to half a pixel nearer to the middle.

    Attributes:
        levels: of the network: 0 and 1, maps of half the picture's side; 2, a quarter; 3, an
            eighth; -1, the whole picture.
        sizes: of the crops of each level, shares of the picture's side. Empty: what a unit sees, 4,
            12, 24 and 48 pixels over the side, and 1 for -1.
        level_bias: b of each level. Its logits start at b - log(crops of the level), so a level's
            first mass is in proportion to exp(b). Empty: 1 for level 3, 3 for -1, else 0.
        min_size, max_size, centre, names: those of the `Crop` to be served. With "room" units whose
            crop would leave the picture have none and are left out, with "picture" none are.
        conv: how convolutions are computed, see `flowjax_inv.networks.convolutions`.
        axis_name: axis of `pmap` over which batch statistics are averaged.
    """

    levels: Sequence[int] = (2, 3, _WHOLE)
    sizes: Sequence[float] = ()
    level_bias: Sequence[float] = ()
    min_size: float = 0.25
    max_size: float = 1.0
    centre: str = "picture"
    names: Sequence[str] = _NAMES
    conv: Implementation = "auto"
    axis_name: str | None = None

    def __post_init__(self) -> None:
        """Refuse what can be told without an image."""
        check_crops(self)
        levels = tuple(self.levels)
        if not levels or len(set(levels)) < len(levels) or not set(levels) <= set(_PREFERENCE):
            raise ValueError(
                f"levels={levels} of {type(self).__name__}; want one or more of "
                f"{', '.join(map(str, _PREFERENCE))}, each once."
            )
        for name in ("sizes", "level_bias"):
            given = tuple(getattr(self, name))
            if given and len(given) != len(levels):
                raise ValueError(
                    f"{name}={given} for levels={levels}; give one number per level, or none."
                )
        self._crop()  # refuses bounds and centres that are no crops
        for number in range(len(self.sizes)):
            self._size(number)
        super().__post_init__()

    def _crop(self) -> Crop:
        return Crop(self.min_size, self.max_size, self.centre)

    def _maps(self, images: jax.Array, *, train: bool) -> list[jax.Array]:
        """Return the maps of levels 0 to 3.

        Source: InstaAug's code; 21,881 parameters with its heads for [2, 3, -1] at 64x64.
        """
        x = he_conv("conv", 8, 3, 2, self.conv)(images)
        maps = [x]
        for block, (channels, stride) in enumerate(((8, 1), (16, 2), (32, 2))):
            x = preact_block(
                x,
                f"block{block}",
                channels,
                stride,
                train=train,
                conv=self.conv,
                axis_name=self.axis_name,
            )
            maps.append(x)
        return maps

    def _head(self, level: int, maps: list[jax.Array]) -> jax.Array:
        """Return logits (N, units), row by row."""
        tenth = he_normal(10.0)
        name = "head_whole" if level == _WHOLE else f"head{level}"
        x = maps[level]  # the last one for the whole picture
        zeros, shape = nn.initializers.zeros, x.shape[1:3]
        if level == _WHOLE:  # a convolution as large as the map
            kernel = self.param(f"{name}_kernel", tenth, (*x.shape[1:], 1), jnp.float32)
            bias = self.param(f"{name}_bias", zeros, (1,), jnp.float32)
            return jnp.einsum("nhwc,hwcd->nd", x, kernel) + bias
        head = Conv(1, 1, use_bias=False, conv=self.conv, kernel_init=tenth, name=name)
        # A bias of every position, so that "the middle" can be learned without seeing anything.
        logits = head(x)[..., 0] + self.param(f"{name}_bias", zeros, shape, jnp.float32)
        return logits.reshape(-1, shape[0] * shape[1])

    def _categorical(
        self, images: jax.Array, *, train: bool, temperature: float | None = None
    ) -> tuple[CropCategorical, _Cells]:
        """Return the categorical of every image in (N, H, W, C), and where its crops are."""
        if images.ndim != 4:
            raise ValueError(
                f"images have shape {images.shape}; {type(self).__name__} wants (N, H, W, C)."
            )
        maps = self._maps(images, train=train)
        cells = self._cells(images.shape[1:3], [x.shape[1:3] for x in maps])
        logits = []
        for level, kept, bias in zip(self.levels, cells.kept, self._biases(), strict=True):
            # Densities stay float32 even when the maps are computed in bfloat16.
            each = self._head(level, maps).astype(jnp.float32)
            logits.append(each[:, kept] + (bias - np.log(len(kept))))
        atoms = jnp.asarray(cells.theta(self._crop()), jnp.float32)
        return CropCategorical(jnp.concatenate(logits, axis=-1), atoms, temperature), cells

    def _biases(self) -> tuple[float, ...]:
        return tuple(self.level_bias) or tuple(_PREFERENCE[level] for level in self.levels)

    def _size(self, number: int, picture: Sequence[int] = ()) -> np.ndarray:
        """Return width and height of a level's crops; of given `sizes`, on any picture."""
        level = self.levels[number]
        if self.sizes:
            size = np.full(2, self.sizes[number])
        elif level == _WHOLE:
            size = np.ones(2)
        else:
            size = _SEEN[level] / np.array(picture[::-1], float)
        if not np.all((size > self.min_size - 1e-6) & (size < self.max_size + 1e-6)):
            shown = " by ".join(f"{side:.3g}" for side in np.unique(size))
            pictures = f" on {picture[0]}x{picture[1]} images" if len(picture) else ""
            raise ValueError(
                f"level {level}{pictures} has crops of size {shown}; the transform allows "
                f"{self.min_size:g} .. {self.max_size:g}: leave the level out, move min_size or "
                "max_size, or give sizes."
            )
        return size

    def _cells(self, picture: Sequence[int], shapes: list[Sequence[int]]) -> _Cells:
        """Return the crops of all levels, row by row, for pictures and maps of these shapes."""
        boxes, steps, kept = [], [], []
        for number, level in enumerate(self.levels):
            size = self._size(number, picture)
            rows, columns = (1, 1) if level == _WHOLE else shapes[level]
            y, x = np.meshgrid(_centres(rows), _centres(columns), indexing="ij")
            centre = np.stack([x.ravel(), y.ravel()], axis=-1)
            inside = np.all(np.abs(centre) + size <= 1.0 + 1e-6, axis=-1)
            units = np.flatnonzero(inside) if self.centre == "room" else np.arange(len(centre))
            if not len(units):
                raise ValueError(
                    f"level {level} on {picture[0]}x{picture[1]} images gives no crop: at size "
                    f"{size.max():.3g} none of its {len(centre)} stays in the picture; leave the "
                    'level out, or take the transform\'s centre="picture".'
                )
            kept.append(units)
            boxes.append(np.hstack([centre, np.broadcast_to(size, centre.shape)])[units])
            # The whole picture has no neighbours: it moves as far as the units of the last map.
            grid = shapes[level] if level == _WHOLE else (rows, columns)
            steps.append(np.tile(2.0 / np.array(grid[::-1], float), (len(units), 1)))
        every = np.concatenate(boxes)
        if len(np.unique(np.round(every, 6), axis=0)) < len(every):
            raise ValueError(
                f"levels={tuple(self.levels)} with sizes={tuple(self.sizes)} have crops in common, "
                "whose mass would be counted apart; give each level a size of its own."
            )
        return _Cells(every, np.concatenate(steps), kept)


class InstaAugLRP(_OverCrops):
    """InstaAug's location-related parameterisation: a categorical over all crops of the maps.

    p(crop k | I) = softmax_k(logits(I)), theta = the coordinates of crop k. 321 crops for 64x64
    images and levels [2, 3, -1]. The regulariser is -mean entropy in closed form, of the counting
    measure, in [0, log K].

    Attributes:
        levels, sizes, level_bias, min_size, max_size, centre, names, conv, axis_name: which crops,
            see `_OverCrops`.
        gradient: "score", by the score function (REINFORCE), or "gumbel_softmax", straight-through.
        temperature: of the Gumbel-softmax.

    Raises:
        ValueError: for another transform than `Crop`, fields that make no crop, or an unknown
            gradient; when first called, if a level does not fit the images.
    Source: InstaAug, sections 3.2, 3.3 and its code. There a unit controls the crop mirrored in the
        anti-diagonal, crops are cut as with `align_corners=True` from centres of the other rule,
        the noise is exponential, the score function has no baseline, and batch statistics are in
        use at test. Not repeated here.
    """

    discrete = True

    gradient: Literal["score", "gumbel_softmax"] = "score"
    temperature: float = 0.05

    def __post_init__(self) -> None:
        """Refuse what can be told without an image."""
        check_name("gradient", self.gradient, ("score", "gumbel_softmax"))
        if not self.temperature > 0:
            raise ValueError(f"temperature={self.temperature}; want a number above 0.")
        super().__post_init__()

    @property
    def reparameterized(self) -> bool:
        """Whether samples carry a gradient."""
        return self.gradient == "gumbel_softmax"

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> distrax.Distribution:
        """Return the categorical of every image in (N, H, W, C)."""
        temperature = self.temperature if self.reparameterized else None
        return self._categorical(images, train=train, temperature=temperature)[0]

    def regularizer(self, distribution: distrax.Distribution, log_prob: jax.Array) -> jax.Array:
        """Return minus the mean entropy, exactly."""
        del log_prob
        return -jnp.mean(distribution.entropy())

    def scored(
        self, distribution: distrax.Distribution, theta: jax.Array, log_prob: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return log mass, and 0: the entropy's gradient needs no samples."""
        del distribution, theta
        return log_prob, jnp.zeros_like(log_prob)


class FlowLRP(_OverCrops, Flow):
    """A flow with location-related parameterisation: a crop, then a flow around it.

    k ~ the categorical of `InstaAugLRP`; theta = middle_k + half_k u, u ~ a conditional flow on
    [-1, 1]^4 that sees the embedding and the cell's middle. Cells reach half a step from a crop's
    centre, half the gap to the next size from its size, width and height each, and end with the
    box: so they are disjoint, g is a density on the box, and no size leaves (0, max_size].

    The choice of k gets its gradient from the score function, whose log-probability is the log mass
    of the cell alone; u gets it through the samples.

    Attributes:
        levels, sizes, level_bias, min_size, max_size, centre, names, conv, axis_name: which crops,
            see `_OverCrops`.
        embed, and all others: of the flow of the offsets, see `Flow`; none is periodic.

    Raises:
        ValueError: as `InstaAugLRP`, and if gumbel is "score"; when first called, if two levels
            have crops of one size, whose cells would overlap.
    Source: ours. "Flow with LRP" is a row of the flow paper's Table 1 that no source defines.
    """

    def __post_init__(self) -> None:
        """Refuse what can be told without an image."""
        if self.gumbel == "score":
            raise ValueError('gumbel is "score"; FlowLRP scores its crops: take hard or relaxed.')
        super().__post_init__()

    @property
    def reparameterized(self) -> bool:
        """Whether samples carry the gradient of all parameters: not of the choice of the crop."""
        return False

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> distrax.Distribution:
        """Return the density of every image in (N, H, W, C)."""
        crops, cells = self._categorical(images, train=train)
        if len(np.unique(np.round(cells.boxes[:, 2:], 6), axis=0)) < len(self.levels):
            first = np.cumsum([0, *map(len, cells.kept[:-1])])
            sizes = ", ".join(f"{size:.3g}" for size in cells.boxes[first, 2])
            raise ValueError(
                f"levels={tuple(self.levels)} have crops of sizes ({sizes}), whose cells overlap; "
                "give each level a size of its own."
            )
        middle, half = cells.cells(self._crop())
        embedding = self.embed(images, train=train).astype(jnp.float32)
        shared = {field.name for field in dataclasses.fields(Flow)}
        shared -= {"parent", "name", "embed", "periodic"}
        fields: dict[str, Any] = {name: getattr(self, name) for name in shared}
        fields["embed"] = _Given()
        offsets = Flow(**fields, name="offsets")
        # Makes the parameters; which crops the flow is given is known when they are drawn.
        offsets(jnp.concatenate([embedding, crops.mode()], axis=-1))
        unbound = Flow(**fields, parent=None)
        variables = {"params": offsets.variables["params"]}
        return CropFlow(crops, middle, half, unbound, variables, embedding)

    def scored(
        self, distribution: distrax.Distribution, theta: jax.Array, log_prob: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return the log mass of the crops alone, and log g."""
        drawn: Any = distribution
        return drawn.log_mass(theta), log_prob


class _Given(nn.Module):
    """The embedding of an embedding: itself."""

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> jax.Array:
        del train
        return images


def _centres(count: int) -> np.ndarray:
    """Return the middles of `count` equal parts of [-1, 1]."""
    return (2.0 * np.arange(count) + 1.0) / count - 1.0


def check_crops(module: Any) -> None:
    """Refuse a distribution over crops the coordinates of another transform.

    Raises:
        ValueError: if its `dim` or `names` are not those of a `Crop`.
    """
    if module.dim != len(_NAMES) or tuple(module.names) != _NAMES:
        raise ValueError(
            f"{type(module).__name__} got a transform with dim {module.dim}, coordinates "
            f"({', '.join(module.names)}); it is of crops alone, ({', '.join(_NAMES)}): take the "
            "transform crop."
        )


def crop_coordinates(crop: Crop, boxes: np.ndarray) -> jax.Array:
    """Return theta (K, 4) of boxes (K, 4): undoes `Crop.boxes`."""
    x, y, width, height = jnp.asarray(boxes, jnp.float32).T
    zero = jnp.zeros_like(x)
    return crop.coordinates(assemble((width, zero, zero, height), (x, y)))


def _limits(sizes: np.ndarray, low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """Return, for sizes (K,), where the cell of each begins and ends within [low, high]."""
    every, which = np.unique(np.round(sizes, 9), return_inverse=True)
    between = 0.5 * (every[1:] + every[:-1])
    first = 2.0 * every[0] - between[0] if len(between) else low
    last = 2.0 * every[-1] - between[-1] if len(between) else high
    edges = np.clip(np.concatenate([[first], between, [last]]), low, high)
    return edges[which], edges[which + 1]
