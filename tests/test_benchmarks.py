"""The benchmarks time in turns, put the ratio first, and refuse what is not the same work."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import timing

ROOT = Path(__file__).parents[1]


def test_calls_alternate_and_each_is_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_WARM_SECONDS", -1.0)  # one untimed call each
    order: list[str] = []

    def call(name: str) -> Callable[[], None]:
        return lambda: order.append(name)

    seconds = timing.measure({name: call(name) for name in "abc"}, repeats=3)
    assert {name: len(times) for name, times in seconds.items()} == {"a": 3, "b": 3, "c": 3}
    # First once each; then in pairs, untimed and timed, and another one begins every round.
    assert "".join(order) == "abc" + "aabbcc" + "bbccaa" + "ccaabb"


def test_the_ratio_is_theirs_over_ours_by_the_fastest_of_theirs() -> None:
    row = timing.compare({timing.OURS: [0.1, 0.2, 0.3], "x": [9, 9, 9], "y": [0.2, 0.8, 0.6]})
    assert row["ratio"] == pytest.approx(3.0)  # medians: 0.6 over 0.2
    assert row["ratio_quartiles"] == pytest.approx([2.0, 3.0])  # of 2, 4 and 2
    assert row["theirs"] == "y"
    assert row["ours_ms"] == pytest.approx({"median": 200.0, "low": 150.0, "high": 250.0})
    assert list(row["slower_ms"]) == ["x"]
    assert next(iter(row)) == "ratio"


def test_what_differs_is_not_timed() -> None:
    assert timing.difference([1.0, 4.0], [1.0, 4.0], 0.0, "same") == 0.0
    assert timing.difference([1.0, 3.0], [1.0, 4.0], 0.3, "near") == 0.25
    for other in ([1.0, 5.0], [1.0, np.nan]):
        with pytest.raises(ValueError, match="warp: the two sides differ by .* allowed 1e-04"):
            timing.difference([1.0, 4.0], other, 1e-4, "warp")


def _row(repeats: int) -> list[dict]:
    times = timing.measure({timing.OURS: lambda: None, "other": lambda: None}, repeats=repeats)
    return [timing.compare(times) | {"work": "nothing", "difference": 0.0}]


def test_the_json_says_what_ran_on_what(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(get_num_threads=lambda: 2))
    monkeypatch.setattr(timing.importlib.metadata, "version", lambda name: f"{name} 1")
    out = tmp_path / "new" / "x.json"
    timing.main("x", _row, {"size": 3}, ["--quick", f"--out={out}"], about="nothing")
    content = json.loads(out.read_text())
    assert content["benchmark"] == "x"
    assert content["settings"] == {"size": 3, "repeats": 3}
    environment = content["environment"]
    assert {"processor", "processors", "usable_processors", "torch", "torch_threads"} <= set(
        environment
    )
    assert {"xla_threads", "jax", "jaxlib", "python", "git_commit", "git_dirty"} <= set(environment)
    assert str(ROOT) not in out.read_text()
    [row] = content["rows"]
    assert row["allocator"] == "system"
    head, _, line, *_ = capsys.readouterr().out.splitlines()
    assert head.startswith("| ratio")
    assert "nothing" in line


def test_too_few_repeats_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        timing.main("x", _row, {}, ["--repeats=1"], about="nothing")
    assert "--repeats is 1; quartiles want 2 or more." in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["warp", "flow", "convolution", "step", "predict"])
def test_a_benchmark_runs(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    if name == "flow":
        pytest.importorskip("normflows")
    out = tmp_path / f"{name}.json"
    # In a process of its own: one device and compiled as users compile, unlike the tests.
    clean = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--quick", f"--out={out}"],
        cwd=ROOT,
        env=clean,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(out.read_text())["rows"]
    assert rows
    assert all(row["ratio"] > 0 for row in rows)
    assert done.stdout.startswith("| ratio")
