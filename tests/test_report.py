"""A run's page: all in one file, what is missing said in a line, damage refused."""

import base64
import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from finished_run import GOOD, make_evaluation, write_run

from experiments.report import page, reading, rendering, step_time


def one_class(evaluation: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Keep the first class only: a page that is drawn faster."""
    per_class = set(evaluation) - {"view_index", "arc_half_range_degrees"}
    return {key: v[:1] if key in per_class else v for key, v in evaluation.items()}


class Page(HTMLParser):
    """Collects what a page refers to, and its visible text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.references: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        named = ("src", "href", "srcset", "action", "data", "background", "poster")
        self.references += [value or "" for name, value in attrs if name in named]
        assert not any(name.startswith("on") for name, _ in attrs), f"script in {tag}"

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "good"
    write_run(folder, evaluation=make_evaluation(translation=True))
    path = page.write_report(folder)
    assert path == folder / "report.html"
    return path


def test_page_is_self_contained(report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    parsed = Page(text)
    assert len(parsed.references) == 5
    for reference in parsed.references:
        head, _, body = reference.partition(",")
        assert head == "data:image/png;base64"
        assert base64.b64decode(body, validate=True).startswith(b"\x89PNG\r\n\x1a\n")
    assert not {"script", "link", "iframe", "object", "base"} & set(parsed.tags)
    for word in ("http://", "https://", "file:", "url(", "@import", str(report.parent.parent)):
        assert word not in text


def test_page_embeds_the_figures_it_writes_and_leaves_nothing_else(report: Path) -> None:
    names = ("density", "half_range", "views", "translation", "curves")
    embedded = Page(report.read_text(encoding="utf-8")).references
    for name, reference in zip(names, embedded, strict=True):
        content = (report.parent / "figures" / f"{name}.png").read_bytes()
        assert base64.b64encode(content).decode() == reference.partition(",")[2]
    assert {p.name for p in (report.parent / "figures").iterdir()} == {f"{n}.png" for n in names}
    assert not [path for path in report.parent.iterdir() if path.name.startswith(".")]


def test_page_says_the_headline(report: Path) -> None:
    words = " ".join(" ".join(Page(report.read_text(encoding="utf-8")).words).split())
    for part in ("88.1°", "truth 90.0° (off by −1.9°)", "2.1 % at most 3.0 % ✓ met", "99.8 %"):
        assert part in words
    assert "98.5 % at least 99.0 % ✗ missed" in words
    assert "No alarms" in words
    assert "Alarm." not in words
    assert "python -m x" in words


@pytest.mark.slow
def test_page_shows_where_the_time_of_a_step_goes(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    parts = {"warp": 0.02, "classifier": 0.05, "other": 0.001}
    profile = {"first_step": 20, "last_step": 29, "seconds_per_step": 0.08}
    (folder / "profile.json").write_text(json.dumps(profile | {"parts_seconds_per_step": parts}))
    text = " ".join(Page(page.write_report(folder).read_text()).words)
    assert "Where a step's time goes" in text
    assert "A step took 80.0 ms from its call to its result" in text
    assert "steps 20 to 29" in text
    assert (folder / "figures" / "step_time.png").is_file()
    (panel,) = step_time.step_time(profile | {"parts_seconds_per_step": parts}).axes
    widths = [cast(Any, bar).get_width() for bar in panel.patches]
    np.testing.assert_allclose(widths, [50, 20, 1, 9])  # and 9 ms of nothing
    (folder / "profile.json").write_text(json.dumps(profile | {"parts_seconds_per_step": {}}))
    text = page.write_report(folder).read_text()
    assert "the trace does not say which operations ran. A step took 80.0 ms" in text
    assert not (folder / "figures" / "step_time.png").exists()


def test_page_shows_alarms(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "bad", results=GOOD | {"outside_share": 0.2})
    text = page.write_report(folder).read_text(encoding="utf-8")
    assert text.count('class="alarm"') == 1
    assert "Runaway: 20.0 %" in text
    assert "No alarms" not in text


@pytest.mark.slow
def test_hostile_strings_are_escaped(tmp_path: Path) -> None:
    hostile = "<script>alert('$x_{')</script>\"><img src=http://evil>"
    evaluation = one_class(make_evaluation())
    evaluation["class_names"] = np.array([hostile + "$\\frac{"])
    config = {hostile: hostile, "command": hostile, "data": {"name": hostile}}
    folder = write_run(
        tmp_path / "run", evaluation=evaluation, config=config, results=GOOD | {"method": hostile}
    )
    (folder / "environment.json").write_text(json.dumps({hostile: hostile}))
    parsed = Page(page.write_report(folder, defaults={"a": hostile}).read_text(encoding="utf-8"))
    assert "script" not in parsed.tags
    assert all(reference.startswith("data:image/png;base64,") for reference in parsed.references)
    assert sum(hostile in words for words in parsed.words) >= 6


def test_missing_optional_files_are_said_in_a_line(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "environment.json").unlink()
    (folder / "figures").mkdir()
    (folder / "figures" / "density.png").write_bytes(b"of an earlier report")
    text = page.write_report(folder).read_text(encoding="utf-8")
    assert text.count("this run folder has no evaluation.npz") == 3
    assert "has no environment.json" in text
    assert len(Page(text).references) == 1  # the learning curves
    assert not (folder / "figures" / "density.png").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"views": None}, "Not drawn: evaluation.npz has no views."),
        ({"rotation_degrees": np.zeros(3)}, "rotation_degrees has shape (3,); it should have 3"),
    ],
)
def test_missing_or_wrong_arrays_are_said_in_a_line(
    tmp_path: Path, change: dict[str, Any], line: str
) -> None:
    evaluation = {k: v for k, v in (one_class(make_evaluation()) | change).items() if v is not None}
    text = page.write_report(write_run(tmp_path / "run", evaluation=evaluation)).read_text()
    assert line in text
    assert len(Page(text).references) == 3


@pytest.mark.slow
def test_unreadable_evaluation_is_said_in_a_line(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "evaluation.npz").write_bytes(b"PK\x03\x04 cut short")
    assert "evaluation.npz cannot be read" in page.write_report(folder).read_text()


def test_a_changed_evaluation_is_said_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "evaluation.npz"
    np.savez_compressed(path, x=np.arange(1_000))
    whole = path.read_bytes()
    start = whole.index(b"x.npy") + len(b"x.npy")
    for at in range(start, start + 200, 7):
        path.write_bytes(whole[:at] + b"\xff" + whole[at + 1 :])
        arrays, note = reading.read_evaluation(path)
        assert arrays is not None or "cannot be read" in note


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "results.json"])
def test_missing_needed_files_are_refused(tmp_path: Path, name: str) -> None:
    folder = write_run(tmp_path / "run")
    (folder / name).unlink()
    with pytest.raises(reading.IncompleteRunError, match=f"has no {name}; a report needs") as error:
        page.write_report(folder)
    assert isinstance(error.value, FileNotFoundError)
    assert not (folder / "report.html").exists()


def test_broken_json_is_refused_with_its_line(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "metrics.jsonl").write_text('{"step": 0}\n{"step"\n{"step": 2}\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl, line 2 is not JSON"):
        reading.read_run(folder)
    (folder / "metrics.jsonl").write_text('{"step": 0}\n{"st')
    assert reading.read_run(folder).metrics == [{"step": 0}]
    (folder / "results.json").write_text("[1]")
    with pytest.raises(ValueError, match=r"results\.json holds a list; it should be one JSON obj"):
        reading.read_run(folder)


def test_failure_leaves_the_old_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "report.html").write_text("old")

    def full(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(rendering.os, "replace", full)
    with pytest.raises(OSError, match="disk full"):
        page.write_report(folder)
    assert (folder / "report.html").read_text() == "old"
    assert [path.name for path in folder.rglob(".*")] == []


def test_differences_from_the_defaults_are_listed(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", config={"a": {"b": 1, "c": 2}})
    text = page.write_report(folder, defaults={"a": {"b": 1, "c": 5}}).read_text()
    assert "<tr><td>a.c</td><td>5</td><td>2</td></tr>" in text
    assert "<td>a.b</td><td>1</td><td>" not in text
    assert "config.json does not record the command" in text


def test_importing_the_page_is_light() -> None:
    code = (
        "import sys, experiments.report.page; "
        "print([m for m in ('jax', 'flax', 'matplotlib', 'tensorflow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
