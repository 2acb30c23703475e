"""Freed memory stays where the C library lets us ask for it, and nothing happens elsewhere."""

import subprocess
import sys
from pathlib import Path

import pytest

from experiments.running.allocator import keep_freed_memory

KEPT_AFTER_FREEING = """
import sys
import threading
import numpy as np
from experiments.running.allocator import keep_freed_memory

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

if sys.argv[1] == "keep":
    assert keep_freed_memory()
before = resident()
threads = [threading.Thread(target=lambda: np.ones(128 << 17).sum()) for _ in range(2)]
for thread in threads:  # XLA works in threads as well; an arena of theirs holds 64 MiB
    thread.start()
    thread.join()
print(resident() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
def test_freed_memory_is_kept_only_if_asked() -> None:
    kept, freed = (
        int(
            subprocess.run(
                [sys.executable, "-c", KEPT_AFTER_FREEING, how],
                cwd=Path(__file__).parents[1],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for how in ("keep", "free")
    )
    assert kept > 120 << 20
    assert freed < 10 << 20


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert keep_freed_memory() is False
