"""`Wakeups`: hints between the processes that share a storage."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

__all__ = ["Wakeups"]


class Wakeups(Protocol):
    """Hints that the storage changed. A lost hint costs a delay, never a job: all subscribers poll
    too.
    """

    def subscribe(
        self, callback: Callable[[], None], queues: Collection[str] | None = None
    ) -> Callable[[], None]:
        """Call ``callback`` on this event loop after any change that might matter: a job became
        ready, a cancel was requested, a job ended. Return a function that unsubscribes. One call
        may report several changes.

        With ``queues``, it is called only after changes that might make a job of these queues
        ready. An insert into another queue is no such change, nor is the end of another queue's
        pause. If the queues of a change are not known, all subscribers are called. For example, an
        ended claim may free a limit that any queue waits for. The watcher of a SQLite file only
        sees that a transaction was committed.
        """
        ...
