"""Python's collector of reference cycles, called less often."""

import gc

__all__ = ["collect_rarely"]


def collect_rarely() -> None:
    """Look for cycles after 50,000 new objects, many more than by Python's default.

    Tracing and lowering make millions of objects and hardly a cycle: the collector went through
    them again and again, a seventh of the processor time of a short run.
    """
    gc.set_threshold(50_000, 20, 20)
