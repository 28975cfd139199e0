"""A backend for Django Tasks: ``django.tasks`` of Django 6, else the django-tasks package.

A Django task is a task of the app under its import path, so that workers, limits, metrics and
``explain`` know it by name.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar, get_type_hints

from asgiref.sync import sync_to_async
from django.db import close_old_connections
from django.utils import timezone

from windlass.app import Windlass
from windlass.context import Context, current
from windlass.control import GiveUp, Retry, Snooze, Throttled
from windlass.core.function import importable
from windlass.core.job import Attempt, JobId
from windlass.core.job import Job as JobRecord
from windlass.core.payload import Secret, decode_any, encode_any
from windlass.core.redact import looks_secret
from windlass.core.secrecy import secrets_of
from windlass.core.state import State
from windlass.errors import ConfigError, MissingDependency
from windlass.integrations.django import get_app, when_known
from windlass.runtime.hooks import Next
from windlass.seams import SYSTEM_CLOCK

if TYPE_CHECKING:
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started

    AnyTask: TypeAlias = Task[..., Any]
    AnyResult: TypeAlias = TaskResult[..., Any]
else:
    try:
        from django.tasks.backends.base import BaseTaskBackend
        from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
        from django.tasks.exceptions import TaskResultDoesNotExist
        from django.tasks.signals import task_enqueued, task_finished, task_started
    except ImportError:
        try:
            from django_tasks.backends.base import BaseTaskBackend
            from django_tasks.base import (
                Task,
                TaskContext,
                TaskError,
                TaskResult,
                TaskResultStatus,
            )
            from django_tasks.exceptions import TaskResultDoesNotExist
            from django_tasks.signals import task_enqueued, task_finished, task_started
        except ImportError as error:
            needed = "Django Tasks before Django 6"
            raise MissingDependency(needed, "django-tasks") from error

__all__ = ["WindlassBackend"]

P = ParamSpec("P")
R = TypeVar("R")

_STATES = {
    State.WAITING: TaskResultStatus.READY,
    State.RUNNING: TaskResultStatus.RUNNING,
    State.SUCCEEDED: TaskResultStatus.SUCCESSFUL,
    State.FAILED: TaskResultStatus.FAILED,
    State.CANCELLED: TaskResultStatus.FAILED,
    State.DISCARDED: TaskResultStatus.FAILED,
}
_DEFINED: dict[str, AnyTask] = {}
"""Django's tasks as they were defined, by the names of ours."""
_MET: set[str] = set()
_RESULT: ContextVar[AnyResult] = ContextVar("windlass_django_result")
"""Of the job that runs here."""


class WindlassBackend(BaseTaskBackend):
    """``TASKS = {"default": {"BACKEND": "windlass.integrations.django.tasks.WindlassBackend"}}``.

    ``OPTIONS`` are those of ``@app.task`` for every task of this backend, such as
    ``{"max_attempts": 1, "timeout": 60}``.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def validate_task(self, task: AnyTask) -> None:
        super().validate_task(task)
        # Called for every task when it is defined, which is how workers come to know it.
        if task.module_path not in _MET:
            _MET.add(task.module_path)
            when_known(lambda app: _adopt(app, task, type(self), self.options))

    def enqueue(
        self, task: Task[P, R], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> TaskResult[P, R]:
        self.validate_task(task)
        # Its own rules decide what the arguments become and which are refused.
        wanted: TaskResult[P, R] = TaskResult(
            task=task,
            id="",
            status=TaskResultStatus.READY,
            enqueued_at=None,
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=list(args),
            kwargs=dict(kwargs),
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        due = task.run_after
        if due is not None and timezone.is_naive(due):
            due = timezone.make_aware(due)
        ours = get_app().tasks[importable(task.module_path)]
        chosen = ours.options(priority=-task.priority, queue=task.queue_name, at=due)
        job = chosen.enqueue_sync(wanted.args, wanted.kwargs)
        result = replace(wanted, id=job.id, enqueued_at=SYSTEM_CLOCK.now())
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> AnyResult:
        return get_app().blocking.run(_read(result_id), instead="task.aget_result(...)")


async def _read(job_id: str) -> AnyResult:
    """As it is stored, secrets and all: it is the project's own code that asks, not a person."""
    stored = (await get_app().storage()).admin
    (job,) = await stored.get([JobId(job_id)])
    if job is None:
        raise TaskResultDoesNotExist(job_id)
    task = _DEFINED.get(job.task)
    if task is None:
        message = f"job {job_id} is one of {job.task!r}, which is no Django task known here"
        raise TaskResultDoesNotExist(message)
    return _result(task, job, await stored.history(job.id))


def _result(task: AnyTask, job: JobRecord, history: Sequence[Attempt]) -> AnyResult:
    arguments = decode_any(job.payload)
    ran_at = [attempt.started_at for attempt in history]
    ran_by = [attempt.worker for attempt in history]
    if job.state in (State.RUNNING, State.SUCCEEDED) and job.worker is not None:
        ran_by.append(job.worker)
    result: AnyResult = TaskResult(
        task=task,
        id=job.id,
        status=_STATES[job.state],
        enqueued_at=job.created_at,
        started_at=ran_at[0] if ran_at else job.started_at,
        finished_at=job.finished_at,
        last_attempted_at=job.started_at,
        args=arguments["args"],
        kwargs=arguments["kwargs"],
        backend=task.backend,
        errors=[
            TaskError(
                exception_class_path=_importable_class(attempt.error.kind),
                traceback=attempt.error.traceback,
            )
            for attempt in history
            if attempt.error is not None
        ],
        worker_ids=ran_by,
    )
    if job.state is State.SUCCEEDED:
        _set(result, _return_value=decode_any(job.result))
    return result


def _importable_class(kind: str) -> str:
    return kind if "." in kind else f"builtins.{kind}"


def _set(result: AnyResult, **changes: object) -> None:
    """Results are frozen for everybody but their backend."""
    for name, value in changes.items():
        object.__setattr__(result, name, value)


# --- in workers ---


def _adopt(
    app: Windlass,
    task: AnyTask,
    backend: type[WindlassBackend],
    options: Mapping[str, Any],
) -> None:
    """Make a Django task one of ours."""
    if options.get("run_in") == "process":
        message = "tasks of Django run on threads or the loop: leave run_in out of OPTIONS"
        raise ConfigError(message)
    ours = app.task(
        name=task.module_path,
        queue=task.queue_name,
        priority=-task.priority,
        **options,
    )(_runner(task, backend))
    _DEFINED[ours.name] = task
    if _with_result not in app.layers:
        app.middleware(_with_result)


async def _with_result(ctx: Context, call_next: Next) -> Any:
    """Read on the loop what the run needs to know on whichever thread."""
    if ctx.task in _DEFINED:
        _RESULT.set(await _read(ctx.job_id))
    return await call_next()


def _runner(task: AnyTask, backend: type[WindlassBackend]) -> Callable[..., Any]:
    function = task.func

    def run(args: list[Any], kwargs: dict[str, Any]) -> Any:
        told = _Told(task, backend)
        told.begin()
        try:
            value = told.checked(function(*told.first, *args, **kwargs))
        except Exception as error:
            told.failed(error)
            raise
        told.succeeded(value)
        return value

    async def run_async(args: list[Any], kwargs: dict[str, Any]) -> Any:
        told = _Told(task, backend)
        # Not on the loop: receivers may use the database, and so on its thread.
        await sync_to_async(told.begin)()
        try:
            value = told.checked(await function(*told.first, *args, **kwargs))
        except Exception as error:
            await sync_to_async(told.failed)(error)
            raise
        await sync_to_async(told.succeeded)(value)
        return value

    chosen = run_async if inspect.iscoroutinefunction(function) else run
    chosen.__annotations__ |= _secrecy(function)
    return chosen


def _secrecy(function: Callable[..., Any]) -> dict[str, Any]:
    """Positions have no names to be masked by, and ``Secret[...]`` is said of names that ours does
    not have: where there is a secret among them, all of them are masked.
    """
    try:
        marked = bool(secrets_of(get_type_hints(function, include_extras=True)))
    except Exception:  # noqa: BLE001 -- Django runs functions whose annotations nobody can resolve
        marked = any("Secret[" in str(written) for written in function.__annotations__.values())
    sounding = any(looks_secret(name) for name in inspect.signature(function).parameters)
    hidden: dict[str, Any] = {}
    if marked or sounding:
        hidden["args"] = Secret[list[Any]]
    if marked:
        hidden["kwargs"] = Secret[dict[str, Any]]
    return hidden


class _Told:
    """One run, as Django's signals tell of it."""

    def __init__(self, task: AnyTask, backend: type[WindlassBackend]) -> None:
        self._result = _RESULT.get()
        self._backend = backend
        self._ctx = current()
        self.first = (TaskContext(task_result=self._result),) if task.takes_context else ()

    def begin(self) -> None:
        close_old_connections()
        # Robust: a receiver that fails must not make the task run again.
        task_started.send_robust(self._backend, task_result=self._result)

    def checked(self, value: Any) -> Any:
        """As it will be read back; what cannot be stored is the task's own failure."""
        return decode_any(encode_any(value, limit=get_app().settings.result_limit))

    def succeeded(self, value: Any) -> None:
        _set(self._result, status=TaskResultStatus.SUCCESSFUL, _return_value=value)
        self._end()

    def failed(self, error: Exception) -> None:
        """Told once, at the end: an attempt that is followed by another one finishes nothing."""
        if self._is_last(error):
            kind = type(error)
            path = f"{kind.__module__}.{kind.__qualname__}"
            trace = "".join(traceback.format_exception(error))
            errors = [*self._result.errors, TaskError(exception_class_path=path, traceback=trace)]
            _set(self._result, status=TaskResultStatus.FAILED, errors=errors)
            self._end()
        else:
            close_old_connections()

    def _is_last(self, error: Exception) -> bool:
        if isinstance(error, Snooze | Throttled):
            return False
        if isinstance(error, GiveUp) or self._ctx.attempt >= self._ctx.max_attempts:
            return True
        ours = get_app().tasks[self._ctx.task].settings
        worth_it = ours.retry_on is None or isinstance(error, (Retry, *ours.retry_on))
        return not worth_it or isinstance(error, ours.give_up_on)

    def _end(self) -> None:
        _set(self._result, finished_at=SYSTEM_CLOCK.now())
        task_finished.send_robust(self._backend, task_result=self._result)
        close_old_connections()
