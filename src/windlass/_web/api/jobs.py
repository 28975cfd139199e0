"""Jobs, read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

import msgspec
from msgspec import Meta

from windlass._admin.jobs.read import Count
from windlass._core.job.job import Attempt
from windlass._storage.protocol.journal import EventRecord, LogChunk
from windlass._web.api.endpoint import Endpoint, Nothing
from windlass._web.api.filters import Instant, JobQuery, Matching, Size, filter_of
from windlass._web.api.records import (
    ExplanationBody,
    JobBody,
    JobPage,
    explanation_body,
    job_body,
)
from windlass._web.api.truncation import attempt_lines, fit_answer, job_line
from windlass._web.jobs import find_page, resolve_job
from windlass._web.request import PageRequest
from windlass._web.security.cost_limits import COUNT_TIMEOUT, ROWS

__all__ = ["JOBS"]

_HOUR = timedelta(hours=1)


class LogQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The claim number and number of the last chunk, to follow a run or read the rest of a long
    log.
    """

    after_claim: Annotated[int, Meta(ge=0, le=2**31)] = 0
    after_number: Annotated[int, Meta(ge=0, le=2**31)] = 0


class EventQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A span of time; without any, the last hour. Go on with `since`, the last event's `at`."""

    since: Instant | None = None
    until: Instant | None = None
    job: Annotated[str | None, Meta(description="Only events of this job.")] = None
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


async def events(visit: PageRequest, asked: EventQuery) -> Sequence[EventRecord]:
    """List events, oldest first."""
    until = asked.until or await visit.admin.storage.now()
    since = asked.since or until - _HOUR
    found = await visit.admin.storage.events(since, until, limit=asked.size, job_id=asked.job)
    return fit_answer(found)


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
        title="List the event log, oldest first; empty unless `event_log` is set",
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
        heavy=True,
    ),
    Endpoint(
        method="GET",
        path="/jobs/count",
        answer=count_jobs,
        asked=Matching,
        told=Count,
        title="Count jobs that match, up to 10,000",
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
