"""The C library's allocator, told to keep what is freed."""

import ctypes
import sys

__all__ = ["keep_freed_memory"]

# mallopt's parameters in glibc's malloc.h, and values that stand for "never" in a C int.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -2, -3, -8
_NEVER, _TOP = 2**31 - 1, 256 << 20


def keep_freed_memory() -> bool:
    """Let freed memory stay with this process, instead of going back to the system.

    XLA frees the temporaries of a step and asks for them again in the next one; as large blocks
    they would be mapped afresh every time, page by page: a fifth of a step of Mario-Iggy on two CPU
    cores (`python -m benchmarks.step`). XLA computes in threads, whose own arenas hold no block
    above 64 MiB and give back what is empty whatever is asked: all threads share the first one,
    without which a step of LeNet or of CIFAR-10's network took a quarter longer on one core.

    Returns:
        Whether it was done: on Linux with glibc; elsewhere nothing happens.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        return False
    wanted = (
        (_MMAP_THRESHOLD, _NEVER),
        (_TRIM_THRESHOLD, _NEVER),
        (_TOP_PAD, _TOP),
        (_ARENA_MAX, 1),
    )
    return all([mallopt(parameter, value) for parameter, value in wanted])
