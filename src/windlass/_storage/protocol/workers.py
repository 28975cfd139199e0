"""`WorkerStore`, `LeaderStore` and `HeartbeatChannel`: registration, duties and leadership."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

import msgspec

from windlass._core.job.job import Claim, ClaimedJob
from windlass._core.job.transition import Transition
from windlass._core.stats.gauges import Readings
from windlass._storage.protocol.actions import AuditNote
from windlass._storage.protocol.jobs import Applied

__all__ = [
    "HEARD",
    "Duty",
    "HeartbeatAnswer",
    "HeartbeatChannel",
    "LeaderStore",
    "Standing",
    "WorkerRecord",
    "WorkerStart",
    "WorkerState",
    "WorkerStore",
]


class WorkerState(StrEnum):
    """A worker's row is live until the worker leaves or is declared dead."""

    LIVE = "live"
    DEAD = "dead"
    GONE = "gone"


class Duty(StrEnum):
    """The duty of a worker. It gets the duty with its next heartbeat."""

    WORK = "work"
    QUIET = "quiet"
    """Claim no new jobs; running jobs continue."""
    STOP = "stop"
    """Shut down in order, and claim no new jobs. Cannot be undone."""


class Standing(StrEnum):
    """The condition of a worker in one word, from its row, its last heartbeat and its duty."""

    LIVE = "live"
    QUIET = "quiet"
    STOPPING = "stopping"
    SILENT = "silent"
    """No heartbeat within its lease: other workers are about to declare it dead."""
    DEAD = "dead"
    GONE = "gone"


HEARD = frozenset({Standing.LIVE, Standing.QUIET, Standing.STOPPING})
"""The standings of workers whose last heartbeat is within their lease."""


_OF_DUTY = {
    Duty.WORK: Standing.LIVE,
    Duty.QUIET: Standing.QUIET,
    Duty.STOP: Standing.STOPPING,
}


class WorkerStart(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's registration."""

    id: str
    host: str
    pid: int
    version: str
    queues: Sequence[str]
    slots: int
    lease: timedelta
    boot_id: str = ""
    lock_device: int = 0
    lock_inode: int = 0
    tasks: Sequence[str] = ()
    """The tasks it can run, by name."""
    clock: datetime | None = None
    """Its own clock when it registered. The difference to the store's clock is the worker's clock
    error.
    """
    signatures: Mapping[str, str] = {}
    """A fingerprint of the arguments of each task, by name (`Codec.fingerprint`). Workers of an
    older version leave it empty.
    """
    pools: Mapping[str, int] = {}
    """Slots of each queue, if every queue has its own; empty: all queues share ``slots``."""


class WorkerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's row."""

    start: WorkerStart
    state: WorkerState
    started_at: datetime
    beat_at: datetime
    ended_at: datetime | None = None
    running: int = 0
    """Claims it holds."""
    memory: int | None = None
    """Bytes in use at its last heartbeat that reported them."""
    duty: Duty = Duty.WORK
    """The duty that operators gave it."""

    def standing(self, now: datetime) -> Standing:
        """Return its condition at this instant of the store's clock."""
        if self.state is not WorkerState.LIVE:
            return Standing(self.state.value)
        silent = now - self.beat_at > self.start.lease
        return Standing.SILENT if silent else _OF_DUTY[self.duty]


class HeartbeatAnswer(msgspec.Struct, frozen=True):
    """The answer to a heartbeat."""

    live: bool
    """False: declared dead, or no such row. The worker must take a new identity."""
    at: datetime
    cancelled: Sequence[Claim] = ()
    """Claims of this worker whose cancellation is requested."""
    holding: Sequence[Claim] = ()
    """Every claim the store says this worker holds."""
    duty: Duty = Duty.WORK


class HeartbeatChannel(Protocol):
    """The heartbeat's own connection to the store. Made, used and closed on one event loop."""

    async def beat(
        self, worker: str, *, memory: int | None = None, readings: Readings | None = None
    ) -> HeartbeatAnswer:
        """Renew the lease as `WorkerStore.beat` does."""
        ...

    async def close(self) -> None:
        """Release its resources, such as a connection. Safe to repeat."""
        ...


class WorkerStore(Protocol):
    """The registered workers and their leases."""

    def pulse(self) -> HeartbeatChannel:
        """Return a channel for heartbeats on another event loop. Heartbeats run on their own
        thread, so that a handler that blocks the worker's loop does not cost the worker its lease.
        """
        ...

    async def register(self, start: WorkerStart) -> datetime:
        """Store the live row of a worker, unless there is one. Return the store's clock."""
        ...

    async def beat(
        self, worker: str, *, memory: int | None = None, readings: Readings | None = None
    ) -> HeartbeatAnswer:
        """Renew the worker's lease if its row is live, and return its claims and its duty.

        A late heartbeat that finds its row live renews it, at any delay. ``memory``: the bytes that
        the process uses; None keeps the last report. ``readings`` of a live worker replace what is
        stored of the same source and minute: workers of one host measure the same.
        """
        ...

    async def bury(self, workers: Sequence[str]) -> Sequence[str]:
        """Declare live workers dead, by compare-and-set. Return those that this call changed.

        It ends no claim: `JobStore.claim` refuses new ones, and the reaper ends old ones by fenced
        writes. Until such a write, the store accepts a finish by the dead worker.
        """
        ...

    async def bury_overdue(self, workers: Sequence[str]) -> Sequence[str]:
        """Declare workers dead as `bury` does, but only those that are `overdue` now."""
        ...

    async def overdue(self) -> Sequence[str]:
        """List live workers whose last heartbeat is older than their lease. Changes nothing."""
        ...

    async def orphans(self, limit: int) -> Sequence[ClaimedJob]:
        """List running jobs whose worker's row is missing or not live, at most ``limit``: worker by
        worker, the oldest claim of each first. The payload is left empty: ending a claim does not
        need it, and it may be large.
        """
        ...

    async def assign(
        self, workers: Sequence[str], duty: Duty, *, audit: AuditNote | None = None
    ) -> Sequence[str]:
        """Give live workers another duty. Return those that have this duty now, in order.

        A worker that has the duty to stop keeps it: it may be stopping already.
        """
        ...

    async def cancel_requests(self, worker: str) -> Sequence[Claim]:
        """List claims of this worker to be cancelled, between heartbeats. Read-only and cheap."""
        ...

    async def leave(self, worker: str, releases: Sequence[Transition]) -> Applied:
        """Apply ``releases`` and end the worker's row, in one transaction.

        Claims of the row that are not among the releases are released too. They get their attempt
        back, as claims that were never started (`JobStore.apply`). A row that ended before stays as
        it is.
        """
        ...

    async def live(self) -> Sequence[WorkerStart]:
        """List the registrations of live workers, newest first. Read-only and cheap."""
        ...

    async def workers(self) -> Sequence[WorkerRecord]:
        """List every stored row, newest first."""
        ...


class LeaderStore(Protocol):
    """The choice of the worker that does background work. It saves work only: two leaders at once
    are correct.
    """

    async def lead(self, role: str, worker: str, lease: timedelta) -> bool:
        """Take or renew the lease on a role. Return False while another worker holds it."""
        ...

    async def resign(self, worker: str) -> None:
        """Give up every role ``worker`` holds."""
        ...
