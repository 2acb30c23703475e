"""Tracing some steps of a run, and adding up how long each part of a step takes.

The trace (`profile/` in the run folder) is JAX's own, for any viewer of its format; `profile.json`
holds the sums. The parts are the named scopes of `flowjax_inv/training/`.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

import jax

from experiments.running.run_folder import RunFolder

__all__ = ["Profile", "divided", "operations_of", "part_of", "steps_of"]

_SCOPES = ("density", "warp", "classifier", "optimizer", "batch")
_LOOPS = re.compile(r"[\]})] (while|call|conditional)\(")
_METADATA_IN_KEY = "jax_compilation_cache_include_metadata_in_key"

Interval = tuple[float, float, str, bool]  # begin, end, part, whether it holds other operations


def steps_of(text: str, *, total: int, burn_in: int) -> range:
    """Read "A:B": the steps A, A + 1, ..., B - 1, counted from 0 over the whole run.

    Args:
        text: of --profile; empty: no step.
        total, burn_in: steps of the run, and how many of them are burn-in.

    Raises:
        ValueError: if it is something else, or holds a step that compiles: the first of all, or
            the first after burn-in.
    """
    if not text:
        return range(0)
    found = re.fullmatch(r"(\d+):(\d+)", text)
    begin, end = map(int, found.groups()) if found else (0, 0)
    kinds = [(0, burn_in, " (burn-in)"), (burn_in, total, " (after it)")] if burn_in else []
    kinds = kinds or [(0, total, "")]
    if not any(first < begin < end <= last for first, last, _ in kinds):
        allowed = " or ".join(f"{a + 1} <= A < B <= {b}{kind}" for a, b, kind in kinds)
        raise ValueError(
            f"--profile is {text!r}; want A:B, which traces the steps A to B - 1, with {allowed} "
            "(a first step compiles)."
        )
    return range(begin, end)


class Profile:
    """Traces some steps of a run; a context within which all steps are called.

    Every traced step is waited for, so that its time is its own.

    Args:
        steps: their numbers; empty: none.
        folder: gets `profile/` and `profile.json`.
    """

    def __init__(self, steps: range, folder: RunFolder):
        self.steps, self.folder = steps, folder
        self.calls, self.seconds = 0, 0.0
        self.tracing = False
        self.config: Any = jax.config  # whose options type checkers do not know
        self.before = self.config.jax_compilation_cache_include_metadata_in_key

    def __enter__(self) -> Self:
        """Have programs compiled whose operations know their scope.

        One that was kept from a version without the scopes would else be taken as it is.
        """
        self.config.update(_METADATA_IN_KEY, self.before or bool(self.steps))
        return self

    def __exit__(self, *_: object) -> None:
        """Stop a trace that an error cut short."""
        self.config.update(_METADATA_IN_KEY, self.before)
        if self.tracing:
            jax.profiler.stop_trace()

    def call(self, number: int, step: Callable[..., Any], *arguments: Any) -> Any:
        """Return step(*arguments), traced if `number` is one of the steps."""
        if self.steps and not self.calls and number >= self.steps.start:
            print(
                f"not profiled: this process begins at step {number}; take A of --profile=A:B "
                "above it, or an empty folder"
            )
            self.steps = range(0)
        self.calls += 1
        if number not in self.steps:
            return step(*arguments)
        # What was measured between two steps must not run on in the next one's time.
        jax.block_until_ready([each for each in jax.live_arrays() if not each.is_deleted()])
        if number == self.steps.start:
            self._start()
        begin = time.perf_counter()
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            result = jax.block_until_ready(step(*arguments))
        self.seconds += time.perf_counter() - begin
        if number == self.steps[-1]:
            self._stop(step, result, *arguments[1:])
        return result

    def _start(self) -> None:
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0  # which would slow the steps
        jax.profiler.start_trace(self.folder.path / "profile", profiler_options=options)
        self.tracing = True

    def _stop(self, step: Callable[..., Any], *arguments: Any) -> None:
        jax.profiler.stop_trace()
        self.tracing = False
        # Compiled already: this finds the program. Under pmap it is out of reach.
        lower = getattr(step, "lower", None)
        program = lower(*arguments).compile().as_text() if lower else ""
        traces = (self.folder.path / "profile").rglob("*.xplane.pb")
        newest = max(traces, key=lambda path: path.stat().st_mtime)
        parts = divided(_intervals(newest, program))
        count = len(self.steps)
        self.folder.write_json(
            "profile.json",
            {
                "first_step": self.steps.start,
                "last_step": self.steps[-1],
                "seconds_per_step": self.seconds / count,
                "parts_seconds_per_step": {part: value / count for part, value in parts.items()},
            },
        )
        print(f"profile of steps {self.steps.start} to {self.steps[-1]} in {self.folder.path}")


def part_of(name: str) -> str:
    """Return the part of the step that an operation is of, by its op_name.

    "jit(body)/transpose(jvp(classifier))/LeNet/conv1" is the classifier's; `embed` within the
    density is the embedding.
    """
    words = re.split(r"[/()]+", name)
    part = next((word for word in words if word in _SCOPES), "other")
    return "embedding" if part == "density" and "embed" in words else part


def operations_of(program: str) -> dict[str, tuple[str, bool]]:
    """Return the part of every operation of a program, and whether it holds other operations.

    A fusion that the compiler left without a name is of the part that most of what it fuses is of.

    Args:
        program: optimized HLO as text.
    """
    found: dict[str, tuple[str, bool]] = {}
    inside: dict[str, Counter[str]] = {}  # parts of a computation's operations
    unnamed: dict[str, str] = {}  # operation: the computation it calls
    computation = ""
    for line in program.splitlines():
        if opened := re.match(r"(?:ENTRY )?%?(\S+) \(.*\{$", line):
            computation = opened[1]
            inside[computation] = Counter()
            continue
        if not (operation := re.match(r"\s+(?:ROOT )?%?(\S+) = ", line)):
            continue
        name = re.search(r'op_name="([^"]*)"', line)
        part = part_of(name[1]) if name else "other"
        found[operation[1]] = (part, bool(_LOOPS.search(line)))
        if name:
            inside[computation][part] += 1
        elif called := re.search(r"calls=%?([^\s,]+)", line):
            unnamed[operation[1]] = called[1]
    for operation, called in unnamed.items():
        if parts := inside.get(called):
            found[operation] = (parts.most_common(1)[0][0], False)
    return found


def divided(intervals: Iterable[Interval]) -> dict[str, float]:
    """Divide time among parts: while n operations run at once, each gets 1/n of it.

    An operation that holds others (a loop) counts only while none runs. So nothing counts twice,
    and the sum is the time during which anything ran.

    Args:
        intervals: begin, end, part, and whether it holds others; any unit.

    Returns:
        Part to time, in that unit.
    """
    marks = []
    for begin, end, part, holds in intervals:
        marks += [(begin, 1, part, holds), (end, -1, part, holds)]
    plain, loops = Counter[str](), Counter[str]()
    times: Counter[str] = Counter()
    before = 0.0
    for now, change, part, holds in sorted(marks):
        running = plain if plain.total() else loops
        if now > before and (total := running.total()):
            for each, count in running.items():
                times[each] += count * (now - before) / total
        (loops if holds else plain)[part] += change
        before = now
    return dict(times)


def _intervals(trace: Path, program: str) -> list[Interval]:
    """Read when the operations of a program ran, in seconds; empty where a trace does not say."""
    title = re.match(r"HloModule ([^\s,]+)", program)
    module, operations = title[1] if title else "", operations_of(program)
    planes: dict[str, list[Interval]] = {}
    for plane in jax.profiler.ProfileData.from_file(str(trace)).planes:
        begun, ended = [], {}
        for line in plane.lines:
            for event in line.events:
                stats: dict[str, Any] = dict(event.stats)
                if stats.get("hlo_module") == module and "hlo_op" in stats:
                    begun.append((event.start_ns, event.duration_ns, stats))
                elif event.name.startswith("end: "):
                    ended[stats.get("_c")] = event.start_ns
        planes[plane.name] = [
            # On a CPU the event is the launch, and another with its number says when it ended.
            (
                1e-9 * begin,
                1e-9 * max(begin + length, ended.get(stats.get("_p", ""), begin)),
                *operations.get(str(stats["hlo_op"]), ("other", False)),
            )
            for begin, length, stats in begun
        ]
    # The host's events beside an accelerator's are launches, not operations.
    devices = [name for name in planes if name.startswith("/device:") and planes[name]]
    return [each for name in devices or planes for each in planes[name]]
