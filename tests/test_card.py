"""A sitting at a card leaves what it found after every stage, and what was cut goes on."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import card, limits

ROOT = Path(__file__).parents[1]


def _stage(name: str, code: str, share: float = 0.5, **fields: Any) -> card.Stage:
    def command(sitting: card.Sitting) -> list[str]:
        return [sys.executable, "-c", code, str(sitting.out / f"{name}.json")]

    return card.Stage(name, share, command, None, lambda c: f"x is {c['x']}", **fields)


WRITE = "import sys; open(sys.argv[1], 'w').write('{\"x\": 3}')"


@pytest.fixture
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card, "_device", lambda: ("cpu", "some card"))
    monkeypatch.setattr(card, "_GRACE", 0.5)
    stages = (
        _stage("first", WRITE),
        _stage("cut", "import time; time.sleep(60)", share=0.02),
        _stage("fails", "raise SystemExit('no such thing')"),
        _stage("absent", WRITE, lacking=lambda _: "it is not installed"),
        _stage("last", WRITE),
    )
    monkeypatch.setattr(card, "STAGES", stages)


@pytest.mark.slow
@pytest.mark.usefixtures("_here")
def test_a_cut_loses_one_stage_and_goes_on(tmp_path: Path, monkeypatch, capsys) -> None:
    out = tmp_path / "card"
    card.main(["--minutes=1", f"--out={out}"])
    page = (out / "card.md").read_text()
    assert page.startswith("# some card\n")
    assert "## first: finished, " in page
    assert "## cut: cut" in page
    assert "## fails: ended with 1; no such thing, " in page
    assert "## absent: left out: it is not installed, 0 s" in page
    assert page.count("x is 3") == 2
    ran: list[str] = []
    monkeypatch.setattr(
        card, "_run", lambda s, *_: (ran.append(s.name), {"end": "", "seconds": 0})[1]
    )
    card.main(["--minutes=1", f"--resume={out}"])
    assert ran == ["cut", "fails", "absent"]
    with pytest.raises(SystemExit):
        card.main([f"--resume={out}", "--config.seed=1"])
    assert "trains experiments/cifar10.py; it goes on without" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "give --out DIR for a new sitting, or --resume DIR"),
        (["--out=HERE"], "is not empty; give a new folder, or --resume it"),
        (["--resume=HERE"], "holds no sitting; begin one with --out"),
        (["--seconds=3"], "--seconds=3 is unknown; of the training, write --config.FIELD=VALUE."),
    ],
)
def test_refusals(arguments: list[str], text: str, tmp_path: Path, capsys) -> None:
    (tmp_path / "something").touch()
    with pytest.raises(SystemExit):
        card.main([each.replace("HERE", str(tmp_path)) for each in arguments])
    assert text in capsys.readouterr().err


def test_laws_are_read_as_far_as_they_came() -> None:
    said = (
        "tests/test_a.py::test_x[1] PASSED   [ 1%]\n"
        "[gw1] [  2%] FAILED tests/test_a.py::test_y \n"
        "[gw0] [  3%] PASSED tests/test_b.py::test_z[a-b] \ntests/test_b.py::test_w"
    )
    sitting: Any = None
    found = card._laws_found(sitting, said)
    assert found == {"passed": 2, "failed": ["tests/test_a.py::test_y"]}


def test_what_a_bare_machine_lacks_is_listed(capsys) -> None:
    card.main(["--requirements"])
    named = capsys.readouterr().out.splitlines()
    assert any(line.startswith("distrax") for line in named)
    assert any(line.startswith("pytest") for line in named)
    assert not any(line.startswith(("jax", "flax", "optax", "orbax")) for line in named)


@pytest.mark.slow
def test_one_command_runs_every_stage(tmp_path: Path) -> None:
    out = tmp_path / "card"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.card", "--quick", "--minutes=9", f"--out={out}",
         "--config=experiments/mario_iggy.py:smoke", "--config.seed=1", "--config.train.epochs=1",
         "--config.num_devices=1",
         "--config.data.train_size=64", "--config.evaluation.poses=2",
         "--config.evaluation.straighten_steps=0"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ends = json.loads((out / "ends.json").read_text())
    assert list(ends) == [stage.name for stage in card.STAGES]
    for name in ("limits", "laws", "parts", "train", "plain"):
        assert ends[name]["end"] == "finished", (out / f"{name}.log").read_text()
    assert json.loads((out / "laws.json").read_text())["failed"] == []
    page = (out / "card.md").read_text()
    assert "a product, bfloat16" in page
    assert "| mario_iggy:paper, 8 x " in page
    assert "Learned half-range of the rotations" in page
    assert "identity, first step after " in page


def test_shares_are_of_the_copys_rate() -> None:
    *_, found = limits.limits(2, ((2, 6, 5, 1),), 16)
    assert [row["dtype"] for row in found["products"]] == ["float32", "bfloat16"]
    copy, *rest = found["warps"]
    for row in rest:
        assert row["share_of_copy"] == pytest.approx(copy["ms"] / row["ms"])
    assert "| 2x6x5x1 | gather |" in limits.section(found)
