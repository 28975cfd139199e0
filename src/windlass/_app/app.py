"""The app: what users write, over the parts that do it."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, overload

from windlass._app.parts import AppParts
from windlass._app.sync import BlockingClient
from windlass._client.transactional import Wake
from windlass._core.job.event import Event
from windlass._core.job.ids import id_as_stored
from windlass._core.schedule.rules import Rule
from windlass._core.values.grants import Grants
from windlass._core.values.redaction import redacted_url
from windlass._schedules.declarations import ScheduleDecorator, ScheduleKeywords
from windlass._settings.keywords import SettingsKeywords, WorkerKeywords
from windlass._settings.settings import Settings, load_settings
from windlass._storage.protocol.transactions import UserConnection
from windlass._system.seams import SYSTEM_CLOCK, Clock, Seams
from windlass._tasks.call import Call
from windlass._tasks.call_options import CallKeywords, check_no_id
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

log = logging.getLogger("windlass")


def _warn_of_other_url(url: str) -> None:
    """Say that ``WINDLASS_URL`` changes nothing, because the code names another storage."""
    named = os.environ.get("WINDLASS_URL")
    if named and named != url:
        log.warning(
            "WINDLASS_URL is %s, but the code has Windlass(%r), which takes precedence. Write "
            "Windlass() in the code to use WINDLASS_URL, or unset the variable",
            redacted_url(named),
            redacted_url(url),
        )


class Windlass:
    """Tasks, storage, client, worker and admin of one application.

    ``async with app:`` opens it; used unopened, it opens at first use. One app may be used from
    several event loops, from threads and after a fork: each gets its own storage connection.
    """

    _warns = True
    """Whether a URL in the code that ``WINDLASS_URL`` does not change is worth a warning."""

    def __init__(
        self,
        url: str | None = None,
        *,
        config: str | Path | None = None,
        seams: Seams | None = None,
        clock: Clock = SYSTEM_CLOCK,
        **settings: Unpack[SettingsKeywords],
    ) -> None:
        """Read settings from the arguments, ``WINDLASS_…`` variables and the TOML file.

        `Settings` explains each. Durations are timedeltas, seconds, or text such as ``"30s"``.

        ``seams`` and ``clock`` are for tests: see ``windlass.testing``.
        """
        self.settings: Settings = load_settings(url, settings, config=config)
        if self._warns and url is not None:
            _warn_of_other_url(self.settings.url)
        self._parts = AppParts(self, self.settings, seams or Seams(wall=clock.now), clock)
        self.tasks: TaskRegistry = self._parts.tasks
        """Every task, by name."""
        self.services: AttachedServices = self._parts.hooks.services
        """What you lend to handlers, those of plugins among them: ``ctx.services``."""
        self.blocking: BlockingClient = self._parts.blocking
        """The same for code without an event loop."""

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

        ``name``: what jobs are stored under; ``module.function`` if none is given.
        ``aliases``: former names; jobs that are stored under them run, too.
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
        register = self._parts.registration.register
        if function:
            (target,) = function
            return register(target, options)
        return TaskDecorator(register, options)

    def schedule(self, rule: Rule, **options: Unpack[ScheduleKeywords]) -> ScheduleDecorator:
        """Run a task by a rule: ``@app.schedule(Cron("0 8 * * *"))`` above ``@app.task``, several
        times if need be, or ``app.schedule(Every(60), name="eu")(report.call("eu"))``.

        ``name``: what the schedule is stored under; the task's name if none is given.
        ``args``, ``kwargs``: the arguments of its jobs.
        ``missed``: slots that no worker was there to fire: "skip" them, fire "one" (the default)
        or "all", at most ``most_missed`` (100).
        ``overlap``: a slot that comes while a run is active: "skip" it (the default), let it wait
        its turn ("queue"), "allow" it, or a number of runs from which on it is skipped.
        ``jitter``: delay each job by up to this time, at random.
        ``starts``, ``ends``: fire only between these instants.
        ``breaker``: skip slots for a while after ten failures in a row; on unless False is given.
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
        """Store calls in one transaction, all or none; the handles are in order.

        ``ids``: one for each call, such as the ``ids`` of the error that ended the same call
        before: what was stored then is not stored again. ``connection``: yours; the jobs are part
        of the transaction that is open on it.
        """
        return await self._parts.producer.enqueue_many(
            calls, ids=ids, connection=connection, wake=wake
        )

    def job(self, job_id: str | UUID) -> Job[Any]:
        """Make a handle for an id you kept. Nothing is looked up until you ask it something.

        ``task.job(id)`` is the same for jobs of one task, with the type of its results.
        """
        return Job(self._parts.producer, id_as_stored(job_id), created=False, task=None)

    def worker(
        self,
        *,
        queues: Sequence[str] | Mapping[str, int] | None = None,
        others: bool = False,
        **settings: Unpack[WorkerKeywords],
    ) -> AbstractAsyncContextManager[Worker]:
        """Run a worker inside your own process, as long as the ``async with`` block lasts.

        ``queues``: names served from one pool of ``slots``, or a mapping of names to their own
        slots. ``others``: after these names also every other queue that a task names. Other
        settings: see `WorkerSettings`.
        """
        workers = self._parts.workers
        return workers.running(workers.settings(queues=queues, others=others, **settings))

    @property
    def admin(self) -> Admin:
        """Everything the command line and the dashboard can do."""
        return self._parts.admin

    # --- what you add to your jobs ---

    @property
    def state(self) -> Any:
        """Anything your handlers need: ``ctx.state``."""
        return self._parts.hooks.state

    @state.setter
    def state(self, state: Any) -> None:
        self._parts.hooks.set_state(state)

    def middleware(self, layer: Middleware) -> Middleware:
        """Run ``async def layer(ctx, call_next)`` around every job; the first one is outermost.

        What it returns is the job's result, what it raises is the job's error, whether or not it
        has called ``await call_next()``.
        """
        return self._parts.hooks.middleware(layer)

    def on_transition(self, listener: Callable[[Event], None]) -> Callable[[Event], None]:
        """Call ``listener`` with every event of this process, after it is committed.

        It runs on the event loop and must not block; what must happen exactly once is a job.
        """
        return self._parts.hooks.on_transition(listener)

    def lifespan(self, around: L) -> L:
        """Surround the life of every worker with ``async def around(app)``, which yields once.

        Code before the ``yield`` has ended before the first job is claimed, code after it begins
        when the last one is stored. Each child process has its own.
        """
        return self._parts.hooks.lifespan(around)

    def current_tenant(self, function: H) -> H:
        """Ask ``def function() -> str | None`` for the tenant of every call, when it is made.

        A tenant that the call itself gives wins; None: it has the one of the job it is made in,
        if any. Called where the call is made, in its thread and with its context variables.
        """
        return self._parts.hooks.current_tenant(function)

    # --- plugins ---

    @property
    def plugins(self) -> Plugins:
        """Those that are installed, by name."""
        return self._parts.plugins

    def install(self, plugin: Plugin, *, grants: Grants | None = None) -> Installed:
        """Let ``plugin`` bring its tasks, schedules and middleware, as far as ``grants`` go.

        All of it, or nothing: NotGranted names what is missing. It takes effect at once, also in
        workers that run in this process.
        """
        return self.plugins.install(plugin, grants or Grants())

    async def uninstall(self, name: str) -> None:
        """Start nothing of a plugin any more, and hold its schedules in the store. Running jobs
        finish; its jobs and their history stay, and so do those of its schedules.
        """
        await self.plugins.uninstall(name)

    # --- being watched ---

    def metrics(self, registry: CollectorRegistry | None = None) -> Metrics:
        """Count and time the jobs of this process for Prometheus; needs ``windlass[metrics]``.

        ``registry``: prometheus-client's global one if none is given. A second call returns the
        same object.
        """
        return self._parts.observability.metrics(registry)

    def tracing(
        self, provider: TracerProvider | None = None, *, meters: MeterProvider | None = None
    ) -> None:
        """Make OpenTelemetry spans of enqueues and runs; needs ``windlass[otel]``.

        ``provider``: the one that is set globally if none is given. ``meters``: metrics, too, if
        one is given. A second call changes nothing.
        """
        self._parts.observability.trace(provider)
        if meters is not None:
            self._parts.observability.meter(meters)

    def dashboard(self, auth: Any = None, **settings: Any) -> Starlette:
        """Make an ASGI app of pages to look at everything and to act; needs ``windlass[web]``.

        ``auth``: who may come in; see `windlass._web.app.make_dashboard` for the rest.
        """
        # By name: it is above this module, and what it needs is an extra.
        web: Any = importlib.import_module("windlass._web.app")
        made: Starlette = web.make_dashboard(self, auth, **settings)
        return made

    # --- opening and closing ---

    async def __aenter__(self) -> Self:
        """Open for this event loop."""
        await self._parts.storage()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close for this event loop."""
        await self.close()

    async def close(self) -> None:
        """Finish what is under way on this event loop and close. Using the app reopens it.

        Other event loops stay open; ``app.blocking.close()`` ends the one of the blocking calls.
        """
        await self._parts.connections.close()
