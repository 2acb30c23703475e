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
from experiments.running.command_line import UsageError

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


@pytest.mark.slow
def test_the_readmes_example_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(blocks) == 1
    names: dict = {}
    exec(compile(blocks[0], "README.md", "exec"), names)
    assert names["views"].shape == (20, 8, 32, 32, 3)
    assert names["probabilities"].shape == (8, 10)


def test_the_readmes_table_is_the_generated_one() -> None:
    assert publish.readme_with_table(README, ROOT / "docs" / "results") == README


def test_every_place_the_readme_names_exists() -> None:
    for place in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / place).exists(), place
    tables = ("|", "<!--")
    words = [line for line in README.splitlines() if not line.startswith(tables)]
    assert len(words) <= 98


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


LAYERS = (  # lower rooms first; a file imports from rooms above it in this list only
    "naming", "noise", "foreign", "matrices", "convolutions", "warps", "transforms", "networks",
    "bijections", "couplings", "distributions", "objectives", "controllers", "metrics", "data",
    "inference", "alignment", "robustness", "placement", "feed", "chunks", "training",
    "checkpoints", "export", "report",
)  # fmt: skip


def test_imports_run_downward() -> None:
    """No cycle of rooms; nothing in the library knows experiments; inference knows no training."""
    for path in (ROOT / "flowjax_inv").rglob("*.py"):
        room = path.relative_to(ROOT / "flowjax_inv").parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or not node.module:
                continue
            assert not node.module.startswith("experiments"), path
            if node.module == "flowjax_inv":
                used = [alias.name for alias in node.names]
            elif node.module.startswith("flowjax_inv."):
                used = [node.module.split(".")[1]]
            else:
                continue
            for other in used:
                if other != room:
                    assert LAYERS.index(other) < LAYERS.index(room), f"{path}: {other}"
    report_and_inference = ("report", "inference")
    for room in report_and_inference:
        for path in (ROOT / "flowjax_inv").glob(f"{room}*/*.py"):
            assert "training" not in path.read_text().split("import", 1)[-1].split("\n\n\n")[0]


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
    text = publish.readme_with_table(
        "<!-- results:begin -->\n<!-- results:end -->\n", tmp_path / "results"
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
