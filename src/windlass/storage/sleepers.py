"""Who waits for changes in a storage, and of which queues."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence

from windlass.core.job import NewJob
from windlass.storage.answers import Inserted

__all__ = ["Queues", "Sleeper", "Sleepers", "changed_queues"]

Queues = Collection[str] | None
"""The queues that a change concerns; None: it may concern all of them."""


class Sleeper:
    """One subscription. Changes that come before its loop gets round to them are one call."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        callback: Callable[[], None],
        queues: Iterable[str] | None = None,
    ) -> None:
        """``queues``: whose changes matter to it; None: every change does."""
        self.callback: Callable[[], None] | None = callback
        self.queues: frozenset[str] | None = None if queues is None else frozenset(queues)
        self._loop = loop
        self._called = False

    def cares(self, queues: Queues) -> bool:
        """Whether a change of these queues matters to it. None of them: nothing has changed."""
        if queues is None:
            return True
        return bool(queues) if self.queues is None else not self.queues.isdisjoint(queues)

    def __call__(self) -> None:
        if not self._called:
            self._called = True
            self._loop.call_soon(self.wake)

    def wake(self) -> None:
        """Call back now."""
        # Reset first: a change made from now on is not in what the callback is about to see.
        self._called = False
        if self.callback is not None:
            self.callback()


class Sleepers:
    """The subscriptions of one storage, all on its event loop."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._all: list[Sleeper] = []

    def add(self, callback: Callable[[], None], queues: Iterable[str] | None) -> Sleeper:
        """Subscribe on the running loop."""
        sleeper = Sleeper(asyncio.get_running_loop(), callback, queues)
        self._all.append(sleeper)
        return sleeper

    def remove(self, sleeper: Sleeper) -> None:
        """Undo a subscription. Safe to repeat."""
        sleeper.callback = None
        if sleeper in self._all:
            self._all.remove(sleeper)

    def wake(self, queues: Queues = None) -> None:
        """Call those to whom a change of these queues matters, soon."""
        for sleeper in tuple(self._all):
            if sleeper.cares(queues):
                sleeper()

    def clear(self) -> None:
        """Forget everybody."""
        self._all.clear()


def changed_queues(jobs: Sequence[NewJob], answers: Sequence[Inserted]) -> Queues:
    """Name the queues that an insert has changed: empty if it stored and moved nothing."""
    queues = set()
    for job, answer in zip(jobs, answers, strict=True):
        if answer.replaced or answer.expired is not None:
            return None  # the holder of its key may be in another queue
        if answer.created:
            queues.add(job.queue)
    return queues
