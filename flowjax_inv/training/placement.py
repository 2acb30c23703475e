"""On which devices a step runs: `jit` over a mesh, or `pmap`; one body for both.

The state is replicated, the batch divided along its first axis. Under `jit` means and batch
statistics are over the whole batch by themselves; under `pmap` the body reduces over `axis_name`.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

__all__ = ["AXIS", "Placement"]

AXIS = "batch"


@dataclasses.dataclass(frozen=True)
class Placement:
    """Devices, and how the step is spread over them.

    Attributes:
        devices: in order; the first holds the first part of a batch. Empty: all there are.
        parallel: "jit" or "pmap".

    Raises:
        ValueError: if `parallel` is neither of the two.
    """

    devices: Sequence[Any] = ()
    parallel: Literal["jit", "pmap"] = "jit"

    def __post_init__(self) -> None:
        """Fill in all devices."""
        if self.parallel not in ("jit", "pmap"):
            raise ValueError(f'parallel is "{self.parallel}"; allowed: jit, pmap.')
        object.__setattr__(self, "devices", tuple(self.devices) or tuple(jax.devices()))

    @property
    def axis_name(self) -> str | None:
        """Name of the axis a body reduces over; None where a mean is global by itself."""
        return AXIS if self.parallel == "pmap" else None

    @property
    def mesh(self) -> Mesh:
        """All devices along one axis."""
        # Not jax.make_mesh: its explicit axes refuse plain indexing.
        return Mesh(np.array(self.devices), (AXIS,))

    def check(self, batch_size: int, name: str) -> None:
        """Refuse a batch that does not divide among the devices.

        Raises:
            ValueError: naming the field, both numbers and the nearest sizes that divide.
        """
        count = len(self.devices)
        if batch_size % count:
            near = max(batch_size // count, 1) * count
            raise ValueError(
                f"{name} is {batch_size}, which {count} devices cannot share equally; take "
                f"{near} or {near + count}, or fewer devices (config.num_devices)."
            )

    def replicate(self, tree: Any) -> Any:
        """Place every leaf whole on every device."""
        return jax.device_put(tree, NamedSharding(self.mesh, PartitionSpec()))

    def divide(self, array: Any) -> jax.Array:
        """Place an array divided along its first axis."""
        return jax.device_put(array, NamedSharding(self.mesh, PartitionSpec(AXIS)))

    @property
    def shards(self) -> int:
        """Number of parts that a body's batch is one of."""
        return len(self.devices) if self.parallel == "pmap" else 1

    def global_index(self, local: int) -> jax.Array | int:
        """Return, inside a body that sees `local` rows, the global number of its first row."""
        return lax.axis_index(AXIS) * local if self.parallel == "pmap" else 0

    def mean(self, tree: Any) -> Any:
        """Average over devices, inside a body; under `jit` a mean is global already."""
        return lax.pmean(tree, AXIS) if self.parallel == "pmap" else tree

    @property
    def least_memory(self) -> float:
        """Bytes of the device that has least; infinite where a device does not tell (CPU)."""
        stats = [device.memory_stats() or {} for device in self.devices]
        return min(float(each.get("bytes_limit", np.inf)) for each in stats)

    def compile(self, body: Callable[..., Any], *, resident: bool = True) -> Callable[..., Any]:
        """Compile body(state, images, labels[, indices]) -> state; the state is donated.

        Args:
            body: under "pmap" it sees its device's part of the batch and must return the same
                state everywhere.
            resident: whether images and labels are the whole set and indices choose the batch;
                else they are the batch, and there are no indices.

        Returns:
            A function of the replicated state and either all images and labels (replicated) with
            the (N,) indices of the batch, or the N images and labels of the batch; what is divided
            among the devices may lie in host memory or anywhere.
        """
        divided = (False, False, False, True) if resident else (False, True, True)
        if self.parallel == "jit":
            whole = NamedSharding(self.mesh, PartitionSpec())
            parts = NamedSharding(self.mesh, PartitionSpec(AXIS))
            return jax.jit(
                body,
                donate_argnums=0,
                in_shardings=tuple(parts if each else whole for each in divided),
                out_shardings=whole,
            )
        mapped = jax.pmap(
            body,
            axis_name=AXIS,
            in_axes=tuple(0 if each else None for each in divided),
            out_axes=None,
            donate_argnums=0,
            devices=list(self.devices),
        )

        def fold(array: Any) -> Any:
            array = array if isinstance(array, jax.Array) else np.asarray(array)
            return array.reshape(len(self.devices), -1, *array.shape[1:])

        return lambda *args: mapped(
            *(fold(arg) if each else arg for arg, each in zip(args, divided, strict=True))
        )
