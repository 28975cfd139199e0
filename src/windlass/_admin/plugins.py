"""Plugins: their tasks and schedules, and their grants."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from windlass._admin.session import AdminSession
from windlass._core.limits.backoff import Backoff
from windlass._core.schedule.describe import describe_rule
from windlass._core.values.grants import Grants
from windlass._plugins.entry_points import installable
from windlass._plugins.installation import Installed
from windlass._plugins.plugin_task import PluginTask
from windlass._tasks.options import first_set
from windlass.errors import PluginUnknown, suggestion

__all__ = ["PluginAdmin", "PluginReport", "PluginSchedule", "PluginTaskReport"]


class PluginTaskReport(msgspec.Struct, frozen=True, kw_only=True):
    """A task of a plugin: its definition."""

    name: str
    documentation: str
    queue: str
    concurrency: int | None
    """In the whole cluster; None: the plugin sets no bound."""
    timeout: timedelta | None
    max_attempts: int
    backoff: Backoff | None
    """None: the queue's, or the usual one."""
    breaker: bool


class PluginSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as the plugin declares it. `ScheduleAdmin.get` says what holds now."""

    name: str
    words: str
    """Its rule in plain words."""
    task: str | None
    """None: a chore, which makes no jobs."""


class PluginReport(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin as people see it."""

    name: str
    documentation: str
    grants: Grants
    running: int | None
    """Its jobs that run now in the whole cluster; None: it has no ``max_running``, so they are not
    counted."""
    tasks: Sequence[PluginTaskReport]
    schedules: Sequence[PluginSchedule]
    middleware: int
    """How many layers."""
    services: Sequence[str]
    """The services that its handlers ask for."""


class PluginAdmin:
    """``app.admin.plugins``: the plugins that are installed in this process."""

    def __init__(self, session: AdminSession) -> None:
        self._session = session

    async def list(self) -> Sequence[PluginReport]:
        """List every plugin of this app, by name."""
        installed = self._session.plugins
        return [await self._report(installed[name]) for name in sorted(installed)]

    async def get(self, name: str) -> PluginReport:
        """Return one plugin; PluginUnknown."""
        installed = self._session.plugins
        found = installed.get(name)
        if found is None:
            near = suggestion(name, installed)
            offered = " Its package is installed, but the settings do not name it."
            message = (
                f"no plugin {name!r} is installed.{near}{offered if name in installable() else ''} "
                f"Installed: {', '.join(sorted(installed))}"
            )
            raise PluginUnknown(message)
        return await self._report(found)

    async def _report(self, plugin: Installed) -> PluginReport:
        running = None
        if plugin.grants.max_running is not None:
            limits = (await self._session.storage()).limits
            running = sum(state.running for state in await limits.states(plugin.name))
        return PluginReport(
            name=plugin.name,
            documentation=plugin.documentation,
            grants=plugin.grants,
            running=running,
            tasks=[self._task_report(task) for task in plugin.tasks],
            schedules=[
                PluginSchedule(
                    name=name,
                    words=describe_rule(plan.rule),
                    task=None if plan.job is None else plan.job.task,
                )
                for name, plan in plugin.schedules.items()
            ],
            middleware=len(plugin.layers),
            services=plugin.services,
        )

    def _task_report(self, task: PluginTask) -> PluginTaskReport:
        own, usual = task.settings, self._session.settings
        return PluginTaskReport(
            name=task.name,
            documentation=task.documentation,
            queue=usual.queue_of(task.name, own.queue),
            concurrency=task.concurrency,
            timeout=first_set(own.timeout, usual.timeout) or None,
            max_attempts=own.max_attempts or usual.max_attempts,
            backoff=own.backoff,
            breaker=own.breaker is not None,
        )
