"""``@app.task(...)``, typed: a task knows its arguments, its result and how it is called."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import Any, Concatenate, Literal, ParamSpec, TypedDict, TypeVar, overload

from windlass._core.job.job import OnLost
from windlass._core.limits.backoff import Backoff
from windlass._core.limits.breaker import Breaker
from windlass._core.values.handler import check_function, source_of, unwrap_partial
from windlass._tasks.context import Context
from windlass._tasks.handle import Enqueuer
from windlass._tasks.limits import Limit
from windlass._tasks.options import ExceptionClasses, Program, RunIn, task_options
from windlass._tasks.registry import TaskRegistry
from windlass._tasks.task import Task
from windlass._tasks.unique import Unique
from windlass.errors import ConfigError

__all__ = [
    "AsyncContextTask",
    "AsyncTask",
    "AwaitableContextTask",
    "AwaitableTask",
    "PluginTaskKeywords",
    "SyncContextTask",
    "SyncTask",
    "TaskDecorator",
    "TaskKeywords",
    "TaskRegistration",
    "plain_function",
]

P = ParamSpec("P")
R = TypeVar("R")

AsyncTask = Task[P, R, P, Coroutine[Any, Any, R]]
"""A task of an ``async def``."""
AsyncContextTask = Task[P, R, Concatenate[Context, P], Coroutine[Any, Any, R]]
"""A task of an ``async def`` that takes its `Context` first; the same below."""
AwaitableTask = Task[P, R, P, Awaitable[R]]
"""A task of a function that returns another awaitable, such as a decorated one."""
AwaitableContextTask = Task[P, R, Concatenate[Context, P], Awaitable[R]]
SyncTask = Task[P, R, P, R]
"""A task of a plain function."""
SyncContextTask = Task[P, R, Concatenate[Context, P], R]


class TaskKeywords(TypedDict, total=False):
    """The options of ``@app.task``; its docstring explains them."""

    name: str | None
    aliases: Sequence[str]
    queue: str | None
    max_attempts: int | None
    timeout: timedelta | float | str | None
    soft_timeout: timedelta | float | str | None
    backoff: Backoff | None
    priority: int
    run_in: RunIn | Program
    tags: Sequence[str]
    expires: timedelta | float | str | None
    on_crash: Literal["fail", "retry"]
    on_lost: OnLost
    retry_on: ExceptionClasses | None
    give_up_on: ExceptionClasses | None
    limits: Limit | Sequence[Limit]
    breaker: Breaker | bool
    unique: Unique | bool
    store_result: bool
    on_failure: Task[..., Any] | str | None
    on_success: Task[..., Any] | str | None


class PluginTaskKeywords(TaskKeywords, total=False):
    """The options of a plugin's ``@registrar.task``."""

    concurrency: int | None


class TaskDecorator:
    """``@app.task(...)`` and a plugin's ``@registrar.task(...)`` with their options."""

    def __init__(
        self,
        register: Callable[[Callable[..., Any], Mapping[str, Any]], Task[..., Any]],
        options: Mapping[str, Any],
    ) -> None:
        self._register = register
        self._options = options

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> AsyncContextTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Awaitable[R]], /
    ) -> AwaitableContextTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> AwaitableTask[P, R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], R], /
    ) -> SyncContextTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Task[..., Any]:
        """Register ``function``."""
        return self._register(function, self._options)


class TaskRegistration:
    """Makes tasks from functions, and registers them."""

    def __init__(self, tasks: TaskRegistry, enqueuer: Enqueuer) -> None:
        """Keep the registry. ``enqueuer`` stores the calls of the tasks that are made here."""
        self._tasks = tasks
        self._enqueuer = enqueuer

    def register(self, function: Callable[..., Any], given: Mapping[str, Any]) -> Task[..., Any]:
        """Make a task from ``function`` with these options, and register it."""
        function = plain_function(function)
        options = task_options(given, name=source_of(function))
        task: Task[..., Any] = Task(function, options, self._enqueuer)
        self._tasks.add(task)
        return task


def plain_function(given: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function to make a task from; refuse a task, and objects that are no function."""
    if isinstance(given, Task):
        message = f"{given!r} is already a task"
        raise ConfigError(message)
    function = unwrap_partial(given)
    check_function(function)
    return function
