"""What every test runs under. The environment is set here because JAX reads it on import."""

import ctypes
import gc
import mmap
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import jaxlib
import pytest

from experiments.running.collector import collect_rarely

ENOUGH = 1_200_000_000  # bytes that a process may hold at the end of a module
CACHE = Path(__file__).resolve().parents[1] / ".cache"
# Where the tests compute: `make test PLATFORM=cuda` sets it. The CPU stays at hand beside others.
PLATFORM = os.environ.get("TEST_PLATFORM") or "cpu"

# Four simulated devices, and code that compiles fast rather than runs fast. Flags of the same name
# that are already set stay.
XLA_FLAGS = {
    "--xla_force_host_platform_device_count": "4",
    "--xla_backend_optimization_level": "0",  # halves the time that programs take to compile
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
    os.environ["JAX_PLATFORMS"] = "cpu" if PLATFORM == "cpu" else f"{PLATFORM},cpu"
    if PLATFORM != "cpu":
        # Laws are about formulas: products of ten bits would need tolerances of their own. And the
        # card is shared by as many processes as pytest has.
        os.environ.setdefault("JAX_DEFAULT_MATMUL_PRECISION", "highest")
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    # Compiled programs are kept between runs, small ones too; `make clean` removes them.
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE / "jax"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    # No window, and no font list in the user's home.
    os.environ["MPLBACKEND"] = "Agg"
    os.environ.setdefault("MPLCONFIGDIR", str(CACHE / "matplotlib"))


_set_environment()
import jax  # noqa: E402 - reads what was set

collect_rarely()


def why_skipped(item: pytest.Item, platform: str, devices: int) -> str:
    """Say why a test does not run on so many devices of a platform; empty if it does."""
    only = item.get_closest_marker("cpu")
    if only and platform != "cpu":
        return f"of CPUs alone: {only.args[0]}"
    wanted = item.get_closest_marker("devices")
    if wanted and devices < wanted.args[0]:
        return f"wants {wanted.args[0]} devices; there are {devices}"
    return ""


def pytest_configure() -> None:
    """Refuse a platform that is not here, before tests ask for its devices."""
    try:
        jax.devices()
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise pytest.UsageError(f"PLATFORM is {PLATFORM}, but JAX finds none: {reason}") from error


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what only other devices than these can show, by name and reason."""
    devices = jax.device_count()
    for item in items:
        reason = why_skipped(item, PLATFORM, devices)
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


def _resident() -> int:
    """Return the bytes that this process holds; infinite where nobody tells."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
    except OSError:
        return sys.maxsize


@pytest.fixture(scope="module", autouse=True)
def programs_dropped() -> Iterator[None]:
    """Forget compiled programs after a module, once they are many: they come to gigabytes."""
    yield
    if _resident() > ENOUGH:
        jax.clear_caches()
        gc.collect()
        if sys.platform == "linux":  # what is freed goes back
            ctypes.CDLL(None).malloc_trim(0)


def leave_unpainted(patch: pytest.MonkeyPatch) -> None:
    """Let reports have no figures: only the tests of the report look at them."""
    patch.setattr("experiments.report.page.as_png", lambda _: b"unpainted")


@pytest.fixture(scope="module")
def undrawn() -> Iterator[None]:
    """Leave the figures of a whole module's runs unpainted."""
    with pytest.MonkeyPatch.context() as patch:
        leave_unpainted(patch)
        yield
