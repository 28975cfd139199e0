"""Tasks: the jobs of each that wait and run, its recent outcomes and its last error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from windlass._admin.errors import ErrorAdmin
from windlass._admin.session import AdminSession
from windlass._core.job.state import Verb
from windlass._core.stats.rollup import COALESCED
from windlass._core.stats.series import Activity, activities
from windlass._core.values.instants import duration
from windlass._storage.protocol.admin import ErrorGroup, TaskCounts

__all__ = ["TaskAdmin", "TaskReport"]

_DAY = timedelta(days=1)


class TaskReport(msgspec.Struct, frozen=True, kw_only=True):
    """A task: its jobs now, and its recent runs."""

    task: str
    queue: str | None = None
    """The queue of its jobs, if this process has the task."""
    workers: int = 0
    """Live workers that have it."""
    waiting: int = 0
    """Jobs that are ready, scheduled or wait for a retry."""
    running: int = 0
    at_least: bool = False
    """More jobs wait in the storage than were counted: ``waiting`` may be higher."""
    succeeded: int = 0
    """Runs within the span; so are the next two."""
    retried: int = 0
    failed: int = 0
    coalesced: int = 0
    """Enqueues within the span that a unique key answered with a stored job."""
    last_error: str | None = None
    """The exception and its text, of the last job that failed and is still stored."""
    last_failed_at: datetime | None = None


class TaskAdmin:
    """``app.admin.tasks``: the jobs, outcomes and last error of each task."""

    def __init__(self, session: AdminSession, errors: ErrorAdmin) -> None:
        self._session = session
        self._errors = errors

    async def list(self, *, within: timedelta | float = _DAY) -> Sequence[TaskReport]:
        """List the tasks that this process or a live worker has, or that have jobs or runs.

        A task is listed before its first job. ``within``: count outcomes of this span, in seconds
        or as a timedelta.
        """
        storage = await self._session.storage()
        until = await storage.now()
        since = until - duration(within, "within")
        rollups = await storage.admin.rollups(since, until)
        ran = {one.name: one for one in activities(rollups, "task")}
        look = await storage.admin.tasks()
        jobs = {one.task: one for one in look.counts}
        errors = _last_errors((await self._errors.groups()).groups)
        live = Counter(task for one in await storage.workers.live() for task in set(one.tasks))
        names = {*self._session.tasks.names, *live, *jobs, *ran}
        return [
            self._report(
                jobs.get(name, TaskCounts(task=name)),
                ran.get(name),
                errors.get(name),
                workers=live[name],
                at_least=not look.complete,
            )
            for name in sorted(names)
        ]

    def _report(
        self,
        jobs: TaskCounts,
        ran: Activity | None,
        error: ErrorGroup | None,
        *,
        workers: int,
        at_least: bool,
    ) -> TaskReport:
        counts = {} if ran is None else ran.counts
        task = self._session.tasks.by_name.get(jobs.task)
        default = self._session.settings.default_queue
        return TaskReport(
            task=jobs.task,
            queue=None if task is None else task.settings.queue or default,
            workers=workers,
            waiting=jobs.waiting,
            running=jobs.running,
            at_least=at_least,
            succeeded=counts.get(Verb.SUCCEED, 0),
            retried=counts.get(Verb.RETRY, 0),
            failed=counts.get(Verb.FAIL, 0),
            coalesced=counts.get(COALESCED, 0),
            last_error=None if error is None else f"{error.kind}: {error.text}".removesuffix(": "),
            last_failed_at=None if error is None else error.last,
        )


def _last_errors(groups: Sequence[ErrorGroup]) -> dict[str, ErrorGroup]:
    """Return the group of each task that failed last. Groups come with the latest first."""
    return {task: group for group in reversed(groups) for task in group.tasks}
