"""What every test runs under. The environment is set here because JAX reads it on import."""

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import jaxlib
import pytest

from experiments.running.collector import collect_rarely

CACHE = Path(__file__).resolve().parents[1] / ".cache"

# Four simulated devices, and code that compiles fast rather than runs fast. Flags of the same name
# that are already set stay.
XLA_FLAGS = {
    "--xla_force_host_platform_device_count": "4",
    # 1, not 0: without optimisation the older emitters' code of some steps computes NaN.
    "--xla_backend_optimization_level": "1",
    "--xla_llvm_disable_expensive_passes": "true",
    "--xla_cpu_use_fusion_emitters": "false",  # the newer ones take longer
    "--xla_cpu_parallel_codegen_split_count": "1",  # the other cores have tests of their own
}


def _known(flag: str) -> bool:
    """Whether this XLA has a flag: it stops a process that names one it does not know.

    A flag's name is a string of its own there; one that is gone may still stand within another.
    """
    name = b"\0" + flag.removeprefix("--").encode() + b"\0"
    for path in Path(jaxlib.__file__).parent.rglob("libjax_common*"):
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            return text.find(name) >= 0
    return False


def _set_environment() -> None:
    given = os.environ.get("XLA_FLAGS", "").split()
    names = {flag.partition("=")[0] for flag in given}
    flags = {name: value for name, value in XLA_FLAGS.items() if name not in names}
    ours = [f"{name}={value}" for name, value in flags.items() if _known(name)]
    os.environ["XLA_FLAGS"] = " ".join(given + ours)
    os.environ["JAX_PLATFORMS"] = "cpu"
    # Compiled programs are kept between runs, small ones too; `make clean` removes them.
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE / "jax"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    # No window, and no font list in the user's home.
    os.environ["MPLBACKEND"] = "Agg"
    os.environ.setdefault("MPLCONFIGDIR", str(CACHE / "matplotlib"))


_set_environment()
collect_rarely()


@pytest.fixture(scope="module")
def undrawn() -> Iterator[None]:
    """Leave a module's figures of runs unpainted: only the tests of the report look at them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("experiments.report.page.as_png", lambda _: b"unpainted")
        yield
