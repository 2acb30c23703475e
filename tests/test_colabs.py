"""The notebooks: short, paired with their markdown, and they run from top to bottom."""

import json
import re
import sys
from pathlib import Path

import pytest
from conftest import leave_unpainted

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
    first, *rest = _cells(name)
    lines = [line for cell in rest for line in cell.splitlines() if line.strip()]
    assert len(lines) < 53
    assert first == _cells(NAMES[0])[0]  # one first cell for all


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Image.open
@pytest.mark.parametrize("names", [NAMES[:1], NAMES[1:]])
def test_notebooks_run(
    names: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one folder: what the first of the last two trains, the other finds."""
    monkeypatch.setenv("SMALL", "1")
    monkeypatch.chdir(tmp_path)
    if "quickstart" not in names:  # which shows a figure of its run
        leave_unpainted(monkeypatch)
    for name in names:
        exec(compile("\n".join(_cells(name)), f"{name}.md", "exec"), {"__name__": "__main__"})
    assert (tmp_path / "aligned" / "montage.png").is_file() == ("your_images" in names)


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no checkout that git could clone")
def test_a_notebook_starts_from_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Colab: nothing in the folder, SOURCE is what git clones."""
    monkeypatch.setenv("SOURCE", ROOT.as_uri())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    exec(compile(_cells(NAMES[0])[0], "first cell", "exec"), {"__name__": "__main__"})
    assert Path(sys.path[0], "experiments", "run.py").is_file()
    assert Path(sys.path[0]).is_relative_to(tmp_path.resolve())
