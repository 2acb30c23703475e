"""What the documents say is so: README code runs, its table is generated, names exist."""

import ast
import importlib
import inspect
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import flowjax_inv
from experiments import publish
from experiments.report.headline import headline_table
from experiments.running.command_line import UsageError

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "flowjax_inv" / "native" / "README.md",
]


@pytest.mark.slow
def test_the_readmes_example_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(blocks) == 1
    names: dict = {}
    exec(compile(blocks[0], "README.md", "exec"), names)
    assert names["views"].shape == (20, 8, 32, 32, 3)
    assert names["probabilities"].shape == (8, 10)


@pytest.mark.parametrize("page", publish.PAGES)
def test_the_tables_are_the_generated_ones(page: str) -> None:
    text = (ROOT / page).read_text()
    assert publish.with_tables(text, page, ROOT / "docs" / "results") == text


@pytest.mark.parametrize("page", PAGES)
def test_every_place_that_a_document_names_exists(page: Path) -> None:
    for place in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
        assert (page.parent / place).exists(), place


def test_the_readme_is_read_to_its_end() -> None:
    assert len(README.splitlines()) <= 200
    assert len(README.encode()) <= 12_000


def test_the_readmes_table_is_short() -> None:
    rows = headline_table(ROOT / "docs" / "results").splitlines()[2:]
    assert 5 <= len(rows) <= 12
    assert all(row.count("|") == 5 for row in rows)


def _modules() -> list[str]:
    return sorted(m.name for m in pkgutil.walk_packages(flowjax_inv.__path__, "flowjax_inv."))


@pytest.mark.parametrize("name", _modules())
def test_every_public_name_is_listed_and_documented(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__
    for public in getattr(module, "__all__", ()):
        thing = getattr(module, public)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert thing.__doc__, f"{name}.{public} has no docstring"


LAYERS = (  # lower rooms first; a file imports from rooms before its own in this list only
    "naming", "warps", "transforms", "networks", "distributions", "metrics", "data", "inference",
    "training", "export",
)  # fmt: skip
# What calls C, and the formulas that C is equal to: native/ stands beside the rooms.
BINDERS = {
    "warps/resample.py", "warps/sampling.py", "networks/convolutions/layer.py",
    "distributions/couplings.py",
}  # fmt: skip
FORMULAS = {
    "warps.positions", "warps.taps", "networks.convolutions.parts", "networks.convolutions.patches",
    "networks.convolutions.plain", "distributions.perceptron",
}  # fmt: skip


def _imports(path: Path, package: str) -> list[str]:
    """Return what a file imports from a package, as "room.module" or "room"."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom) or not node.module:
            continue
        if node.module == package:
            found += [alias.name for alias in node.names]
        elif node.module.startswith(f"{package}."):
            module = node.module.removeprefix(f"{package}.")
            names = [f"{module}.{alias.name}" for alias in node.names]
            place = ROOT / package
            files = [n for n in names if (place / f"{n.replace('.', '/')}.py").exists()]
            found += files or [module]
    return found


def test_imports_run_downward() -> None:
    """No cycle of rooms; the library knows no experiments; C is bound where it is said to be."""
    library, bound, formulas = ROOT / "flowjax_inv", set(), set()
    for path in library.rglob("*.py"):
        assert not _imports(path, "experiments"), path
        name = path.relative_to(library).as_posix()
        room, used = name.split("/")[0].removesuffix(".py"), _imports(path, "flowjax_inv")
        if room == "native":
            formulas |= {module for module in used if not module.startswith("native")}
            continue
        for other in {module.split(".")[0] for module in used} - {room}:
            if other == "native":
                bound.add(name)
            else:
                assert LAYERS.index(other) < LAYERS.index(room), f"{path}: {other}"
    assert bound == BINDERS
    assert formulas == FORMULAS
    for path in (ROOT / "experiments" / "report").glob("*.py"):
        assert not any(m.startswith("training") for m in _imports(path, "flowjax_inv")), path


@pytest.mark.slow
def test_every_module_can_be_imported_first() -> None:
    """C and its formulas import each other: whichever comes first must find the other."""
    names = [m for m in _modules() if "native" in m and not m.endswith("_library")]
    line = "import sys; names = sys.argv[1:]; [__import__(n) for n in names]"
    for name in names:
        subprocess.run([sys.executable, "-c", line, name], check=True)


def test_who_imports_mean_shift_waits_for_jax_alone() -> None:
    slow = "{'distrax', 'flax', 'optax', 'scipy.stats'}"
    code = f"import sys, flowjax_inv.inference; print(*{slow} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not done.stdout.strip()


def test_publish_copies_and_refuses(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    with pytest.raises(UsageError, match="has no config.json; give the folder of a finished run"):
        publish.publish("x", [run], tmp_path / "results")
    with pytest.raises(UsageError, match='no runs to publish as "x"; give their folders after'):
        publish.publish("x", [], tmp_path / "results")
    for name in ("config.json", "environment.json"):
        (run / name).write_text("{}")
    (run / "results.json").write_text(
        '{"seed": 4, "test_accuracy": 0.5, "true_half_range_degrees": 90.0}'
    )
    publish.publish("x", [run], tmp_path / "results")
    assert (tmp_path / "results" / "x" / "4" / "results.json").exists()
    text = publish.with_tables(
        "<!-- results:begin -->\n<!-- results:end -->\n", "docs/results.md", tmp_path / "results"
    )
    assert "| x | 1 |" in text
    assert "50.0" in text
    publish.draw(tmp_path / "results", tmp_path)
    assert not (tmp_path / "rotation_distance.png").exists()  # no run is about that


@pytest.mark.slow
def test_publish_draws(tmp_path: Path) -> None:
    for name in ("discovery_2_flow", "poses_cifar10"):
        kept = ROOT / "docs" / "results" / name
        shutil.copytree(kept, tmp_path / name, ignore=shutil.ignore_patterns("*.png"))
    publish.draw(tmp_path, tmp_path)
    for picture in ("rotation_distance", "poses_cifar10/0/turned", "poses_cifar10/0/gates"):
        assert (tmp_path / f"{picture}.png").stat().st_size > 10_000
