"""Compiled programs, kept in the user's cache folder: the second start of a command is faster."""

from typing import Any

import jax
import platformdirs

__all__ = ["keep_compiled_programs"]


def keep_compiled_programs() -> None:
    """Let JAX keep what it compiles, and find it again in the next process.

    Small programs too: there are many, and all of a run's are a few megabytes. The folder may be
    deleted at any time. It has no bound: where JAX keeps one, it reads a file of every entry
    whenever it adds another, and a process killed in between leaves it out of order for good.

    A folder that is set already (JAX_COMPILATION_CACHE_DIR) stays; where the user's cache folder
    cannot be written nothing is kept.
    """
    config: Any = jax.config  # whose options type checkers do not know
    if config.jax_compilation_cache_dir:
        return
    folder = platformdirs.user_cache_path("flowjax_inv") / "jax"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    config.update("jax_compilation_cache_dir", str(folder))
    config.update("jax_persistent_cache_min_compile_time_secs", 0)
