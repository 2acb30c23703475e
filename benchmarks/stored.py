"""Where benchmarks keep what they found: one JSON file each, which `benchmarks.page` reads."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.running.run_folder import environment

__all__ = ["RESULTS", "store"]

RESULTS = Path(__file__).with_name("results")


def store(out: str | Path, content: Mapping[str, Any]) -> None:
    """Write what was found and what it ran on."""
    # Before the file is touched: it says whether the checkout was as committed.
    text = json.dumps({**content, **environment()}, indent=2, allow_nan=False)
    Path(out).write_text(text + "\n", encoding="utf-8")
