"""Django tasks in workers: each is a task of the app under its import path."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, get_type_hints

from asgiref.sync import sync_to_async
from django.db import close_old_connections

from windlass._app.app import Windlass
from windlass._app.parts import parts_of
from windlass._core.job.control import GiveUp, Retry, Snooze, Throttled
from windlass._core.values.payload import Secret, decode_any, encode_any
from windlass._core.values.redaction import looks_secret
from windlass._core.values.secret_types import secrets_of
from windlass._system.seams import SYSTEM_CLOCK
from windlass._tasks.context import Context, current
from windlass._tasks.hooks import CallNext
from windlass._tasks.options import Program
from windlass.errors import ConfigError, PayloadError, PayloadTooLarge, WindlassError
from windlass.integrations.django import get_app
from windlass.integrations.django._interface import AnyResult, AnyTask, Interface, put
from windlass.integrations.django._project import PROJECT
from windlass.integrations.django._results import read

if TYPE_CHECKING:
    from windlass.integrations.django._backend import Backend

__all__ = ["adopt", "define"]

_RESULT: ContextVar[AnyResult] = ContextVar("windlass_django_result")
"""The result of the job that runs here."""


def define(app: Windlass, function: Callable[..., Any], alias: str, **options: Any) -> str:
    """Register a function with the ``OPTIONS`` of a backend, and return its name."""
    run_in = options.get("run_in")
    if run_in == "process" or isinstance(run_in, Program):
        message = "tasks of Django run on threads or the loop: leave run_in out of OPTIONS"
        raise ConfigError(message)
    try:
        return app.task(**options)(function).name
    except (WindlassError, TypeError) as error:
        message = f"OPTIONS of TASKS[{alias!r}]: {error}"
        raise ConfigError(message) from error


def adopt(app: Windlass, task: AnyTask, backend: Backend, options: Mapping[str, Any]) -> None:
    """Register a Django task as a task of the app."""
    app.tasks.add_queues(backend.queues)
    own = {"name": task.module_path, "queue": task.queue_name, "priority": -task.priority}
    function = _runner(task, type(backend))
    name = define(app, function, backend.alias, **{**options, **own})
    PROJECT.define(name, task, backend.interface)
    if _with_result not in parts_of(app).hooks.layers:
        app.middleware(_with_result)


async def _with_result(ctx: Context, call_next: CallNext) -> Any:
    """Read on the loop what the run needs to know on its thread."""
    if ctx.task in PROJECT.defined:
        _RESULT.set(await read(ctx.job_id))
    return await call_next()


def _runner(task: AnyTask, backend: type[Backend]) -> Callable[..., Any]:
    function = task.func

    def run(args: list[Any], kwargs: dict[str, Any]) -> Any:
        told = _SignalledRun(task, backend)
        told.begin()
        try:
            value = told.checked(function(*told.first, *args, **kwargs))
        except (Exception, SystemExit) as error:
            told.failed(error)
            raise
        told.succeeded(value)
        return value

    async def run_async(args: list[Any], kwargs: dict[str, Any]) -> Any:
        told = _SignalledRun(task, backend)
        # Not on the loop: receivers may use the database on the handler's thread.
        await sync_to_async(told.begin)()
        try:
            value = told.checked(await function(*told.first, *args, **kwargs))
        except (Exception, SystemExit) as error:
            await sync_to_async(told.failed)(error)
            raise
        await sync_to_async(told.succeeded)(value)
        return value

    hidden = _secrecy(function)
    run.__annotations__ |= hidden
    run_async.__annotations__ |= hidden
    return run_async if inspect.iscoroutinefunction(function) else run


def _secrecy(function: Callable[..., Any]) -> dict[str, Any]:
    """Mask all positional arguments if one is secret. Positions have no names to mask by, and
    ``Secret[...]`` annotates names that our task does not have.
    """
    try:
        marked = bool(secrets_of(get_type_hints(function, include_extras=True)))
    except Exception:  # noqa: BLE001 -- Django runs functions whose annotations cannot be resolved
        marked = any("Secret[" in str(written) for written in function.__annotations__.values())
    sounding = any(looks_secret(name) for name in inspect.signature(function).parameters)
    hidden: dict[str, Any] = {}
    if marked or sounding:
        hidden["args"] = Secret[list[Any]]
    if marked:
        hidden["kwargs"] = Secret[dict[str, Any]]
    return hidden


class _SignalledRun:
    """One run, as reported by Django's signals."""

    def __init__(self, task: AnyTask, backend: type[Backend]) -> None:
        self._result = _RESULT.get()
        self._backend = backend
        self._interface: Interface = backend.interface
        self._ctx = current()
        context = self._interface.context
        self.first = (context(task_result=self._result),) if task.takes_context else ()

    def begin(self) -> None:
        close_old_connections()
        # Robust: a receiver that fails must not make the task run again.
        self._interface.started.send_robust(self._backend, task_result=self._result)

    def checked(self, value: Any) -> Any:
        """Return the result as it will be read back. One that cannot be stored fails the task, with
        Django's own error.
        """
        try:
            return decode_any(encode_any(value, limit=get_app().settings.result_limit))
        except PayloadTooLarge:
            raise
        except PayloadError as error:
            value_itself = isinstance(error.__cause__, ValueError)
            kind, what = (ValueError, "value") if value_itself else (TypeError, "type")
            raise kind(f"Unsupported {what}: {error}") from error

    def succeeded(self, value: Any) -> None:
        put(self._result, status=self._interface.status.SUCCESSFUL, _return_value=value)
        self._end()

    def failed(self, error: BaseException) -> None:
        """Send the signal once, at the end. A failed attempt with a retry finishes nothing."""
        if self._is_last(error):
            kind = type(error)
            told = self._interface.error(
                exception_class_path=f"{kind.__module__}.{kind.__qualname__}",
                traceback="".join(traceback.format_exception(error)),
            )
            errors = [*self._result.errors, told]
            put(self._result, status=self._interface.status.FAILED, errors=errors)
            self._end()
        else:
            close_old_connections()

    def _is_last(self, error: BaseException) -> bool:
        if isinstance(error, Snooze | Throttled):
            return False
        if isinstance(error, GiveUp) or self._ctx.attempt >= self._ctx.max_attempts:
            return True
        ours = get_app().tasks[self._ctx.task].settings
        if not isinstance(error, Exception):
            return ours.on_crash == "fail"
        worth_it = ours.retry_on is None or isinstance(error, (Retry, *ours.retry_on))
        return not worth_it or isinstance(error, ours.give_up_on)

    def _end(self) -> None:
        put(self._result, finished_at=SYSTEM_CLOCK.now())
        self._interface.finished.send_robust(self._backend, task_result=self._result)
        close_old_connections()
