"""Jobs, read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from windlass.admin.jobs import Count
from windlass.core.job import Attempt
from windlass.storage.journal import LogChunk
from windlass.web.api.endpoint import Endpoint, Nothing
from windlass.web.api.filters import JobQuery, Matching, filter_of
from windlass.web.api.shapes import (
    ExplanationBody,
    JobBody,
    JobPage,
    explanation_body,
    job_body,
)
from windlass.web.api.shortening import attempt_lines, first_of, job_line
from windlass.web.bounds import COUNTED_WITHIN
from windlass.web.finding import found
from windlass.web.naming import asked_job
from windlass.web.visit import Visit

__all__ = ["JOBS"]


class LogQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to go on, to follow a run or for the rest of a long log: the last chunk's claim number
    and number.
    """

    after_claim: Annotated[int, Meta(ge=0, le=2**31)] = 0
    after_number: Annotated[int, Meta(ge=0, le=2**31)] = 0


async def find_jobs(visit: Visit, asked: JobQuery) -> JobPage:
    """By any filter, in an order."""
    page = await found(visit.admin, filter_of(asked), asked.size)
    now = await visit.admin.now()
    jobs = first_of(job_line(job, now) for job in page)
    if 0 < len(jobs) < len(page):  # the others are on the next page
        page = await found(visit.admin, filter_of(asked), len(jobs))
        jobs = first_of(job_line(job, now) for job in page)
    return JobPage(jobs=jobs, next=page.next, reached=page.reached)


async def count_jobs(visit: Visit, asked: Matching) -> Count:
    """How many match, to ten thousand."""
    return await visit.admin.count(filter_of(asked), within=COUNTED_WITHIN)


async def get_job(visit: Visit, _: Nothing) -> JobBody:
    """One of them."""
    job = await visit.admin.get(await asked_job(visit))
    return job_body(job, await visit.admin.now())


async def job_history(visit: Visit, _: Nothing) -> Sequence[Attempt]:
    """Its attempts that did not succeed."""
    job = await visit.admin.get(await asked_job(visit))
    return attempt_lines(await visit.admin.history(job.id))


async def job_logs(visit: Visit, asked: LogQuery) -> Sequence[LogChunk]:
    """What its runs have logged."""
    job = await visit.admin.get(await asked_job(visit))
    chunks = await visit.admin.logs(job.id, after=(asked.after_claim, asked.after_number))
    return first_of(chunks)


async def explain_job(visit: Visit, _: Nothing) -> ExplanationBody:
    """Why it is where it is."""
    return explanation_body(await visit.admin.explain(await asked_job(visit)))


JOBS = (
    Endpoint(
        method="GET",
        path="/jobs",
        answer=find_jobs,
        asked=JobQuery,
        told=JobPage,
        title="Find jobs by any filter, in an order, page by page",
        heavy=True,
    ),
    Endpoint(
        method="GET",
        path="/jobs/count",
        answer=count_jobs,
        asked=Matching,
        told=Count,
        title="Count jobs that match, to ten thousand",
        heavy=True,
    ),
    Endpoint(
        method="GET",
        path="/jobs/{job}",
        answer=get_job,
        told=JobBody,
        title="One job with its arguments, result and last error",
        refusals=(404, 409),
    ),
    Endpoint(
        method="GET",
        path="/jobs/{job}/history",
        answer=job_history,
        told=Sequence[Attempt],
        title="The attempts of a job that did not succeed, oldest first",
        refusals=(404, 409),
    ),
    Endpoint(
        method="GET",
        path="/jobs/{job}/logs",
        answer=job_logs,
        asked=LogQuery,
        told=Sequence[LogChunk],
        title="What the runs of a job have logged, oldest first",
        refusals=(404, 409),
    ),
    Endpoint(
        method="GET",
        path="/jobs/{job}/explain",
        answer=explain_job,
        told=ExplanationBody,
        title="Why a job is where it is, and when it is expected to run",
        refusals=(404, 409),
    ),
)
