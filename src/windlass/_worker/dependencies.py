"""Parts of the app that a worker needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

import msgspec

from windlass._core.flows.flow import Addition
from windlass._core.job.job import ClaimedJob
from windlass._core.schedule.schedule import Schedule
from windlass._observe.bus import Bus
from windlass._plugins.installation import RunChore
from windlass._settings.settings import Settings
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import Seams
from windlass._tasks.app_location import AppLocation
from windlass._tasks.flows.flow import Flow
from windlass._tasks.hooks import Middleware
from windlass._tasks.services import AttachedServices
from windlass._tasks.task import Call, Task, TaskRegistry
from windlass._worker.scheduler.schedule_sync import Plans

__all__ = ["WorkerDependencies"]


async def _no_plans() -> Mapping[str, Schedule]:
    return {}


class WorkerDependencies(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of the app that a worker needs."""

    storage: Storage
    tasks: TaskRegistry
    settings: Settings
    seams: Seams
    bus: Bus
    enqueue: Callable[[Call[Any]], Awaitable[Any]]
    make_jobs: Callable[[ClaimedJob, Sequence[Call[Any] | Flow]], list[Addition]]
    """Makes the jobs and flows that a job adds to its success."""
    state: Callable[[], Any] = lambda: None
    """The application's own object, as it is now."""
    layers: Sequence[Middleware] = ()
    """The middleware, outermost first; it may still grow."""
    living: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    """The context managers around a worker's life."""
    plans: Plans = _no_plans
    """The schedules of the app's code, as they are now."""
    chores: Mapping[str, RunChore] = {}
    """The schedules without a job, by name; it may still grow."""
    on_change: Callable[[Callable[[], None]], Callable[[], None]] = lambda _: lambda: None
    """Tells when tasks or schedules come or go, from any thread; the answer ends it."""
    services: AttachedServices = msgspec.field(default_factory=AttachedServices)
    """The services of the application for handlers."""
    task_named: Callable[[str], Task[..., Any]] | None = None
    """Finds the task that a child process enqueues; None: one of ``tasks``."""
    locate: Callable[[], AppLocation] | None = None
    """Where child processes find the app; None: tasks that ask for one run in this process."""
