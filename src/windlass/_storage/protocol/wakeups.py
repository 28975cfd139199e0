"""`Wakeups`: hints between the processes that share a storage."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

__all__ = ["Wakeups"]


class Wakeups(Protocol):
    """Hints that something changed. A lost hint is a delay, never a loss: everyone polls too."""

    def subscribe(
        self, callback: Callable[[], None], queues: Collection[str] | None = None
    ) -> Callable[[], None]:
        """Call ``callback`` on this event loop after any change that might matter: work became
        ready, a cancel was requested, a job ended. Several changes may be one call. The answer
        undoes the subscription.

        With ``queues``, only after changes that might make work of one of these ready. An insert
        into other queues is none of them, nor is another queue's resumption. Where it is not known
        which queues a change was about, everybody is called: an ended claim may free a limit that
        any queue waits for, and the watcher of a SQLite file sees no more than that something was
        committed.
        """
        ...
