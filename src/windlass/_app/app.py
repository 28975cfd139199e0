"""`Windlass`, the object that users write their tasks with. Its parts do the work."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, overload

from windlass._app.parts import AppParts
from windlass._app.sync import BlockingClient
from windlass._client.flow_run import FlowRun
from windlass._client.transactional import Wake
from windlass._core.job.event import Event
from windlass._core.job.ids import id_as_stored
from windlass._core.job.job import FlowId
from windlass._core.schedule.rules import Rule
from windlass._core.values.grants import Grants
from windlass._schedules.declarations import ScheduleDecorator, ScheduleKeywords
from windlass._settings.keywords import SettingsKeywords, WorkerKeywords
from windlass._settings.load import load_settings, warn_of_other_url
from windlass._settings.settings import Settings
from windlass._storage.protocol.transactions import UserConnection
from windlass._system.seams import SYSTEM_CLOCK, Clock, Seams
from windlass._tasks.call import Call, CallKeywords, EnqueueHook, check_no_id
from windlass._tasks.context import Context, Middleware
from windlass._tasks.decorators import (
    AsyncContextTask,
    AsyncTask,
    AwaitableContextTask,
    AwaitableTask,
    SyncContextTask,
    SyncTask,
    TaskDecorator,
    TaskKeywords,
)
from windlass._tasks.flows.flow import Flow
from windlass._tasks.handle import Job
from windlass._tasks.registry import TaskRegistry
from windlass._tasks.services import AttachedServices

if TYPE_CHECKING:
    from uuid import UUID

    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider
    from prometheus_client import CollectorRegistry
    from starlette.applications import Starlette

    from windlass._admin.admin import Admin
    from windlass._observe.prometheus import Metrics
    from windlass._plugins.installation import Installed, Plugins
    from windlass._plugins.registrar import Plugin
    from windlass._worker.worker import Worker

__all__ = ["Windlass"]

P = ParamSpec("P")
R = TypeVar("R")
L = TypeVar("L", bound=Callable[..., Any])
H = TypeVar("H", bound=Callable[[], str | None])


class Windlass:
    """An application: its tasks and schedules, its storage, and the calls that use them.

        app = Windlass("sqlite:///jobs.db")

    ``async with app:`` opens the storage. An app that is not open opens at its first use. One app
    can be used from several event loops, from threads and after a fork: each gets its own
    connection.
    """

    _warns = True
    """Whether to warn about a ``WINDLASS_URL`` that the code overrides."""

    def __init__(
        self,
        url: str | None = None,
        *,
        config: str | Path | None = None,
        seams: Seams | None = None,
        clock: Clock = SYSTEM_CLOCK,
        **settings: Unpack[SettingsKeywords],
    ) -> None:
        """Read the settings. An argument overrides a ``WINDLASS_…`` variable, a variable the file.

        - ``url``: the storage, such as ``sqlite:///jobs.db``, ``postgresql://…`` or ``redis://…``.
        - ``config``: the path of a TOML file with settings.
        - ``settings``: the fields of `Settings`, such as ``max_attempts=3, keep_succeeded="1d"``.
        - ``clock``, ``seams``: replace time, chance and processes in tests; see
          ``windlass.testing``.

        Raises ConfigError if no URL is given, or if a setting is unknown or out of range.
        """
        self.settings: Settings = load_settings(url, settings, config=config)
        if self._warns and url is not None:
            warn_of_other_url(self.settings.url)
        self._parts = AppParts(self, self.settings, seams or Seams(wall=clock.now), clock)
        self.tasks: TaskRegistry = self._parts.tasks
        """Every registered task, by name."""
        self.services: AttachedServices = self._parts.hooks.services
        """Objects that handlers can ask for as ``ctx.services``, in plugins too."""
        self.blocking: BlockingClient = self._parts.blocking
        """The same calls for code without an event loop."""
        self.before_enqueue: Callable[[EnqueueHook], EnqueueHook] = self._parts.hooks.before_enqueue
        """Decorator for ``def hook(call)``, which sees every call of your code before it is stored.
        It may return ``call.with_options(…)``, and refuses the call if it raises.
        """

    def __repr__(self) -> str:
        return f"<Windlass {self._parts.connections.opener.scheme} with {len(self.tasks)} tasks>"

    # --- tasks and schedules ---

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

        - ``name``: the name that jobs are stored with. Default: ``module.function``.
        - ``aliases``: former names of the task. Jobs that are stored under them run too.
        - ``queue``: the queue of its jobs. Default: the app's ``default_queue``.
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
        - ``limits``: rate and concurrency limits of the whole cluster: ``[Limit("api", …)]``.
        - ``breaker``: True or ``Breaker(…)``: start no jobs of this task while they keep failing.
        - ``unique``: True or ``Unique(…)``: at most one job for the same arguments or key.
        - ``store_result``: False stores no result. ``job.result()`` then returns None.
        - ``on_failure``: a task, or its name, to enqueue when a job has failed for good.
        - ``on_success``: a task, or its name, to enqueue when a job has succeeded.

        Raises DefinitionError for a function that cannot be a task, DuplicateTask for a name that
        another task has.
        """
        register = self._parts.registration.register
        if function:
            (target,) = function
            return register(target, options)
        return TaskDecorator(register, options)

    def schedule(self, rule: Rule, **options: Unpack[ScheduleKeywords]) -> ScheduleDecorator:
        """Run a task on a schedule: write ``@app.schedule(Cron("0 8 * * *"))`` above ``@app.task``.

        A task can have several schedules. ``app.schedule(Every(60), name="eu")(report.call("eu"))``
        schedules a call with arguments.

        - ``rule``: `Cron`, `Every`, `Once` or `Manual`.
        - ``name``: the name that the schedule is stored with. Default: the task's name.
        - ``args``, ``kwargs``: the arguments of its jobs.
        - ``missed``: what to do with slots that passed while no worker ran: "skip" them, or fire
          "one" (default) or "all".
        - ``most_missed``: how many missed slots "all" fires at most. Default: 100.
        - ``overlap``: what to do with a slot while a run is active: "skip" it (default), "queue" a
          job that waits, "allow" both, or a number of runs that may be active.
        - ``jitter``: delay each job at random by up to this time.
        - ``starts``, ``ends``: fire only between these instants.
        - ``breaker``: skip slots for a while after ten failures in a row. Default: True.
        - ``on``: "one_worker" (default) enqueues one job per slot. "every_worker" runs the task at
          each slot in every worker that serves its queue, without a job.
        """
        return ScheduleDecorator(self._parts.schedules, rule, **options)

    # --- jobs ---

    async def enqueue(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        /,
        **options: Unpack[CallKeywords],
    ) -> Job[Any]:
        """Store a job of the task with this name, which may exist in the workers' code alone.

        ``arguments``: by name. A worker checks them, unless the task is registered here.
        ``options``: as for ``task.options(…)``.
        """
        producer = self._parts.producer
        call, job_id = producer.call_named(name, arguments, options)
        return await producer.enqueue_call(call, job_id=job_id)

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        /,
        **options: Unpack[CallKeywords],
    ) -> Call[Any]:
        """Make a call of the task with this name, for ``enqueue_many`` or ``ctx.enqueue``."""
        call, job_id = self._parts.producer.call_named(name, arguments, options)
        check_no_id(job_id)
        return call

    async def enqueue_many(
        self,
        calls: Iterable[Call[R]],
        *,
        ids: Iterable[str | UUID] | None = None,
        connection: UserConnection | None = None,
        wake: Wake | None = None,
    ) -> list[Job[R]]:
        """Store calls in one transaction, all or none. The handles come in the same order.

        - ``calls``: made by ``task.call(…)`` or ``task.options(…).call(…)``.
        - ``ids``: an id for each call. After an error, repeat the calls with ``error.ids``: jobs
          that were stored are not stored again.
        - ``connection``: your database connection. The jobs become part of its open transaction.
        - ``wake``: "commit" lets the database wake workers at the commit of ``connection``.
        """
        return await self._parts.producer.enqueue_many(
            calls, ids=ids, connection=connection, wake=wake
        )

    def job(self, job_id: str | UUID) -> Job[Any]:
        """Return a handle for a job id. It reads nothing until you call its methods.

        ``task.job(id)`` returns a handle that knows the type of the result.
        """
        return Job(self._parts.producer, id_as_stored(job_id), created=False, task=None)

    async def start(
        self, flow: Flow, *, connection: UserConnection | None = None, wake: Wake | None = None
    ) -> FlowRun:
        """Store a flow, whole or not at all. After an error, start it again. ``connection`` and
        ``wake``: as in `enqueue_many`.
        """
        return await self._parts.producer.start(flow, connection, wake)

    def flow_run(self, flow_id: str | UUID) -> FlowRun:
        """Return a handle for the id of a flow."""
        return FlowRun(self._parts.producer, FlowId(id_as_stored(flow_id)), created=False)

    def worker(
        self,
        *,
        queues: Sequence[str] | Mapping[str, int] | None = None,
        others: bool = False,
        **settings: Unpack[WorkerKeywords],
    ) -> AbstractAsyncContextManager[Worker]:
        """Run a worker in your own process, for as long as the ``async with`` block lasts.

        - ``queues``: queues that share the ``slots``, or a mapping of queues to slots. Default:
          every queue that a task names.
        - ``others``: serve every other queue that a task names, after these.
        - ``settings``: the fields of `WorkerSettings`, such as ``slots=20``.
        """
        workers = self._parts.workers
        return workers.running(workers.settings(queues=queues, others=others, **settings))

    @property
    def admin(self) -> Admin:
        """Everything that the command line and the dashboard can do."""
        return self._parts.admin

    # --- what you add to your jobs ---

    @property
    def state(self) -> Any:
        """An object of yours for handlers: ``ctx.state``."""
        return self._parts.hooks.state

    @state.setter
    def state(self, state: Any) -> None:
        self._parts.hooks.set_state(state)

    def middleware(self, layer: Middleware) -> Middleware:
        """Run ``async def layer(ctx, call_next)`` around every job. The first one is outermost.

        Its return value is the job's result, and an exception it raises is the job's error. It may
        leave out ``await call_next()``.
        """
        return self._parts.hooks.middleware(layer)

    def on_transition(self, listener: Callable[[Event], None]) -> Callable[[Event], None]:
        """Call ``listener`` with every event of this process, after it is committed.

        It runs on the event loop and must not block. A crash can lose a call: enqueue a job for
        work that must happen.
        """
        return self._parts.hooks.on_transition(listener)

    def lifespan(self, around: L) -> L:
        """Surround every worker with ``async def around(app)``, which yields once.

        The code before the ``yield`` ends before the first job is claimed. The code after it begins
        when the last job is stored. Each child process enters it too.
        """
        return self._parts.hooks.lifespan(around)

    def current_tenant(self, function: H) -> H:
        """Call ``def function() -> str | None`` to get the tenant of every call.

        It runs where the call is made, in its thread and with its context variables. A tenant that
        the call sets wins. If it returns None, the tenant of the current job is used, if any.
        """
        return self._parts.hooks.current_tenant(function)

    # --- plugins ---

    @property
    def plugins(self) -> Plugins:
        """The installed plugins, by name."""
        return self._parts.plugins

    def install(self, plugin: Plugin, *, grants: Grants | None = None) -> Installed:
        """Add the tasks, schedules and middleware of ``plugin``, as far as ``grants`` allow.

        It adds all of them or none: NotGranted names what is missing. It takes effect at once, also
        in workers that run in this process.
        """
        return self.plugins.install(plugin, grants or Grants())

    async def uninstall(self, name: str) -> None:
        """Remove a plugin and pause its schedules in the store. Its running jobs finish. Its other
        jobs and their history stay.
        """
        await self.plugins.uninstall(name)

    # --- being watched ---

    def metrics(self, registry: CollectorRegistry | None = None) -> Metrics:
        """Count and time the jobs of this process for Prometheus. Needs ``windlass[metrics]``.

        ``registry``: default is the global one. A second call returns the same object.
        """
        return self._parts.observability.metrics(registry)

    def tracing(
        self, provider: TracerProvider | None = None, *, meters: MeterProvider | None = None
    ) -> None:
        """Trace enqueues and runs with OpenTelemetry. Needs ``windlass[otel]``. ``provider``:
        default is the global one. ``meters``: record metrics too. A second call changes nothing.
        """
        self._parts.observability.trace(provider)
        if meters is not None:
            self._parts.observability.meter(meters)

    def dashboard(self, auth: Any = None, **settings: Any) -> Starlette:
        """Return the dashboard as an ASGI app. Needs ``windlass[web]``. ``auth``: users with hashed
        passwords, or a function that authenticates a request. The settings are those of
        `windlass._web.app.make_dashboard`.
        """
        # By name: it is above this module in the order of imports, and its libraries are an extra.
        web: Any = importlib.import_module("windlass._web.app")
        made: Starlette = web.make_dashboard(self, auth, **settings)
        return made

    # --- opening and closing ---

    async def __aenter__(self) -> Self:
        """Open the storage for this event loop."""
        await self._parts.storage()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the storage for this event loop."""
        await self.close()

    async def close(self) -> None:
        """Finish the calls under way on this event loop and close its storage.

        The next use opens it again. Other event loops stay open; ``app.blocking.close()`` closes
        the one of the blocking calls.
        """
        await self._parts.connections.close()
