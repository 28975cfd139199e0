"""All writes of a process go through one writer, which commits what is waiting in one group.

`WriteQueue` takes ops (see `windlass._storage.sqlite.io.transactor`) from any event loop, answers
with a future of that loop, and runs groups of them. `Writer` does so on its own thread, so a
commit's sync never blocks an event loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import logging
import math
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from enum import IntEnum
from typing import Any, Protocol, TypeVar, cast

import apsw
import msgspec

from windlass._storage.sqlite.io.transactor import FailedOp, Op, Transactor
from windlass._storage.timings import Durations
from windlass._system.seams import monotonic, start_thread
from windlass.errors import StorageError, StorageReplaced, StoreBusy

__all__ = [
    "DEADLINE",
    "GROUP_OPS",
    "AnsweredOp",
    "Submit",
    "Ticket",
    "Urgency",
    "WriteQueue",
    "Writer",
]

log = logging.getLogger("windlass")

T = TypeVar("T")
Loop = asyncio.AbstractEventLoop

# How long an op may wait for its turn before its submitter gets a "database is busy" error.
DEADLINE = timedelta(seconds=30)

# A group ends here, so that the first op of a long queue and the other processes do not wait for
# the last one. Larger groups gain little: the sync is already shared by 64.
GROUP_OPS = 64
_GROUP_SECONDS = 0.020

# Between two tries to begin, the writer's thread looks whether it should stop.
_PATIENCE = 1.0


class Urgency(IntEnum):
    """Which of the waiting ops are written first."""

    FIRST = 0
    """Ahead of everything else: for what keeps a worker alive."""
    SOON = 1
    """Ahead of what can wait, and committed without waiting for what comes behind it: for claims,
    whose answers free slots are waiting for, and for the outcomes that freed those slots."""
    NORMAL = 2


class Ticket(msgspec.Struct, frozen=True, eq=False):
    """An op on its way: who waits for it, since when, and until when it may be left waiting."""

    op: Op
    urgency: Urgency
    future: asyncio.Future[Any]
    loop: Loop
    began: float
    deadline: float
    told: Callable[[Any], None] | None = None
    """Gets the value, also if the one who waited is gone."""


AnsweredOp = tuple[Ticket, Any]
"""An op, and its value or why it has none."""


class Submit(Protocol):
    """How ops get to a writer."""

    def __call__(
        self,
        op: Callable[[apsw.Connection, int], T],
        urgency: Urgency = Urgency.NORMAL,
        *,
        timeout: timedelta = DEADLINE,
        told: Callable[[T], None] | None = None,
    ) -> asyncio.Future[T]:
        """Run ``op`` in a write transaction; see `WriteQueue.submit`."""
        ...


class _Deadlines:
    """One timer per event loop for all of its waiting ops: one per op would cost more than it."""

    def __init__(self, loop: Loop, expire: Callable[[Loop, float], float]) -> None:
        self._loop, self._expire = loop, expire
        self._timer: asyncio.TimerHandle | None = None
        self.at = math.inf

    def expect(self, deadline: float) -> None:
        """Fire at ``deadline`` or before."""
        if self._timer is not None:
            self._timer.cancel()
        self.at = deadline
        self._timer = self._loop.call_at(deadline, self._fire)

    def _fire(self) -> None:
        self.at, self._timer = math.inf, None
        # Loops round their clocks to a millisecond; a timer that fires early must not fire twice.
        upcoming = self._expire(self._loop, self._loop.time() + 0.001)
        if upcoming < math.inf:
            self.expect(upcoming)


class WriteQueue:
    """The ops that wait, urgent ones first. Everything that leaves it leaves it once."""

    def __init__(
        self,
        transactor: Transactor,
        ring: Callable[[], None],
        timings: Durations | None = None,
    ) -> None:
        """Make a queue. ``ring`` wakes the thread that takes waiting ops. ``timings`` counts how
        long ops take, from the call to the answer.
        """
        self.transactor = transactor
        self.pid: int = os.getpid()
        self._ring = ring
        self._timings = timings or Durations()
        self._lock = threading.Lock()
        self.lines: tuple[deque[Ticket], ...] = tuple(deque() for _ in Urgency)
        self._deadlines: dict[Loop, _Deadlines] = {}
        self._refusal: Callable[[], StorageError] | None = None

    def submit(
        self,
        op: Callable[[apsw.Connection, int], T],
        urgency: Urgency = Urgency.NORMAL,
        *,
        timeout: timedelta = DEADLINE,
        told: Callable[[T], None] | None = None,
    ) -> asyncio.Future[T]:
        """Run ``op`` in a write transaction; the future of the running loop gets its value.

        The value comes after the commit. An error is this op's own, and nothing of it is stored.
        An op that has not begun after ``timeout`` is withdrawn, never runs, and fails with
        StoreBusy; one that has begun is waited for. Cancelling the future drops an op that waits
        and merely ignores one that has begun. ``told`` gets the value then, too.
        """
        if os.getpid() != self.pid:
            raise StorageError(
                f"{self.transactor.source.path} was opened before this process was forked, and a "
                f"connection must not cross a fork. Open the storage again in the child."
            )
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        deadline = loop.time() + timeout.total_seconds()
        with self._lock:
            if self._refusal is not None:
                raise self._refusal()
            ticket = Ticket(op, urgency, future, loop, monotonic(), deadline, told)
            self.lines[urgency].append(ticket)
        deadlines = self._deadlines.get(loop) or self._watch(loop)
        if deadline < deadlines.at:
            deadlines.expect(deadline)
        self._ring()
        return future

    def _watch(self, loop: Loop) -> _Deadlines:
        for gone in [known for known in list(self._deadlines) if known.is_closed()]:
            self._deadlines.pop(gone, None)
        return self._deadlines.setdefault(loop, _Deadlines(loop, self._expire))

    def _expire(self, loop: Loop, until: float) -> float:
        """Fail this loop's ops that are due until then; the answer is when the next one is."""
        late, upcoming = self._withdraw(loop, until)
        for ticket in late:
            if not ticket.future.done():
                ticket.future.set_exception(self.busy())
        return upcoming

    def _withdraw(self, loop: Loop, until: float) -> tuple[list[Ticket], float]:
        late: list[Ticket] = []
        upcoming = math.inf
        with self._lock:
            for line in self.lines:
                tickets = [*line]
                line.clear()
                for ticket in tickets:
                    if ticket.loop is loop and ticket.deadline <= until:
                        late.append(ticket)
                        continue
                    line.append(ticket)
                    if ticket.loop is loop:
                        upcoming = min(upcoming, ticket.deadline)
        return late, upcoming

    def clear(self) -> list[Ticket]:
        """Take out everything."""
        with self._lock:
            waiting = [ticket for line in self.lines for ticket in line]
            for line in self.lines:
                line.clear()
        return waiting

    def busy(self) -> StoreBusy:
        """Make the error for an op that was not begun in time."""
        path, since = self.transactor.source.path, self.transactor.waiting_since
        if since is None:
            return StoreBusy(
                f"{path} has too many writes waiting: this one did not start in time and was "
                f"dropped. Nothing was written; try again when there is less load."
            )
        return StoreBusy(
            f"{path} has been locked by another process for {monotonic() - since:.1f} s. Nothing "
            f"was written; find the process that holds it (a stopped process, a database browser "
            f"with an open transaction) and try again."
        )

    def run_group(self, *, patience: float, seconds: float) -> list[AnsweredOp]:
        """Run one group and pair each op with its result. StoreBusy: the lock was not free."""
        tickets: list[Ticket] = []
        try:
            results = self.transactor.run(self.take(tickets, seconds), patience=patience)
        except BaseException as error:
            if isinstance(error, StoreBusy) and not tickets:
                raise
            # Where a transaction cannot even begin there is no use in letting the others try.
            results = [FailedOp(error)] * len(tickets := tickets or self.clear())
        first = results[0] if results else None
        if isinstance(first, FailedOp) and isinstance(first.error, StorageReplaced):
            text = str(first.error)
            self._refuse(lambda: StorageReplaced(text))
            rest = self.clear()
            return [*zip(tickets, results, strict=True), *((ticket, first) for ticket in rest)]
        return [*zip(tickets, results, strict=True)]

    def take(self, tickets: list[Ticket], seconds: float) -> Iterator[Op]:
        """Take ops whose submitters still wait, and add them to ``tickets``; from then on they are
        begun.
        """
        end = monotonic() + seconds if seconds < math.inf else math.inf
        while len(tickets) < GROUP_OPS:
            with self._lock:
                first, soon, rest = self.lines
                line = first or soon or rest
                if not line:
                    return
                ticket = line.popleft()
            if ticket.future.cancelled():
                continue
            tickets.append(ticket)
            yield ticket.op
            # An outcome and the claim for its slot share a commit; what can wait does not delay it.
            if ticket.urgency is Urgency.SOON and not soon:
                return
            # The simulation gives no time: its groups must not depend on how fast it runs.
            if end < math.inf and monotonic() >= end:
                return

    def settle(self, pairs: Sequence[AnsweredOp]) -> None:
        """Tell the submitters; on their own loop."""
        now = monotonic()
        for ticket, result in pairs:
            failed = type(result) is FailedOp
            self._timings.add(now - ticket.began, failed=failed)
            future = ticket.future
            if future.done():  # cancelled, or its loop's deadline passed it
                continue
            if not failed:
                future.set_result(result)
            elif isinstance(result.error, StopIteration):  # which a future cannot carry
                future.set_exception(RuntimeError(f"an op raised {result.error!r}"))
            else:
                future.set_exception(result.error)
        for ticket, result in pairs:  # last: no submitter waits for what others do
            if ticket.told is not None and type(result) is not FailedOp:
                ticket.told(result)

    def _refuse(self, refusal: Callable[[], StorageError]) -> None:
        """Refuse further ops from now on. The first reason stays."""
        with self._lock:
            self._refusal = self._refusal or refusal

    @property
    def open(self) -> bool:
        """Whether ops are taken in, by this process."""
        return self._refusal is None and os.getpid() == self.pid

    def close(self) -> None:
        """Take nothing in any more."""
        path = self.transactor.source.path
        self._refuse(lambda: StorageError(f"{path} was closed; open the storage again to use it."))


class Writer:
    """Runs groups on a daemon thread, from the first op on.

    A thread without an event loop may run one op itself while the writer's thread has nothing to
    do: that spares it two changes of threads.
    """

    def __init__(self, transactor: Transactor, timings: Durations | None = None) -> None:
        """Make a writer. ``timings`` counts how long ops take."""
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._queue = WriteQueue(transactor, functools.partial(self._bell.put, None), timings)
        self.submit: Submit = self._queue.submit
        self.transactor: Transactor = transactor
        self._timings = timings or Durations()
        self._connection = threading.Lock()  # held by the thread that uses the connection
        self._stopping = False
        self._ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._ended.set_running_or_notify_cancel()  # no waiting caller can cancel it
        start_thread("sqlite-writer", self._run)

    def _run(self) -> None:
        while not self._stopping or any(self._queue.lines):
            if not any(self._queue.lines):
                self._bell.get()
                continue
            try:
                with self._connection:
                    pairs = self._queue.run_group(patience=_PATIENCE, seconds=_GROUP_SECONDS)
            except StoreBusy:
                continue  # the deadlines of the waiting ops decide how long this takes
            self._deliver(pairs)
        with self._connection:
            self.transactor.close()
        self._ended.set_result(None)

    def run_here(self, op: Callable[[apsw.Connection, int], T]) -> T | None:
        """Run ``op`` in a write transaction on this thread. None: it was not run, because the
        writer, or another process, is writing.

        Not for the main thread: a signal that raises there could leave a transaction open.
        """
        if not self._connection.acquire(blocking=False):
            return None
        try:
            if self._stopping or not self._queue.open or any(self._queue.lines):
                return None
            began = monotonic()
            result = self.transactor.run_now(op)
        except StoreBusy:
            return None
        finally:
            self._connection.release()
        failed = type(result) is FailedOp
        self._timings.add(monotonic() - began, failed=failed)
        if failed:
            raise result.error
        return cast("T", result)

    def _deliver(self, pairs: Sequence[AnsweredOp]) -> None:
        """Wake each event loop once, however many of its ops were in the group."""
        by_loop: dict[Loop, list[AnsweredOp]] = {}
        for pair in pairs:
            by_loop.setdefault(pair[0].loop, []).append(pair)
        for loop, mine in by_loop.items():
            try:
                loop.call_soon_threadsafe(self._queue.settle, mine)
            except RuntimeError:
                log.debug("%d results came after their event loop was closed", len(mine))

    async def close(self, timeout: timedelta = timedelta(seconds=10)) -> None:
        """Write what waits, close the connection, end the thread. Waits at most ``timeout``."""
        if os.getpid() != self._queue.pid:
            return
        self._queue.close()
        self._stopping = True
        self._bell.put(None)
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                await asyncio.wrap_future(self._ended)
        except TimeoutError:
            left = self._queue.clear()
            self._deliver([(ticket, FailedOp(self._queue.busy())) for ticket in left])
            log.warning(
                "closed %s without waiting any longer for its lock; %d writes were dropped",
                self.transactor.source.path,
                len(left),
            )
