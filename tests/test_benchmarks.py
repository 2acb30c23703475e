"""The benchmarks time in turns, put the ratio first, and refuse what is not the same work."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from benchmarks import cost, page, stored, timing

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


def test_what_is_cut_keeps_the_rows_it_has(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(get_num_threads=lambda: 2))
    monkeypatch.setattr(timing.importlib.metadata, "version", lambda name: f"{name} 1")

    def rows(repeats: int) -> Iterator[timing.Row]:
        yield from _row(repeats)
        raise KeyboardInterrupt

    out = tmp_path / "x.json"
    with pytest.raises(KeyboardInterrupt):
        timing.main("x", rows, {}, ["--quick", f"--out={out}"], about="nothing")
    assert [row["work"] for row in json.loads(out.read_text())["rows"]] == ["nothing"]


def test_too_few_repeats_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        timing.main("x", _row, {}, ["--repeats=1"], about="nothing")
    assert "--repeats is 1; quartiles want 2 or more." in capsys.readouterr().err


@pytest.mark.parametrize("backend", ["gpu", "tpu"])
def test_a_cpu_is_not_compared_with_an_accelerator(
    backend: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(timing.jax, "default_backend", lambda: backend)
    torch = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False))
    monkeypatch.setitem(sys.modules, "torch", torch)
    with pytest.raises(SystemExit):
        timing.main("x", _row, {}, [f"--out={tmp_path / 'x'}"], about="nothing")
    said = (
        f"JAX computes on {backend}, where PyTorch as it is installed does not; set JAX_PLATFORMS"
    )
    assert said in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
    torch.cuda.is_available = lambda: True
    assert timing._reached(backend) == (backend == "gpu")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["warp", "flow", "convolution", "step", "predict"])
def test_a_benchmark_runs(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    for library in ("normflows", "zuko", "flowjax") if name == "flow" else ():
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
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


def test_the_page_is_made_from_the_stored_results() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.page(), "run python -m benchmarks.page"


def test_a_page_of_nothing_has_no_section(tmp_path: Path) -> None:
    assert page.page(tmp_path).count("#") == 1


def test_operations_are_counted_by_shapes() -> None:
    """A convolution skips its padding; a loop counts as often as it runs."""
    images, kernel = np.zeros((2, 8, 8, 3), np.float32), np.zeros((3, 3, 3, 5), np.float32)

    def convolve(x: jax.Array, k: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(
            x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    inside = (8 * 3 - 2) ** 2  # taps of the 64 pixels that lie in the picture
    assert cost.count(convolve, images, kernel) == (2 * 2 * inside * 3 * 5, 2 * 64 * 5)

    def power(x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda y, _: (y @ x, None), x, None, length=3)[0]

    assert cost.count(power, np.zeros((4, 4), np.float32)) == (3 * 2 * 4**3, 3 * 16)


def test_the_checkout_is_looked_at_before_the_file_is_touched(tmp_path: Path, monkeypatch) -> None:
    """Else a result of a clean checkout says that it is of a changed one."""
    out = tmp_path / "x.json"
    out.write_text("old")
    monkeypatch.setattr(stored, "environment", lambda: {"before": out.read_text()})
    stored.store(out, {"rows": [1]})
    assert json.loads(out.read_text()) == {"rows": [1], "before": "old"}
