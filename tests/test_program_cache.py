"""Compiled programs go to the user's cache folder, to one already set, or nowhere."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COMPILE = """
import jax
from experiments.running.program_cache import keep_compiled_programs
keep_compiled_programs()
print(jax.config.jax_compilation_cache_dir)
jax.jit(lambda x: x + 1)(1.0)
"""


def _compile(cache: Path, **more: str) -> str:
    """Return the folder that was taken, of a user whose caches are in `cache`."""
    theirs = {name: value for name, value in os.environ.items() if not name.startswith("JAX_COMP")}
    environment = theirs | {"XDG_CACHE_HOME": str(cache), "HOME": str(cache)} | more
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", COMPILE],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def test_programs_are_kept_in_the_users_cache(tmp_path: Path) -> None:
    folder = Path(_compile(tmp_path))
    assert tmp_path in folder.parents
    assert any(path.name.startswith("jit_") for path in folder.iterdir())


@pytest.mark.slow
def test_a_folder_that_is_set_stays(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    assert _compile(tmp_path, JAX_COMPILATION_CACHE_DIR=str(mine)) == str(mine)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.slow
def test_nothing_is_kept_where_nothing_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    assert _compile(tmp_path / "file") == "None"
