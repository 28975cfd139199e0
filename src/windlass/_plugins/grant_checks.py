"""Checks that a plugin has the grants for what it adds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from windlass._core.job.job import NewJob
from windlass._core.schedule.schedule import Schedule
from windlass._core.values.grants import Grants
from windlass._plugins.plugin_task import PluginTask
from windlass._plugins.registrar import PluginContents
from windlass._plugins.restricted_context import PluginScope
from windlass._tasks.task import Task
from windlass.errors import DefinitionError, NotGranted

__all__ = ["check_grants", "check_ownership"]


def check_grants(plugin: str, brought: PluginContents, grants: Grants) -> None:
    """Refuse a plugin, naming every grant that it lacks."""
    lacking = [*_lacking(brought, grants)]
    if lacking:
        listed = "; ".join(f"{name} ({why})" for name, why in lacking)
        raise NotGranted(
            f"plugin {plugin!r} is not installed, because these grants are missing: {listed}. "
            f"Grant them, app.install(…, grants=Grants(…)), or leave the plugin out."
        )


def _lacking(brought: PluginContents, grants: Grants) -> Iterator[tuple[str, str]]:
    """Yield each missing grant, as it is written in `Grants`, and the reason for it."""
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
    """Refuse schedules for tasks of others, and jobs in queues that are not granted."""
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
