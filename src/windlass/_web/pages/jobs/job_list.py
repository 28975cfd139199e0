"""Jobs: all of them, filtered by what the address says."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response

from windlass._admin.jobs.read import Count
from windlass._core.job.ids import is_full_id, looks_shortened
from windlass._core.job.job import JobId, JobRecord
from windlass._core.job.state import TERMINAL, Shown, State, shown_state
from windlass._storage.protocol.admin import QueueCounts
from windlass._storage.protocol.lists.job_list import Cursor, JobFilter, ListOrder, Page
from windlass._storage.protocol.lists.list_order import (
    is_descending,
    possible_orders,
    sort_field_of,
)
from windlass._web.jobs import find_page
from windlass._web.pages.jobs.filters import (
    FOLDED,
    INSTANTS,
    STATES,
    WORDS,
    JobPageQuery,
    parse_query,
)
from windlass._web.request import PageRequest
from windlass.errors import AmbiguousId, JobNotFound

if TYPE_CHECKING:
    from windlass.admin import Admin

__all__ = ["JobListRow", "job_rows", "jobs"]

PAGE = 50
_COUNTED = 1_000
"""Jobs that are read to count what only reading them can tell."""
_WITHIN = timedelta(milliseconds=100)
_SEARCHED = timedelta(milliseconds=150)
_PREVIEW = 160
_NAMES = 200
"""Names of queues and tasks that the fields offer."""


class JobListRow(msgspec.Struct, frozen=True):
    """One job as its row shows it."""

    job: JobRecord
    now: datetime

    @property
    def state(self) -> str:
        job = self.job
        failed_before = job.attempt > job.max_attempts - job.budget
        return shown_state(
            job.state, due=job.due, now=self.now, failed_before=failed_before, blocked=job.blocked
        )

    @property
    def preview(self) -> str:
        """The beginning of its arguments."""
        text = self.job.payload[: 4 * _PREVIEW].decode("utf-8", "replace")
        return text if len(text) <= _PREVIEW else f"{text[:_PREVIEW]}…"

    @property
    def moment(self) -> tuple[str, datetime]:
        """Return the last or next event of the job, and when."""
        job = self.job
        if job.state in TERMINAL:
            return "ended", job.finished_at or job.created_at
        if job.state is State.RUNNING:
            return "started", job.started_at or job.created_at
        if job.blocked:
            return "blocked since", job.created_at
        return "due", job.due

    @property
    def ran(self) -> timedelta | None:
        """How long its last run took, or takes so far."""
        job = self.job
        if job.started_at is None or job.state is State.WAITING:
            return None
        return max((job.finished_at or self.now) - job.started_at, timedelta(0))


class Sort(msgspec.Struct, frozen=True):
    """A column that the list can be ordered by."""

    url: str
    """The list by this column, the other way round if it is ordered by it already."""
    title: str
    sorted: str
    """``ascending`` or ``descending``; empty: the list is ordered by something else."""

    @property
    def arrow(self) -> str:
        return {"ascending": "↑", "descending": "↓"}.get(self.sorted, "")


class Tab(msgspec.Struct, frozen=True):
    """One state above the list."""

    state: str
    url: str
    here: bool
    count: Count | None


async def jobs(visit: PageRequest) -> Response:
    """Return the page."""
    now = await visit.admin.storage.now()
    asked = parse_query(visit, now)
    if (meant := await _meant(visit.admin, asked)) is not None:
        return visit.go(f"/jobs/{meant}")
    page = await _page(visit.admin, asked)
    counts = await visit.admin.queues.counts()
    return await visit.render(
        "jobs.html",
        now=now,
        asked=asked,
        rows=job_rows(page, now),
        reached=page.reached,
        sorts=_sorts(visit, asked),
        ordered=_ORDERED[asked.order],
        by_age=asked.order is ListOrder.NEWEST,
        older=_older(visit, asked, page.next),
        newer=_newer(visit, asked),
        newest=visit.changed(before=None, trail=None) if asked.before is not None else None,
        tabs=[
            Tab(
                state,
                visit.url("/jobs", **{**asked.words, "state": state}),
                state == asked.state,
                await _tab_count(visit.admin, asked, counts, state),
            )
            for state in ("", *STATES)
        ],
        matching=await _matching(visit.admin, asked, counts, page),
        words=WORDS,
        instants=INSTANTS,
        queues=sorted({one.queue for one in counts})[:_NAMES],
        tasks=sorted({*(one.name for one in visit.dashboard.app.tasks), *(j.task for j in page)})[
            :_NAMES
        ],
        anything=bool(counts),
    )


async def _meant(admin: Admin, asked: JobPageQuery) -> JobId | None:
    """Return the job whose id is searched for, and nothing else: its page is what is wanted."""
    text = asked.words.get("text", "")
    if asked.words.keys() != {"text"} or not (is_full_id(text) or looks_shortened(text)):
        return None
    try:
        return (await admin.jobs.get(text)).id
    except (AmbiguousId, JobNotFound):
        return None  # jobs may speak of it


def job_rows(jobs: Sequence[JobRecord], now: datetime) -> list[JobListRow]:
    """Return the rows of any list of jobs."""
    return [JobListRow(job, now) for job in jobs]


async def _page(admin: Admin, asked: JobPageQuery) -> Page:
    wanted = msgspec.structs.replace(asked.wanted, before=asked.before)
    return await find_page(admin, wanted, PAGE, within=_SEARCHED)


# --- counts ---------------------------------------------------------------------------------------


async def _tab_count(
    admin: Admin, asked: JobPageQuery, counts: Sequence[QueueCounts], state: str
) -> Count | None:
    """Return the count of a tab from the counts of queues, which read no job; None where these
    cannot tell.
    """
    if asked.narrow:
        return None
    queue = asked.wanted.queue
    of_queue = [one for one in counts if queue is None or one.queue == queue]
    if not state:
        fields = ("ready", "scheduled", "running", "succeeded", "failed", "cancelled", "discarded")
        return _sum(of_queue, *fields)
    retrying = any(one.retrying for one in of_queue)
    if state in {Shown.READY, Shown.SCHEDULED} and retrying:
        # Counted as ready or scheduled there, but shown on a tab of their own.
        wanted = JobFilter(shown=[Shown(state)], queue=queue)
        return await admin.jobs.count(wanted, most=_COUNTED, within=_WITHIN)
    return _sum(of_queue, state)


async def _matching(
    admin: Admin, asked: JobPageQuery, counts: Sequence[QueueCounts], page: Page
) -> Count | None:
    """Return how many jobs all pages of this list have together; None: counting them takes too
    long.
    """
    if asked.before is None and page.next is None:
        return Count(len(page), exact=True)
    if asked.wanted.text is not None or (page.next is not None and len(page) < PAGE):
        return None  # not even one page was found in time
    if asked.state != "waiting" and not asked.narrow:
        return await _tab_count(admin, asked, counts, asked.state)
    return await admin.jobs.count(asked.wanted, most=_COUNTED, within=_WITHIN)


def _sum(counts: Sequence[QueueCounts], *fields: str) -> Count:
    numbers = [(getattr(one, field), one.cap) for one in counts for field in fields]
    exact = all(cap is None or number < cap for number, cap in numbers)
    return Count(sum(number for number, _ in numbers), exact=exact)


# --- order ----------------------------------------------------------------------------------------

_ORDERED = {
    ListOrder.NEWEST: "newest first",
    ListOrder.OLDEST: "oldest first",
    ListOrder.DUE: "next due first",
    ListOrder.DUE_LAST: "last due first",
    ListOrder.STARTED: "earliest start first",
    ListOrder.STARTED_LAST: "latest start first",
    ListOrder.FINISHED: "earliest end first",
    ListOrder.FINISHED_LAST: "latest end first",
}


def _sorts(visit: PageRequest, asked: JobPageQuery) -> dict[str, Sort]:
    """Return the orders behind the headers of two columns; none where an order is not possible."""
    possible = possible_orders(asked.wanted)
    sorts: dict[str, Sort] = {}
    for order in (one for one in possible if one is not asked.order):
        column = "job" if sort_field_of(order) == "enqueued" else "when"
        same = sort_field_of(order) == sort_field_of(asked.order)
        # The other way round if it is the one; else the way that people expect.
        if same or (
            column not in sorts and is_descending(order) is not (sort_field_of(order) == "due")
        ):
            going = "descending" if is_descending(asked.order) else "ascending"
            url = visit.changed(order=order.value, before=None, trail=None)
            sorts[column] = Sort(url, f"Sort: {_ORDERED[order]}", going if same else "")
    return sorts


# --- pages ----------------------------------------------------------------------------------------


def _older(visit: PageRequest, asked: JobPageQuery, following: Cursor | None) -> str | None:
    if following is None:
        return None
    trail = FOLDED.join(str(cursor) for cursor in (*asked.trail, asked.before or 0))
    return visit.changed(before=following, trail=trail)


def _newer(visit: PageRequest, asked: JobPageQuery) -> str | None:
    """Return the page this one was reached from; None: it was opened by its address."""
    if asked.before is None or not asked.trail:
        return None
    *rest, last = asked.trail
    trail = FOLDED.join(str(cursor) for cursor in rest)
    return visit.changed(before=last or None, trail=trail or None)
