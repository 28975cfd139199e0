"""Subscribers of changes in a storage, by queue."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from windlass._core.job.job import NewJob
from windlass._storage.protocol.jobs import Inserted
from windlass._storage.protocol.wakeups import Topic

__all__ = [
    "NO_QUEUE",
    "QueueNames",
    "SharedWorkHints",
    "Subscriber",
    "Subscribers",
    "Topics",
    "changed_queues",
    "topics_of",
]

QueueNames = Collection[str] | None
"""The queues that a change concerns; None: it may concern all of them."""
NO_QUEUE = ""
"""Names no queue: for a change that makes no job ready, such as a stored success."""
Topics = Collection[Topic] | None
"""The topics that a change is about, besides `Topic.ANY`; None: it may be about all of them."""


class Subscriber:
    """One subscription. Changes that come before its loop gets round to them are one call."""

    def __init__(
        self,
        callback: Callable[[], object],
        queues: Iterable[str] | None,
        schedule: Callable[[Callable[[], None]], object],
        topic: Topic = Topic.ANY,
    ) -> None:
        """``queues``: whose changes matter to it; None: every change of ``topic`` does.

        ``schedule`` calls something on its loop, soon.
        """
        self._callback: Callable[[], object] | None = callback
        self._queues = None if queues is None else frozenset(queues)
        self._topic = topic
        self._schedule = schedule
        self._called = False

    def hear(self, queues: QueueNames, topics: Topics = None) -> None:
        """Call back soon if a change of these queues, about these topics, matters.

        No queues: nothing has changed.
        """
        if self._called or (queues is not None and not queues):
            return
        if self._queues is not None:
            concerned = queues is None or not self._queues.isdisjoint(queues)
        else:
            concerned = self._topic is Topic.ANY or topics is None or self._topic in topics
        if concerned:
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
        callback: Callable[[], object],
        queues: Iterable[str] | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
        *,
        topic: Topic = Topic.ANY,
    ) -> Subscriber:
        """Subscribe, on the running loop unless another one is given."""
        loop = loop or asyncio.get_running_loop()
        schedule = loop.call_soon_threadsafe if self._threads else loop.call_soon
        subscriber = Subscriber(callback, queues, schedule, topic)
        with self._lock:
            self._all = (*self._all, subscriber)
        return subscriber

    def remove(self, subscriber: Subscriber) -> None:
        """Undo a subscription. Safe to repeat."""
        subscriber.end()
        with self._lock:
            self._all = tuple(other for other in self._all if other is not subscriber)

    def wake(self, queues: QueueNames = None, topics: Topics = None) -> None:
        """Call those to whom a change of these queues, about these topics, matters, soon."""
        for subscriber in self._all:
            subscriber.hear(queues, topics)

    def clear(self) -> None:
        """Forget all of them."""
        self._all = ()


class SharedWorkHints:
    """The `WorkHints` of a backend that wakes all workers of a queue, whether they wait or not."""

    exact: Final = False
    about: Final = ()

    def __init__(self, undo: Callable[[], None]) -> None:
        """``undo`` ends the subscription that the hints come from."""
        self._undo = undo

    def want(self, queues: Collection[str]) -> None:
        """Do nothing: this worker is woken in any case."""

    def close(self) -> None:
        """Call back no more."""
        self._undo()


def topics_of(queues: QueueNames) -> Topics:
    """Name the topics of a change of which only the queues are known: none, if it names them."""
    return None if queues is None else ()


def changed_queues(jobs: Sequence[NewJob], answers: Sequence[Inserted]) -> Mapping[str, int] | None:
    """Count the jobs that an insert has stored, by queue: empty if it stored and moved nothing;
    None: it may have changed any queue.
    """
    queues: dict[str, int] = {}
    for job, answer in zip(jobs, answers, strict=True):
        if answer.replaced or answer.expired is not None:
            return None  # the holder of its key may be in another queue
        if answer.created:
            queues[job.queue] = queues.get(job.queue, 0) + 1
    return queues
