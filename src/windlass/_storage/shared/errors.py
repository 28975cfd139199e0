"""Errors of stores: which may pass, and one for each of many callers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from windlass.errors import StorageError, StorageFull, StorageReplaced

__all__ = ["CapacityReached", "caused_by", "copy_error", "is_retryable"]

E = TypeVar("E", bound=BaseException)


class CapacityReached(StorageFull):
    """The storage holds as many unfinished jobs as it may. Nothing was written."""

    def __init__(
        self, message: str, until_room: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """``until_room`` waits until there may be room; None: the call is refused."""
        super().__init__(message)
        self.until_room = until_room


def caused_by(error: E, cause: BaseException) -> E:
    """Return ``error`` with its cause, as ``raise error from cause`` sets it."""
    try:
        raise error from cause
    except BaseException:  # noqa: BLE001 -- the very one
        return error.with_traceback(None)


def is_retryable(error: BaseException) -> bool:
    """Return whether trying the same thing again may help."""
    final = StorageReplaced | CapacityReached  # a smaller call may find room
    return isinstance(error, StorageError) and not isinstance(error, final)


def copy_error(error: BaseException) -> BaseException:
    """Return the same error for another caller: one object raised in many tasks mixes
    their traces.
    """
    kind = type(error)
    try:
        copy: BaseException = kind.__new__(kind, *error.args)
        copy.__dict__.update(error.__dict__)
        if hasattr(error, "__notes__"):
            copy.__notes__ = list(error.__notes__)
    except Exception:  # noqa: BLE001 -- a kind that cannot be copied is shared
        return error
    if type(copy) is not kind or str(copy) != str(error):
        return error
    copy.__cause__, copy.__context__ = error.__cause__, error.__context__
    copy.__suppress_context__ = error.__suppress_context__
    return copy.with_traceback(error.__traceback__)
