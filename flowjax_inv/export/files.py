"""A function and its weights as a folder of files that plain JAX runs, without this package.

    program.jax          by jax.export: any batch size; cpu, cuda, rocm and tpu
    weights.safetensors  the weights by dotted names, arguments of the program
    card.json            digests of both, what goes in, what comes out, how it was made

`jax.export.deserialize(program).call(weights, images, key)` is all a user needs, see
`experiments/run_exported.py`. New weights of the same shapes need no new program.
"""

import contextlib
import dataclasses
import hashlib
import importlib
import importlib.metadata
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export as jax_export

__all__ = ["CARD", "PLATFORMS", "PROGRAM", "WEIGHTS", "Program", "load", "write"]

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
_PACKAGES = ("jax", "jaxlib", "flax")
PROGRAM, WEIGHTS, CARD = "program.jax", "weights.safetensors", "card.json"
_KEY = "threefry2x32"  # named, so that the caller's default generator does not matter
_LOCATIONS = "jax_traceback_in_locations_limit"


@dataclasses.dataclass(frozen=True)
class Program:
    """What `load` found in a folder.

    Attributes:
        card: the content of card.json.
        weights: by dotted name.
        call: compiled (weights, images, key data (2,) uint32) -> outputs; for other weights.
    """

    card: dict[str, Any]
    weights: dict[str, np.ndarray]
    call: Callable[..., dict[str, jax.Array]]

    def __call__(self, images: jax.typing.ArrayLike, key: jax.Array) -> dict[str, jax.Array]:
        """Return the outputs that the card names, of images (N, H, W, C) uint8 and one key.

        Raises:
            ValueError: if images have another type or shape than the card says, or there are none.
        """
        images = jnp.asarray(images)
        wanted = tuple(self.card["arguments"]["images"]["shape"][1:])
        if images.dtype != jnp.uint8 or images.shape[1:] != wanted or not images.size:
            raise ValueError(
                f"images are {images.dtype} {images.shape}; this program wants uint8 "
                f"(N, {', '.join(map(str, wanted))}) with N >= 1, pixels as they are stored."
            )
        return self.call(self.weights, images, jax.random.key_data(key))


def write(
    folder: str | Path,
    function: Callable[[Any, jax.Array, jax.Array], dict[str, jax.Array]],
    variables: Any,
    *,
    image_shape: Sequence[int],
    outputs: Mapping[str, str],
    about: Mapping[str, Any],
) -> Path:
    """Write any function of weights, images and a key as program, weights and card.

    The folder appears whole or not at all. Nothing in it names a place of this machine.

    Args:
        folder: to be made.
        function: (variables, images (N, H, W, C) uint8, typed key) -> arrays by name. N is
            symbolic, at least 1; convolutions must be plain: `programs.with_plain_convolutions`.
        variables: pytree of arrays.
        image_shape: (H, W, C).
        outputs: what each array is.
        about: further entries of the card.

    Returns:
        The folder.

    Raises:
        FileExistsError: if the folder is there.
        ImportError: without flatbuffers or safetensors.
        TypeError: if weights are of a type that NumPy does not have, as bfloat16.
    """
    folder = Path(folder)
    if os.path.lexists(folder):
        raise FileExistsError(f"{folder} is there already; name a new folder, or remove that one.")
    tensors = _safetensors()
    weights = {
        jax.tree_util.keystr(path, simple=True, separator="."): np.array(leaf, order="C")
        for path, leaf in jax.tree_util.tree_leaves_with_path(variables)
    }
    for name, weight in weights.items():
        if weight.dtype.kind not in "biuf":
            raise TypeError(
                f"{name or 'the weight'} is {weight.dtype}; exports hold NumPy's own booleans, "
                "integers and floats: convert it, for example to float32."
            )
    exported = _exported(function, weights, jax.tree.structure(variables), image_shape)
    files = {PROGRAM: bytes(exported.serialize()), WEIGHTS: tensors.save(weights)}
    card = {
        **about,
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
        **_described(exported, image_shape, outputs),
    }
    files[CARD] = (json.dumps(card, indent=2, allow_nan=False) + "\n").encode()
    _write_folder(folder, files)
    return folder


def _exported(
    function: Callable[[Any, jax.Array, jax.Array], dict[str, jax.Array]],
    weights: dict[str, np.ndarray],
    structure: Any,
    image_shape: Sequence[int],
) -> jax_export.Exported:
    """Lower the function of weights by name, images and key data, for any number of images."""
    names = list(weights)

    def flat(
        weights: dict[str, jax.Array], images: jax.Array, key: jax.Array
    ) -> dict[str, jax.Array]:
        # By name: a dict arrives in the order of its keys, not of the leaves.
        leaves = [weights[name] for name in names]
        return function(
            jax.tree.unflatten(structure, leaves),
            images,
            jax.random.wrap_key_data(key, impl=_KEY),
        )

    (batch,) = jax_export.symbolic_shape("N")
    with _without_places():
        return jax_export.export(jax.jit(flat), platforms=PLATFORMS)(
            {n: jax.ShapeDtypeStruct(w.shape, w.dtype) for n, w in weights.items()},
            jax.ShapeDtypeStruct((batch, *image_shape), jnp.uint8),
            jax.ShapeDtypeStruct((2,), jnp.uint32),
        )


def _described(
    exported: jax_export.Exported, image_shape: Sequence[int], outputs: Mapping[str, str]
) -> dict[str, Any]:
    """Return the part of the card that says how the program is called."""
    made = jax.tree.unflatten(exported.out_tree, exported.out_avals)
    return {
        "platforms": list(exported.platforms),
        "calling_convention_version": exported.calling_convention_version,
        "versions": {name: importlib.metadata.version(name) for name in _PACKAGES},
        "arguments": {
            "weights": {"about": f"the tensors of {WEIGHTS}: a dict by name"},
            "images": {
                "shape": ["N", *map(int, image_shape)],
                "dtype": "uint8",
                "about": "N >= 1; pixels as stored, 255 is full intensity",
            },
            "key": {
                "shape": [2],
                "dtype": "uint32",
                "about": f"of {_KEY}: [0, seed] is jax.random.key(seed)",
            },
        },
        "outputs": {
            name: {
                "shape": [n if isinstance(n, int) else str(n) for n in made[name].shape],
                "dtype": made[name].dtype.name,
                "about": text,
            }
            for name, text in outputs.items()
        },
    }


def load(folder: str | Path) -> Program:
    """Read what `write` wrote, and check it against the digests of the card.

    A program runs with the JAX that wrote it and, as JAX promises, with those of the six months
    after.

    Raises:
        FileNotFoundError: if a file is missing; names it.
        ImportError: without flatbuffers or safetensors.
        ValueError: if a file is damaged; names it. If this JAX cannot read the program.
    """
    folder = Path(folder)
    tensors = _safetensors()
    card_bytes = _read(folder / CARD)
    try:
        card = json.loads(card_bytes)
        digests = {name: str(card["sha256"][name]) for name in (PROGRAM, WEIGHTS)}
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f"{folder / CARD} is damaged: no card can be read from it; copy the folder again."
        ) from None
    files = {name: _read(folder / name) for name in digests}
    for name, data in files.items():
        found = hashlib.sha256(data).hexdigest()
        if found != digests[name]:
            raise ValueError(
                f"{folder / name} is damaged: its sha256 begins with {found[:12]}, {CARD} says "
                f"{digests[name][:12]}; copy the folder again."
            )
    try:
        exported = jax_export.deserialize(bytearray(files[PROGRAM]))
        weights = tensors.load(files[WEIGHTS])
    except Exception as error:  # of either format, whatever it has
        text = f"{error}".partition("\n")[0]
        raise ValueError(
            f"{folder} is as it was written, but jax {jax.__version__} cannot read it ({text}); "
            f"{CARD} has the versions that wrote it: read it with those."
        ) from None
    return Program(card, weights, jax.jit(exported.call))


@contextlib.contextmanager
def _without_places() -> Iterator[None]:
    """Lower without source lines: a program would otherwise carry the paths of this machine."""
    before = jax.config.values[_LOCATIONS]
    jax.config.update(_LOCATIONS, 0)
    try:
        yield
    finally:
        jax.config.update(_LOCATIONS, before)


def _safetensors() -> Any:
    """Import what only exports need; late, as the package works without."""
    try:
        importlib.import_module("flatbuffers")  # jax.export asks for it
        return importlib.import_module("safetensors.numpy")
    except ImportError as error:
        raise ImportError(
            f"exports need {error.name}; install it: pip install flatbuffers safetensors",
            name=error.name,
        ) from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(
            f"{path.parent} has no {path.name}; give a whole folder written by flowjax_inv.export."
        ) from None


def _write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write beside the place and rename: the folder is whole or not there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        for name, data in files.items():
            (beside / name).write_bytes(data)
        beside.chmod(0o755)  # mkdtemp's own is for one user
        beside.rename(folder)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
