"""A plugin becomes part of an app, whole or not at all, and leaves it again."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from typing import Protocol

import msgspec

from windlass.config import Settings
from windlass.context import Layer
from windlass.core.grants import Grants
from windlass.core.schedule import Schedule
from windlass.core.text import shown
from windlass.declared import Declarations
from windlass.errors import DefinitionError, InvalidArgument
from windlass.plugins.confined import Scope
from windlass.plugins.granting import check_grants, check_own
from windlass.plugins.names import OURS, check_plugin_name
from windlass.plugins.registrar import Chore, Collected, Plugin, Registrar
from windlass.plugins.task import PluginTask
from windlass.services import Services
from windlass.task import Enqueuer

__all__ = ["Home", "Installed", "RunChore", "bring_in", "take_out"]

RunChore = Callable[[Services], Awaitable[str]]


class Home(Enqueuer, Protocol):
    """What a plugin becomes part of: an app."""

    settings: Settings
    declarations: Declarations
    layers: list[Layer]
    chores: dict[str, RunChore]
    plugins: dict[str, Installed]


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin that is part of an app, and what it may do there."""

    name: str
    documentation: str
    grants: Grants
    tasks: tuple[PluginTask, ...] = ()
    schedules: Mapping[str, Schedule] = {}
    """As the code has them, by name; chores among them."""
    chores: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    """What it says its handlers ask for."""
    layers: tuple[Layer, ...] = ()


def bring_in(home: Home, plugin: Plugin, grants: Grants, *, ours: bool = False) -> Installed:
    """Let a plugin say what it brings, look whether it may, and make it part of ``home``.

    Whatever goes wrong, in the plugin's own code or here, leaves ``home`` as it was.
    """
    given: object = grants
    if not isinstance(given, Grants):
        message = f"grants is a Grants such as Grants(tasks=True, queues=['default']), got {given}"
        raise InvalidArgument(message)
    name = _name_of(plugin)
    if name == OURS and not ours:
        message = f"{OURS!r} is the plugin that every app has: give yours another name"
        raise InvalidArgument(message)
    if name in home.plugins:
        message = (
            f"a plugin {name!r} is installed already: await app.uninstall({name!r}) first, or give "
            f"the second one a name of its own"
        )
        raise DefinitionError(message)
    scope = Scope(name, grants)
    registrar = Registrar(scope, home, inspect.getdoc(plugin) or "")
    plugin.register(registrar)
    brought = registrar.close()
    check_grants(name, brought, grants)
    plans, _ = brought.declared.plans(home.settings)
    check_own(scope, brought, plans)
    return _commit(home, scope, brought, plans)


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


def _commit(
    home: Home, scope: Scope, brought: Collected, plans: Mapping[str, Schedule]
) -> Installed:
    with ExitStack() as undo:
        for task in brought.tasks:
            home.tasks.add(task)
            undo.callback(home.tasks.remove, task.name)
        home.declarations.extend(brought.declared)
        undo.pop_all()
    home.layers.extend(brought.layers)
    home.chores.update({name: _chore(scope, chore) for name, chore in brought.chores.items()})
    home.plugins[scope.plugin] = made = Installed(
        name=scope.plugin,
        documentation=brought.documentation,
        grants=scope.grants,
        tasks=brought.tasks,
        schedules=plans,
        chores=tuple(brought.chores),
        services=brought.services,
        layers=brought.layers,
    )
    home.declarations.changed()  # to workers that run: a plugin may bring tasks alone
    return made


def _chore(scope: Scope, chore: Chore) -> RunChore:
    async def run(services: Services) -> str:
        return await chore(scope.services(services)) or "done"

    return run


def take_out(home: Home, plugin: Installed) -> None:
    """Nothing of it starts here any more; what runs goes on, what it has left stays."""
    del home.plugins[plugin.name]
    home.layers[:] = [layer for layer in home.layers if layer not in plugin.layers]
    for chore in plugin.chores:
        del home.chores[chore]
    for schedule in plugin.schedules:
        home.declarations.remove(schedule)
    for task in plugin.tasks:
        home.tasks.remove(task.name)
    home.declarations.changed()
