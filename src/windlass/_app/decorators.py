"""``@app.task``: functions become tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack, cast, overload

from windlass._core.values.handler import check_function, source_of, unwrap_partial
from windlass._schedules.declarations import ScheduleDefiner, ScheduleRegistry
from windlass._tasks.context import Context
from windlass._tasks.decorator_types import (
    AsyncContextTask,
    AsyncTask,
    AwaitableContextTask,
    AwaitableTask,
    SyncContextTask,
    SyncTask,
    TaskDecorator,
    TaskKeywords,
)
from windlass._tasks.hooks import Hooks
from windlass._tasks.options import task_options
from windlass._tasks.task import Enqueuer, Task
from windlass.errors import ConfigError

__all__ = ["Definer"]

P = ParamSpec("P")
R = TypeVar("R")


class Definer(Hooks, ScheduleDefiner):
    """The part of an app that tasks and schedules are defined with."""

    def __init__(self) -> None:
        Hooks.__init__(self)
        ScheduleDefiner.__init__(self)

    @property
    def declarations(self) -> ScheduleRegistry:
        """The schedules that the code declares."""
        return self._declarations

    @overload
    def task(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> AsyncContextTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def task(
        self, function: Callable[Concatenate[Context, P], Awaitable[R]], /
    ) -> AwaitableContextTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, Awaitable[R]], /) -> AwaitableTask[P, R]: ...
    @overload
    def task(self, function: Callable[Concatenate[Context, P], R], /) -> SyncContextTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...
    @overload
    def task(self, **options: Unpack[TaskKeywords]) -> TaskDecorator: ...
    def task(self, *function: Any, **options: Any) -> Any:
        """Register a function as a task: ``@app.task`` or ``@app.task(queue="mail", ...)``.

        ``name``: what jobs are stored under; ``module.function`` if none is given.
        ``queue``: where its jobs wait; the app's default queue if none is given.
        ``max_attempts``: runs in all, the first included; the app's setting (5) if none is given.
        ``timeout``: the longest a run may take: "30s", "5m", seconds, timedelta; None: no limit.
        ``backoff``: how long to wait between attempts, such as ``Backoff.fixed(5)``.
        ``priority``: −32768 to 32767; lower runs first.
        ``run_in``: "loop", "thread", "process"; "auto": coroutines on the loop, others on threads.
        ``tags``: labels for people, to find jobs by.
        ``expires``: discard a job whose handler was not entered within this time.
        ``on_crash``: "retry" treats SystemExit and its kin as errors that are worth a retry.
        ``on_lost``: "fail" ends a job whose worker was killed, instead of running it again.
        ``retry_on``: the only exceptions that are worth another attempt.
        ``give_up_on``: exceptions that are not worth one.
        ``limits``: rates and concurrency that the whole cluster shares: ``Limit("api", …)``.
        ``breaker``: True or ``Breaker(…)``: start none of its jobs while they keep failing.
        ``unique``: True or ``Unique(…)``: at most one job for the same arguments or key.
        ``on_failure``: a task, or its name, that is enqueued when a job has failed for good.
        """
        if function:
            (target,) = function
            return self._register(target, options)
        return TaskDecorator(self._register, options)

    def _register(self, function: Callable[..., Any], given: Mapping[str, Any]) -> Task[..., Any]:
        if isinstance(function, Task):
            message = f"{function!r} is already a task"
            raise ConfigError(message)
        function = unwrap_partial(function)
        check_function(function)
        options = task_options(given, name=source_of(function))
        task: Task[..., Any] = Task(function, options, cast("Enqueuer", self))
        self.tasks.add(task)
        return task
