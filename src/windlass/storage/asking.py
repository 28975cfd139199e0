"""What people ask, and the switches of queues. Part of the contract: `protocol`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from windlass.core.job import Attempt, Job, JobId
from windlass.core.rollup import Rollup
from windlass.storage.looks import ErrorLook, JobFilter, Named, Page, QueueCounts
from windlass.storage.ordering import AuditNote

__all__ = ["AdminStore"]


class AdminStore(Protocol):
    """What people ask, and the switches of queues."""

    async def get(self, ids: Sequence[JobId]) -> Sequence[Job | None]:
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
        left out. An order that is not possible (`storage.sorting`), or a cursor of another one,
        raises InvalidArgument.
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
