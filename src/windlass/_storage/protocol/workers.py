"""`WorkerStore`, `LeaderStore` and `HeartbeatChannel`: registration, duties and leadership."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

import msgspec

from windlass._core.job.job import Claim, ClaimedJob
from windlass._core.job.transition import Transition
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
    """A worker's row is live until it says goodbye or is buried."""

    LIVE = "live"
    DEAD = "dead"
    GONE = "gone"


class Duty(StrEnum):
    """What a worker is asked to do; it hears of it with its next beat."""

    WORK = "work"
    QUIET = "quiet"
    """Take nothing new; what runs goes on."""
    STOP = "stop"
    """Leave in order, and take nothing new from now on. Never taken back."""


class Standing(StrEnum):
    """How a worker is, as people ask: its row, its last beat and its duty in one word."""

    LIVE = "live"
    QUIET = "quiet"
    STOPPING = "stopping"
    SILENT = "silent"
    """Not heard of within its lease: others are about to take it for dead."""
    DEAD = "dead"
    GONE = "gone"


HEARD = frozenset({Standing.LIVE, Standing.QUIET, Standing.STOPPING})
"""How those are that were heard of within their lease."""


_OF_DUTY = {
    Duty.WORK: Standing.LIVE,
    Duty.QUIET: Standing.QUIET,
    Duty.STOP: Standing.STOPPING,
}


class WorkerStart(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says about itself when it registers."""

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
    """What it can run, by name."""
    clock: datetime | None = None
    """Its own clock when it registered: the store's tells how far it is off."""
    signatures: Mapping[str, str] = {}
    """Which arguments its tasks take, as a fingerprint by name (`Codec.fingerprint`). A worker of
    an older version says nothing."""
    pools: Mapping[str, int] = {}
    """Slots of each queue where every queue has its own; empty: all queues share ``slots``."""


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
    """Bytes in use at its last beat that said so."""
    duty: Duty = Duty.WORK
    """What it is asked to do."""

    def standing(self, now: datetime) -> Standing:
        """How it is at this instant of the store's clock."""
        if self.state is not WorkerState.LIVE:
            return Standing(self.state.value)
        silent = now - self.beat_at > self.start.lease
        return Standing.SILENT if silent else _OF_DUTY[self.duty]


class HeartbeatAnswer(msgspec.Struct, frozen=True):
    """The answer to a heartbeat."""

    live: bool
    """False: buried, or no such row. The worker must take a new identity."""
    at: datetime
    cancelled: Sequence[Claim] = ()
    """Claims of this worker whose cancellation is requested."""
    holding: Sequence[Claim] = ()
    """Every claim the store says this worker holds."""
    duty: Duty = Duty.WORK


class HeartbeatChannel(Protocol):
    """A heartbeat's own way to the store. Made, used and closed on one event loop."""

    async def beat(self, worker: str, *, memory: int | None = None) -> HeartbeatAnswer:
        """As `WorkerStore.beat`."""
        ...

    async def close(self) -> None:
        """Let go of what it holds, such as a connection. Safe to repeat."""
        ...


class WorkerStore(Protocol):
    """Who works here, and who is believed dead."""

    def pulse(self) -> HeartbeatChannel:
        """A way to beat on another event loop: heartbeats live on a thread of their own, so that
        a handler that blocks the worker's loop does not get the worker buried.
        """
        ...

    async def register(self, start: WorkerStart) -> datetime:
        """Make the worker's row, live, unless there is one. The answer is the store's now."""
        ...

    async def beat(self, worker: str, *, memory: int | None = None) -> HeartbeatAnswer:
        """Renew the worker's lease if its row is live, and say what it holds.

        A late beat that finds its row live renews it, however late. ``memory``: what the process
        uses, in bytes; None: it does not say, and what it said before stays.
        """
        ...

    async def bury(self, workers: Sequence[str]) -> Sequence[str]:
        """Turn live rows dead, by compare-and-set; the answer names those this call turned.

        Ends no claim: it refuses new ones (`JobStore.claim`), and the reaper ends old ones by
        fenced writes. Until such a write a finish by the buried worker is accepted.
        """
        ...

    async def bury_overdue(self, workers: Sequence[str]) -> Sequence[str]:
        """Like `bury`, but only those `overdue` right now: a beat that came since saves them."""
        ...

    async def overdue(self) -> Sequence[str]:
        """Live workers whose last beat is longer ago than their own lease. Changes nothing."""
        ...

    async def orphans(self, limit: int) -> Sequence[ClaimedJob]:
        """Running jobs whose worker's row is missing or not live, at most ``limit``: worker by
        worker, of each the oldest claim first. Without their payload, which is left empty: nobody
        who ends a claim needs it, and it may be large.
        """
        ...

    async def assign(
        self, workers: Sequence[str], duty: Duty, *, audit: AuditNote | None = None
    ) -> Sequence[str]:
        """Ask live workers for something else than before; those whose duty it is now, in order.

        A worker that was told to stop stays so: it may have heard of it.
        """
        ...

    async def cancel_requests(self, worker: str) -> Sequence[Claim]:
        """Claims of this worker to be cancelled, between beats. Read-only, cheap: for hints."""
        ...

    async def leave(self, worker: str, releases: Sequence[Transition]) -> Applied:
        """Say goodbye: apply ``releases`` and end the worker's row, in one transaction.

        Claims the row still holds that are not among the releases are released too, with their
        attempt given back, as claims that were never started (`JobStore.apply`). A row that has
        ended before stays as it ended.
        """
        ...

    async def live(self) -> Sequence[WorkerStart]:
        """What the live rows said about themselves, newest first. Read-only and cheap."""
        ...

    async def workers(self) -> Sequence[WorkerRecord]:
        """Every stored row, newest first."""
        ...


class LeaderStore(Protocol):
    """Who does the chores. Economy only: correctness never rests on it."""

    async def lead(self, role: str, worker: str, lease: timedelta) -> bool:
        """Take or renew the lease on a role; False while somebody else holds it."""
        ...

    async def resign(self, worker: str) -> None:
        """Give up every role ``worker`` holds."""
        ...
