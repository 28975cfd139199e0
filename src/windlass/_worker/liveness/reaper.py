"""Jobs of dead workers → Lost → the same decide and apply as every other outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from windlass._core.job.event import WorkerChanged
from windlass._core.job.job import AttemptError, ClaimedJob
from windlass._core.job.outcome import Lost
from windlass._core.job.state import Verb
from windlass._core.job.transition import Transition
from windlass._observe.bus import Bus
from windlass._storage.protocol.jobs import Applied
from windlass._storage.protocol.storage import Storage
from windlass._worker.finish.decisions import Decisions
from windlass._worker.finish.events import side_events, transition_event
from windlass._worker.finish.follow_ups import apply_one, fallback_transitions
from windlass.errors import StorageError

__all__ = ["Reaper"]

log = logging.getLogger("windlass")

_CHUNK_SIZE = 200
_KILLED = "its process has ended (killed or crashed)"
_SILENT = "it sent no heartbeat for longer than its lease"
_GONE = "it has stopped and left this job running"
_CAUSES_KEPT = 1000
_Ended = tuple[ClaimedJob, Transition]


class Reaping(Protocol):
    """The name that the reaper acts under, which it never declares dead."""

    @property
    def id(self) -> str: ...


class Presence(Protocol):
    """Whether heartbeats could have reached the store for one full lease."""

    @property
    def may_judge(self) -> bool: ...


class Reaper:
    """Buries the dead and gives their jobs back, under the same retry rule as a failure."""

    def __init__(
        self,
        storage: Storage,
        identity: Reaping,
        presence: Presence,
        *,
        decisions: Decisions,
        bus: Bus,
    ) -> None:
        """``decisions`` says what becomes of a lost job."""
        self._storage = storage
        self._identity = identity
        self._presence = presence
        self._decisions = decisions
        self._bus = bus
        self._reaping = asyncio.Lock()
        self._causes: dict[str, str] = {}
        """The reason why each worker was declared dead here."""

    async def watch(self) -> int:
        """Declare provably dead workers dead, without waiting for a lease, then reap. Return the
        number of jobs given back.

        Every worker does this every second: on one machine a death is noticed at once.
        """
        await self.declare_ended()
        return await self.reap()

    async def step(self) -> int:
        """Declare workers dead that have been silent for too long, then reap. Return the number of
        jobs given back.
        """
        await self.declare_overdue()
        return await self.reap()

    async def declare_ended(self) -> Sequence[str]:
        """Declare workers dead whose processes have provably ended; which."""
        return await self._declare_dead(self._storage.workers.bury, await self._proven(), _KILLED)

    async def declare_overdue(self) -> Sequence[str]:
        """Declare workers dead that sent no heartbeat within their lease; which."""
        workers = self._storage.workers
        if self._presence.may_judge:
            overdue = await workers.overdue()
            # Checked again: if the answer took as long as an outage, workers are overdue only
            # because their heartbeats could not reach the store either.
            if self._presence.may_judge:
                return await self._declare_dead(workers.bury_overdue, overdue, _SILENT)
        return ()

    async def _proven(self) -> Sequence[str]:
        """Deaths that need no waiting: on this machine, a lock that can be taken."""
        ours, prove = self._identity.id, self._storage.prove_dead
        return [
            start.id
            for start in await self._storage.workers.live()
            if start.id != ours and prove(start)
        ]

    async def _declare_dead(
        self,
        bury: Callable[[Sequence[str]], Awaitable[Sequence[str]]],
        workers: Sequence[str],
        why: str,
    ) -> Sequence[str]:
        others = [worker for worker in workers if worker != self._identity.id]
        if not others:
            return ()
        buried = await bury(others)
        for worker in buried:
            self._remember(worker, why)
            log.warning("worker %s is dead: %s; its jobs are released", worker, why)
            self._bus.publish(WorkerChanged(worker=worker, what="buried", detail=why))
        return buried

    def _remember(self, worker: str, why: str) -> None:
        if len(self._causes) >= _CAUSES_KEPT:
            del self._causes[next(iter(self._causes))]
        self._causes[worker] = why

    async def reap(self) -> int:
        """End every running claim whose worker is not live, in chunks. Return the number of jobs
        given back.
        """
        # Both loops of a worker come here. One after the other: an orphan that both have seen would
        # be told of twice, for the second is answered like a repeat of the first.
        async with self._reaping:
            return await self._reap()

    async def _reap(self) -> int:
        reaped = 0
        while orphans := await self._storage.workers.orphans(_CHUNK_SIZE):
            lost: Sequence[Transition] = [self._lost(job) for job in orphans]
            followed = await self._followed(orphans, lost)
            accepted = await self._apply(list(zip(orphans, followed, strict=True)))
            reaped += accepted
            if accepted == 0 or len(orphans) < _CHUNK_SIZE:
                break
        return reaped

    async def _followed(
        self, orphans: Sequence[ClaimedJob], lost: Sequence[Transition]
    ) -> Sequence[Transition]:
        """Return transitions with the follow-up jobs of those that have failed for good: few, if
        any.
        """
        failed = [
            job.claim.job
            for job, end in zip(orphans, lost, strict=True)
            if end.verb is Verb.FAIL and job.on_failure is not None
        ]
        if not failed:
            return lost
        # Orphans come without their payloads, which listeners want to see.
        found = await self._storage.admin.get(failed)
        payloads = {job.id: job.payload for job in found if job is not None}
        return [
            self._decisions.follow(
                msgspec.structs.replace(job, payload=payloads[job.claim.job]), end
            )
            if job.claim.job in payloads
            else end
            for job, end in zip(orphans, lost, strict=True)
        ]

    async def _apply(self, lost: Sequence[_Ended]) -> int:
        """Store these, and publish the accepted ones. Return their number. A transition that cannot
        be stored is found by halving and fails alone.
        """
        try:
            applied = await self._storage.jobs.apply([transition for _, transition in lost])
        except StorageError:
            raise
        except Exception as error:  # noqa: BLE001 -- of one of them alone
            if len(lost) > 1:
                half = len(lost) // 2
                return await self._apply(lost[:half]) + await self._apply(lost[half:])
            return await self._apply_less(*lost[0], error)
        return self._tell(lost, applied)

    async def _apply_less(self, job: ClaimedJob, end: Transition, error: Exception) -> int:
        for told in (end, *fallback_transitions(end)):
            try:
                stored, applied = await apply_one(self._storage.jobs.apply, told)
            except StorageError:
                raise
            except Exception as worse:  # noqa: BLE001 -- and less is tried
                error = worse
                continue
            if told is not end:
                words = "the end of lost job %s cannot be stored unchanged: %s"
                log.error(words, job.claim.job, error)
            return self._tell([(job, stored)], applied)
        log.error("lost job %s cannot be released, retrying: %s", job.claim.job, error)
        return 0

    def _tell(self, lost: Sequence[_Ended], applied: Applied) -> int:
        """Publish what was accepted; how many."""
        accepted = 0
        for (job, transition), answer in zip(lost, applied.answers, strict=True):
            if answer.verb is not None:
                accepted += 1
                self._bus.publish(transition_event(job, transition, answer, applied.at))
                for event in side_events(job, transition, answer, applied.at, applied.left_out):
                    self._bus.publish(event)
        return accepted

    def _lost(self, job: ClaimedJob) -> Transition:
        why = self._causes.get(job.worker, _GONE)
        error = AttemptError("WorkerLost", f"worker {job.worker}: {why}")
        by = f"reaper:{self._identity.id}"
        return self._decisions.decide(job, Lost(error), by=by)
