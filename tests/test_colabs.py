"""The notebooks: short, paired with their markdown, and they run from top to bottom."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMES = ("quickstart", "mean_shift", "your_images")


def _cells(name: str) -> list[str]:
    text = (ROOT / "colabs" / f"{name}.md").read_text(encoding="utf-8")
    return [cell.strip() for cell in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)]


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_its_markdown_and_short(name: str) -> None:
    notebook = json.loads((ROOT / "colabs" / f"{name}.ipynb").read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert ["".join(cell["source"]).strip() for cell in code] == _cells(name)
    assert not any(cell["outputs"] for cell in code)
    lines = [line for cell in _cells(name) for line in cell.splitlines() if line.strip()]
    assert len(lines) < 60
    assert _cells(name)[0] == _cells(NAMES[0])[0]  # one first cell for all


@pytest.mark.slow
@pytest.mark.parametrize("names", [NAMES[:1], NAMES[1:]])
def test_notebooks_run(names: tuple[str, ...], tmp_path: Path) -> None:
    """In one folder: what the first of the last two trains, the other finds."""
    environment = {**os.environ, "SMALL": "1", "PYTHONPATH": str(ROOT)}
    faster = "from experiments.running.collector import collect_rarely\ncollect_rarely()"
    for name in names:
        done = subprocess.run(
            [sys.executable, "-c", "\n".join([faster, *_cells(name)])],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "aligned" / "montage.png").is_file() == ("your_images" in names)
