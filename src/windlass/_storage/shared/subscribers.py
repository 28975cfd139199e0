"""Subscribers of changes in a storage, by queue."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress

from windlass._core.job.job import NewJob
from windlass._storage.protocol.jobs import Inserted

__all__ = ["QueueNames", "Subscriber", "Subscribers", "changed_queues"]

QueueNames = Collection[str] | None
"""The queues that a change concerns; None: it may concern all of them."""


class Subscriber:
    """One subscription. Changes that come before its loop gets round to them are one call."""

    def __init__(
        self,
        callback: Callable[[], None],
        queues: Iterable[str] | None,
        schedule: Callable[[Callable[[], None]], object],
    ) -> None:
        """``queues``: whose changes matter to it; None: every change does. ``schedule`` calls
        something on its loop, soon.
        """
        self._callback: Callable[[], None] | None = callback
        self._queues = None if queues is None else frozenset(queues)
        self._schedule = schedule
        self._called = False

    def hear(self, queues: QueueNames) -> None:
        """Call back soon if a change of these queues matters. None of them: nothing has changed."""
        if self._called:
            return
        mine = self._queues
        if queues is None or (queues if mine is None else not mine.isdisjoint(queues)):
            self._called = True
            # The loop may be closed: then there is no subscriber to wake, and the caller that made
            # the change must not fail.
            with suppress(RuntimeError):
                self._schedule(self.wake)

    def wake(self) -> None:
        """Call back now."""
        # Reset first: a change made from now on is not in what the callback is about to see.
        self._called = False
        if self._callback is not None:
            self._callback()

    def end(self) -> None:
        """Call back no more."""
        self._callback = None


class Subscribers:
    """Subscriptions: to one storage on its event loop, or, by threads, on any loop."""

    def __init__(self, *, threads: bool = False) -> None:
        """``threads``: `wake` is called on other threads than those of the loops."""
        self._threads = threads
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
        loop = loop or asyncio.get_running_loop()
        schedule = loop.call_soon_threadsafe if self._threads else loop.call_soon
        subscriber = Subscriber(callback, queues, schedule)
        with self._lock:
            self._all = (*self._all, subscriber)
        return subscriber

    def remove(self, subscriber: Subscriber) -> None:
        """Undo a subscription. Safe to repeat."""
        subscriber.end()
        with self._lock:
            self._all = tuple(other for other in self._all if other is not subscriber)

    def wake(self, queues: QueueNames = None) -> None:
        """Call those to whom a change of these queues matters, soon."""
        for subscriber in self._all:
            subscriber.hear(queues)

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
