"""``app.install``: plugins become part of an app, within what it grants."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, cast

import msgspec

from windlass._app.decorators import Definer
from windlass._core.limits.limit import LimitSpec
from windlass._core.schedule.schedule import Schedule
from windlass._core.values.grants import Grants
from windlass._plugins import entry_points
from windlass._plugins.builtin_maintenance import GRANTS, Maintenance
from windlass._plugins.installation import (
    Installed,
    PluginHost,
    RunChore,
    install_plugin,
    uninstall_plugin,
)
from windlass._plugins.plugin_task import PluginTask
from windlass._plugins.registrar import Plugin
from windlass._schedules.edits import UNINSTALLED, Schedules, ScheduleView, write_of
from windlass._storage.protocol.schedules import ScheduleStore, Written
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import Seams
from windlass._tasks.task import Call
from windlass._worker.scheduler.schedule_sync import Plans
from windlass.errors import PluginUnknown, StoreBusy, UnknownTask, suggestion

__all__ = ["Installer", "hold_schedules"]

_TRIES = 20


async def hold_schedules(book: Schedules, store: ScheduleStore, names: Collection[str]) -> None:
    """Fire none of these, in any process, until somebody installs their plugin again."""
    for _ in range(_TRIES):
        writes = [
            write_of(
                known,
                msgspec.structs.replace(known.state, problem=UNINSTALLED, held=known.row.next_at),
                None,
            )
            for known in await book.all()
            if isinstance(known, ScheduleView)
            and known.row.name in names
            and known.state.fires
            and known.row.next_at is not None  # what is only ever triggered fires nothing
        ]
        answers = await store.write(writes) if writes else ()
        if all(answer.what is not Written.STALE for answer in answers):
            return
    message = "the plugin's schedules kept changing while they were being held: try again"
    raise StoreBusy(message)


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
        return install_plugin(cast("PluginHost", self), plugin, grants or Grants())

    async def uninstall(self, name: str) -> None:
        """Start nothing of a plugin any more, and hold its schedules in the store. What runs goes
        on; its jobs and their history stay, and so do the schedules' own.
        """
        plugin = self.plugins.get(name)
        if plugin is None:
            near, known = suggestion(name, self.plugins), ", ".join(self.plugins)
            raise PluginUnknown(f"no plugin {name!r} is installed.{near} Installed: {known}")
        if plugin.schedules:  # first: a store that is away leaves everything as it was
            app = cast("_Stored", self)
            storage = await app.storage()
            book = Schedules(storage.schedules, storage.now, app._seams.new_job_ids)  # noqa: SLF001
            await hold_schedules(book, storage.schedules, plugin.schedules)
        if self.plugins.get(name) is plugin:  # somebody else may have been quicker
            uninstall_plugin(cast("PluginHost", self), plugin)

    def planner(self, define: Callable[[Iterable[LimitSpec]], Awaitable[None]]) -> Plans:
        """Says which schedules there are, once ``define`` has brought in the limits they need."""

        async def plans() -> Mapping[str, Schedule]:
            schedules, specs = self.declarations.plans(cast("PluginHost", self).settings)
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
        install_plugin(cast("PluginHost", self), Maintenance(), GRANTS, ours=True)

    def _install_named(self) -> None:
        """The plugins that the settings name, from the packages that offer them."""
        for name, grants in cast("PluginHost", self).settings.plugins.items():
            if name not in self.plugins:
                self.install(entry_points.load_plugin(name), grants=grants)
