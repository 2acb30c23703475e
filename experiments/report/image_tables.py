"""The tables of real images, in markdown, made from the runs kept below a folder.

Every row is mean ± sample standard deviation (n - 1) over seeds, no spread for one seed. A figure
that only some seeds have says how many, a figure that none has is a dash.
"""

import statistics
from collections.abc import Sequence
from pathlib import Path

from experiments.report.evidence import of_evidence
from experiments.report.few_labels import of_few_labels
from experiments.report.formats import (
    ARC_SHARE,
    MISSING,
    arcs_in_words,
    averaged_by,
    markdown_line,
    spread,
)
from experiments.report.half_turned import turned_classes
from experiments.report.kept import kept_where, read_by_name
from experiments.report.method_tables import has_method_table
from experiments.report.moved import of_moved
from experiments.report.papers import paper_figure
from experiments.report.reading import flat
from experiments.report.verdicts import has_density, method_name, ruined

__all__ = [
    "aligned_table",
    "images_table",
    "replace_between_markers",
    "turned_table",
]

_IMAGE_HEADS = (
    "run", "method", "data", "seeds", "paper (%)", "averaged accuracy (%)", "plain accuracy (%)",
    "entropy (nats)", "rotation (°)", "arcs", "minutes", "command",
)  # fmt: skip
_NUMERIC = (
    "seeds",
    "averaged accuracy (%)",
    "plain accuracy (%)",
    "entropy (nats)",
    "rotation (°)",
    "minutes",
)


def images_table(root: Path) -> str:
    """Make the table of the runs on images whose pose nobody knows, one row per NAME.

    Rows are ordered by data set, then method: first those without a density ("none"), which have
    no averaged accuracy. The command is that of the first seed without seed and folder. What is to
    be known about the data stands below the table, once.

    Args:
        root: the folder of `NAME/SEED/{results,config}.json`, normally `docs/results`.

    Returns:
        Markdown, without a final line break; empty if there are no such runs.

    Raises:
        ValueError: if there is no results.json at all, a file is not a JSON object, or the seeds
            of one name differ in more than their seed.
    """
    elsewhere = (turned_classes, of_few_labels, of_evidence, of_moved, has_method_table)
    kept = kept_where(
        root,
        lambda runs: (
            not (runs.have("true_half_range_degrees") or any(other(runs) for other in elsewhere))
        ),
    )
    known = {key for runs in kept for seed in runs.results for key in seed}
    turned = "half_range_rotation" in known
    followed = any(key.startswith(ARC_SHARE) for key in known)
    absent = {h for h, there in (("rotation (°)", turned), ("arcs", followed)) if not there}
    heads = [head for head in _IMAGE_HEADS if head not in absent]
    rows = []
    for runs in kept:
        first, config = runs.results[0], runs.configs[0]
        method, none = method_name(first), not has_density(first)
        if ruined(runs.results):
            method += f" ({ruined(runs.results)})"
        data = str((config.get("data") or {}).get("name") or MISSING)
        note = str(first.get("data_note") or "")
        if "test_error_degrees" in first:
            averaged, plain = (
                f"{spread(runs.results, f'test_error_degrees{which}', 1.0, 2)}° off"
                for which in ("_averaged", "")
            )
        else:
            averaged = spread(runs.results, "test_accuracy_averaged", 100.0, 2)
            plain = spread(runs.results, "test_accuracy", 100.0, 2)
        if "evaluation_rule" in first:
            how = averaged_by(first["evaluation_rule"], first.get("evaluation_average"))
            averaged += f" ({how})"
        cells = [
            runs.name,
            method,
            data,
            str(len(runs.results)),
            paper_figure(first, flat(config)) or MISSING,
            MISSING if none else averaged,
            plain,
            MISSING if none else spread(runs.results, "entropy", 1.0, 2),
            *[MISSING if none else spread(runs.results, "half_range_rotation", 1.0, 2)] * turned,
            *[arcs_in_words(runs.results)] * followed,
            spread(runs.results, "seconds", 1 / 60, 1),
            f"`{runs.command}`" if runs.command else MISSING,
        ]
        rows.append(((data, not none, method, runs.name), note, cells))
    rows.sort()
    notes = list(dict.fromkeys(note for _, note, _ in rows if note))
    for _, note, cells in rows:
        cells[2] += f" [{notes.index(note) + 1}]" if note else ""
    rule = "".join("---:|" if head in _NUMERIC else "---|" for head in heads)
    lines = [markdown_line(heads), "|" + rule, *(markdown_line(cells) for *_, cells in rows)]
    if notes:
        lines += ["", " ".join(f"[{i}] {note}." for i, note in enumerate(notes, 1))]
    return "\n".join(lines) if kept else ""


_TURNED_HEADS = (
    "run", "seeds", "way", "upright (%)", "C8 (%)", "gated: upright (%)", "gated: C8 (%)",
    "gated: changed (%)", "promised (%)", "turned by", "divergence (nats)", "of the tail",
)  # fmt: skip


def turned_table(root: Path) -> str:
    """Make the table of what `experiments.robustness` found, one row per NAME and way to predict.

    Args:
        root: the folder of `NAME/SEED/robustness.json`, normally `docs/results`.

    Returns:
        Markdown, without a final line break; empty if there are no such files.
    """
    kept = read_by_name(root, "robustness.json")
    lines = [markdown_line(_TURNED_HEADS), "|---|---:|---|" + "---:|" * (len(_TURNED_HEADS) - 3)]
    for name, seeds in kept.items():
        for way in sorted(seeds[0]["ways"], key=lambda way: (way != "plain", way)):
            free = [seed["ways"][way] for seed in seeds]
            gated = [seed["gates"].get(way, {}) for seed in seeds]
            divergence = [
                _divergences(way["divergence"], seed["class_sizes"])
                for way, seed in zip(free, seeds, strict=True)
            ]
            cells = [
                name,
                str(len(seeds)),
                way,
                *(spread(free, key, 100.0, 1) for key in ("upright_accuracy", "c8_accuracy")),
                *(
                    spread(gated, key, 100.0, digits)
                    for key, digits in (
                        ("upright_accuracy", 1), ("c8_accuracy", 1), ("clean_change", 1),
                        ("max_clean_loss", 1),
                    )
                ),
                f"±{seeds[0]['turn_degrees']:g}°",
                *(spread(divergence, key, 1.0, 3) for key in ("all", "tail")),
            ]  # fmt: skip
            lines.append(markdown_line(cells))
    return "\n".join(lines) if kept else ""


def _divergences(by_class: Sequence[float | None], sizes: Sequence[int]) -> dict[str, float]:
    """Return the mean over classes and, where sizes differ twofold, over the smallest third."""
    known = [(size, x) for size, x in zip(sizes, by_class, strict=True) if x is not None]
    tail = [x for _, x in sorted(known)[: max(1, len(known) // 3)]]
    means = {"all": statistics.fmean(x for _, x in known)}
    uneven = max(sizes) >= 2 * min(sizes)
    return means | ({"tail": statistics.fmean(tail)} if uneven else {})


def aligned_table(root: Path) -> str:
    """Make the table of what `experiments.align_classes` found, for every NAME and file.

    Where images were turned by different angles, a row of what is left of them; always one of the
    deviation per pixel, turned and aligned.

    Args:
        root: the folder of `NAME/SEED/alignment_*.json`, normally `docs/results`.

    Returns:
        Markdown, without a final line break; empty if there are no such files.
    """
    files = sorted({path.name for path in root.glob("*/*/alignment_*.json")})
    kept = {
        (name, file): seeds for file in files for name, seeds in read_by_name(root, file).items()
    }
    names = [row["class"] for seeds in kept.values() for row in seeds[0]["classes"]]
    names = list(dict.fromkeys(names))
    heads = ["run", "seeds", "turned by", "what", *names]
    lines = [markdown_line(heads), "|---|" + "---:|" * 2 + "---|" + "---:|" * len(names)]
    for (name, _), seeds in sorted(kept.items()):
        first = seeds[0]
        by = f"{'' if first['alike'] else '±'}{first['degrees']:g}°"
        by_class = [
            [row for seed in seeds for row in seed["classes"] if row["class"] == label]
            for label in names
        ]
        left = [spread(rows, "spread_after_degrees", 1.0, 1) for rows in by_class]
        deviation = [
            " → ".join(spread(rows, f"deviation_{kind}", 1.0, 3) for kind in ("turned", "aligned"))
            for rows in by_class
        ]
        if not first["alike"]:
            lines.append(markdown_line([name, str(len(seeds)), by, "turns left (°)", *left]))
        lines.append(markdown_line([name, str(len(seeds)), by, "deviation per pixel", *deviation]))
    return "\n".join(lines) if kept else ""


def replace_between_markers(text: str, table: str, name: str = "results") -> str:
    """Put a table between the two comment lines that mark its place in a page of markdown.

    Args:
        text: the page, with `<!-- NAME:begin -->` and later `<!-- NAME:end -->`, once each.
        table: what shall stand between them.
        name: the NAME of the markers.

    Returns:
        The page with everything between the markers replaced; the markers stay.

    Raises:
        ValueError: if a marker is missing, comes twice, or the end comes before the beginning.
    """
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    counts = text.count(begin), text.count(end)
    if counts != (1, 1) or text.index(begin) > text.index(end):
        raise ValueError(
            f"the text has {counts[0]} '{begin}' and {counts[1]} '{end}'; it needs one line of "
            "each, in this order: add them where the table belongs"
        )
    head, rest = text.split(begin)
    return f"{head}{begin}\n{table.strip()}\n{end}{rest.split(end)[1]}"
