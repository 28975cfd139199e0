"""`AdminStore`: the reads of operators, and pausing queues."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from windlass._core.job.job import Attempt, JobId, JobRecord
from windlass._core.stats.gauges import GaugeRow
from windlass._core.stats.rollup import Rollup
from windlass._storage.protocol.actions import AuditNote
from windlass._storage.protocol.lists.job_list import JobFilter, Page

__all__ = [
    "AdminStore",
    "ErrorGroup",
    "ErrorLook",
    "Named",
    "QueueCounts",
    "TaskCounts",
    "TaskLook",
]


class ErrorGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Failed jobs that ended by the same exception at the same place."""

    kind: str
    frame: str
    """`windlass._core.job.error_origin.frame_of`; "" where the error has no traceback."""
    count: int
    first: datetime
    """The instant of the first failure."""
    last: datetime
    """The instant of the last failure."""
    job: JobId
    """The job that failed last."""
    text: str
    """Its error's message, at most 500 characters."""
    tasks: Sequence[str]
    """By name."""
    queues: Sequence[str]


class ErrorLook(msgspec.Struct, frozen=True):
    """The groups among the failed jobs that were read."""

    groups: Sequence[ErrorGroup]
    """The most recent first."""
    complete: bool
    """False: there are more failed jobs than one call reads; the oldest are not counted."""


class Named(msgspec.Struct, frozen=True):
    """Ids that match, among those that one call has read."""

    ids: Sequence[JobId]
    looked: int
    """Number of ids that were read."""
    after: str | None
    """For the next call; None: there are no more."""


class QueueCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Number of jobs of a queue by state. ``scheduled``: due strictly after now."""

    queue: str
    ready: int = 0
    scheduled: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    discarded: int = 0
    retrying: int = 0
    """Of the ready and scheduled ones, those that have spent an attempt since they were enqueued
    or requeued: ``attempt > max_attempts - budget``."""
    oldest_due: datetime | None = None
    """The due time of the job that has been ready for longest; None: none is ready."""
    paused: bool = False
    cap: int | None = None
    """A count that equals ``cap`` means that number or more."""


class TaskCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of a task wait, ready or scheduled, and how many run."""

    task: str
    waiting: int = 0
    running: int = 0


class TaskLook(msgspec.Struct, frozen=True):
    """The tasks of the waiting jobs that were looked at, and of all running ones."""

    counts: Sequence[TaskCounts]
    """By name; only tasks that have such jobs."""
    complete: bool
    """False: more jobs wait than one look takes, and some of them are not counted."""


class AdminStore(Protocol):
    """The reads of operators, and pausing queues."""

    async def get(self, ids: Sequence[JobId]) -> Sequence[JobRecord | None]:
        """Return the jobs, in order; None for an id that is not stored."""
        ...

    async def named(self, first: str, last: str, *, after: str | None = None) -> Named:
        """Find ids that begin with ``first`` (eight digits or more) and end with ``last``.

        It reads a range of ids: flat in the number of stored jobs. If ``first`` is empty, it reads
        all jobs, newest first (by ``seq``). One call reads a bounded number of ids. Repeat it with
        `Named.after` until that is None: each matching id is found once.
        """
        ...

    async def secret(self, new: str = "", *, old: str = "") -> str:
        """Return the secret of this installation. With ``new``, store that first if the stored one
        is still ``old`` (empty: there is none).
        """
        ...

    async def find(self, wanted: JobFilter, *, limit: int) -> Page:
        """List matching jobs in ``wanted.order``, by default newest first (by ``seq``), at most
        ``limit``.

        One call reads a bounded number of jobs, so a page may be short or empty. Repeat it with
        `Page.next` until that is None: each matching job is found once. The cost is flat in the
        number of stored jobs. Jobs of rare states, of one worker, of one flow, or under one held
        key are found at any age.

        In the order of a time, an index finds jobs by state, queue or (if that is the order) end,
        among any number of others. The backend decides the order of jobs with the same instant. A
        job that does not change between two pages is neither repeated nor left out. An impossible
        order (`windlass._storage.protocol.lists.list_order`), or a cursor of another one, raises
        InvalidArgument.
        """
        ...

    async def errors(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        since: datetime | None = None,
        look: int = 10_000,
    ) -> ErrorLook:
        """Group failed jobs by exception and place. Reads at most about ``look`` jobs, those that
        failed last. ``since``: failed at or after.
        """
        ...

    async def history(self, job: JobId) -> Sequence[Attempt]:
        """Return the ended claims of a job that did not succeed, oldest first; see
        `JobStore.apply`.
        """
        ...

    async def counts(self, *, cap: int | None = None) -> Sequence[QueueCounts]:
        """Count jobs per queue, by name: of every queue that has jobs, is paused or has settings.

        The counts are exact, which may scan. With ``cap`` each count stops there, which is flat in
        the number of jobs.
        """
        ...

    async def tasks(self, *, look: int = 5_000) -> TaskLook:
        """Count waiting and running jobs by task.

        Of the waiting ones it counts at least ``look``, where there are as many, and at most a few
        times ``look``.
        """
        ...

    async def pause(self, queue: str, *, audit: AuditNote | None = None) -> None:
        """Pause a queue: claims take no jobs from it until `resume`."""
        ...

    async def resume(self, queue: str, *, audit: AuditNote | None = None) -> None:
        """Undo `pause`. Wakes workers."""
        ...

    async def rollups(self, since: datetime, until: datetime) -> Sequence[Rollup]:
        """Return merged rollups with ``since <= minute < until``."""
        ...

    async def gauges(
        self, since: datetime, until: datetime, *, source: str | None = None
    ) -> Sequence[GaugeRow]:
        """Return gauges with ``since <= minute < until``, by minute and source; None: of all
        sources. Heartbeats store them (`WorkerStore.beat`).
        """
        ...
