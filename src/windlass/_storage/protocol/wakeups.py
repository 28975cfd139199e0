"""`Wakeups`: hints between the processes that share a storage."""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Protocol

__all__ = ["Topic", "Wakeups", "WorkHints"]


class Topic(StrEnum):
    """The subject of a change."""

    ANY = "any"
    CANCEL = "cancel"
    """The cancel of a running job was requested."""
    SCHEDULE = "schedule"
    """A schedule was written."""


class WorkHints(Protocol):
    """Hints for one worker that there is a job for it."""

    @property
    def exact(self) -> bool:
        """Whether a hint is for this worker alone, asked during the callback. Then it claims at
        once, without a look before.
        """
        ...

    @property
    def about(self) -> Collection[str]:
        """The queues of an exact hint, asked during the callback; empty: any. A worker may have
        room for one queue and not for another.
        """
        ...

    def want(self, queues: Collection[str]) -> None:
        """Wait for jobs of these queues, for which this worker has room. Cheap to repeat.

        If jobs became ready before and no worker was woken for them, call the callback soon.
        """
        ...

    def close(self) -> None:
        """Stop calling the callback. Safe to repeat."""
        ...


class Wakeups(Protocol):
    """Hints that the storage changed. A lost hint costs a delay, never a job: all subscribers poll
    too.
    """

    def subscribe(
        self, callback: Callable[[], None], topic: Topic = Topic.ANY
    ) -> Callable[[], None]:
        """Call ``callback`` on this event loop after any change, or after changes of one topic.
        Return a function that unsubscribes.

        Changes are: a job became ready, a cancel was requested, a job ended, a schedule was
        written. One call may report several. A backend that does not know the topic of a change
        calls all subscribers. The watcher of a SQLite file only sees that a transaction was
        committed.
        """
        ...

    def work(self, callback: Callable[[], bool], queues: Collection[str]) -> WorkHints:
        """Call ``callback`` on this event loop when a job of these queues may have become ready.

        A worker says with `WorkHints.want` that it waits. A backend wakes all workers of a queue,
        or, of those that wait, about as many as jobs became ready (`WorkHints.exact`). The callback
        returns whether its worker claims now. If not, an exact hint is passed to another worker.

        An insert into another queue calls no callback, nor does the end of another queue's pause.
        If the queues of a change are not known, all callbacks are called.
        """
        ...
