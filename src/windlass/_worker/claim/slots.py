"""Slots: how many jobs may run at once, and which queues to ask for how many."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from windlass._core.job.job import ClaimedJob
from windlass._settings.settings import WorkerSettings
from windlass._storage.protocol.jobs import Want

__all__ = ["Slots"]

log = logging.getLogger("windlass")


class Slots:
    """Room for running jobs: a pool per queue, or one pool shared by several queues.

    The claimer takes slots, the runner gives them back, and the finisher tells when it has room
    again. Each of that wakes the claimer, if it waits for room.
    """

    def __init__(self, settings: WorkerSettings, wake: asyncio.Event) -> None:
        """Make it with all slots free. ``wake`` is the event that the claimer waits for."""
        self._own = settings.queues
        self.separate: bool = settings.queues is not None
        """Whether queues have slots of their own."""
        self._served = settings.served
        self._weighted = settings.order == "weighted" and settings.queues is None
        weights = settings.weights or {}
        self._weights = {queue: weights.get(queue, 1) for queue in self._served}
        self._credit = dict.fromkeys(self._served, 0)
        self._used_by: dict[str, int] = dict.fromkeys(self._served, 0)
        self.wake = wake
        self._awaited = True
        self.total: int = settings.total_slots
        self.used: int = 0
        """Slots that hold a running job."""

    @property
    def free(self) -> int:
        """Slots that do not."""
        return max(self.total - self.used, 0)

    @property
    def some_pool_full(self) -> bool:
        """Check whether a queue with separate slots has none free: more of its jobs may
        be waiting.
        """
        own = self._own
        return own is not None and any(self._used_by[queue] >= own[queue] for queue in own)

    @property
    def open_queues(self) -> Sequence[str]:
        """Name the queues whose jobs would find a free slot."""
        if self._own is not None:
            return [queue for queue, size in self._own.items() if size > self._used_by[queue]]
        return self._served if self.free else ()

    def take(self, queue: str) -> None:
        """Take a slot for a job of ``queue``."""
        self.used += 1
        self._used_by[queue] = self._used_by.get(queue, 0) + 1

    def give(self, queue: str) -> None:
        """Give back the slot of a job of ``queue``."""
        self.used -= 1
        self._used_by[queue] -= 1
        if self._awaited:
            self.wake.set()

    def ring(self) -> None:
        """Wake the claimer, if it waits for room: outcomes are being stored."""
        if self._awaited:
            self.wake.set()

    def await_room(self, *, awaited: bool) -> None:
        """Say whether room is a reason to ask the store again. On a dry queue it is none."""
        self._awaited = awaited

    def log_overstay(self, job: ClaimedJob) -> None:
        """Log that a run continues although its time is up: it cannot be stopped."""
        full = self.free == 0
        log.log(
            logging.ERROR if full else logging.WARNING,
            "job %s (%s) was asked to stop and is still running; it keeps its slot until it "
            "ends%s. Check ctx.cancelled in the handler, or give its calls timeouts",
            job.claim.job,
            job.task,
            ", and no slot is free: this worker takes no more jobs" if full else "",
        )

    def wants(self) -> tuple[Sequence[Want], int]:
        """Return the wants for the store now, in order, and their total."""
        if self._own is not None:
            return self._own_wants(self._own)
        room = self.total - self.used
        if room <= 0:
            return (), 0
        everything = [Want(queue, room) for queue in self._served]
        if not self._weighted or len(self._served) == 1:
            return everything, room
        # First every queue's share, then queues with more work: an idle queue's share is not
        # wasted.
        shares = self._shares(room)
        first = [Want(queue, share) for queue, share in shares.items() if share]
        return [*first, *everything], room

    def _own_wants(self, own: Mapping[str, int]) -> tuple[Sequence[Want], int]:
        wants = [
            Want(queue, size - self._used_by[queue])
            for queue, size in own.items()
            if size > self._used_by[queue]
        ]
        return wants, sum(want.limit for want in wants)

    def _shares(self, room: int) -> dict[str, int]:
        """Smooth weighted round-robin: no queue starves, and shares even out over claims."""
        shares = dict.fromkeys(self._served, 0)
        whole = sum(self._weights.values())
        for _ in range(room):
            for queue, weight in self._weights.items():
                self._credit[queue] += weight
            best = max(self._served, key=self._credit.__getitem__)
            self._credit[best] -= whole
            shares[best] += 1
        return shares
