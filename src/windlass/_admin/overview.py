"""The first page of a dashboard in one call: a list per state, and the schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from windlass._admin.jobs.jobs import JobAdmin
from windlass._admin.schedule_reports import ScheduleReport
from windlass._admin.schedules import ScheduleAdmin
from windlass._admin.session import AdminSession
from windlass._core.job.job import JobRecord
from windlass._core.job.state import State
from windlass._storage.protocol.lists.job_list import Cursor, JobFilter, Page
from windlass.errors import StorageError

__all__ = ["JobLine", "JobList", "OverviewAdmin", "Snapshot"]

PAGE = 25
_LARGEST = 100
SCHEDULES = 100
"""Schedules that a snapshot holds."""
MAX_PAGE = 1_000
"""Jobs of one list that are counted, and that its pages reach."""
_LISTS: Mapping[str, tuple[State, timedelta | None]] = {
    "enqueued": (State.WAITING, None),
    "running": (State.RUNNING, None),
    "completed": (State.SUCCEEDED, timedelta(hours=24)),
    "failed": (State.FAILED, timedelta(days=7)),
}


class JobLine(msgspec.Struct, frozen=True, kw_only=True):
    """A job in a list. Instants are UTC as RFC 3339 in whole seconds."""

    id: str
    name: str
    state: str
    enqueued_at: str
    started_at: str | None
    finished_at: str | None
    attempt: int
    max_attempts: int
    last_error: str | None
    principal: str | None
    correlation_id: str | None


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a list."""

    jobs: Sequence[JobLine] = ()
    page: int = 1
    pages: int = 0
    total: int = 0
    """How many there are, up to `Snapshot.history_limit`."""
    exact: bool = True
    """False: there are at least that many."""
    next: Cursor | None = None
    """Where the list continues: ``before`` of `JobAdmin.find` with the list's filter; None: this is
    the end."""
    beyond: bool = False
    """This page lies behind `Snapshot.history_limit` and was not read: use `JobAdmin.find`."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Lists of jobs, each in the order of `JobAdmin.find`, and the schedules."""

    enqueued: JobList = JobList()
    running: JobList = JobList()
    completed: JobList = JobList()
    """Of the last 24 hours."""
    failed: JobList = JobList()
    """Of the last seven days."""
    schedules: Sequence[ScheduleReport] = ()
    """By name, the first 100."""
    schedules_after: str | None = None
    """Where they continue: ``after`` of `ScheduleAdmin.page`; None: these are all."""
    page_size: int = PAGE
    history_limit: int = MAX_PAGE
    """How many jobs of a list are counted and can be paged to; the rest is found by filters."""


class OverviewAdmin:
    """``app.admin.overview``: everything on one page."""

    def __init__(self, session: AdminSession, jobs: JobAdmin, schedules: ScheduleAdmin) -> None:
        self._session = session
        self._jobs = jobs
        self._schedules = schedules

    async def snapshot(
        self,
        *,
        page_size: int = PAGE,
        enqueued: int = 1,
        running: int = 1,
        completed: int = 1,
        failed: int = 1,
    ) -> Snapshot:
        """Read one page of each list; the numbers count from 1.

        If the storage cannot be read, the snapshot is empty: a page that shows it always comes up.
        """
        size = min(max(page_size, 1), _LARGEST)
        numbers = {
            "enqueued": enqueued,
            "running": running,
            "completed": completed,
            "failed": failed,
        }
        try:
            lists = {name: await self._list(name, n, size) for name, n in numbers.items()}
            schedules, after = await self._schedules.page(limit=SCHEDULES)
        except StorageError:
            return Snapshot(page_size=size)
        whole = Snapshot(schedules=schedules, schedules_after=after, page_size=size)
        return msgspec.structs.replace(whole, **lists)

    async def _list(self, name: str, number: int, size: int) -> JobList:
        state, window = _LISTS[name]
        storage = await self._session.storage()
        since = None if window is None else await storage.now() - window
        wanted = JobFilter(states=[state], finished_from=since)
        counted = await self._jobs.count(wanted, most=MAX_PAGE)
        number = max(number, 1)
        first = (number - 1) * size
        beyond = first >= MAX_PAGE
        page = Page(()) if beyond else await self._page(wanted, first=first, size=size)
        return JobList(
            jobs=[_line(job) for job in page],
            page=number,
            pages=-(-counted.number // size),
            total=counted.number,
            exact=counted.exact,
            next=page.next,
            beyond=beyond and not counted.exact,
        )

    async def _page(self, wanted: JobFilter, *, first: int, size: int) -> Page:
        """Read page after page up to this one: the cursor of a numbered page is not known."""
        skipped = 0
        while skipped < first:
            page = await self._jobs.find(wanted, limit=first - skipped)
            skipped += len(page)
            if page.next is None:
                return Page(())
            wanted = msgspec.structs.replace(wanted, before=page.next)
        found: list[JobRecord] = []
        while True:
            page = await self._jobs.find(wanted, limit=size - len(found))
            found += page
            if page.next is None or len(found) >= size:
                return Page(found, page.next)
            wanted = msgspec.structs.replace(wanted, before=page.next)


def _line(job: JobRecord) -> JobLine:
    return JobLine(
        id=job.id,
        name=job.task,
        state=job.state.value,
        enqueued_at=_rfc3339(job.created_at),
        started_at=None if job.started_at is None else _rfc3339(job.started_at),
        finished_at=None if job.finished_at is None else _rfc3339(job.finished_at),
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        last_error=None if job.error is None else f"{job.error.kind}: {job.error.message}",
        principal=job.principal,
        correlation_id=job.correlation_id,
    )


def _rfc3339(instant: datetime) -> str:
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
