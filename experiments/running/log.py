"""The lines of metrics.jsonl: means of what the steps summed up, one interval late."""

import math
from typing import Any

import jax

from experiments.running import ruins
from experiments.running.progress import Progress
from experiments.running.run_folder import RunFolder
from experiments.setup.assembly import Assembly

__all__ = ["Log"]


class Log:
    """Writes metrics.jsonl and the line on the terminal, and stops a run whose loss is no number.

    Args:
        parts: of the run.
        folder: of the run.
        begin: steps that were made before.
    """

    def __init__(self, parts: Assembly, folder: RunFolder, begin: int):
        self.parts, self.folder = parts, folder
        self.progress = Progress(parts.total_steps, parts.config.train.batch_size, begin)
        self._box = ruins.box_of(parts)
        self._ruin, _ = self.first_ruin()
        self._pending: tuple[int, dict[str, jax.Array], dict[str, jax.Array]] | None = None

    def take(self, at: int, totals: dict[str, jax.Array], measured: dict[str, jax.Array]) -> None:
        """Keep what was summed up to step `at`, and write what was kept before.

        So a value is read one interval after it was asked for, and no step waits for it.
        """
        self.flush()
        self._pending = at, totals, measured

    def flush(self) -> None:
        """Write what was kept.

        Raises:
            FloatingPointError: if its loss is not finite.
        """
        if self._pending is None:
            return
        at, totals, measured = self._pending
        self._pending = None
        sums = {name: float(value) for name, value in totals.items()}
        count = sums.pop("steps")
        for name in self.parts.objective.unmeasured if at > self.parts.burn_in_steps else ():
            del sums[name]
        line = {"step": at, "epoch": at / self.parts.epoch_steps}
        line |= {name: value / count for name, value in sums.items()}
        line |= {name: float(value) for name, value in measured.items()}
        self.folder.append_metrics(line)
        self._warn(line)
        self.stop_if_not_finite(line["loss"], at)
        self.progress.update(at, line)

    def first_ruin(self) -> tuple[str, float | None]:
        """Return the ruin that the epochs so far ended in, and since which; see `ruins`."""
        return ruins.first_ruin(self.folder.metrics(), **self._box)

    def mean_of_last_epoch(self, name: str) -> float:
        """Return the mean of a figure over the steps of the last epoch."""
        steps = self.parts.epoch_steps
        begin, total = self.parts.total_steps - steps, 0.0
        at = 0
        for line in self.folder.metrics():
            total += line[name] * max(line["step"] - max(at, begin), 0)
            at = line["step"]
        return total / steps

    def _warn(self, line: dict[str, Any]) -> None:
        """Say it once when an epoch has ended in another ruin than the one before."""
        if line["step"] % self.parts.epoch_steps:
            return
        found = ruins.ruin(line, **self._box)
        if found and found != self._ruin:
            self.progress.say(ruins.warning(found, line["epoch"]))
        self._ruin = found

    def stop_if_not_finite(self, loss: float, at: int) -> None:
        """Refuse to go on.

        Raises:
            FloatingPointError: if `loss` is not finite.
        """
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"the loss is {loss} within the {self.parts.config.train.log_every} steps before "
                f"step {at}; lower a learning rate, or set config.optimizer.*.clip_norm."
            )
