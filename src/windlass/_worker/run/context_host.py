"""Calls of handlers to the worker that runs them."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Sequence
from typing import Any

from windlass._core.flows.flow import Addition
from windlass._core.job.job import ClaimedJob, JobId, Progress
from windlass._core.schedule.previous_run import PreviousRun
from windlass._core.values.metadata import Metadata
from windlass._plugins.builtin_maintenance import UPKEEP
from windlass._schedules.previous_run import find_previous_run
from windlass._storage.protocol.transactions import UserConnection
from windlass._tasks.call import OptionInheritance
from windlass._tasks.cancel_token import RUN_ENDED
from windlass._tasks.flows.flow import Flow
from windlass._tasks.services import Services
from windlass._tasks.task import Call
from windlass._worker.claim.queue_settings import QueueSettingsCache
from windlass._worker.claim.slots import Slots
from windlass._worker.dependencies import WorkerDependencies
from windlass._worker.liveness.maintenance import Pruner
from windlass._worker.run.execution import ActiveRuns
from windlass._worker.run.progress import ProgressReporter
from windlass._worker.run.threads import wait_on_loop
from windlass._worker.run.transaction_finish import FinishInTransaction
from windlass.errors import WindlassError

__all__ = ["WorkerContextHost"]

log = logging.getLogger("windlass")

_FINISHED = (
    "ctx.then(...) was called after ctx.finish(...), which has written the success, and nothing is "
    "added to it any more. Call ctx.then(...) first"
)
_TOLD = 1000
"""Tasks that are remembered as warned about."""


class WorkerContextHost:
    """A `windlass._tasks.context.ContextHost` in a worker."""

    def __init__(
        self,
        around: WorkerDependencies,
        slots: Slots,
        progress: ProgressReporter,
        transactions: FinishInTransaction,
        *,
        active: ActiveRuns,
        queues: QueueSettingsCache,
        quiet: asyncio.Event,
    ) -> None:
        """``quiet`` is set when the worker is about to leave."""
        self._active = active
        self._around = around
        self._slots = slots
        self._progress = progress
        self._transactions = transactions
        self._queues = queues
        self._quiet = quiet
        self._loop = asyncio.get_running_loop()
        self._waiting: set[str] = set()
        self._inheritance = OptionInheritance()

    @property
    def state(self) -> Any:
        """The application's own object."""
        return self._around.state()

    @functools.cached_property
    def services(self) -> Services:
        """Return the services of the application, and the maintenance of the storage; plugins get
        those granted to them.
        """
        around = self._around
        upkeep = Pruner(around.storage, around.settings, self._queues, around.bus)
        return around.services.with_own({UPKEEP: upkeep}, self._quiet.is_set)

    def waits_for(self, job: ClaimedJob, other: JobId) -> None:
        """Warn, once for each task, of a handler that waits for another job while no slot is free;
        safe from any thread.
        """
        if self._slots.free > 0 or job.task in self._waiting or len(self._waiting) >= _TOLD:
            return
        self._waiting.add(job.task)
        log.warning(
            "job %s (%s) waits for the result of job %s, and no slot of this worker is free: if no "
            "other worker runs that job, both wait forever. End the handler and continue in a job "
            "that the other one enqueues, or give that queue its own slots. Logged once for each "
            "task.",
            job.claim.job,
            job.task,
            other,
        )

    def note(self, job: ClaimedJob, progress: Progress) -> None:
        """Store how far a run is, soon; safe from any thread."""
        self._progress.note(job, progress)

    def noted(self, job: ClaimedJob, metadata: Metadata) -> None:
        """Keep the facts of a run in a child process; of any other, the run has them already."""
        run = self._active.get(job.claim)
        if run is not None and run.metadata is not metadata:
            run.take_metadata(metadata)

    async def enqueue_from(self, job: ClaimedJob, call: Call[Any]) -> Any:
        """Enqueue follow-up work that remembers where it came from."""
        return await self._around.enqueue(self._inheritance.inherit(call, job))

    def make_jobs(self, job: ClaimedJob, calls: Sequence[Call[Any] | Flow]) -> list[Addition]:
        """Make the jobs that a job adds to its success; safe from any thread."""
        if job.claim not in self._active:
            raise WindlassError(RUN_ENDED)
        if job.claim in self._transactions.asked:
            raise WindlassError(_FINISHED)
        return self._around.make_jobs(job, calls)

    async def previous_run(self, job: ClaimedJob) -> PreviousRun | None:
        """Return the run before this one of the schedule that made the job."""
        plans = (await self._around.plans()).items()
        likely = [name for name, plan in plans if plan.job and plan.job.task == job.task]
        return await find_previous_run(self._around.storage, job.claim.job, likely)

    def previous_run_sync(self, job: ClaimedJob) -> PreviousRun | None:
        """Return the same to a thread."""
        return wait_on_loop(self.previous_run(job), self._loop, "await ctx.previous_run()")

    async def finish(self, job: ClaimedJob, result: object, connection: UserConnection) -> None:
        """Write a job's success into the user's transaction."""
        await self._transactions.finish(job, result, connection)

    def finish_sync(self, job: ClaimedJob, result: object, connection: UserConnection) -> None:
        """Do the same from a thread."""
        self._transactions.finish_sync(job, result, connection)
