"""A plugin becomes part of an app, whole or not at all, and leaves it again."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Protocol

import msgspec

from windlass._core.job.job import NewJob
from windlass._core.schedule.schedule import Schedule
from windlass._core.values.grants import Grants
from windlass._core.values.names import shown
from windlass._plugins.names import OURS, check_plugin_name
from windlass._plugins.plugin_task import PluginTask
from windlass._plugins.registrar import Chore, Plugin, PluginContents, Registrar
from windlass._plugins.restricted_context import PluginScope
from windlass._schedules.declarations import ScheduleRegistry
from windlass._settings.settings import Settings
from windlass._tasks.context import Middleware
from windlass._tasks.services import Services
from windlass._tasks.task import Enqueuer, Task
from windlass.errors import DefinitionError, InvalidArgument, NotGranted

__all__ = [
    "Installed",
    "PluginHost",
    "RunChore",
    "check_grants",
    "check_ownership",
    "install_plugin",
    "uninstall_plugin",
]

RunChore = Callable[[Services], Awaitable[str]]


def check_grants(plugin: str, brought: PluginContents, grants: Grants) -> None:
    """Refuse a plugin with everything that it lacks, not the first thing only."""
    lacking = [*_lacking(brought, grants)]
    if lacking:
        listed = "; ".join(f"{name} ({why})" for name, why in lacking)
        raise NotGranted(
            f"plugin {plugin!r} is not installed, because these grants are missing: {listed}. "
            f"Grant them, app.install(…, grants=Grants(…)), or leave the plugin out."
        )


def _lacking(brought: PluginContents, grants: Grants) -> Iterator[tuple[str, str]]:
    """The capability, as it is written in `Grants`, and what for."""
    tasks = [task.name for task in brought.tasks]
    timed = [declared.name for declared, _ in brought.declared if declared.call is not None]
    if tasks and not grants.tasks:
        yield "tasks=True", ", ".join(tasks)
    for queue, names in _queues(brought.tasks).items():
        if queue not in grants.queues:
            missing = "queues=[…]" if queue is None else f"queues=[{queue!r}]"
            yield missing, f"for {', '.join(names)}"
    if timed and not grants.schedules:
        yield "schedules=True", ", ".join(timed)
    if brought.chores and not grants.chores:
        yield "chores=True", ", ".join(brought.chores)
    if brought.layers and grants.middleware is None:
        yield "middleware='own' or 'all'", f"{len(brought.layers)} around jobs"
    for service in brought.services:
        if service not in grants.services:
            yield f"services=[{service!r}]", "asked for by its handlers"
    for task in brought.tasks:
        if task.settings.unique is not None and task.settings.unique.scope == "global":
            yield "unique keys of the whole application", f"scope='global' of {task.name}"


def _queues(tasks: tuple[PluginTask, ...]) -> Mapping[str | None, list[str]]:
    found: dict[str | None, list[str]] = {}
    for task in tasks:
        found.setdefault(task.settings.queue, []).append(task.name)
    return found


def check_ownership(
    scope: PluginScope, brought: PluginContents, plans: Mapping[str, Schedule]
) -> None:
    """Refuse what would make jobs of somebody else's task, or put its own where they may not be."""
    for task in brought.tasks:
        taker = task.settings.on_failure
        name = taker.name if isinstance(taker, Task) else taker
        if name is not None and not scope.owns(name):
            message = (
                f"on_failure of {task.name!r} names {name!r}, which is no task of plugin "
                f"{scope.plugin!r}: a plugin makes jobs of its own tasks only"
            )
            raise DefinitionError(message)
    for schedule, plan in plans.items():
        if plan.job is not None:
            _check_job(scope, schedule, plan.job)


def _check_job(scope: PluginScope, schedule: str, job: NewJob) -> None:
    if not scope.owns(job.task):
        message = (
            f"schedule {schedule!r} runs {job.task!r}, which is no task of plugin "
            f"{scope.plugin!r}: a plugin schedules its own tasks only"
        )
        raise DefinitionError(message)
    if job.queue not in scope.grants.queues:
        raise NotGranted(
            f"plugin {scope.plugin!r} is not installed: schedule {schedule!r} puts its jobs on "
            f"queue {job.queue!r}. Grant it, Grants(queues=[{job.queue!r}], …)."
        )


class PluginHost(Enqueuer, Protocol):
    """What a plugin becomes part of: an app."""

    settings: Settings
    declarations: ScheduleRegistry
    layers: list[Middleware]
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
    layers: tuple[Middleware, ...] = ()


def install_plugin(
    home: PluginHost, plugin: Plugin, grants: Grants, *, ours: bool = False
) -> Installed:
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
            f"the second one another name"
        )
        raise DefinitionError(message)
    scope = PluginScope(name, grants)
    registrar = Registrar(scope, home, inspect.getdoc(plugin) or "")
    plugin.register(registrar)
    brought = registrar.close()
    check_grants(name, brought, grants)
    plans, _ = brought.declared.plans(home.settings)
    check_ownership(scope, brought, plans)
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
    home: PluginHost, scope: PluginScope, brought: PluginContents, plans: Mapping[str, Schedule]
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


def _chore(scope: PluginScope, chore: Chore) -> RunChore:
    async def run(services: Services) -> str:
        return await chore(scope.services(services)) or "done"

    return run


def uninstall_plugin(home: PluginHost, plugin: Installed) -> None:
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
