"""Who waits for changes in a storage, and of which queues."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress

from windlass._core.job.job import NewJob
from windlass._storage.protocol.jobs import Inserted

__all__ = ["QueueNames", "Subscriber", "Subscribers", "ThreadSubscriber", "changed_queues"]

QueueNames = Collection[str] | None
"""The queues that a change concerns; None: it may concern all of them."""


class Subscriber:
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

    def cares(self, queues: QueueNames) -> bool:
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


class ThreadSubscriber(Subscriber):
    """A subscription that is called from any thread."""

    def __call__(self) -> None:
        if self._called or self._loop.is_closed():
            return
        self._called = True
        # The loop may close between the question and the call: then there is nobody to wake, and
        # the caller that made the change must not hear of it.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.wake)


class Subscribers:
    """Subscriptions: to one storage on its event loop, or, by threads, on any loop."""

    def __init__(self, kind: type[Subscriber] = Subscriber) -> None:
        """``kind``: `ThreadSubscriber` where `wake` is called on other threads."""
        self._kind = kind
        self._lock = threading.Lock()
        self._all: tuple[Subscriber, ...] = ()

    def __len__(self) -> int:
        return len(self._all)

    def add(
        self,
        callback: Callable[[], None],
        queues: Iterable[str] | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> Subscriber:
        """Subscribe, on the running loop unless another one is given."""
        subscriber = self._kind(loop or asyncio.get_running_loop(), callback, queues)
        with self._lock:
            self._all = (*self._all, subscriber)
        return subscriber

    def remove(self, subscriber: Subscriber) -> None:
        """Undo a subscription. Safe to repeat."""
        subscriber.callback = None
        with self._lock:
            self._all = tuple(other for other in self._all if other is not subscriber)

    def wake(self, queues: QueueNames = None) -> None:
        """Call those to whom a change of these queues matters, soon."""
        for subscriber in self._all:
            if subscriber.cares(queues):
                subscriber()

    def clear(self) -> None:
        """Forget all of them."""
        self._all = ()


def changed_queues(jobs: Sequence[NewJob], answers: Sequence[Inserted]) -> QueueNames:
    """Name the queues that an insert has changed: empty if it stored and moved nothing."""
    queues = set()
    for job, answer in zip(jobs, answers, strict=True):
        if answer.replaced or answer.expired is not None:
            return None  # the holder of its key may be in another queue
        if answer.created:
            queues.add(job.queue)
    return queues
