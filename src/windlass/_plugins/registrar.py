"""The registrar: collects what a plugin adds, without changing the app."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, Unpack, overload

import msgspec

from windlass._core.schedule.rules import Rule
from windlass._core.schedule.schedule import Schedule
from windlass._core.values.handler import (
    can_call_with,
    check_function,
    check_middleware,
    source_of,
)
from windlass._core.values.names import check_name
from windlass._plugins.names import qualify
from windlass._plugins.plugin_task import PluginTask
from windlass._plugins.restricted_context import PluginScope
from windlass._schedules.declarations import (
    ScheduleDeclaration,
    ScheduleDecorator,
    ScheduleKeywords,
    ScheduleRegistry,
    check_rule,
)
from windlass._tasks.context import Context, Middleware
from windlass._tasks.decorators import (
    AsyncContextTask,
    AsyncTask,
    AwaitableContextTask,
    AwaitableTask,
    PluginTaskKeywords,
    SyncContextTask,
    SyncTask,
    TaskDecorator,
    plain_function,
)
from windlass._tasks.limits import Limit, limits_of
from windlass._tasks.options import alias_names, task_options
from windlass._tasks.services import Services
from windlass._tasks.task import Enqueuer
from windlass.errors import DefinitionError, DuplicateTask

__all__ = ["Chore", "Plugin", "Registrar"]

P = ParamSpec("P")
R = TypeVar("R")
Chore = Callable[[Services], Awaitable[str | None]]
"""A function that runs on a schedule without a job. Its answer says what it did."""
C = TypeVar("C", bound=Chore)


class Plugin(Protocol):
    """An object with a name and a `register` method. Operators see its docstring."""

    @property
    def name(self) -> str:
        """The prefix, before a dot, of the names of everything it adds."""
        ...

    def register(self, registrar: Registrar, /) -> None:
        """Register everything the plugin adds, and start nothing. All of it is accepted, or
        none.
        """
        ...


class Registrar:
    """Collects the tasks, schedules and middleware of a plugin while it is installed."""

    def __init__(self, scope: PluginScope, enqueuer: Enqueuer, documentation: str) -> None:
        self._scope = scope
        self._declarations = ScheduleRegistry()
        self._enqueuer = enqueuer
        self._open = True
        self._tasks: dict[str, PluginTask] = {}
        self._layers: list[Middleware] = []
        self._services: list[str] = []
        self._chores: dict[str, Chore] = {}
        self._documentation = documentation

    # --- what a plugin calls ---

    def describe(self, text: str) -> None:
        """Set the text that operators see, instead of the plugin's docstring."""
        self._check_open()
        self._documentation = text.strip()

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
    def task(self, **options: Unpack[PluginTaskKeywords]) -> TaskDecorator: ...
    def task(self, *function: Any, **options: Any) -> Any:
        """Add a task, like ``@app.task``. Its name gets the plugin's name as a prefix.

        - ``name``: the name after the prefix. Default: the function's name.
        - ``aliases``: former names, without the prefix. Jobs that are stored under them run too.
        - ``queue``: the queue of its jobs. Default: the first one granted.
        - ``concurrency``: jobs of this task that run at once in the whole cluster.
        - ``max_attempts``: runs of one job, the first included. Default: the app's setting (5).
        - ``timeout``: longest run: "30s", "5m", seconds or a timedelta. None: no limit.
        - ``soft_timeout``: after this time the handler gets SoftTimeout, or ``ctx.cancelled``.
        - ``backoff``: waits between attempts, such as ``Backoff.fixed(5)``.
        - ``priority``: −32768 to 32767. Lower runs first. Default: 0.
        - ``run_in``: "loop", "thread", "process", or ``Program([…])`` for a program outside Python.
          "auto" runs coroutines on the loop, others on threads.
        - ``tags``: labels to find jobs by.
        - ``expires``: discard a job that has not started within this time.
        - ``on_crash``: "retry" treats SystemExit and KeyboardInterrupt like other errors.
        - ``on_lost``: "fail" ends a job whose worker was killed. By default it runs again.
        - ``retry_on``: retry only after these exceptions.
        - ``give_up_on``: do not retry after these exceptions.
        - ``limits``: rate and concurrency limits of the plugin: ``[Limit("api", …)]``.
        - ``breaker``: start no jobs of this task while they keep failing. Default: True.
        - ``unique``: True or ``Unique(…)``: at most one job for the same arguments or key.
        - ``store_result``: False stores no result. ``job.result()`` then returns None.
        - ``on_failure``: a task, or its name, to enqueue when a job has failed for good.
        - ``on_success``: a task, or its name, to enqueue when a job has succeeded.
        """
        self._check_open()
        if function:
            (target,) = function
            return self._add_task(target, options)
        return TaskDecorator(self._add_task, options)

    def schedule(self, rule: Rule, **options: Unpack[ScheduleKeywords]) -> ScheduleDecorator:
        """Run one of the plugin's tasks on a schedule, like ``@app.schedule``.

        The schedule's name gets the plugin's name as a prefix.
        """
        self._check_open()
        name = options.get("name")
        if name is not None:
            options["name"] = self._qualified(name, "a schedule's name")
        return ScheduleDecorator(self._declarations, rule, **options)

    def middleware(self, layer: Middleware) -> Middleware:
        """Run ``async def layer(ctx, call_next)`` around the plugin's jobs, or all, as granted."""
        self._check_open()
        check_middleware(layer)
        self._layers.append(self._scope.layer(layer))
        return layer

    def service(self, name: str) -> None:
        """Declare a service of the host that handlers will ask for.

        It is then granted or refused at installation, and not when the first job runs.
        """
        self._check_open()
        check_name(name, "a service's name")
        if name not in self._services:
            self._services.append(name)

    def chore(self, rule: Rule, *, name: str | None = None) -> Callable[[C], C]:
        """Run an async function of the granted services on a schedule, in one worker.

        It has no job and is not retried. Use it for maintenance.
        """
        self._check_open()
        check_rule(rule)

        def add(chore: C) -> C:
            _check_chore(chore)
            full = self._qualified(name or chore.__name__, "a chore's name")
            self._declarations.add(
                ScheduleDeclaration(full, None, Schedule(rule=rule)), source_of(chore)
            )
            self._chores[full] = chore
            return chore

        return add

    # --- what came of it ---

    def close(self) -> PluginContents:
        """Return everything that was registered, and refuse more."""
        self._open = False
        return PluginContents(
            tasks=tuple(self._tasks.values()),
            declared=self._declarations,
            layers=tuple(self._layers),
            services=tuple(self._services),
            chores=self._chores,
            documentation=self._documentation,
        )

    def _check_open(self) -> None:
        if not self._open:
            message = (
                f"plugin {self._scope.plugin!r} is installed, and its registrar is closed: "
                f"register everything in register(), or uninstall and install the plugin again"
            )
            raise DefinitionError(message)

    def _qualified(self, name: str, what: str) -> str:
        return qualify(self._scope.plugin, name, what)

    def _add_task(self, function: Callable[..., Any], given: Mapping[str, Any]) -> PluginTask:
        self._check_open()
        function = plain_function(function)
        options = {"breaker": True, **given}
        concurrency = options.pop("concurrency", None)
        name = self._qualified(options.pop("name", None) or function.__name__, "a task's name")
        if name in self._tasks:
            raise DuplicateTask(name, source_of(self._tasks[name].function), source_of(function))
        former = alias_names(options.pop("aliases", ()))
        options["aliases"] = [self._qualified(alias, "an alias") for alias in former]
        for option in ("on_failure", "on_success"):
            if isinstance(options.get(option), str):
                options[option] = self._taker(option, options[option])
        made = task_options({**options, "name": name}, name=name)
        made = msgspec.structs.replace(
            made, limits=tuple(self._own_limit(one) for one in limits_of(made.limits))
        )
        task = PluginTask(function, made, self._enqueuer, self._scope, concurrency)
        self._tasks[name] = task
        return task

    def _taker(self, option: str, name: str) -> str:
        own = f"{self._scope.plugin}."
        return name if name.startswith(own) else self._qualified(name, option)

    def _own_limit(self, limit: Limit) -> Limit:
        """Put the plugin's name before a limit's, so that it cannot use or redefine one of the
        host's.
        """
        return msgspec.structs.replace(limit, name=self._qualified(limit.name, "a limit's name"))


def _check_chore(chore: Chore) -> None:
    check_function(chore)
    if not inspect.iscoroutinefunction(chore) or not can_call_with(chore, 1):
        message = f"a chore is `async def name(services)`; {source_of(chore)} is not"
        raise DefinitionError(message)


class PluginContents(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a plugin adds, before its grants are checked."""

    tasks: tuple[PluginTask, ...]
    declared: ScheduleRegistry
    layers: tuple[Middleware, ...]
    services: tuple[str, ...]
    chores: Mapping[str, Chore]
    documentation: str
