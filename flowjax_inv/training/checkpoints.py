"""Save, restore and resume a run: the whole train state, beside the config it belongs to."""

from pathlib import Path
from types import TracebackType
from typing import Any

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint import args as ocp_args

from flowjax_inv.training import TrainState

__all__ = ["Checkpoints", "config_differences"]


def config_differences(stored: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """Name the fields in which two nested configs differ: ["train.steps: 10 there, 20 here"]."""

    def flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
        fields = {}
        for name, value in config.items():
            if isinstance(value, dict):
                fields |= flat(value, f"{prefix}{name}.")
            else:
                fields[prefix + name] = list(value) if isinstance(value, tuple) else value
        return fields

    there, here = flat(stored), flat(wanted)
    absent = "(absent)"
    return [
        f"{name}: {there.get(name, absent)} there, {here.get(name, absent)} here"
        for name in sorted(there.keys() | here.keys())
        if there.get(name, absent) != here.get(name, absent)
    ]


class Checkpoints:
    """The checkpoints of one run folder; use it in a `with`, which waits for the last save.

    Args:
        folder: where they live; made if absent.
        config: nested dict of plain values, stored with each checkpoint and compared on restore.
        keep: how many of the newest are kept. A best one is not: it would be chosen on test images.
    """

    def __init__(self, folder: str | Path, config: dict[str, Any], *, keep: int = 2):
        self.config = config
        # orbax wants an absolute path and says so only in a background thread.
        self._manager = ocp.CheckpointManager(
            Path(folder).resolve(),
            options=ocp.CheckpointManagerOptions(max_to_keep=keep),
            item_names=("state", "config"),
        )

    def __enter__(self) -> "Checkpoints":
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for the save in flight, then close: Python would lose it at exit."""
        self._manager.wait_until_finished()
        self._manager.close()

    def latest_step(self) -> int | None:
        """Return the step of the newest whole checkpoint, None if there is none."""
        return self._manager.latest_step()

    def save(self, step: int, state: TrainState) -> None:
        """Store the state of `step`; returns while the writing goes on.

        Raises:
            RuntimeError: if a checkpoint of this or a later step is already there, which orbax
                would skip without a word.
        """
        # Every device holds the whole state. Given all of them, orbax would let each write a part,
        # cut out by a program per shape.
        one = jax.tree.map(lambda array: array.addressable_data(0), state)
        saved = self._manager.save(
            step,
            args=ocp_args.Composite(
                state=ocp_args.StandardSave(one),
                config=ocp_args.JsonSave(self.config),
            ),
        )
        if not saved:
            raise RuntimeError(
                f"no checkpoint written for step {step}: {self._manager.directory} already has "
                f"step {self.latest_step()}; start in an empty folder."
            )

    def restore(self, like: TrainState) -> TrainState:
        """Return the newest state, with the types and shapes of `like`.

        Raises:
            FileNotFoundError: if there is no checkpoint.
            ValueError: if it is damaged, or belongs to another config; names the fields that
                differ.
        """
        step = self.latest_step()
        if step is None:
            raise FileNotFoundError(f"no checkpoint in {self._manager.directory}.")
        stored = self._read(step, config=ocp_args.JsonRestore())
        differences = config_differences(stored["config"], self.config)
        if differences:
            raise ValueError(
                f"{self._manager.directory} holds a run of another config "
                f"({'; '.join(differences)}); take that config or an empty folder."
            )
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
        return self._read(step, state=ocp_args.StandardRestore(abstract))["state"]

    def _read(self, step: int, **items: Any) -> Any:
        """Return items of a checkpoint; say which one it is if that fails."""
        try:
            return self._manager.restore(step, args=ocp_args.Composite(**items))
        except Exception as error:  # of a damaged one orbax raises nearly every kind
            earlier = max((s for s in self._manager.all_steps() if s < step), default=0)
            reason = (str(error).splitlines() or [""])[0][:200]
            raise ValueError(
                f"{self._manager.directory / str(step)} cannot be read ({reason}); remove it, and "
                f"the run goes on from step {earlier}."
            ) from error
