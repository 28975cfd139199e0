"""Jobs that this worker cannot run: it lacks the task, or the stored arguments do not fit.

They go back at no cost. What is decided about them is in `windlass._core.job.transition`. Here is
what only this worker knows: who else serves the queue, how many such jobs it has met, and what it
has said.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from windlass._core.job.job import ClaimedJob
from windlass._core.job.outcome import HEAD_START, Misfit, Missing, Policy
from windlass._observe.log import brief
from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.workers import WorkerStart
from windlass._tasks.task import TaskRegistry
from windlass._worker.registration import Registration

__all__ = ["UnrunnableJobs"]

log = logging.getLogger("windlass")

_NAMES_TOLD = 1000
"""Names come from those who enqueue: what is remembered of them has an end."""
_PER_SECOND = 100
"""At most this many jobs that it could not run come back to a worker in a second: more would slow
down the others."""
_POLITE_FOR = 30 * 60.0
"""How long after a miss this worker lets others go first. Longer than any such job waits."""
_KNOWN_FOR = 1.0
"""Seconds for which it is believed who else works here."""
_NONE = timedelta(0)


class UnrunnableJobs:
    """The jobs that this worker could not run."""

    def __init__(self, storage: Storage, tasks: TaskRegistry, identity: Registration) -> None:
        """Start without missed jobs."""
        self._storage = storage
        self._tasks = tasks
        self._identity = identity
        self._told: set[str] = set()
        self._line = 0.0
        self._polite_until = 0.0
        self.met_some: bool = False
        """Whether there was any; then `head_start` has to be asked."""
        self._asked = asyncio.Lock()
        self._others: Sequence[WorkerStart] = ()
        self._others_until = 0.0

    @property
    def head_start(self) -> timedelta:
        """How long missed jobs are left to other workers after they are due.

        Without it the worker that looks first takes such a job every time, and the one that can
        run it never does.
        """
        return HEAD_START if self._now() < self._polite_until else _NONE

    async def judge(self, job: ClaimedJob, misfit: Misfit) -> Misfit:
        """Say whether waiting is of no use: no live worker of the queue has another version of the
        code. In doubt the job waits.
        """
        try:
            others = await self._look_around()
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 -- the run must end
            log.debug("cannot list the other workers: %s", error)
            return misfit
        mine = self._identity.signatures.get(job.task)
        if any(_may_run(other, job, mine) for other in others):
            return misfit
        return msgspec.structs.replace(misfit, hopeless=True)

    def met(self, job: ClaimedJob, outcome: Missing | Misfit, policy: Policy) -> Missing | Misfit:
        """Place a job behind the others that were missed, and say once per task what is wrong."""
        now = self._now()
        self.met_some = True
        self._polite_until = now + _POLITE_FOR
        self._line = max(self._line, now) + 1 / _PER_SECOND
        if job.task not in self._told and len(self._told) < _NAMES_TOLD:
            if isinstance(outcome, Misfit):
                self._tell_misfit(job, outcome, policy)
            elif self._tasks.find(job.task) is None:
                self._tell_missing(job, policy)
        # Those of a second come back together: what is stored with others costs less.
        behind = timedelta(seconds=math.ceil(self._line) - now)
        return msgspec.structs.replace(outcome, behind=behind)

    async def _look_around(self) -> Sequence[WorkerStart]:
        async with self._asked:
            if self._now() >= self._others_until:
                live = await self._storage.workers.live()
                self._others = [start for start in live if start.id != self._identity.id]
                self._others_until = self._now() + _KNOWN_FOR
            return self._others

    def _tell_missing(self, job: ClaimedJob, policy: Policy) -> None:
        self._told.add(job.task)
        log.warning(
            "this worker has no task %r (it has: %s). Import its module or list it in "
            "imports=[…]; jobs of this task %s",
            job.task,
            ", ".join(self._tasks.names) or "none",
            _fate(policy, policy.missing_for),
        )

    def _tell_misfit(self, job: ClaimedJob, misfit: Misfit, policy: Policy) -> None:
        self._told.add(job.task)
        fate = _fate(policy, policy.misfit_for)
        if misfit.hopeless:
            fate = "fail: no worker of the queue has another version of the code"
        log.warning(
            "job %s of task %s does not fit the function that this worker has: %s. Its producer "
            "runs another version of the code: deploy workers before producers. Such jobs %s",
            job.claim.job,
            job.task,
            misfit.error.message,
            fate,
        )

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _fate(policy: Policy, patience: timedelta) -> str:
    if policy.missing_task == "fail":
        return "fail"
    return f"wait for another worker, and fail after {brief(patience)}"


def _may_run(other: WorkerStart, job: ClaimedJob, mine: str | None) -> bool:
    """Return whether a worker has another version of this job's task, as far as is known."""
    if job.queue not in other.queues:
        return False
    if other.signatures:
        its = other.signatures.get(job.task)
        return its is not None and its != mine
    return not other.tasks or job.task in other.tasks
