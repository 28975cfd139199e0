"""``on_failure=`` and ``on_success=``: the job to enqueue when another one has ended."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from windlass._core.job.job import FollowUp, LimitUse
from windlass._core.values.names import check_name, shown
from windlass._settings.settings import Settings
from windlass._tasks.options import TaskOptions, first_set
from windlass.errors import DefinitionError, suggestion

if TYPE_CHECKING:
    from windlass._tasks.task import Task, TaskRegistry

__all__ = [
    "Failure",
    "FollowUpOption",
    "Success",
    "check_follow_up",
    "check_follow_up_tasks",
    "follow_up_of",
    "follow_up_options",
]

FollowUpOption = Literal["on_failure", "on_success"]


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


class Success(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of a task named by ``on_success=``: which job has succeeded, and its result."""

    job_id: str
    task: str
    queue: str
    arguments: dict[str, Any] | None
    """The job's arguments, by name. None: they did not fit."""
    result: Any = None
    """The job's result as plain JSON values. None: it has none, or it did not fit."""
    attempt: int
    """The number of the attempt that succeeded."""
    max_attempts: int
    started_at: datetime
    """When that attempt began."""
    tenant: str | None = None
    principal: str | None = None
    correlation_id: str | None = None
    tags: tuple[str, ...] = ()
    shortened: tuple[str, ...] = ()
    """The fields that were cut because the whole would not fit into a payload.
    ``app.admin.jobs.get(job_id)`` has the whole, without secrets.
    """


_TAKES: dict[str, tuple[str, type[msgspec.Struct]]] = {
    "on_failure": ("failure", Failure),
    "on_success": ("success", Success),
}
"""The argument of such a task and its type. It has one name everywhere: a worker that declares a
job lost may not know the task.
"""


def follow_up_options(options: TaskOptions) -> Iterator[tuple[str, Any]]:
    """List the options of a task that name another one, with the task or its name."""
    for option in _TAKES:
        if (taker := getattr(options, option)) is not None:
            yield option, taker


def check_follow_up(option: str, taker: Task[..., Any] | object, of: str) -> None:
    """Refuse a task that cannot follow the jobs of task ``of``, and an object that is no task."""
    if isinstance(getattr(taker, "settings", None), TaskOptions):
        _check_task(option, taker, of)  # type: ignore[arg-type]
        return
    if not isinstance(taker, str):
        message = f"{option} of task {of!r} is a task or the name of one, got {shown(taker)}"
        raise DefinitionError(message)
    check_name(taker, f"{option} of task {of!r}")
    if taker == of:
        message = f"{option} of task {of!r} is the task itself, which would never end: name another"
        raise DefinitionError(message)


def _check_task(option: str, task: Task[..., Any], of: str) -> None:
    argument, kind = _TAKES[option]
    taken = task.parameters
    first = taken[0] if taken else None
    stars = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [p.name for p in taken[1:] if p.default is p.empty and p.kind not in stars]
    if (
        first is None
        or first.name != argument
        or needed
        or not _is_annotated(task.function, first, kind)
    ):
        wanted = f"{argument}: {kind.__name__}"
        message = (
            f"{option} of task {of!r} is {task.name!r}, which must take one argument: "
            f"`{wanted}`, with `from windlass import {kind.__name__}`. Write def "
            f"{task.name.rpartition('.')[2]}({wanted})"
        )
        raise DefinitionError(message)
    for draw in task.draws:
        if draw.reads_arguments:
            message = (
                f"{option} of task {of!r} is {task.name!r}, whose limit {draw.limit.name!r} "
                f"takes its key or cost from the arguments, and the job before it has arguments of "
                f"another task: use a limit without key= and cost="
            )
            raise DefinitionError(message)
    if task.settings.unique is not None:
        message = (
            f"{option} of task {of!r} is {task.name!r}, which is unique: a second {argument} with "
            f"the same key would be lost. Remove unique= from it"
        )
        raise DefinitionError(message)


def _is_annotated(
    function: Callable[..., Any], parameter: inspect.Parameter, kind: type[msgspec.Struct]
) -> bool:
    annotation = parameter.annotation
    if not isinstance(annotation, str):
        return annotation is kind
    path = annotation.strip("'\" ").split(".")
    found: Any = getattr(function, "__globals__", {}).get(path[0])
    for part in path[1:]:
        found = getattr(found, part, None)
    # A type that does not exist yet is checked when the first job is decoded.
    return found is kind or (found is None and path[-1] == kind.__name__)


def check_follow_up_tasks(tasks: TaskRegistry) -> None:
    """Check the tasks that are given by name. Only a whole app can be checked."""
    for task in tasks:
        for option, named in follow_up_options(task.settings):
            if not isinstance(named, str):
                continue
            taker = tasks.find(named)
            if taker is None:
                message = (
                    f"{option} of task {task.name!r} names {named!r}, which is no task of this "
                    f"app.{suggestion(named, tasks.names)} Import its module, or list it in "
                    f"imports=[…]"
                )
                raise DefinitionError(message)
            check_follow_up(option, taker, task.name)
            _check_end(tasks, task, ())


def _check_end(tasks: TaskRegistry, task: Task[..., Any], way: tuple[str, ...]) -> None:
    """Refuse tasks that follow each other in a circle, which would never end."""
    if task.name in way:
        circle = " → ".join([*way, task.name])
        message = f"on_failure or on_success leads in a circle, which would never end: {circle}"
        raise DefinitionError(message)
    for _, named in follow_up_options(task.settings):
        after = tasks[named] if isinstance(named, str) else named
        _check_end(tasks, after, (*way, task.name))


def follow_up_of(task: Task[..., Any] | str, settings: Settings) -> FollowUp:
    """Return the job that follows as it is stored. A name alone gets the app's settings."""
    if isinstance(task, str):
        return FollowUp(
            task=task,
            queue=settings.queue_of(task, None),
            max_attempts=settings.max_attempts,
            timeout=settings.timeout,
        )
    own = task.settings
    return FollowUp(
        task=own.name,
        queue=settings.queue_of(own.name, own.queue),
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
