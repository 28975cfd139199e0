"""Jobs of dead workers → Lost → the same decide and apply as every other outcome."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from windlass.core.event import WorkerChanged
from windlass.core.job import AttemptError, ClaimedJob
from windlass.core.outcome import Lost, Policy
from windlass.core.transition import Transition
from windlass.observe.bus import Bus
from windlass.runtime.finisher import moved
from windlass.runtime.identity import Identity
from windlass.runtime.presence import Presence
from windlass.runtime.settle import settle
from windlass.storage.protocol import Applied, Storage

__all__ = ["Reaper"]

log = logging.getLogger("windlass")

_BITE = 200
_KILLED = "its process has ended (killed or crashed)"
_SILENT = "it has not been heard of for longer than its lease"
_GONE = "it is gone, and left this job running"
_CAUSES_KEPT = 1000


class Reaper:
    """Buries the dead and gives their jobs back, under the same retry rule as a failure."""

    def __init__(
        self,
        storage: Storage,
        identity: Identity,
        presence: Presence,
        *,
        policy: Callable[[str], Policy],
        bus: Bus,
        chance: Callable[[], float],
    ) -> None:
        """``policy`` gives the rules of a task by name."""
        self._storage = storage
        self._identity = identity
        self._presence = presence
        self._policy = policy
        self._bus = bus
        self._chance = chance
        self._causes: dict[str, str] = {}
        """Why each of the workers that were buried here was."""

    async def watch(self) -> int:
        """Bury the provably dead, without waiting for any lease, then reap; how many came back.

        Every worker does this every second: on one machine a death is noticed at once.
        """
        await self._bury(self._storage.workers.bury, await self._proven(), _KILLED)
        return await self.reap()

    async def step(self) -> int:
        """Bury whoever has been silent for too long, then reap; how many jobs came back."""
        workers = self._storage.workers
        if self._presence.may_judge:
            overdue = await workers.overdue()
            # Asked again: the answer may have taken as long as an outage, and then everybody is
            # overdue who has not been as quick as we were.
            if self._presence.may_judge:
                await self._bury(workers.bury_overdue, overdue, _SILENT)
        return await self.reap()

    async def _proven(self) -> Sequence[str]:
        """Deaths that need no waiting: on this machine, a lock that can be taken."""
        ours, prove = self._identity.id, self._storage.prove_dead
        return [
            start.id
            for start in await self._storage.workers.live()
            if start.id != ours and prove(start)
        ]

    async def _bury(
        self,
        bury: Callable[[Sequence[str]], Awaitable[Sequence[str]]],
        workers: Sequence[str],
        why: str,
    ) -> None:
        others = [worker for worker in workers if worker != self._identity.id]
        if not others:
            return
        for worker in await bury(others):
            self._remember(worker, why)
            log.warning("worker %s is dead: %s; its jobs are given back", worker, why)
            self._bus.publish(WorkerChanged(worker=worker, what="buried", detail=why))

    def _remember(self, worker: str, why: str) -> None:
        if len(self._causes) >= _CAUSES_KEPT:
            del self._causes[next(iter(self._causes))]
        self._causes[worker] = why

    async def reap(self) -> int:
        """Every running job whose owner is not live, in bites; how many were given back."""
        reaped = 0
        while orphans := await self._storage.workers.orphans(_BITE):
            lost = [self._lost(job) for job in orphans]
            accepted = self._tell(orphans, lost, await self._storage.jobs.apply(lost))
            reaped += accepted
            if accepted == 0 or len(orphans) < _BITE:
                break
        return reaped

    def _tell(
        self, orphans: Sequence[ClaimedJob], lost: Sequence[Transition], applied: Applied
    ) -> int:
        """Publish what was accepted; how many."""
        accepted = 0
        for job, transition, answer in zip(orphans, lost, applied.answers, strict=True):
            if answer.verb is not None:
                accepted += 1
                self._bus.publish(moved(job, transition, answer.verb, applied.at))
        return accepted

    def _lost(self, job: ClaimedJob) -> Transition:
        why = self._causes.get(job.worker, _GONE)
        error = AttemptError("WorkerLost", f"worker {job.worker}: {why}")
        by = f"reaper:{self._identity.id}"
        return settle(job, Lost(error), self._policy, by=by, chance=self._chance)
