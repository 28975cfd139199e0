"""The workers of one app: their settings, their dependencies, and running them in this process."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Unpack

# Imported with the worker, so that no job waits for it: a handler that cancels a job needs it.
import windlass._admin.admin  # noqa: F401
from windlass._admin.session import SweepReport
from windlass._client.client import Client
from windlass._core.schedule.schedule import Schedule
from windlass._settings.keywords import WorkerKeywords
from windlass._settings.settings import WorkerSettings
from windlass._tasks.follow_ups import check_follow_up_tasks
from windlass._worker.engine import WorkerDependencies
from windlass._worker.finish.decisions import Decisions
from windlass._worker.liveness.sweep import sweep
from windlass._worker.worker import Worker
from windlass.errors import ConfigError

if TYPE_CHECKING:
    from windlass._app.parts import AppParts

__all__ = ["Workers"]


class Workers:
    """Makes workers from the parts of one app."""

    def __init__(self, parts: AppParts) -> None:
        """Keep the parts: a worker needs nearly all of them."""
        self._parts = parts

    def settings(
        self,
        *,
        queues: Sequence[str] | Mapping[str, int] | None = None,
        others: bool = False,
        **settings: Unpack[WorkerKeywords],
    ) -> WorkerSettings:
        """Fill in the app's defaults."""
        given: dict[str, Any] = {"slots": self._parts.settings.slots, **settings}
        if isinstance(queues, Mapping):
            if others:
                message = (
                    "others (--others) is for queues that share their slots, and each of these "
                    "has its slots: name the others with theirs, or leave the numbers out"
                )
                raise ConfigError(message)
            given["queues"] = dict(queues)
        elif queues is not None:
            named = (queues,) if isinstance(queues, str) else tuple(queues)
            more = self._parts.queues() if others else ()
            given["shared"] = (*named, *(queue for queue in more if queue not in named))
        else:
            given["shared"] = self._parts.queues()
        try:
            return WorkerSettings(**given)
        except TypeError as error:
            raise ConfigError(str(error)) from error

    async def make(self, settings: WorkerSettings, **options: Any) -> Worker:
        """Make a worker that is not running yet."""
        self._parts.load()
        return Worker(await self.dependencies(), settings, **options)

    async def dependencies(self) -> WorkerDependencies:
        """Collect what a worker on this event loop needs."""
        parts = self._parts
        hooks, storage = parts.hooks, await parts.connections.storage()
        client = await parts.connections.client()
        check_follow_up_tasks(parts.tasks)
        await client.define(spec for task in parts.tasks for spec in task.needs)
        chores = parts.plugins.chores  # first: the plugin that every app has declares schedules
        plans = functools.partial(self._plans, client)
        await plans()  # a schedule that cannot be planned is refused here
        return WorkerDependencies(
            storage=storage,
            tasks=parts.tasks,
            settings=parts.settings,
            seams=parts.connections.seams,
            bus=hooks.bus,
            enqueue=parts.producer.enqueue_call,
            make_jobs=parts.producer.make_jobs,
            task_named=parts.producer.task_named,
            state=lambda: hooks.state,
            layers=hooks.layers,
            living=hooks.living,
            plans=plans,
            chores=chores,
            on_change=parts.schedules.on_change,
            services=hooks.services,
            locate=parts.location.locate,
        )

    async def sweep(self) -> SweepReport:
        """Do once, without a worker, what workers do for others: see `WorkerAdmin.sweep`."""
        parts = self._parts
        parts.load()
        storage = await parts.connections.storage()
        seams = parts.connections.seams
        decisions = Decisions(parts.tasks, parts.settings, storage.queues, seams)
        swept = await sweep(storage, decisions, parts.hooks.bus)
        return SweepReport(dead=swept.dead, released=swept.released, promoted=swept.promoted)

    async def _plans(self, client: Client) -> Mapping[str, Schedule]:
        """Return the schedules, after storing the limits that they need."""
        schedules, specs = self._parts.schedules.plans(self._parts.settings)
        await client.define(specs)
        return schedules

    @asynccontextmanager
    async def running(self, settings: WorkerSettings, **options: Any) -> AsyncIterator[Worker]:
        """Run a worker in this process for as long as the block lasts. ``options``: of `Worker`."""
        worker = await self.make(settings, **options)
        running = asyncio.get_running_loop().create_task(worker.run())
        self._parts.observability.enter(worker)
        started = asyncio.ensure_future(worker.started.wait())
        try:
            await asyncio.wait({running, started}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
            yield worker
        finally:
            started.cancel()
            worker.stop()
            try:
                await running
            finally:
                self._parts.observability.leave(worker)
