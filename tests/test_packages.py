"""The packages: a wheel of the library alone, a source distribution that can be built anywhere."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
USED = """
import importlib.util, jax, jax.numpy as jnp, pathlib, sys
import flowjax_inv
from flowjax_inv.distributions.flow import Flow
from flowjax_inv.inference import make_predict
from flowjax_inv.native import foreign
from flowjax_inv.networks import SimpleConv
from flowjax_inv.transforms import Affine

assert pathlib.Path(sys.prefix) in pathlib.Path(flowjax_inv.__file__).parents
assert not importlib.util.find_spec("experiments")
images = jnp.arange(2 * 12 * 8 * 1.0).reshape(2, 12, 8, 1)
turn = Affine("rotation")
half = turn(images, jnp.full((2, 1), 1.0))  # 180 degrees
assert abs(half - images[:, ::-1, ::-1]).max() < 1e-3
classifier, density = SimpleConv(features=3, width=4), Flow(dim=1, embed=SimpleConv(4, width=4))
variables = {
    "classifier": classifier.init(jax.random.key(0), images),
    "distribution": density.init(jax.random.key(1), images),
}
predict = make_predict(classifier, density, turn, num_samples=3)
assert abs(predict(variables, images, jax.random.key(2)).sum(-1) - 1).max() < 1e-5
print("native" if foreign.available() else "XLA alone")
"""


def _build(kind: str, source: Path, out: Path, **environment: str) -> Path:
    """Build a wheel or an sdist of a copy of the sources, with the environment's setuptools."""
    out.mkdir(exist_ok=True)
    code = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(out)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=source, capture_output=True, text=True,
        env=os.environ | environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return out / done.stdout.split()[-1]


def _used(wheel: Path, place: Path) -> str:
    """Unpack a wheel where pip would into an environment that has its requirements; use it."""
    venv.create(place, with_pip=False)
    (packages,) = place.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    # Paths of a .pth file are not searched for further ones: what is installed here for
    # development, this project, is not seen through it.
    (packages / "requirements.pth").write_text(sysconfig.get_path("purelib") + "\n")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [place / "bin" / "python", "-c", USED], cwd=place, capture_output=True, text=True,
        env=environment | {"CC": "no-compiler", "PATH": str(place / "bin")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("sources")
    kept = ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "CHANGELOG.md")
    for name in kept:
        shutil.copy(ROOT / name, place)
    for name in ("flowjax_inv", "experiments"):
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("*.so", "__pyc*"))
    return _build("sdist", place, place / "dist")


@pytest.mark.slow
def test_the_wheel_of_the_sources_holds_the_library_alone(sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    assert {path.suffix for path in (source / "flowjax_inv" / "native").iterdir()} == {
        ".py", ".c", ".h", ".md",
    }  # fmt: skip
    options = source / "pyproject.toml"  # the compiler takes thrice as long for -O3
    options.write_text(
        options.read_text(encoding="utf-8").replace('"-O3"', '"-O1"'), encoding="utf-8"
    )
    wheel = _build("wheel", source, tmp_path / "dist")
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert tops == {"flowjax_inv", f"{wheel.name.split('-py')[0].split('-cp')[0]}.dist-info"}
    if shutil.which("cc") and sys.platform == "linux":
        assert _used(wheel, tmp_path / "with") == "native"


@pytest.mark.slow
def test_without_a_compiler_it_is_built_and_xla_computes(sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    wheel = _build("wheel", source, tmp_path / "dist", CC="no-compiler")
    assert _used(wheel, tmp_path / "without") == "XLA alone"
