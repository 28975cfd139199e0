"""Orders for jobs: one, or all that match; and new jobs by the name of their task."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from windlass._admin.jobs.actions import edit_of
from windlass._admin.jobs.bulk import BulkReport
from windlass._storage.protocol.actions import Cancel, Delete, Discard, JobAction, Requeue, RunNow
from windlass._storage.protocol.jobs import CancelAnswer, Inserted
from windlass._web.api.endpoint import Endpoint, Nothing
from windlass._web.api.filters import Instant, Matching, filter_of
from windlass._web.api.records import JobBody, job_body
from windlass._web.jobs import resolve_job
from windlass._web.request import PageRequest
from windlass._web.security.cost_limits import COUNT_TIMEOUT
from windlass._web.security.roles import Role
from windlass.errors import InvalidArgument, JobNotFound, PayloadError, WrongState

__all__ = ["JOB_ACTIONS"]

_REASON = "discarded by an operator"
_MOST = 10_000
"""Jobs of one action, as on the pages: a request must end while its client still waits."""
Reason = Annotated[str, Meta(min_length=1, max_length=500)]
Priority = Annotated[int, Meta(ge=-32_768, le=32_767)]


class RequeueBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a requeue."""

    as_new: Annotated[
        bool, Meta(description="Enqueue a copy as a new job and leave the old job unchanged.")
    ] = False
    key: Annotated[
        Annotated[str, Meta(min_length=1, max_length=200)] | None,
        Meta(
            description="For as_new: repeated requests with the same key make one copy. Without a "
            "key, the last copy is returned while it has not ended.",
        ),
    ] = None


class DiscardBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The reason of a discard."""

    reason: Reason = _REASON


class EditBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Change a waiting job. Fields that are left out keep their value."""

    due: Instant | None = None
    priority: Priority | None = None
    queue: str | None = None


class CancelBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs to cancel besides this one."""

    children: Annotated[
        bool,
        Meta(description="Cancel also the jobs that it has enqueued, and those that they have."),
    ] = False


class CancelTold(msgspec.Struct, frozen=True):
    """The result of the request."""

    answer: CancelAnswer


class DeleteTold(msgspec.Struct, frozen=True):
    """The result of the deletion."""

    deleted: bool
    """False: it is running and was asked to end; delete it again when it has."""


class BulkBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One action on every job that matches."""

    order: Literal["requeue", "discard", "cancel", "run-now", "delete", "edit"]
    filter: Matching
    dry_run: Annotated[bool, Meta(description="Count jobs and change nothing.")] = False
    most: Annotated[
        int, Meta(ge=1, le=_MOST, description="At most this many, the newest. Repeat for the rest.")
    ] = _MOST
    reason: Reason = _REASON
    edit: Annotated[EditBody | None, Meta(description="For edit: what to change.")] = None


class EnqueueBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call of a task. Options that are left out are those of the task."""

    task: str
    id: Annotated[
        str | None,
        Meta(
            description="Id of the job, a UUID. Repeat a request with the same id if its response "
            "was lost: nothing is stored twice."
        ),
    ] = None
    arguments: Annotated[
        dict[str, Any], Meta(description="By name; checked against the task's signature.")
    ] = {}
    queue: str | None = None
    delay: timedelta | None = None
    at: Instant | None = None
    priority: Priority | None = None
    key: Annotated[str | None, Meta(description="Unique key: one job at a time.")] = None
    max_attempts: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    timeout: timedelta | None = None
    expires: timedelta | None = None
    tags: tuple[str, ...] | None = None
    tenant: str | None = None
    principal: str | None = None
    correlation_id: str | None = None


async def requeue_job(visit: PageRequest, asked: RequeueBody) -> JobBody:
    """Run it again."""
    job = await visit.orders.jobs.requeue(
        await resolve_job(visit), as_new=asked.as_new, key=asked.key
    )
    return job_body(job, await visit.admin.storage.now())


async def discard_job(visit: PageRequest, asked: DiscardBody) -> JobBody:
    """Give up on it."""
    job = await resolve_job(visit)
    await visit.orders.jobs.discard(job, reason=asked.reason)
    return job_body(await visit.admin.jobs.get(job), await visit.admin.storage.now())


async def cancel_job(visit: PageRequest, asked: CancelBody) -> CancelTold:
    """Ask for its end."""
    job = await resolve_job(visit)
    answer = await visit.orders.jobs.cancel(job, children=asked.children)
    if answer is CancelAnswer.UNKNOWN:
        raise JobNotFound(job)
    return CancelTold(answer)


async def run_job_now(visit: PageRequest, _: Nothing) -> JobBody:
    """Make it due."""
    job = await resolve_job(visit)
    done = await visit.orders.jobs.run_now(job)
    found = await visit.admin.jobs.get(job)
    if not done:
        raise WrongState(job, found.state, "run now", "waiting")
    return job_body(found, await visit.admin.storage.now())


async def delete_job(visit: PageRequest, _: Nothing) -> DeleteTold:
    """Delete a job with all that is stored of it."""
    return DeleteTold(await visit.orders.jobs.delete(await resolve_job(visit)))


async def edit_job(visit: PageRequest, asked: EditBody) -> JobBody:
    """Another due time, priority or queue."""
    job = await visit.orders.jobs.edit(
        await resolve_job(visit), due=asked.due, priority=asked.priority, queue=asked.queue
    )
    return job_body(job, await visit.admin.storage.now())


async def order_jobs(visit: PageRequest, asked: BulkBody) -> BulkReport:
    """Apply one action to all matching jobs."""
    return await visit.orders.jobs.bulk(
        _order(asked),
        filter_of(asked.filter),
        dry_run=asked.dry_run,
        most=asked.most,
        within=COUNT_TIMEOUT if asked.dry_run else None,
    )


def _order(asked: BulkBody) -> JobAction:
    match asked.order:
        case "requeue":
            return Requeue()
        case "discard":
            return Discard(asked.reason)
        case "cancel":
            return Cancel()
        case "run-now":
            return RunNow()
        case "delete":
            return Delete()
        case "edit":
            what = asked.edit or EditBody()
            return edit_of(due=what.due, priority=what.priority, queue=what.queue)


async def enqueue_job(visit: PageRequest, asked: EnqueueBody) -> Inserted:
    """Enqueue a job, or return the one that holds its key."""
    task = visit.dashboard.app.tasks[asked.task]
    bound = task.options(
        queue=asked.queue,
        delay=asked.delay,
        at=asked.at,
        priority=asked.priority,
        key=asked.key,
        max_attempts=asked.max_attempts,
        timeout=asked.timeout,
        expires=asked.expires,
        tags=asked.tags,
        tenant=asked.tenant,
        principal=asked.principal,
        correlation_id=asked.correlation_id,
    )
    try:
        call = bound.call(**asked.arguments)
    except PayloadError:
        raise
    except TypeError as error:  # an argument called self: no function of a task takes one
        message = f"the arguments do not fit: {error}"
        raise InvalidArgument(message) from None
    return await visit.orders.jobs.enqueue(call, id=asked.id)


def _of_one(verb: str, **line: Any) -> Endpoint:
    return Endpoint(
        method="POST",
        path=f"/jobs/{{job}}/{verb}",
        role=Role.OPERATOR,
        refusals=(404, 409),
        **line,
    )


JOB_ACTIONS = (
    _of_one(
        "requeue",
        answer=requeue_job,
        asked=RequeueBody,
        told=JobBody,
        title="Run a failed, cancelled or discarded job again",
    ),
    _of_one(
        "discard",
        answer=discard_job,
        asked=DiscardBody,
        told=JobBody,
        title="Discard a failed job",
    ),
    _of_one("cancel", answer=cancel_job, asked=CancelBody, told=CancelTold, title="Cancel a job"),
    _of_one("run-now", answer=run_job_now, told=JobBody, title="Make a waiting job due now"),
    _of_one(
        "delete",
        answer=delete_job,
        told=DeleteTold,
        title="Delete a job with its result, logs and history",
    ),
    _of_one(
        "edit",
        answer=edit_job,
        asked=EditBody,
        told=JobBody,
        title="Change the due time, priority or queue of a waiting job",
    ),
    Endpoint(
        method="POST",
        path="/orders",
        answer=order_jobs,
        asked=BulkBody,
        told=BulkReport,
        role=Role.OPERATOR,
        title="Act on every job that matches; with dry_run only count them",
    ),
    Endpoint(
        method="POST",
        path="/enqueue",
        answer=enqueue_job,
        asked=EnqueueBody,
        told=Inserted,
        role=Role.OPERATOR,
        code=201,
        refusals=(404, 409),
        title="Enqueue a task by its name",
    ),
)
