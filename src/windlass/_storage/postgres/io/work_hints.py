"""Hints for idle workers: every process hears of new jobs, and about as many workers look.

The workers that serve the same queues form a group. All of them compute the same order from the
text of a hint and their sessions, so that each knows its place without asking. For ``n`` new jobs,
the first ``n`` claim at once. In a small group the next ``n`` look a moment later, in case one of
these is gone. The others leave it to their poll. A worker without room passes its hint on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from hashlib import blake2b

from windlass._storage.postgres.io.database import PostgresDatabase
from windlass._storage.postgres.io.notify import EVERY_WORKER, Notification
from windlass._system.seams import monotonic

__all__ = ["PostgresWorkHints", "WorkGroup", "WorkGroups"]

_SECOND_LOOK = 0.03
"""Seconds until those look that are next in line. By then the first have claimed, if they can."""
_FEW = 8
"""With more others, one of them polls about as soon, and a second look at each job costs more."""
_FULL_SECONDS = 1.0
"""How long a worker that passed on a hint is left out of the order."""


class PostgresWorkHints:
    """A `WorkHints` of one worker. Changes in this process wake it in any case."""

    def __init__(
        self,
        database: PostgresDatabase,
        callback: Callable[[], bool],
        queues: Collection[str],
        on_close: Callable[[PostgresWorkHints], None],
    ) -> None:
        self._db, self._callback, self._on_close = database, callback, on_close
        self._local = database.subscribers.add(callback, queues)
        self._timer: asyncio.TimerHandle | None = None
        self.exact: bool = False
        """Set during a call of the callback that is for this worker alone."""
        self.about: Collection[str] = ()
        """The queues of that call."""

    def want(self, queues: Collection[str]) -> None:
        """Do nothing: a worker without room passes its hint on."""

    def offer(self, queue: str) -> bool:
        """Wake the worker for a job of ``queue``. Return whether it claims now."""
        self.exact, self.about = True, (queue,)
        try:
            return self._callback()
        finally:
            self.exact, self.about = False, ()

    def wake(self) -> None:
        """Let the worker look."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._local.wake()

    def wake_later(self) -> None:
        """Let the worker look in a moment."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SECOND_LOOK, self.wake)

    def close(self) -> None:
        """Call back no more."""
        if self._timer is not None:
            self._timer.cancel()
        self._db.subscribers.remove(self._local)
        self._on_close(self)


class WorkGroup:
    """The workers of one process among all that serve the same queues."""

    def __init__(self, database: PostgresDatabase, queues: frozenset[str]) -> None:
        self._db, self._queues = database, queues
        self._sessions: frozenset[int] = frozenset()
        self._full: dict[int, float] = {}
        self.key: int = database.presence.group(queues)
        self.workers: set[PostgresWorkHints] = set()

    def meet(self, sessions: Collection[int]) -> None:
        """Learn which sessions are in the group."""
        self._sessions = frozenset(sessions)

    def hear(self, text: str, told: Notification, me: int) -> None:
        """Decide whether the workers of session ``me`` look."""
        if told.full:
            self._full[told.full] = monotonic() + _FULL_SECONDS
        jobs = {q: told.jobs[q] for q in self._queues & told.jobs.keys()} if told.jobs else {}
        number = sum(jobs.values())
        if not number:
            return
        if number >= EVERY_WORKER:
            for worker in self.workers:
                worker.wake()
            return
        others = self._others_with_room(me)
        place = place_of(me, others, text)
        if place < number:
            left = [queue for queue in jobs if not self._offer(queue)]
            if others and left and me not in self._full:  # else they know
                self._full[me] = monotonic() + _FULL_SECONDS
                self._db.pass_on(dict.fromkeys(left, 1), me)
        elif place < 2 * number and len(others) < _FEW:
            for worker in self.workers:
                worker.wake_later()

    def _offer(self, queue: str) -> bool:
        """Wake all workers here for jobs of ``queue``. Return whether one of them claims now."""
        takes = [worker.offer(queue) for worker in self.workers]
        return any(takes)

    def _others_with_room(self, me: int) -> list[int]:
        now = monotonic()
        self._full = {session: until for session, until in self._full.items() if until > now}
        return [other for other in self._sessions if other != me and other not in self._full]


class WorkGroups:
    """The groups that workers of this process are in."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._db = database
        self._all: dict[frozenset[str], WorkGroup] = {}

    def join(self, callback: Callable[[], bool], queues: Collection[str]) -> PostgresWorkHints:
        """Put a worker into the group of its queues."""
        served = frozenset(queues)
        group = self._all.setdefault(served, WorkGroup(self._db, served))
        hints = PostgresWorkHints(self._db, callback, served, group.workers.discard)
        group.workers.add(hints)
        return hints

    @property
    def empty(self) -> bool:
        """Whether no worker has joined a group."""
        return not self._all

    @property
    def keys(self) -> set[int]:
        """The keys of the groups that have a worker here."""
        return {group.key for group in self._all.values() if group.workers}

    def meet(self, found: Mapping[int, Collection[int]]) -> None:
        """Learn which sessions hold which key. A group without a worker here is left."""
        self._all = {queues: group for queues, group in self._all.items() if group.workers}
        for group in self._all.values():
            group.meet(found.get(group.key, ()))

    def hear(self, text: str, told: Notification, me: int) -> None:
        """Decide about a hint that came to session ``me``."""
        for group in list(self._all.values()):
            group.hear(text, told, me)


def place_of(me: int, others: Collection[int], text: str) -> int:
    """Return how many of ``others`` come before ``me`` in the order that ``text`` decides."""

    def key(session: int) -> bytes:
        return blake2b(f"{session} {text}".encode(), digest_size=8).digest()

    mine = key(me)
    return sum(key(other) < mine for other in others)
