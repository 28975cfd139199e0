"""Stored jobs as results of Django Tasks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from windlass._app.app import Windlass
from windlass._app.parts import parts_of
from windlass._core.job.job import Attempt, JobId, JobRecord
from windlass._core.job.state import State
from windlass._core.values.payload import decode_any
from windlass._system.seams import SYSTEM_CLOCK
from windlass.integrations.django import get_app
from windlass.integrations.django._interface import AnyResult, AnyTask, Interface, put
from windlass.integrations.django._project import PROJECT

__all__ = ["enqueued_at", "read", "read_as"]

_STATES = {
    State.WAITING: "READY",
    State.RUNNING: "RUNNING",
    State.SUCCEEDED: "SUCCESSFUL",
    State.FAILED: "FAILED",
    State.CANCELLED: "FAILED",
    State.DISCARDED: "FAILED",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MADE_FROM_TIME = "7"


def enqueued_at(app: Windlass, job_id: str, created_at: datetime | None = None) -> datetime:
    """Return when a job was enqueued: the millisecond in its id, so that no read is needed.
    ``created_at`` is used for ids without a time, and if a test moves the clock.
    """
    connections = parts_of(app).connections
    if job_id[12:13] == _MADE_FROM_TIME and connections.opener.clock is SYSTEM_CLOCK:
        return _EPOCH + timedelta(milliseconds=int(job_id[:12], 16))
    return connections.seams.wall() if created_at is None else created_at


async def read(job_id: str) -> AnyResult:
    """Read the result of a job that this process runs."""
    return await _read(job_id, None)


async def read_as(job_id: str, interface: Interface) -> AnyResult:
    """Read the result of a job for code that uses ``interface``; raises its error if there is
    none.
    """
    return await _read(job_id, interface)


async def _read(job_id: str, interface: Interface | None) -> AnyResult:
    """Read a stored job, secrets included: the project's own code asks, not a person."""
    app = get_app()
    stored = (await parts_of(app).storage()).admin
    (job,) = await stored.get([JobId(job_id)])
    known = None if job is None else PROJECT.defined.get(job.task)
    if job is None or known is None or interface not in (None, known[1]):
        missing = (interface or next(iter(PROJECT.defined.values()))[1]).unknown
        if job is None:
            raise missing(job_id)
        message = f"job {job_id} is one of {job.task!r}, which is no Django task known here"
        raise missing(message)
    return _result(app, *known, job, await stored.history(job.id))


def _result(
    app: Windlass,
    task: AnyTask,
    interface: Interface,
    job: JobRecord,
    history: Sequence[Attempt],
) -> AnyResult:
    arguments = decode_any(job.payload)
    ran_at = [attempt.started_at for attempt in history]
    ran_by = [attempt.worker for attempt in history]
    if job.state in (State.RUNNING, State.SUCCEEDED) and job.worker is not None:
        ran_by.append(job.worker)
    result: AnyResult = interface.result(
        task=_as_called(task, interface, job),
        id=job.id,
        status=interface.status(_STATES[job.state]),
        enqueued_at=enqueued_at(app, job.id, job.created_at),
        started_at=ran_at[0] if ran_at else job.started_at,
        finished_at=job.finished_at,
        last_attempted_at=job.started_at,
        args=arguments["args"],
        kwargs=arguments["kwargs"],
        backend=task.backend,
        errors=[
            interface.error(
                exception_class_path=_importable_class(attempt.error.kind),
                traceback=attempt.error.traceback,
            )
            for attempt in history
            if attempt.error is not None
        ],
        worker_ids=ran_by,
    )
    if job.state is State.SUCCEEDED:
        put(result, _return_value=decode_any(job.result))
    return result


def _as_called(task: AnyTask, interface: Interface, job: JobRecord) -> AnyTask:
    """Return the task with the queue and the priority of its job, if the backend still allows
    them.
    """
    if (task.queue_name, -task.priority) != (job.queue, job.priority):
        with suppress(interface.invalid):
            return task.using(queue_name=job.queue, priority=-job.priority)
    return task


def _importable_class(kind: str) -> str:
    return kind if "." in kind else f"builtins.{kind}"
