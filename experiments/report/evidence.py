"""The table of ranges learned by a bound on the marginal likelihood."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.report.formats import MISSING, markdown_line, spread
from experiments.report.kept import Kept, kept_where
from experiments.report.moved import of_moved
from experiments.report.verdicts import method_name

__all__ = ["evidence_table", "of_evidence"]

_HEADS = (
    "run", "data", "features", "range", "seeds", "half-range (°)", "truth (°)", "accuracy (%)",
    "bound (nats per image)", "minutes", "command",
)  # fmt: skip


def of_evidence(runs: Kept) -> bool:
    """Say whether the classifier of runs has a posterior, or is the control that could have one."""
    shallow = (runs.configs[0].get("classifier") or {}).get("name") == "shallow"
    return shallow and not of_moved(runs)


def evidence_table(root: Path) -> str:
    """Make the table, one row per NAME; the accuracy is averaged over views.

    Args:
        root: the folder of `NAME/SEED/{results,config}.json`, normally `docs/results`.

    Returns:
        Markdown, without a final line break; empty if there are no such runs.

    Raises:
        ValueError: if the seeds of one name differ in more than their seed.
    """
    lines = [markdown_line(_HEADS), "|---|" + "---|" * 3 + "---:|" * 6 + "---|"]
    kept = kept_where(root, of_evidence)
    for runs in kept:
        config = runs.configs[0]
        data, classifier = config["data"], config["classifier"]
        features = "random Fourier" if classifier.get("activation") == "cos" else "learned"
        if classifier.get("point"):
            features += ", no posterior"
        cells = [
            runs.name,
            str(data["name"]),
            features,
            {"augerino": "learned", "fixed": "given"}.get(str(config["distribution"]["name"]))
            or method_name(runs.results[0]),
            str(len(runs.results)),
            spread(runs.results, "half_range_rotation", 1.0, 1),
            _truth(data),
            spread(runs.results, "test_accuracy_averaged", 100.0, 2),
            spread(runs.results, "bound", 1.0, 3),
            spread(runs.results, "seconds", 1 / 60, 1),
            f"`{runs.command}`" if runs.command else MISSING,
        ]
        lines.append(markdown_line(cells))
    return "\n".join(lines) if kept else ""


def _truth(data: Mapping[str, Any]) -> str:
    """Return the half-range that the images were turned by; else nobody knows."""
    turned = data.get("rotated_degrees") or 0.0
    return f"{turned:g}" if turned else MISSING
