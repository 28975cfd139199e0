"""``on_failure=``: the job to enqueue when another one has failed for good."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from windlass._core.job.job import ClaimedJob, FollowUp, JobId, LimitUse, NewJob
from windlass._core.job.transition import Transition
from windlass._core.values.names import check_name, shown
from windlass._core.values.redaction import secret_tags_in
from windlass._settings.settings import Settings
from windlass._tasks.options import first_set
from windlass.errors import DefinitionError, suggestion

if TYPE_CHECKING:
    from windlass._tasks.task import Task, TaskRegistry

__all__ = [
    "FAILURE_ARGUMENT",
    "Failure",
    "check_failure_task",
    "check_on_failure_name",
    "check_on_failure_tasks",
    "failure_job_of",
    "follow_up_of",
    "minimal_failure_job",
]

FAILURE_ARGUMENT = "failure"
"""The argument of such a task. It has one name everywhere: a worker that declares a job lost may
not know the task.
"""

_TEXTS = ("error_kind", "error_message", "traceback")
_TRACE, _MESSAGE = 2_000, 1_000
"""Characters to keep of a text that does not fit."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of a task named by ``on_failure=``: which job has failed, and why."""

    job_id: str
    task: str
    queue: str
    arguments: dict[str, Any] | None
    """The job's arguments, by name. None: they are no JSON object, or did not fit."""
    attempt: int
    """The number of the last attempt."""
    max_attempts: int
    error_kind: str
    error_message: str
    traceback: str = ""
    started_at: datetime
    """When the last attempt began."""
    tenant: str | None = None
    principal: str | None = None
    correlation_id: str | None = None
    tags: tuple[str, ...] = ()
    shortened: tuple[str, ...] = ()
    """The fields that were cut because the whole would not fit into a payload.
    ``app.admin.jobs.get(job_id)`` has the whole, without secrets.
    """


# --- where it is written ----------------------------------------------------------------------


def check_failure_task(task: Task[..., Any], of: str) -> None:
    """Refuse a task that cannot take the `Failure` of task ``of``."""
    taken = task.parameters
    first = taken[0] if taken else None
    stars = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [p.name for p in taken[1:] if p.default is p.empty and p.kind not in stars]
    if (
        first is None
        or first.name != FAILURE_ARGUMENT
        or needed
        or not _says_failure(task.function, first)
    ):
        message = (
            f"on_failure of task {of!r} is {task.name!r}, which must take one argument: "
            f"`{FAILURE_ARGUMENT}: Failure`, with `from windlass import Failure`. Write def "
            f"{task.name.rpartition('.')[2]}({FAILURE_ARGUMENT}: Failure)"
        )
        raise DefinitionError(message)
    for draw in task.draws:
        if draw.reads_arguments:
            message = (
                f"on_failure of task {of!r} is {task.name!r}, whose limit {draw.limit.name!r} "
                f"takes its key or cost from the arguments, and the failed job has arguments of "
                f"another task: use a limit without key= and cost="
            )
            raise DefinitionError(message)
    if task.settings.unique is not None:
        message = (
            f"on_failure of task {of!r} is {task.name!r}, which is unique: a second failure with "
            f"the same key would be lost. Remove unique= from it"
        )
        raise DefinitionError(message)


def _says_failure(function: Callable[..., Any], parameter: inspect.Parameter) -> bool:
    annotation = parameter.annotation
    if not isinstance(annotation, str):
        return annotation is Failure
    path = annotation.strip("'\" ").split(".")
    found: Any = getattr(function, "__globals__", {}).get(path[0])
    for part in path[1:]:
        found = getattr(found, part, None)
    # A type that does not exist yet is checked when the first job is decoded.
    return found is Failure or (found is None and path[-1] == Failure.__name__)


def check_on_failure_name(given: object, task: str) -> None:
    """Refuse an ``on_failure=`` that is no name, or the name of the task itself."""
    if not isinstance(given, str):
        message = f"on_failure of task {task!r} is a task or the name of one, got {shown(given)}"
        raise DefinitionError(message)
    check_name(given, f"on_failure of task {task!r}")
    if given == task:
        message = (
            f"on_failure of task {task!r} is the task itself, which would never end: name another"
        )
        raise DefinitionError(message)


def check_on_failure_tasks(tasks: TaskRegistry) -> None:
    """Check the ``on_failure`` tasks that are given by name. Only a whole app can be checked."""
    for task in tasks:
        named = task.settings.on_failure
        if isinstance(named, str):
            taker = tasks.find(named)
            if taker is None:
                message = (
                    f"on_failure of task {task.name!r} names {named!r}, which is no task of this "
                    f"app.{suggestion(named, tasks.names)} Import its module, or list it in "
                    f"imports=[…]"
                )
                raise DefinitionError(message)
            check_failure_task(taker, task.name)
            _check_end(tasks, task)


def _check_end(tasks: TaskRegistry, first: Task[..., Any]) -> None:
    """Refuse a circle of ``on_failure`` tasks, which would never end."""
    way, task = [first.name], first
    while (named := task.settings.on_failure) is not None:
        task = tasks[named] if isinstance(named, str) else named
        if task.name in way:
            circle = " → ".join([*way, task.name])
            message = f"on_failure leads in a circle, which would never end: {circle}"
            raise DefinitionError(message)
        way.append(task.name)


def follow_up_of(task: Task[..., Any] | str, settings: Settings) -> FollowUp:
    """Return the stored form of an ``on_failure=``. A name alone gets the app's settings."""
    if isinstance(task, str):
        return FollowUp(
            task=task,
            queue=settings.default_queue,
            max_attempts=settings.max_attempts,
            timeout=settings.timeout,
        )
    own = task.settings
    return FollowUp(
        task=own.name,
        queue=own.queue or settings.default_queue,
        priority=own.priority,
        max_attempts=own.max_attempts or settings.max_attempts,
        timeout=first_set(own.timeout, settings.timeout),
        expires=own.expires,
        limits=_uses(task),
        tags=own.tags,
        on_lost=own.on_lost,
    )


def _uses(task: Task[..., Any]) -> tuple[LimitUse, ...]:
    return (*(draw.use({}, None) for draw in task.draws), *task.always)


# --- when it happens --------------------------------------------------------------------------


def failure_job_of(
    job: ClaimedJob, wanted: FollowUp, failed: Transition, job_id: JobId, *, room: int
) -> NewJob:
    """Make the job that reports a failure, with at most ``room`` bytes of arguments."""
    return NewJob(
        id=job_id,
        task=wanted.task,
        queue=wanted.queue,
        payload=_payload(_failure(job, failed), room),
        priority=wanted.priority,
        max_attempts=wanted.max_attempts,
        timeout=wanted.timeout,
        expires=wanted.expires,
        limits=wanted.limits,
        tags=(*wanted.tags, *secret_tags_in(job.tags)),  # its arguments are among this one's
        tenant=job.tenant,
        principal=job.principal,
        correlation_id=job.correlation_id,
        trace=job.trace,
        parent=job.claim.job,
        on_lost=wanted.on_lost,
    )


def minimal_failure_job(then: NewJob) -> NewJob:
    """Make the smallest job that reports a failure: the job and its error."""
    failure = msgspec.json.decode(then.payload, type=dict[str, Failure])[FAILURE_ARGUMENT]
    cut: dict[str, Any] = {"arguments": None, "traceback": "", "error_message": "", "tags": ()}
    less = [name for name, value in cut.items() if getattr(failure, name) != value]
    shortened = tuple(dict.fromkeys((*failure.shortened, *less)))
    told = msgspec.structs.replace(failure, **cut, shortened=shortened)
    return NewJob(
        id=then.id,
        task=then.task,
        queue=then.queue,
        payload=msgspec.json.encode({FAILURE_ARGUMENT: told}),
        max_attempts=then.max_attempts,
        on_lost=then.on_lost,
        tags=secret_tags_in(then.tags),
        parent=then.parent,
    )


def _failure(job: ClaimedJob, failed: Transition) -> Failure:
    error = failed.error
    return Failure(
        job_id=job.claim.job,
        task=job.task,
        queue=job.queue,
        arguments=_arguments(job.payload),
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        error_kind="" if error is None else error.kind,
        error_message="" if error is None else error.message,
        traceback="" if error is None else error.traceback,
        started_at=job.started_at,
        tenant=job.tenant,
        principal=job.principal,
        correlation_id=job.correlation_id,
        tags=job.tags,
    )


def _arguments(payload: bytes) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None  # it may be why the job has failed
    return found if isinstance(found, dict) else None


def _plain(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()


def _payload(failure: Failure, room: int) -> bytes:
    """Encode as much of the failure as fits. Fields that can be read elsewhere go first."""
    encode = msgspec.json.encode
    try:
        payload = encode({FAILURE_ARGUMENT: failure})
    except (msgspec.MsgspecError, ValueError, RecursionError):
        # Values that can be read but not written again: nested too deeply, or broken surrogates.
        texts = {name: _plain(getattr(failure, name)) for name in _TEXTS}
        failure = msgspec.structs.replace(
            failure, **texts, arguments=None, shortened=("arguments", *_TEXTS)
        )
        payload = encode({FAILURE_ARGUMENT: failure})
    cuts: tuple[tuple[str, object], ...] = (
        ("traceback", failure.traceback[-_TRACE:]),
        ("arguments", None),
        ("traceback", ""),
        ("error_message", failure.error_message[:_MESSAGE]),
    )
    for field, less in cuts:
        if len(payload) <= room:
            break
        if getattr(failure, field) != less:
            cut = tuple(dict.fromkeys((*failure.shortened, field)))
            failure = msgspec.structs.replace(failure, **{field: less, "shortened": cut})
            payload = encode({FAILURE_ARGUMENT: failure})
    return payload
