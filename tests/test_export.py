"""Programs as files: equal to the library, for every platform, whole or refused."""

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

from flowjax_inv import export
from flowjax_inv.data.pixels import Normalization
from flowjax_inv.distributions.box import Identity
from flowjax_inv.distributions.circular import Circular
from flowjax_inv.distributions.flow import Flow
from flowjax_inv.inference import make_mean_shift, make_predict
from flowjax_inv.networks import MLP, PolarConv, SimpleConv
from flowjax_inv.transforms import Affine, Crop

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "experiments" / "run_exported.py"
SHAPE = (9, 8, 1)
IMAGES = np.random.RandomState(0).randint(0, 256, (3, *SHAPE)).astype(np.uint8)
NAMES = ("one", "two", "three")
NORMALIZATION = Normalization((0.4,), (0.3,))
SPLINE = {"bijection": "spline", "bins": 4, "base": "box", "circular_shift": True}
COUPLING = {"bijection": "coupling", "base": "mixture", "components": 2}

# Transform and flow: both bijections, all bases, the circle, a matrix exponential, and the crop.
CASES: dict[str, tuple[Any, dict[str, Any] | None]] = {
    "affine_coupling": (Affine("affine"), COUPLING),
    "turns_spline": (Affine("rotation_translation"), SPLINE),
    "crop_spline": (Crop(), SPLINE | {"base": "unit_box", "circular_shift": False}),
    "crop_coupling": (Crop(padding="border"), COUPLING | {"gumbel": "relaxed"}),
    "identity": (Affine("translation"), None),
    "circular": (Affine("rotation"), None),
}


def parts(name: str, *, batch_norm: bool = False, conv: Any = "lax") -> tuple[Any, Any, Any]:
    """A classifier, a density and a transform, tiny."""
    transform, fields = CASES[name]
    classifier = SimpleConv(3, width=1, batch_norm=batch_norm, conv=conv)
    if name == "circular":
        return classifier, Circular(dim=1, embed=PolarConv(8, width=1, mirrored=True)), transform
    if fields is None:
        return classifier, Identity(dim=transform.dim), transform
    flow = Flow(
        dim=transform.dim, periodic=transform.periodic, layers=2, width=4,
        embed=SimpleConv(4, width=1, conv=conv), **fields,
    )  # fmt: skip
    return classifier, flow, transform


def variables(classifier: nn.Module, distribution: nn.Module, seed: int = 0) -> dict[str, Any]:
    """Weights, moved away from their start, where nothing hangs on the image."""
    keys = jax.random.split(jax.random.key(seed))
    images = jnp.zeros((1, *SHAPE))
    start = {
        "classifier": jax.jit(classifier.init)(keys[0], images),
        "distribution": jax.jit(distribution.init)(keys[1], images),
    }
    leaves, structure = jax.tree.flatten(start)
    noise = np.random.RandomState(seed)
    moved = [leaf + 0.3 * noise.normal(size=leaf.shape).astype("f4") for leaf in leaves]
    return jax.tree.unflatten(structure, moved)


def written(folder: Path, name: str = "turns_spline", **fields: Any) -> tuple[Path, Any, Any]:
    """Write a predictor; return its folder, the library's own function, and the weights."""
    modules = parts(name)
    weights = variables(*modules[:2])
    rule: dict[str, Any] = {"num_samples": 2} | fields
    export.write_predictor(
        folder, *modules, weights, image_shape=SHAPE, class_names=NAMES,
        normalization=NORMALIZATION, **rule,
    )  # fmt: skip
    return folder, make_predict(*modules, **rule), weights


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    return written(tmp_path_factory.mktemp("exports") / "one")


def copied(folder: Path, target: Path) -> Path:
    target.mkdir()
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    return target


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("affine_coupling", {"average": "logits", "include_original": True}),
        ("turns_spline", {}),
        ("crop_spline", {"max_norm": 1.0}),
        ("crop_coupling", {}),
        ("identity", {}),
        ("circular", {}),
    ],
)
def test_a_program_is_make_predict(name: str, rule: dict[str, Any], tmp_path: Path) -> None:
    path, averaged, weights = written(tmp_path / "x", name, **rule)
    program = export.load(path)
    assert set(program.card["platforms"]) == {"cpu", "cuda", "rocm", "tpu"}
    for batch in (1, 3):
        images, key = IMAGES[:batch], jax.random.key(5)
        got = program(images, key)["probabilities"]
        wanted = averaged(weights, NORMALIZATION(jnp.asarray(images)), key)
        np.testing.assert_allclose(got, wanted, atol=1e-5)
        if name == "identity":
            continue
        other = averaged(weights, NORMALIZATION(jnp.asarray(images)), jax.random.key(6))
        assert np.abs(got - other).max() > 1e-4  # so that the law above can fail


def test_weights_may_lie_column_by_column(tmp_path: Path) -> None:
    classifier, distribution, transform = parts("identity")
    weights = variables(classifier, distribution)
    columns = jax.tree.map(lambda leaf: np.asarray(leaf, order="F"), weights)
    path = export.write_predictor(
        tmp_path / "x", classifier, distribution, transform, columns, image_shape=SHAPE,
        class_names=NAMES, num_samples=1,
    )  # fmt: skip
    stored = load_file(path / "weights.safetensors")
    kernel = weights["classifier"]["params"]["conv1"]["kernel"]
    np.testing.assert_array_equal(stored["classifier.params.conv1.kernel"], kernel)


@pytest.mark.slow
def test_an_aligner_is_make_mean_shift(tmp_path: Path) -> None:
    _, flow, transform = parts("turns_spline")
    weights = variables(*parts("turns_spline")[:2])["distribution"]
    fields: dict[str, Any] = {"steps": 4, "num_samples": 9, "spread": "stratified"}
    path = export.write_aligner(
        tmp_path / "x", flow, transform, weights, image_shape=SHAPE, normalization=NORMALIZATION,
        common_noise=True, **fields,
    )  # fmt: skip
    program = export.load(path)
    assert program.card["kind"] == "aligner"
    assert program.card["mean_shift"]["steps"] == 4
    shift = make_mean_shift(flow, transform, common_noise=True, **fields)
    for batch in (1, 3):
        images, key = IMAGES[:batch], jax.random.key(5)
        got = program(images, key)
        wanted = shift(weights, NORMALIZATION(jnp.asarray(images)), key)
        np.testing.assert_allclose(got["theta"], wanted.theta, atol=1e-5)
        seen = 255 * np.asarray(NORMALIZATION.undo(wanted.images))
        np.testing.assert_allclose(got["images"], seen, atol=0.6)
        np.testing.assert_array_equal(got["converged"], wanted.converged)
    assert np.abs(got["theta"]).max() > 1e-3


@pytest.mark.slow
def test_new_weights_need_no_new_program(folder, tmp_path: Path) -> None:
    path, averaged, _ = folder
    program = export.load(path)
    modules = parts("turns_spline")
    fresh = variables(*modules[:2], seed=1)
    named = {
        ".".join(str(step.key) for step in steps): leaf
        for steps, leaf in jax.tree_util.tree_leaves_with_path(fresh)
    }
    assert named.keys() == program.weights.keys()
    key = jax.random.key(5)
    got = program.call(named, jnp.asarray(IMAGES), jax.random.key_data(key))["probabilities"]
    wanted = averaged(fresh, NORMALIZATION(jnp.asarray(IMAGES)), key)
    np.testing.assert_allclose(got, wanted, atol=1e-5)


def isolated(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Python without this directory, its environment variables and the user's packages."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return subprocess.run(
        [sys.executable, "-I", *map(str, arguments)],
        cwd=Path(sys.executable).parent, env=environment, capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip


# Runs the script in a Python that cannot find the named packages.
WITHOUT = """
import runpy, sys
from importlib.machinery import PathFinder
class Hidden(PathFinder):
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN: return None
        return PathFinder.find_spec(name, path, target)
HIDDEN = {hidden}
finders = [finder for finder in sys.meta_path if "editable" not in repr(finder)]
sys.meta_path = [Hidden if finder is PathFinder else finder for finder in finders]
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
used = {{name.partition(".")[0] for name in sys.modules}}
assert not used & {{"flowjax_inv", "flax", "distrax", "optax", "orbax", "safetensors"}}, used
"""
OURS = {"flowjax_inv", "experiments", "flax", "distrax", "optax", "safetensors"}


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 3])
def test_ten_lines_of_plain_jax_run_it(folder, batch: int, tmp_path: Path) -> None:
    path, averaged, weights = folder
    np.save(tmp_path / "images.npy", IMAGES[:batch])
    code = WITHOUT.format(hidden=OURS)
    done = isolated("-c", code, SCRIPT, path, tmp_path / "images.npy")
    assert done.returncode == 0, done.stderr
    wanted = averaged(weights, NORMALIZATION(jnp.asarray(IMAGES[:batch])), jax.random.key(0))
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == [NAMES[i] for i in np.argmax(wanted, -1)]
    np.testing.assert_allclose([[float(p) for p in row[1:]] for row in rows], wanted, atol=1e-5)


@pytest.mark.slow
def test_without_flatbuffers_or_images_it_says_what_is_missing(folder, tmp_path: Path) -> None:
    hidden = OURS | {"flatbuffers"}
    for code, arguments in (
        (WITHOUT.format(hidden=hidden), (folder[0], "x.npy")),
        (WITHOUT.format(hidden=OURS), (folder[0],)),
    ):
        done = isolated("-c", code, SCRIPT, *arguments)
        assert done.returncode == 1
        assert done.stderr == (
            "error: want FOLDER IMAGES.npy, and what JAX reads programs by: pip install "
            "flatbuffers\n"
        )


def test_the_script_has_ten_statements_and_no_imports_of_ours() -> None:
    tree = ast.parse(SCRIPT.read_text())
    imports = [x for x in tree.body if isinstance(x, ast.Import | ast.ImportFrom)]
    statements = [x for x in ast.walk(tree) if isinstance(x, ast.stmt) and x not in imports]
    assert len(statements) - 1 <= 10  # the docstring is one
    roots = {
        name.partition(".")[0]
        for x in imports
        for name in (
            [x.module or ""] if isinstance(x, ast.ImportFrom) else [a.name for a in x.names]
        )
    }
    assert roots - set(sys.stdlib_module_names) == {"jax", "numpy"}


@pytest.mark.slow
def test_the_card_says_what_goes_in_and_comes_out(folder) -> None:
    card = export.load(folder[0]).card
    assert card["arguments"]["images"]["shape"] == ["N", *SHAPE]
    assert card["outputs"]["probabilities"]["shape"] == ["N", 3]
    assert card["outputs"]["probabilities"]["dtype"] == "float32"
    assert card["class_names"] == list(NAMES)
    assert card["normalization"]["mean"] == [0.4]
    assert card["transform"]["coordinates"] == ["translation_x", "translation_y", "rotation"]
    assert card["transform"]["units"] == ["half-widths", "half-heights", "degrees"]
    assert card["transform"]["half_range"] == [1.0, 1.0, 180.0]
    assert card["average"] == {
        "over": "probs", "num_samples": 2, "include_original": False, "max_norm": None,
    }  # fmt: skip
    assert card["versions"]["jax"] == jax.__version__


@pytest.mark.slow
def test_weights_have_plain_dotted_names_and_are_not_in_the_program(folder) -> None:
    path, _, weights = folder
    tensors = load_file(path / export.WEIGHTS)
    assert "classifier.params.conv0.kernel" in tensors
    np.testing.assert_array_equal(
        tensors["distribution.params.embed.head.bias"],
        weights["distribution"]["params"]["embed"]["head"]["bias"],
    )
    program = (path / export.PROGRAM).read_bytes()
    assert np.asarray(tensors["classifier.params.conv3.kernel"]).tobytes() not in program


@pytest.mark.slow
def test_nothing_in_the_files_names_a_place(folder) -> None:
    """JAX writes the file and line of every operation in a program, unless it is told not to."""
    before = jax.config.values["jax_traceback_in_locations_limit"]
    assert before != 0  # put back after the export
    for path in folder[0].iterdir():
        text = path.read_bytes()
        for place in (str(ROOT), str(Path.home()), sys.prefix, ".py", "flowjax_inv", "packages"):
            assert place.encode() not in text, f"{path.name} names {place}"


def test_convolutions_of_an_export_are_plain_everywhere() -> None:
    class Both(nn.Module):
        networks: Any
        conv: str = "auto"

        def __call__(self, images: jax.Array) -> jax.Array:
            return images

    nested = Both([SimpleConv(2, conv="patches"), {"a": Both(MLP(3))}])
    plain: Any = export.with_plain_convolutions(nested)
    assert plain.conv == plain.networks[0].conv == plain.networks[1]["a"].conv == "lax"
    assert plain.networks[1]["a"].networks == MLP(3)
    flow: Any = export.with_plain_convolutions(parts("turns_spline", conv="patches")[1])
    assert flow.embed.conv == "lax"
    assert flow.periodic == (False, False, True)


@pytest.mark.slow
def test_the_program_is_that_of_any_machine(tmp_path: Path, monkeypatch) -> None:
    """On one CPU device convolutions are oneDNN's or patches, and crops are C's or read flat."""
    monkeypatch.setattr(sys.modules[__name__], "SHAPE", (9, 8, 3))
    modules = parts("crop_spline", conv="auto")
    weights = variables(*modules[:2])
    programs = []
    for devices in (1, 4):
        monkeypatch.setattr(jax, "device_count", lambda devices=devices: devices)
        path = export.write_predictor(
            tmp_path / str(devices), *modules, weights, image_shape=SHAPE, class_names=NAMES,
            num_samples=2,
        )  # fmt: skip
        programs.append((path / export.PROGRAM).read_bytes())
    assert programs[0] == programs[1]


def test_an_interrupted_write_leaves_nothing(tmp_path: Path, monkeypatch) -> None:
    def full(self: Path, target: Path) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(OSError, match="No space left"):
        export.write(
            tmp_path / "deep" / "x", lambda v, images, key: {"y": images * v}, jnp.ones(()),
            image_shape=SHAPE, outputs={"y": "the images"}, about={},
        )  # fmt: skip
    assert list((tmp_path / "deep").iterdir()) == []


def test_any_function_becomes_a_program(tmp_path: Path) -> None:
    """What an aligner needs: several outputs, a tree of weights of any shape, zero size too."""

    def function(values: Any, images: jax.Array, key: jax.Array) -> dict[str, jax.Array]:
        theta = jax.random.normal(key, (images.shape[0], 2)) * values["scale"][0]
        return {"theta": theta, "mean": jnp.mean(images, (1, 2, 3))}

    values = {"scale": [jnp.full((), 2.0)], "b": {"none": jnp.zeros((0, 3))}}
    export.write(
        tmp_path / "x", function, values, image_shape=SHAPE,
        outputs={"theta": "coordinates", "mean": "of pixels"}, about={"kind": "a test"},
    )  # fmt: skip
    program = export.load(tmp_path / "x")
    got = program(IMAGES, jax.random.key(3))
    np.testing.assert_allclose(got["theta"], 2 * jax.random.normal(jax.random.key(3), (3, 2)))
    np.testing.assert_allclose(got["mean"], IMAGES.mean((1, 2, 3)), rtol=1e-5)
    assert program.card["outputs"]["theta"] == {
        "shape": ["N", 2], "dtype": "float32", "about": "coordinates",
    }  # fmt: skip
    assert program.card["kind"] == "a test"


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


DAMAGES = {
    "weights": (
        lambda x: flip(x / export.WEIGHTS, -3),
        "weights.safetensors is damaged: its sha256 begins with .*copy the folder again",
    ),
    "program": (lambda x: flip(x / export.PROGRAM, 500), "program.jax is damaged: its sha256"),
    "cut": (
        lambda x: (x / export.PROGRAM).write_bytes((x / export.PROGRAM).read_bytes()[:-1]),
        "program.jax is damaged",
    ),
    "no weights": (
        lambda x: (x / export.WEIGHTS).unlink(),
        "has no weights.safetensors; give a whole folder",
    ),
    "no card": (lambda x: (x / export.CARD).unlink(), "has no card.json; give a whole folder"),
    "card": (lambda x: (x / export.CARD).write_text('{"sha'), "card.json is damaged: no card"),
    "other card": (lambda x: (x / export.CARD).write_text("[]"), "card.json is damaged: no card"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named(name: str, folder, tmp_path: Path) -> None:
    copy = copied(folder[0], tmp_path / "copy")
    damage, text = DAMAGES[name]
    damage(copy)
    with pytest.raises((ValueError, FileNotFoundError), match=text) as caught:
        export.load(copy)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("images", "text"),
    [
        (IMAGES.astype("f4"), r"images are float32 \(3, 9, 8, 1\); this program wants uint8 \(N, "),
        (IMAGES[:, :8], r"images are uint8 \(3, 8, 8, 1\); .*wants uint8 \(N, 9, 8, 1\)"),
        (IMAGES[:0], r"images are uint8 \(0, 9, 8, 1\); .*N >= 1"),
        (IMAGES[0], r"images are uint8 \(9, 8, 1\)"),
    ],
    ids=["float", "size", "none", "one"],
)
def test_wrong_images_are_refused(images, text: str, folder) -> None:
    with pytest.raises(ValueError, match=text):
        export.load(folder[0])(images, jax.random.key(0))


def test_refusals(folder, tmp_path: Path, monkeypatch) -> None:
    path, _, weights = folder
    fields: dict[str, Any] = {"image_shape": SHAPE, "class_names": NAMES, "num_samples": 2}
    modules = parts("turns_spline")
    before = (path / export.CARD).read_bytes()
    with pytest.raises(FileExistsError, match="one is there already; name a new folder"):
        export.write_predictor(path, *modules, weights, **fields)
    assert (path / export.CARD).read_bytes() == before
    fields["class_names"] = NAMES[:2]
    with pytest.raises(ValueError, match="class_names are 2, the classifier's logits 3; give one"):
        export.write_predictor(tmp_path / "x", *modules, weights, **fields)
    for missing in ("flatbuffers", "safetensors"):
        with monkeypatch.context() as patched:
            for name in [n for n in sys.modules if n.partition(".")[0] == missing] + [missing]:
                patched.setitem(sys.modules, name, None)
            with pytest.raises(ImportError, match=rf"exports need {missing}.*; install it: pip"):
                export.load(path)
    assert list(tmp_path.iterdir()) == []
