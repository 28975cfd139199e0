"""Uniqueness: which key a job holds, and for how long."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

import msgspec

from windlass._core.values.names import MAX_TEXT, check_text
from windlass.errors import InvalidArgument

__all__ = ["MAX_KEY", "OnConflict", "UniqueKey", "Window", "compose_key", "refuses", "replaces"]

MAX_KEY = MAX_TEXT


class Window(StrEnum):
    """The time at which a key is released."""

    UNTIL_STARTED = "until_started"
    """At the first claim. It is not taken again."""
    UNTIL_FINISHED = "until_finished"
    """At the terminal state: a retrying job holds it."""
    FOR_A_TIME = "for_a_time"
    """When the time is up, even past the job's end."""


class OnConflict(StrEnum):
    """The behaviour if the key of a new job is held."""

    REUSE = "reuse"
    """The holder is the answer."""
    REPLACE = "replace"
    """A holder that waits takes over the new job's arguments and due time."""
    REPLACE_ARGUMENTS = "replace_arguments"
    REPLACE_DUE = "replace_due"
    RAISE = "raise"


def refuses(what: OnConflict, holder_task: str, task: str) -> bool:
    """Check whether a job of ``task`` raises an error if another job holds its key."""
    if what is OnConflict.RAISE:
        return True
    # Arguments of one task mean nothing to another.
    return what is not OnConflict.REUSE and holder_task != task


def replaces(what: OnConflict, holder_task: str, task: str) -> bool:
    """Check whether a waiting holder takes over the values of a job of ``task``."""
    # Arguments of one task mean nothing to another.
    return what not in (OnConflict.REUSE, OnConflict.RAISE) and holder_task == task


class UniqueKey(msgspec.Struct, frozen=True):
    """A composed key, its window, and what to do when it is held."""

    key: str
    window: Window = Window.UNTIL_FINISHED
    period: timedelta | None = None
    """Set exactly when the window is FOR_A_TIME."""
    on_conflict: OnConflict = OnConflict.REUSE

    def __post_init__(self) -> None:
        if (self.window is Window.FOR_A_TIME) != (self.period is not None):
            message = "a unique period belongs to Window.FOR_A_TIME, and only to it"
            raise InvalidArgument(message)


def compose_key(task: str, key: str) -> str:
    """Return the stored key: scoped to its task, so that two tasks may use the same words.

    No task has an empty name, so the empty name is the scope of all tasks.
    """
    if check_text(key, "a unique key") == "":
        message = "a unique key must not be empty; leave key= out for a job without one"
        raise InvalidArgument(message)
    return f"{task}/{key}"
