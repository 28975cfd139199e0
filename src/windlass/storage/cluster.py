"""What the processes on one storage tell each other. Part of the contract: `protocol`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Protocol

from windlass.storage.answers import Beat

__all__ = ["LeaderStore", "Pulse", "Wakeups"]


class LeaderStore(Protocol):
    """Who does the chores. Economy only: correctness never rests on it."""

    async def lead(self, role: str, worker: str, lease: timedelta) -> bool:
        """Take or renew the lease on a role; False while somebody else holds it."""
        ...

    async def resign(self, worker: str) -> None:
        """Give up every role ``worker`` holds."""
        ...


class Pulse(Protocol):
    """A heartbeat's own way to the store. Made, used and closed on one event loop."""

    async def beat(self, worker: str, *, memory: int | None = None) -> Beat:
        """As `WorkerStore.beat`."""
        ...

    async def close(self) -> None:
        """Let go of what it holds, such as a connection. Safe to repeat."""
        ...


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
