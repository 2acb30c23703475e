"""Programs as files: equal to the library, for every platform, run by plain JAX alone."""

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import exported
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exported import IMAGES, NAMES, NORMALIZATION, SHAPE, parts, variables, written
from safetensors.numpy import load_file

from flowjax_inv import export
from flowjax_inv.inference import make_mean_shift
from flowjax_inv.networks import MLP, SimpleConv

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "experiments" / "run_exported.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    return written(tmp_path_factory.mktemp("exports") / "one")


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
    monkeypatch.setattr(exported, "SHAPE", (9, 8, 3))
    modules = parts("crop_spline", conv="auto")
    weights = variables(*modules[:2])
    programs = []
    for devices in (1, 4):
        monkeypatch.setattr(jax, "device_count", lambda devices=devices: devices)
        path = export.write_predictor(
            tmp_path / str(devices), *modules, weights, image_shape=exported.SHAPE,
            class_names=NAMES, num_samples=2,
        )  # fmt: skip
        programs.append((path / export.PROGRAM).read_bytes())
    assert programs[0] == programs[1]


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
