"""What runs where: tests of CPUs alone, or of several devices, are left out elsewhere, and why."""

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PLATFORM, why_skipped

ROOT = Path(__file__).parents[1]


class _Item:
    def __init__(self, *marks: pytest.Mark):
        self.marks = {mark.name: mark for mark in marks}

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self.marks.get(name)


def _why(mark: pytest.MarkDecorator, platform: str, devices: int) -> str:
    item: pytest.Item = _Item(mark.mark)  # type: ignore[assignment]
    return why_skipped(item, platform, devices)


def test_what_is_left_out_and_why() -> None:
    cpu, four = pytest.mark.cpu("C"), pytest.mark.devices(4)
    assert _why(cpu, "cpu", 1) == _why(four, "cuda", 4) == ""
    assert _why(cpu, "cuda", 4) == "of CPUs alone: C"
    assert _why(four, "cuda", 1) == "wants 4 devices; there are 1"


@pytest.mark.skipif(PLATFORM != "cpu", reason="asks for the platform that is here")
@pytest.mark.slow
def test_a_platform_that_is_not_here_is_said_in_a_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "tests/test_platforms.py"], cwd=ROOT,
        capture_output=True, text=True, env={"TEST_PLATFORM": "nowhere", "PATH": ""},
    )  # fmt: skip
    assert done.returncode == 4
    assert "PLATFORM is nowhere, but JAX finds" in done.stdout + done.stderr
