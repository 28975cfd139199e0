"""Installing plugins into an app, whole or not at all, and removing them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import ExitStack

import msgspec

from windlass._client.connections import Connections
from windlass._core.schedule.schedule import Schedule
from windlass._core.values.grants import Grants
from windlass._core.values.names import shown
from windlass._plugins import entry_points
from windlass._plugins.builtin_maintenance import GRANTS, Maintenance
from windlass._plugins.grant_checks import check_grants, check_ownership
from windlass._plugins.names import OURS, check_plugin_name
from windlass._plugins.plugin_task import PluginTask
from windlass._plugins.registrar import Chore, Plugin, PluginContents, Registrar
from windlass._plugins.restricted_context import PluginScope
from windlass._schedules.declarations import ScheduleRegistry
from windlass._schedules.edits import UNINSTALLED, Schedules, ScheduleView, write_of
from windlass._settings.settings import Settings
from windlass._storage.protocol.schedules import ScheduleStore, Written
from windlass._tasks.context import Middleware
from windlass._tasks.enqueuer import Enqueuer
from windlass._tasks.services import Services
from windlass.errors import DefinitionError, InvalidArgument, PluginUnknown, StoreBusy, suggestion

__all__ = ["Installed", "Plugins", "RunChore"]

RunChore = Callable[[Services], Awaitable[str]]

_TRIES = 20


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """An installed plugin and its grants."""

    name: str
    documentation: str
    grants: Grants
    tasks: tuple[PluginTask, ...] = ()
    schedules: Mapping[str, Schedule] = {}
    """Its schedules as the code declares them, by name, chores included."""
    chores: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    """The services that its handlers ask for."""
    layers: tuple[Middleware, ...] = ()


class Plugins(Mapping[str, Installed]):
    """The plugins of one app, by name. The built-in one is among them."""

    def __init__(
        self,
        settings: Settings,
        enqueuer: Enqueuer,
        schedules: ScheduleRegistry,
        connections: Connections,
    ) -> None:
        """Keep the parts. ``enqueuer`` stores the calls of the plugins' tasks; plugins add to its
        tasks and hooks.
        """
        self._settings = settings
        self._enqueuer = enqueuer
        self._tasks, self._layers = enqueuer.tasks, enqueuer.hooks.layers
        self._schedules = schedules
        self._connections = connections
        self._installed: dict[str, Installed] = {}
        self.chores: dict[str, RunChore] = {}
        """The functions of schedules without a job."""
        self._install(OURS, Maintenance(), GRANTS)

    def __getitem__(self, name: str) -> Installed:
        return self._installed[name]

    def __iter__(self) -> Iterator[str]:
        return iter([*self._installed])  # another thread may install one meanwhile

    def __len__(self) -> int:
        return len(self._installed)

    def load(self) -> None:
        """Install the plugins that the settings name, from the packages that offer them."""
        for name, grants in self._settings.plugins.items():
            if name not in self:
                self.install(entry_points.load_plugin(name), grants)

    def install(self, plugin: Plugin, grants: Grants) -> Installed:
        """Install a plugin: let it register its parts, check its grants, and add them to the app.

        An error, in the plugin's code or here, leaves the app unchanged.
        """
        given: object = grants
        if not isinstance(given, Grants):
            message = (
                f"grants is a Grants such as Grants(tasks=True, queues=['default']), got {given}"
            )
            raise InvalidArgument(message)
        name = _name_of(plugin)
        if name == OURS:
            message = f"{OURS!r} is the plugin that every app has: give yours another name"
            raise InvalidArgument(message)
        if name in self:
            message = (
                f"a plugin {name!r} is installed already: await app.uninstall({name!r}) first, or "
                f"give the second one another name"
            )
            raise DefinitionError(message)
        return self._install(name, plugin, grants)

    async def uninstall(self, name: str) -> None:
        """Remove a plugin, and pause its schedules in the store."""
        plugin = self.get(name)
        if plugin is None:
            near, known = suggestion(name, self), ", ".join(self)
            raise PluginUnknown(f"no plugin {name!r} is installed.{near} Installed: {known}")
        if plugin.schedules:  # first: if the store is away, everything stays as it was
            storage = await self._connections.storage()
            book = Schedules(storage.schedules, storage.now, self._connections.new_job_ids)
            await _hold_schedules(book, storage.schedules, plugin.schedules)
        if self.get(name) is plugin:  # another call may have been faster
            self._remove(plugin)

    def _install(self, name: str, plugin: Plugin, grants: Grants) -> Installed:
        scope = PluginScope(name, grants)
        registrar = Registrar(scope, self._enqueuer, inspect.getdoc(plugin) or "")
        plugin.register(registrar)
        brought = registrar.close()
        check_grants(name, brought, grants)
        plans, _ = brought.declared.plans(self._settings)
        check_ownership(scope, brought, plans)
        return self._commit(scope, brought, plans)

    def _commit(
        self, scope: PluginScope, brought: PluginContents, plans: Mapping[str, Schedule]
    ) -> Installed:
        with ExitStack() as undo:
            for task in brought.tasks:
                self._tasks.add(task)
                undo.callback(self._tasks.remove, task.name)
            self._schedules.extend(brought.declared)
            undo.pop_all()
        self._layers.extend(brought.layers)
        self.chores.update({name: _chore(scope, chore) for name, chore in brought.chores.items()})
        self._installed[scope.plugin] = made = Installed(
            name=scope.plugin,
            documentation=brought.documentation,
            grants=scope.grants,
            tasks=brought.tasks,
            schedules=plans,
            chores=tuple(brought.chores),
            services=brought.services,
            layers=brought.layers,
        )
        self._schedules.changed()  # to running workers: a plugin may add tasks alone
        return made

    def _remove(self, plugin: Installed) -> None:
        """Remove a plugin from this process. Running jobs finish, and its stored jobs stay."""
        del self._installed[plugin.name]
        self._layers[:] = [layer for layer in self._layers if layer not in plugin.layers]
        for chore in plugin.chores:
            del self.chores[chore]
        for schedule in plugin.schedules:
            self._schedules.remove(schedule)
        for task in plugin.tasks:
            self._tasks.remove(task.name)
        self._schedules.changed()


def _name_of(plugin: object) -> str:
    if inspect.isclass(plugin):
        message = f"install an object, not its class: app.install({plugin.__name__}(), …)"
        raise InvalidArgument(message)
    if not callable(getattr(plugin, "register", None)) or not hasattr(plugin, "name"):
        message = (
            f"a plugin is an object with a `name` and a method `register(registrar)`, "
            f"got {shown(plugin)}"
        )
        raise InvalidArgument(message)
    return check_plugin_name(plugin.name)


def _chore(scope: PluginScope, chore: Chore) -> RunChore:
    async def run(services: Services) -> str:
        return await chore(scope.services(services)) or "done"

    return run


async def _hold_schedules(book: Schedules, store: ScheduleStore, names: Collection[str]) -> None:
    """Pause these schedules in all processes, until their plugin is installed again."""
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
            and known.row.next_at is not None  # a schedule that is only triggered fires nothing
        ]
        answers = await store.write(writes) if writes else ()
        if all(answer.what is not Written.STALE for answer in answers):
            return
    message = "the plugin's schedules kept changing while they were being held: try again"
    raise StoreBusy(message)
