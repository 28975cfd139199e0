"""All writes of a process go through one writer, which commits what is waiting in one group.

`Writer` runs the groups on a thread of its own, so a commit's sync never blocks an event loop.
`InlineWriter` runs the same groups on the calling loop, for the simulation. Both take ops (see
`windlass._storage.sqlite.io.transactor`) from any event loop and answer with a future of that loop.
"""

from __future__ import annotations

import abc
import asyncio
import concurrent.futures
import logging
import math
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import apsw

from windlass._storage.sqlite.io.transactor import FailedOp, Op, Transactor
from windlass._system.seams import monotonic, start_thread
from windlass.errors import StorageError, StorageReplaced, StoreBusy

__all__ = ["DEADLINE", "InlineWriter", "SimulatedFaults", "Writer"]

log = logging.getLogger("windlass")

T = TypeVar("T")
Loop = asyncio.AbstractEventLoop

# How long an op may wait for its turn before its submitter is told that the database is busy.
DEADLINE = timedelta(seconds=30)

# A group ends here, so that the first op of a long queue and the other processes do not wait for
# the last one. Larger groups gain little: the sync is already shared by 64.
_GROUP_OPS = 64
_GROUP_SECONDS = 0.020

# Between two tries to begin, the writer's thread looks whether it should stop.
_PATIENCE = 1.0


class _Ticket:
    """An op on its way: who waits for it, and until when it may be left waiting."""

    __slots__ = ("deadline", "ends_group", "future", "loop", "op")

    def __init__(self, op: Op, future: asyncio.Future[Any], loop: Loop, deadline: float) -> None:
        self.op, self.deadline = op, deadline
        self.future, self.loop = future, loop
        self.ends_group = False


class _WriteQueue:
    """The ops that wait, urgent ones first. Everything that leaves it leaves it once."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.first: deque[_Ticket] = deque()
        self.soon: deque[_Ticket] = deque()
        self.rest: deque[_Ticket] = deque()

    def __len__(self) -> int:
        return len(self.first) + len(self.soon) + len(self.rest)

    def next(self) -> _Ticket | None:
        """Take the next op whose submitter still waits; from here on it is begun."""
        with self.lock:
            while waiting := self.first or self.soon or self.rest:
                ticket = waiting.popleft()
                if not ticket.future.cancelled():
                    return ticket
        return None

    def withdraw(self, loop: Loop, until: float) -> tuple[list[_Ticket], float]:
        """Take out this loop's ops that are due until then; also say when the next one is."""
        late: list[_Ticket] = []
        upcoming = math.inf
        with self.lock:
            for waiting in (self.first, self.soon, self.rest):
                tickets = [*waiting]
                waiting.clear()
                for ticket in tickets:
                    if ticket.loop is loop and ticket.deadline <= until:
                        late.append(ticket)
                        continue
                    waiting.append(ticket)
                    if ticket.loop is loop:
                        upcoming = min(upcoming, ticket.deadline)
        return late, upcoming

    def clear(self) -> list[_Ticket]:
        with self.lock:
            waiting = [*self.first, *self.soon, *self.rest]
            for part in (self.first, self.soon, self.rest):
                part.clear()
        return waiting


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


class _Submissions(abc.ABC):
    """What both writers share: taking ops in, giving up late ones, running one group."""

    def __init__(self, transactor: Transactor) -> None:
        self.transactor = transactor
        self._pid = os.getpid()
        self._line = _WriteQueue()
        self._deadlines: dict[Loop, _Deadlines] = {}
        self._refusal: Callable[[], StorageError] | None = None

    def submit(
        self, op: Callable[[apsw.Connection], T], *, timeout: timedelta = DEADLINE
    ) -> asyncio.Future[T]:
        """Run ``op`` in a write transaction; the future of the running loop gets its value.

        The value comes after the commit. An error is this op's own, and nothing of it is stored.
        An op that has not begun after ``timeout`` is withdrawn, never runs, and fails with
        StoreBusy; one that has begun is waited for. Cancelling the future drops an op that waits
        and merely ignores one that has begun.
        """
        return self._accept(op, self._line.rest, timeout)

    def submit_first(
        self, op: Callable[[apsw.Connection], T], *, timeout: timedelta = DEADLINE
    ) -> asyncio.Future[T]:
        """Like `submit`, ahead of everything submitted that way: for what keeps a worker alive."""
        return self._accept(op, self._line.first, timeout)

    def submit_soon(
        self, op: Callable[[apsw.Connection], T], *, timeout: timedelta = DEADLINE
    ) -> asyncio.Future[T]:
        """Like `submit`, ahead of everything submitted that way, and committed without waiting
        for what comes behind it: for a claim, whose answer free slots are waiting for.
        """
        return self._accept(op, self._line.soon, timeout)

    def _accept(self, op: Op, waiting: deque[_Ticket], timeout: timedelta) -> asyncio.Future[Any]:
        if os.getpid() != self._pid:
            raise StorageError(
                f"{self.transactor.source.path} was opened before this process was forked, and a "
                f"connection must not cross a fork. Open the storage again in the child."
            )
        loop = asyncio.get_running_loop()
        ticket = _Ticket(op, loop.create_future(), loop, loop.time() + timeout.total_seconds())
        ticket.ends_group = waiting is self._line.soon
        with self._line.lock:
            if self._refusal is not None:
                raise self._refusal()
            waiting.append(ticket)
        deadlines = self._deadlines.get(loop) or self._watch(loop)
        if ticket.deadline < deadlines.at:
            deadlines.expect(ticket.deadline)
        self._rouse()
        return ticket.future

    @abc.abstractmethod
    def _rouse(self) -> None:
        """Make sure that somebody comes for the line."""

    def _watch(self, loop: Loop) -> _Deadlines:
        for gone in [known for known in list(self._deadlines) if known.is_closed()]:
            self._deadlines.pop(gone, None)
        return self._deadlines.setdefault(loop, _Deadlines(loop, self._expire))

    def _expire(self, loop: Loop, until: float) -> float:
        late, upcoming = self._line.withdraw(loop, until)
        for ticket in late:
            if not ticket.future.done():
                ticket.future.set_exception(self._busy())
        return upcoming

    def _busy(self) -> StoreBusy:
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

    def _group(self, *, patience: float, seconds: float) -> list[tuple[_Ticket, Any]]:
        """Run one group and pair each op with its result. StoreBusy: the lock was not free."""
        tickets: list[_Ticket] = []
        try:
            results = self.transactor.run(self._take(tickets, seconds), patience=patience)
        except BaseException as error:
            if isinstance(error, StoreBusy) and not tickets:
                raise
            # Where a transaction cannot even begin there is no use in letting the others try.
            results = [FailedOp(error)] * len(tickets := tickets or self._line.clear())
        first = results[0] if results else None
        if isinstance(first, FailedOp) and isinstance(first.error, StorageReplaced):
            text = str(first.error)
            self._refuse(lambda: StorageReplaced(text))
            rest = self._line.clear()
            return [*zip(tickets, results, strict=True), *((ticket, first) for ticket in rest)]
        return [*zip(tickets, results, strict=True)]

    def _take(self, tickets: list[_Ticket], seconds: float) -> Iterator[Op]:
        end = monotonic() + seconds if seconds < math.inf else math.inf
        while len(tickets) < _GROUP_OPS and (ticket := self._line.next()) is not None:
            tickets.append(ticket)
            yield ticket.op
            if ticket.ends_group:
                return
            # The simulation gives no time: its groups must not depend on how fast it runs.
            if end < math.inf and monotonic() >= end:
                return

    def _refuse(self, refusal: Callable[[], StorageError]) -> None:
        """From now on take nothing in. The first reason stays."""
        with self._line.lock:
            self._refusal = self._refusal or refusal

    def _closed(self) -> StorageError:
        return StorageError(
            f"{self.transactor.source.path} was closed; open the storage again to use it."
        )


def _settle(pairs: Sequence[tuple[_Ticket, Any]]) -> None:
    """Tell the submitters; on their own loop."""
    for ticket, result in pairs:
        future = ticket.future
        if future.done():  # cancelled, or its loop's deadline passed it
            continue
        if type(result) is not FailedOp:
            future.set_result(result)
        elif isinstance(result.error, StopIteration):  # which a future cannot carry
            future.set_exception(RuntimeError(f"an op raised {result.error!r}"))
        else:
            future.set_exception(result.error)


class Writer(_Submissions):
    """Runs groups on a daemon thread, from the first op on."""

    def __init__(self, transactor: Transactor) -> None:
        super().__init__(transactor)
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._idle = self._stopping = False
        self._ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._ended.set_running_or_notify_cancel()  # nobody who waits for it can cancel it
        start_thread("sqlite-writer", self._run)

    def _rouse(self) -> None:
        if self._idle:
            self._idle = False
            self._bell.put(None)

    def _run(self) -> None:
        while self._wait():
            try:
                pairs = self._group(patience=_PATIENCE, seconds=_GROUP_SECONDS)
            except StoreBusy:
                continue  # the deadlines of the waiting ops decide how long this goes on
            self._deliver(pairs)
        self.transactor.close()
        self._ended.set_result(None)

    def _wait(self) -> bool:
        """Sleep until there is something to write; False when there never will be again."""
        while not self._line:
            if self._stopping:
                return False
            self._idle = True
            # Whoever came before `idle` was set has not rung the bell.
            if not self._line and not self._stopping:
                self._bell.get()
            self._idle = False
        return True

    def _deliver(self, pairs: Sequence[tuple[_Ticket, Any]]) -> None:
        """One wake-up per event loop, however many of its ops were in the group."""
        by_loop: dict[Loop, list[tuple[_Ticket, Any]]] = {}
        for pair in pairs:
            by_loop.setdefault(pair[0].loop, []).append(pair)
        for loop, mine in by_loop.items():
            try:
                loop.call_soon_threadsafe(_settle, mine)
            except RuntimeError:
                log.debug("%d results came after their event loop was closed", len(mine))

    async def close(self, timeout: timedelta = timedelta(seconds=10)) -> None:
        """Write what waits, close the connection, end the thread. Waits at most ``timeout``."""
        if os.getpid() != self._pid:
            return
        self._refuse(self._closed)
        self._stopping = True
        self._bell.put(None)
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                await asyncio.wrap_future(self._ended)
        except TimeoutError:
            left = self._line.clear()
            self._deliver([(ticket, FailedOp(self._busy())) for ticket in left])
            log.warning(
                "closed %s without waiting any longer for its lock; %d writes were dropped",
                self.transactor.source.path,
                len(left),
            )


class SimulatedFaults(Protocol):
    """What the simulation does around a group: take time, or fail.

    An error raised by ``before`` is the answer of a store that did nothing; one raised by
    ``after`` hides the answer of a store that did everything.
    """

    async def before(self, op_count: int) -> None: ...

    async def after(self, op_count: int) -> None: ...


class InlineWriter(_Submissions):
    """Runs groups on the event loop that submits, everything submitted in one turn together."""

    def __init__(self, transactor: Transactor, faults: SimulatedFaults | None = None) -> None:
        super().__init__(transactor)
        self._faults = faults
        self._runner: asyncio.Task[None] | None = None

    def _rouse(self) -> None:
        if self._runner is None or self._runner.done():  # cancelled before its first step
            self._runner = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        """Run groups until nothing waits. The task starts in the loop's next turn."""
        try:
            while self._line:
                await self._turn()
        finally:
            self._runner = None

    async def _turn(self) -> None:
        if self._faults is None:
            _settle(self._now())
            await asyncio.sleep(0)
            return
        count = min(len(self._line), _GROUP_OPS)
        try:
            await self._faults.before(count)
        except Exception as error:  # noqa: BLE001 -- planted for the submitters
            tickets: list[_Ticket] = []
            for _ in self._take(tickets, math.inf):
                pass
            _settle([(ticket, FailedOp(error)) for ticket in tickets])
            return
        pairs = self._now()
        try:
            await self._faults.after(len(pairs))
        except Exception as error:  # noqa: BLE001 -- planted for the submitters
            pairs = [(ticket, FailedOp(error)) for ticket, _ in pairs]
        _settle(pairs)

    def _now(self) -> list[tuple[_Ticket, Any]]:
        try:
            return self._group(patience=0, seconds=math.inf)
        except StoreBusy as error:
            return [(ticket, FailedOp(error)) for ticket in self._line.clear()]

    async def close(self, timeout: timedelta = timedelta(seconds=10)) -> None:
        """Write what waits, then close the connection."""
        self._refuse(self._closed)
        async with asyncio.timeout(timeout.total_seconds()):
            while self._runner is not None and not self._runner.done():
                await asyncio.wait([self._runner])
        self.transactor.close()
