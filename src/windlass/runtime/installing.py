"""``app.install``: plugins become part of an app, within what it grants."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, cast

from windlass.core.grants import Grants
from windlass.core.limit import LimitSpec
from windlass.core.schedule import Schedule
from windlass.errors import PluginUnknown, UnknownTask, suggestion
from windlass.plugins import finding
from windlass.plugins.installed import Home, Installed, RunChore, bring_in, take_out
from windlass.plugins.maintenance import GRANTS, Maintenance
from windlass.plugins.registrar import Plugin
from windlass.plugins.stopping import hold
from windlass.plugins.task import PluginTask
from windlass.runtime.declaring import Plans
from windlass.runtime.defining import Definer
from windlass.schedules import Schedules
from windlass.seams import Seams
from windlass.storage.protocol import Storage
from windlass.task import Call

__all__ = ["Installer"]


class _Stored(Protocol):
    storage: Callable[[], Awaitable[Storage]]
    _seams: Seams


class Installer(Definer):
    """The part of an app that plugins are installed in."""

    def __init__(self) -> None:
        super().__init__()
        self.plugins: dict[str, Installed] = {}
        """Those that are installed, by name."""
        self.chores: dict[str, RunChore] = {}
        """What schedules without a job do."""

    def install(self, plugin: Plugin, *, grants: Grants | None = None) -> Installed:
        """Let ``plugin`` bring its tasks, schedules and middleware, as far as ``grants`` go.

        All of it, or nothing: NotGranted names what is missing. It takes effect at once, also in
        workers that run in this process.
        """
        return bring_in(cast("Home", self), plugin, grants or Grants())

    async def uninstall(self, name: str) -> None:
        """Start nothing of a plugin any more, and hold its schedules in the store. What runs goes
        on; its jobs and their history stay, and so do the schedules' own.
        """
        plugin = self.plugins.get(name)
        if plugin is None:
            near, known = suggestion(name, self.plugins), ", ".join(self.plugins)
            raise PluginUnknown(f"no plugin {name!r} is installed.{near} Here: {known}")
        if plugin.schedules:  # first: a store that is away leaves everything as it was
            app = cast("_Stored", self)
            storage = await app.storage()
            book = Schedules(storage.schedules, storage.now, app._seams.new_job_ids)  # noqa: SLF001
            await hold(book, storage.schedules, plugin.schedules)
        if self.plugins.get(name) is plugin:  # somebody else may have been quicker
            take_out(cast("Home", self), plugin)

    def planner(self, define: Callable[[Iterable[LimitSpec]], Awaitable[None]]) -> Plans:
        """Says which schedules there are, once ``define`` has brought in the limits they need."""

        async def plans() -> Mapping[str, Schedule]:
            schedules, specs = self.declarations.plans(cast("Home", self).settings)
            await define(specs)
            return schedules

        return plans

    def _check_own(self, calls: Sequence[Call[Any]]) -> None:
        """Refuse calls of tasks that nobody here could run, and those that grants do not cover."""
        for task in {call.task for call in calls}:
            if isinstance(task, PluginTask):
                task.check(calls)
            if self.tasks.find(task.name) is not task:
                raise UnknownTask(task.name, self.tasks.names)

    def _install_own(self) -> None:
        bring_in(cast("Home", self), Maintenance(), GRANTS, ours=True)

    def _install_named(self) -> None:
        """The plugins that the settings name, from the packages that offer them."""
        for name, grants in cast("Home", self).settings.plugins.items():
            if name not in self.plugins:
                self.install(finding.load(name), grants=grants)
