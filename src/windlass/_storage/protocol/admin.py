"""`AdminStore`: what operators read, and the switches of queues."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from windlass._core.job.job import Attempt, JobId, JobRecord
from windlass._core.stats.rollup import Rollup
from windlass._storage.protocol.actions import AuditNote
from windlass._storage.protocol.job_list import JobFilter, Page

__all__ = ["AdminStore", "ErrorGroup", "ErrorLook", "Named", "QueueCounts"]


class ErrorGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Failed jobs that ended by the same exception at the same place."""

    kind: str
    frame: str
    """`windlass._core.job.error_origin.frame_of`; "" where the error has no traceback."""
    count: int
    first: datetime
    """When the first of them failed …"""
    last: datetime
    """… and the last."""
    job: JobId
    """The last one."""
    text: str
    """Its error's message, at most 500 characters."""
    tasks: Sequence[str]
    """By name."""
    queues: Sequence[str]


class ErrorLook(msgspec.Struct, frozen=True):
    """The groups among the failed jobs that were looked at."""

    groups: Sequence[ErrorGroup]
    """The most recent first."""
    complete: bool
    """False: there are more failed jobs than one look takes; the oldest are not counted."""


class Named(msgspec.Struct, frozen=True):
    """Ids that look like the one asked for, among those that one call has met."""

    ids: Sequence[JobId]
    looked: int
    """How many ids were met."""
    after: str | None
    """For the next call; None: there are no more."""


class QueueCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of a queue are where. ``scheduled``: due strictly after now."""

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
    """Since when the one that has been ready for longest waits; None: none is ready."""
    paused: bool = False
    cap: int | None = None
    """A number that equals it means: so many or more."""


class AdminStore(Protocol):
    """What people ask, and the switches of queues."""

    async def get(self, ids: Sequence[JobId]) -> Sequence[JobRecord | None]:
        """The jobs, in order; None for an id that is not stored."""
        ...

    async def named(self, first: str, last: str, *, after: str | None = None) -> Named:
        """Ids that begin with ``first`` (eight digits or more) and end with ``last``.

        By a range of ids: flat in the number of stored jobs. Where ``first`` is empty, of all
        jobs, newest first (by ``seq``). One call meets a bounded number of ids; whoever goes on
        with `Named.after` until it is None has met every such id once.
        """
        ...

    async def secret(self, new: str = "", *, old: str = "") -> str:
        """The secret of this installation, which is made once: ``new`` from now on, if the stored
        one is still ``old`` (empty: there is none). The answer is what is stored then.
        """
        ...

    async def find(self, wanted: JobFilter, *, limit: int) -> Page:
        """Matching jobs in ``wanted.order``, by default newest first (by ``seq``), at most
        ``limit``.

        One call looks at a bounded number of jobs, so a page may have fewer than there are, or
        none at all: whoever goes on with `Page.next` until it is None has met every matching job
        once. Flat in the number of stored jobs; jobs of rare states, of one worker that runs them
        or under one held key are found however old they are.

        In the order of a time a job is found however many others there are that do not match by
        state, queue or (if that is the order) end: an index has it. Jobs of one instant come in an
        order of the backend's own. What does not change between two pages is neither repeated nor
        left out. An order that is not possible (`windlass._storage.protocol.list_order`), or a
        cursor of another one, raises InvalidArgument.
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
        """Failed jobs by exception and place; at most about ``look`` of them are looked at, those
        that failed last. ``since``: failed at or after.
        """
        ...

    async def history(self, job: JobId) -> Sequence[Attempt]:
        """The ended claims of a job that did not succeed, oldest first; see `JobStore.apply`."""
        ...

    async def counts(self, *, cap: int | None = None) -> Sequence[QueueCounts]:
        """Counts per queue, by name: of every queue that has jobs, is paused or has settings.

        Exact, which may scan; with ``cap`` no number is counted further than that, which is flat
        in the number of jobs.
        """
        ...

    async def pause(self, queue: str, *, audit: AuditNote | None = None) -> None:
        """Claims take nothing from this queue until `resume`."""
        ...

    async def resume(self, queue: str, *, audit: AuditNote | None = None) -> None:
        """Undo `pause`. Wakes workers."""
        ...

    async def rollups(self, since: datetime, until: datetime) -> Sequence[Rollup]:
        """Merged rollups with ``since <= minute < until``."""
        ...
