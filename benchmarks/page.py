"""Write docs/performance.md from benchmarks/results/: python -m benchmarks.page."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.stored import RESULTS
from benchmarks.timing import table

__all__ = ["page"]

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
RATIOS = ("warp", "flow", "step", "predict", "convolution")


def page(results: Path = RESULTS) -> str:
    """Return the page: what every benchmark printed, losses beside wins.

    Args:
        results: folder of the JSON files; one that is missing has no section. Folders in it are
            of other processors: which side is faster hangs on the processor.
    """
    read = _read(results)
    parts = [
        "# Performance\n\nMade by `python -m benchmarks.page` from `benchmarks/results/`, one "
        "command each; what is compared, and how: [benchmarks/README.md](../benchmarks/README.md)."
    ]
    if any(name in read for name in RATIOS):
        parts.append(
            "## Beside PyTorch\n\nRatio: time of theirs / time of ours; above 1 we are faster. "
            "Allocator `keep`: freed memory is kept, on both sides, as `experiments.run` does."
        )
        parts += _ratios(read)
        parts += _limits(read)
    for folder in sorted(path for path in results.glob("*") if path.is_dir()):
        elsewhere = _read(folder)
        title, about = _elsewhere(elsewhere)
        parts += [f"## Beside PyTorch, on {title}\n\nOf the commits named{about}."]
        parts += _ratios(elsewhere) + _limits(elsewhere)
    for name, title, section in (
        ("start", "Start", _start),
        ("memory", "Memory of a step", _memory),
        ("devices", "Simulated devices", _devices),
        ("cost", "What a step costs, on paper", _cost),
        ("tried", "What did not help", _tried),
    ):
        if name in read:
            parts += [f"## {title}", section(read[name])]
    return "\n\n".join(parts) + "\n"


def _read(folder: Path) -> dict[str, Any]:
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def _ratios(read: dict[str, Any]) -> list[str]:
    parts = []
    for name in (each for each in RATIOS if each in read):
        content = read[name]
        parts.append(f"### `python -m benchmarks.{name}`\n\n{_machine(content['environment'])}")
        parts.append(table(content["rows"]))
        if any("compile_seconds" in row for row in content["rows"]):
            parts.append(_compile(content["rows"]))
    return parts


def _compile(rows: Sequence[dict[str, Any]]) -> str:
    """Return how long our programs and others of JAX's take to compile, once."""
    seconds: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows:
        found = seconds.setdefault((row["work"], row["allocator"]), {})
        found["ours"] = row["compile_seconds"]
        if row.get("their_compile_seconds"):
            found[row["theirs"]] = row["their_compile_seconds"]
    names = list(dict.fromkeys(name for found in seconds.values() for name in found))
    lines = [
        (*key, *(f"{found[name]:.2f}" if name in found else "-" for name in names))
        for key, found in seconds.items()
    ]
    return "Seconds to compile:\n\n" + _rows(("work", "allocator", *names), lines)


def _limits(read: dict[str, Any]) -> list[str]:
    """Return what bounds the ratios: XLA's gathers, the machine's own rate, XLA's convolutions."""
    rated = [
        row
        for name in ("step", "predict")
        for row in read.get(name, {}).get("rows", ())
        if "gflop_per_second" in row
    ]
    layers = read.get("convolution", {}).get("rows", ())
    warps = [row for row in read.get("warp", {}).get("rows", ()) if "flat_ms" in row]
    timed = read.get("flow", {}).get("rows", ())
    flows = {row["work"]: row for row in timed if "without_ms" in row}
    parts = ["### What bounds the ratios"] if rated or layers or warps or flows else []
    if warps:
        rows = [
            (row["work"], row["allocator"], f"{row['ours_ms']['median']:.2f}",
             *(f"{row[name]:.2f}" if name in row else "-"
               for name in ("flat_ms", "taps_ms", "copy_ms")),
             f"{row['theirs_ms']['median']:.2f}")
            for row in warps
        ]  # fmt: skip
        of = ("ours", "without the library", "XLA's four taps", "a copy", "theirs")
        head = ("work", "allocator", *of)
        parts.append(
            "Milliseconds: ours (C), ours where that library is missing (`method=flat`), what XLA "
            "alone takes to read the four taps of every pixel and sum them, with indices and "
            "weights that lie ready, what it takes to copy the pictures, and PyTorch's."
            f"\n\n{_rows(head, rows)}"
        )
    if flows:
        rows = [
            (work, row["allocator"], f"{row['ours_ms']['median']:.2f}", f"{row['without_ms']:.2f}")
            for work, row in flows.items()
        ]
        parts.append(
            "Milliseconds: ours (conditioners in C), ours where that library is missing.\n\n"
            + _rows(("work", "allocator", "ours", "without the library"), rows)
        )
    if rated:
        rows = []
        for row in rated:
            ours, theirs, product = (
                row["gflop_per_second"][name] for name in ("ours", "theirs", "product")
            )
            rates = (f"{ours:.0f}", f"{theirs:.0f}", f"{product:.0f}")
            rows.append((row["work"], row["allocator"], *rates, f"{product / theirs:.1f}"))
        head = ("work", "allocator", "ours", "theirs", "square matrices", "highest ratio")
        parts.append(
            "GFLOP/s of convolutions and products (of steps, as `benchmarks.cost` counts them, of "
            "warps as well), beside the faster library's product of two square matrices in the "
            "same rounds. Counted as sums of products; ours takes fewer "
            "where a convolution is pooled. Without that, no ratio could be above the highest."
            f"\n\n{_rows(head, rows)}"
        )
    if layers:
        rows = []
        for network in dict.fromkeys(row["work"].split()[0] for row in layers):
            mine = [row for row in layers if row["work"].startswith(network)]
            ours, theirs = (
                [row[f"{side}_ms"]["median"] for row in mine] for side in ("ours", "theirs")
            )
            patches, plain = ([row[f"{way}_ms"] for row in mine] for way in ("patches", "lax"))
            sums = [sum(each) for each in (ours, patches, plain, theirs)]
            rows.append((network, *(f"{x:.1f}" for x in sums)))
        head = ("network", "ours", "without the library", "XLA's convolution", "theirs")
        parts.append(
            "Milliseconds of all passes of all layers: ours (oneDNN, which PyTorch calls as well), "
            "ours where that library is missing (`conv=patches`), XLA's own convolution, and "
            f"PyTorch's.\n\n{_rows(head, rows)}"
        )
    return parts


def _elsewhere(read: dict[str, Any]) -> tuple[str, str]:
    """Return what a folder's benchmarks ran on, and what has changed since."""
    if any(content["environment"]["backend"] != "cpu" for content in read.values()):
        return "an accelerator", ""
    since = "XLA's calls of C were answered in Python, and conditioners were XLA's"
    return "another processor", f", which are older: {since}"


def _machine(environment: dict[str, Any]) -> str:
    parts = [
        *([environment["device"]] if environment.get("backend", "cpu") != "cpu" else []),
        environment.get("processor") or environment["machine"],
        f"{environment['usable_processors']} cores",
        f"Python {environment['python']}",
        *(f"{name} {environment[name]}" for name in ("jax", "torch") if name in environment),
        f"commit {(environment['git_commit'] or 'unknown')[:8]}",
    ]
    return ", ".join(parts) + "."


def _rows(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def _start(content: dict[str, Any]) -> str:
    rows = [(row["what"], f"{row['seconds']:.2f}") for row in content["rows"]]
    about = f"`python -m benchmarks.start`, {content['config']}. {_machine(content)}"
    return f"{about}\n\n" + _rows(("what", "seconds, median"), rows)


def _memory(content: dict[str, Any]) -> str:
    rows = [
        (row["copies_per_chunk"] or "all", f"{row['temporaries_mib']:.0f}",
         f"{row['peak_mib']:.0f}", f"{row['seconds_per_step']:.2f}")
        for row in content["rows"]
    ]  # fmt: skip
    one, chunks = content["rows"][0], [str(row["copies_per_chunk"]) for row in content["rows"]]
    about = (
        f"`python -m benchmarks.memory --config={content['config']} --chunks={','.join(chunks)}`: "
        f"{one['batch']} images x {one['copies']} copies, so many at a time "
        f"(`objective.copies_per_chunk`). {_machine(content)}"
    )
    head = ("copies at a time", "temporaries, MiB", "peak of the process, MiB", "seconds per step")
    return f"{about}\n\n" + _rows(head, rows)


def _devices(content: dict[str, Any]) -> str:
    about = (
        "`python -m benchmarks.devices`: one batch divided among threads that share this machine's "
        "cores. Above one: the price of dividing; below: one program leaves cores idle that "
        f"several fill. Processes each: {content['repeats']}. {_machine(content)}"
    )
    rows = [
        (row["step"], row["devices"],
         *(f"{row[f'{how}_{what}']:.{digits}f}"
           for how in ("jit", "pmap") for what, digits in (("ms", 1), ("over_one", 2))))
        for row in content["rows"]
    ]  # fmt: skip
    head = ("step", "devices", "jit, ms", "over one", "pmap, ms", "over one")
    return f"{about}\n\n" + _rows(head, rows)


def _cost(content: dict[str, Any]) -> str:
    devices = content["assumed"]
    counts = list(content["rows"][0]["predicted_ms"][next(iter(devices))])
    rows = [
        (
            row["config"], row["side"], row["copies"], row["couplings"],
            f"{row['flops_per_image'] / 1e6:.1f}",
            f"{row['flops_per_image'] / row['xla_flops_per_image']:.2f}",
            f"{row['share_of_classifier']:.0%}",
            f"{row['bytes_per_image'] / 1e6:.1f}",
            f"{row['bytes_per_image'] / row['xla_bytes_per_image']:.2f}",
        )
        for row in content["rows"]
    ]  # fmt: skip
    predicted = [
        (
            row["config"], row["side"], row["copies"], row["couplings"], row["batch"],
            *(f"{row['predicted_ms'][name][n]:.2f}" for name in devices for n in counts),
        )
        for row in content["rows"]
    ]  # fmt: skip
    shape = ("experiment", "side", "copies", "couplings")
    head = (*shape, "MFLOP / image", "/ XLA's", "classifier", "MB / image", "/ XLA's")
    assumed = "; ".join(
        f"{name}: {d['flops'] / 1e12:.0f} TFLOP/s, {d['bandwidth'] / 1e12:.2f} TB/s of memory, "
        f"{d['link'] / 1e9:.0f} GB/s and {1e6 * d['latency']:.0f} µs of a link"
        for name, d in devices.items()
    )
    return (
        "`python -m benchmarks.cost`; the formulas and what XLA counts otherwise stand in its "
        f"head. Per image of the batch.\n\n{_rows(head, rows)}\n\n"
        "Milliseconds of a step of so many images **on each** device, as a roofline with the sum "
        f"of the gradients after it. Not measured. Assumed: {assumed}.\n\n"
        + _rows((*shape, "images", *(f"{n} {name}" for name in devices for n in counts)), predicted)
    )


def _tried(content: dict[str, Any]) -> str:
    rows = [(row["where"], row["what"], row["figure"]) for row in content["rows"]]
    return f"{content['about']}\n\n" + _rows(("where", "tried", "measured"), rows)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE.relative_to(Path.cwd()) if PAGE.is_relative_to(Path.cwd()) else PAGE}")
