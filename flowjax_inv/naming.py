"""Names that users write: one line if there is no such thing."""

from collections.abc import Sequence

__all__ = ["check_name"]


def check_name(what: str, given: object, allowed: Sequence[str]) -> None:
    """Refuse a name that is not in the list, and show the list.

    Args:
        what: the argument, as the user wrote it.
        given: the value that came.
        allowed: the names that exist.

    Raises:
        ValueError: if `given` is not one of `allowed`.
    """
    if given not in allowed:
        raise ValueError(f"{what}={given!r} is unknown; did you mean one of {', '.join(allowed)}?")
