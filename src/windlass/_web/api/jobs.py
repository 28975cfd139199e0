"""Jobs, read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from windlass._admin.jobs.events import EventFilter, EventPage
from windlass._admin.jobs.read import Count
from windlass._core.job.job import Attempt
from windlass._storage.protocol.journal import EventRecord, LogChunk
from windlass._web.api.endpoint import Endpoint, Nothing, Part
from windlass._web.api.filters import Instant, JobQuery, Matching, Size, filter_of
from windlass._web.api.records import (
    ExplanationBody,
    JobBody,
    JobPage,
    explanation_body,
    job_body,
)
from windlass._web.api.series import span_of
from windlass._web.api.truncation import attempt_lines, fit_answer, job_line
from windlass._web.jobs import find_page, resolve_job
from windlass._web.request import PageRequest
from windlass._web.security.cost_limits import COUNT_TIMEOUT, ROWS

__all__ = ["JOBS"]


class LogQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The claim number and number of the last chunk, to follow a run or read the rest of a long
    log.
    """

    after_claim: Annotated[int, Meta(ge=0, le=2**31)] = 0
    after_number: Annotated[int, Meta(ge=0, le=2**31)] = 0


class EventQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which events; without a span of time, those of the last hour. The header `Link` has the
    address of the next page.
    """

    since: Instant | None = None
    until: Instant | None = None
    kind: Annotated[
        tuple[str, ...], Meta(description="Any of these, such as `started` or `failed`.")
    ] = ()
    task: str | None = None
    queue: str | None = None
    worker: str | None = None
    job: Annotated[str | None, Meta(description="Only events of this job.")] = None
    order: Literal["oldest", "newest"] = "oldest"
    """Which come first."""
    after: (
        Annotated[str, Meta(description="The position in the log; the header `Link` has it.")]
        | None
    ) = None
    size: Size = ROWS


async def find_jobs(visit: PageRequest, asked: JobQuery) -> JobPage:
    """List jobs by any filter, in an order."""
    page = await find_page(visit.admin, filter_of(asked), asked.size)
    now = await visit.admin.storage.now()
    jobs = fit_answer(job_line(job, now) for job in page)
    if 0 < len(jobs) < len(page):  # the others are on the next page
        page = await find_page(visit.admin, filter_of(asked), len(jobs))
        jobs = fit_answer(job_line(job, now) for job in page)
    return JobPage(jobs=jobs, next=page.next, reached=page.reached)


async def count_jobs(visit: PageRequest, asked: Matching) -> Count:
    """Return how many match, to ten thousand."""
    return await visit.admin.jobs.count(filter_of(asked), within=COUNT_TIMEOUT)


async def get_job(visit: PageRequest, _: Nothing) -> JobBody:
    """Return one job."""
    job = await visit.admin.jobs.get(await resolve_job(visit))
    return job_body(job, await visit.admin.storage.now())


async def job_history(visit: PageRequest, _: Nothing) -> Sequence[Attempt]:
    """Its attempts that did not succeed."""
    job = await visit.admin.jobs.get(await resolve_job(visit))
    return attempt_lines(await visit.admin.jobs.history(job.id))


async def job_logs(visit: PageRequest, asked: LogQuery) -> Sequence[LogChunk]:
    """Return the log lines of its runs."""
    job = await visit.admin.jobs.get(await resolve_job(visit))
    chunks = await visit.admin.jobs.logs(job.id, after=(asked.after_claim, asked.after_number))
    return fit_answer(chunks)


async def events(visit: PageRequest, asked: EventQuery) -> Part:
    """List events by filters, in an order."""
    page = await _event_page(visit, asked, asked.size)
    lines = fit_answer(page.events)
    if len(lines) < len(page.events):  # the others are on the next page
        page = await _event_page(visit, asked, len(lines))
    return Part(lines, page.next)


async def _event_page(visit: PageRequest, asked: EventQuery, size: int) -> EventPage:
    since, until = await span_of(visit, asked.since, asked.until)
    wanted = EventFilter(
        kinds=asked.kind, task=asked.task, queue=asked.queue, worker=asked.worker, job=asked.job
    )
    return await visit.admin.storage.timeline(
        wanted,
        since=since,
        until=until,
        newest_first=asked.order == "newest",
        limit=size,
        after=asked.after,
    )


async def explain_job(visit: PageRequest, _: Nothing) -> ExplanationBody:
    """Explain why a job is where it is."""
    return explanation_body(await visit.admin.jobs.explain(await resolve_job(visit)))


JOBS = (
    Endpoint(
        method="GET",
        path="/events",
        answer=events,
        asked=EventQuery,
        told=Sequence[EventRecord],
        title="List the event log by filters, page by page; empty unless `event_log` is set",
        refusals=(404, 409),
        heavy=True,
    ),
    Endpoint(
        method="GET",
        path="/jobs",
        answer=find_jobs,
        asked=JobQuery,
        told=JobPage,
        title="List jobs by any filter, in an order, page by page",
        refusals=(404, 409),
        heavy=True,
    ),
    Endpoint(
        method="GET",
        path="/jobs/count",
        answer=count_jobs,
        asked=Matching,
        told=Count,
        title="Count jobs that match, up to 10,000",
        refusals=(404, 409),
        heavy=True,
    ),
    Endpoint(
        method="GET",
        path="/jobs/{job}",
        answer=get_job,
        told=JobBody,
        title="Show a job with its arguments, result and last error",
        refusals=(404, 409),
    ),
    Endpoint(
        method="GET",
        path="/jobs/{job}/history",
        answer=job_history,
        told=Sequence[Attempt],
        title="List the attempts of a job that did not succeed, oldest first",
        refusals=(404, 409),
    ),
    Endpoint(
        method="GET",
        path="/jobs/{job}/logs",
        answer=job_logs,
        asked=LogQuery,
        told=Sequence[LogChunk],
        title="List the log lines of a job, oldest first",
        refusals=(404, 409),
    ),
    Endpoint(
        method="GET",
        path="/jobs/{job}/explain",
        answer=explain_job,
        told=ExplanationBody,
        title="Explain why a job is not running, and when it is expected to run",
        refusals=(404, 409),
    ),
)
