"""``@app.task``: functions become tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, cast, overload

from windlass.context import Context
from windlass.core.backoff import Backoff
from windlass.core.breaker import Breaker
from windlass.core.function import check_function, spelled_out, where
from windlass.core.job import OnLost
from windlass.core.rules import Rule
from windlass.core.schedule import Overlap
from windlass.declared import Declarations, ScheduleDecorator
from windlass.errors import ConfigError
from windlass.limits import Limit
from windlass.options import ExceptionClasses, RunIn, task_options
from windlass.runtime.hooks import Hooks
from windlass.task import Enqueuer, Task
from windlass.typed import (
    AsyncContextTask,
    AsyncTask,
    AwaitableContextTask,
    AwaitableTask,
    SyncContextTask,
    SyncTask,
    TaskDecorator,
)
from windlass.unique import Unique

__all__ = ["Definer"]

P = ParamSpec("P")
R = TypeVar("R")


class Definer(Hooks):
    """The part of an app that tasks and schedules are defined with."""

    def __init__(self) -> None:
        super().__init__()
        self.declarations: Declarations = Declarations()

    def schedule(
        self,
        rule: Rule,
        *,
        name: str | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        missed: Literal["skip", "one", "all"] = "one",
        most_missed: int = 100,
        overlap: Overlap = "skip",
        jitter: timedelta | float | str = 0,
        starts: datetime | None = None,
        ends: datetime | None = None,
        breaker: bool = True,
    ) -> ScheduleDecorator:
        """Run a task by a rule: ``@app.schedule(Cron("0 8 * * *"))`` above ``@app.task``, several
        times if need be, or ``app.schedule(Every(60), name="eu")(report.call("eu"))``.

        ``missed``: what becomes of slots that nobody was there to fire. ``overlap``: of one that
        comes while a run is active: left out, waiting its turn ("queue"), allowed, or left out
        when so many are. ``jitter``: each job waits up to so long. ``breaker``: after ten failures
        in a row its slots are left out for a while.
        """
        options = {
            "missed": missed,
            "most_missed": most_missed,
            "overlap": overlap,
            "jitter": jitter,
            "starts": starts,
            "ends": ends,
            "breaker": breaker,
        }
        arguments = (tuple(args), dict(kwargs or {}))
        return ScheduleDecorator(self.declarations, rule, name, arguments, options)

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
    def task(
        self,
        *,
        name: str | None = None,
        queue: str | None = None,
        max_attempts: int | None = None,
        timeout: timedelta | float | str | None = None,
        backoff: Backoff | None = None,
        priority: int = 0,
        run_in: RunIn = "auto",
        tags: Sequence[str] = (),
        expires: timedelta | float | str | None = None,
        on_crash: Literal["fail", "retry"] = "fail",
        on_lost: OnLost = "retry",
        retry_on: ExceptionClasses | None = None,
        give_up_on: ExceptionClasses | None = None,
        limits: Limit | Sequence[Limit] = (),
        breaker: Breaker | bool = False,
        unique: Unique | bool = False,
        on_failure: Task[..., Any] | str | None = None,
    ) -> TaskDecorator: ...
    def task(self, *function: Any, **options: Any) -> Any:
        """Register a function as a task: ``@app.task`` or ``@app.task(queue="mail", ...)``.

        ``name``: what jobs are stored under; ``module.function`` if none is given.
        ``queue``: where its jobs wait; the app's default queue if none is given.
        ``max_attempts``: runs in all, the first included; the app's setting (5) if none is given.
        ``timeout``: the longest a run may take, in seconds or as a timedelta; None: no limit.
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
        function = spelled_out(function)
        check_function(function)
        options = task_options(given, name=where(function))
        task: Task[..., Any] = Task(function, options, cast("Enqueuer", self))
        self.tasks.add(task)
        return task
