"""The import path of the app, for child processes."""

from __future__ import annotations

import sys
from types import ModuleType

import msgspec

from windlass._core.values.handler import importable_module
from windlass._tasks.task import TaskRegistry
from windlass.errors import ConfigError

__all__ = ["AppLocation", "AppLocator", "child_tasks"]


class AppLocation(msgspec.Struct, frozen=True):
    """Import paths that a child process needs to have the same tasks."""

    target: str
    """``module:variable``, as for ``windlass worker``."""
    modules: tuple[str, ...]
    """Modules to import as well: they define tasks that run in children."""
    path: tuple[str, ...]
    """The ``sys.path`` of this process."""


def child_tasks(tasks: TaskRegistry) -> list[str]:
    """List the names of the tasks that run in children."""
    return [task.name for task in tasks if task.in_process]


class AppLocator:
    """Finds the import path of one app."""

    def __init__(self, app: object, tasks: TaskRegistry) -> None:
        """Keep the app. ``app``: the object to look for in imported modules."""
        self._app = app
        self._tasks = tasks
        self.target: str | None = None
        """``module:variable``, if this process has loaded the app by that name."""

    def loaded_from(self, target: str) -> None:
        """Note the name that this process loaded the app by."""
        self.target = target

    def locate(self) -> AppLocation:
        """Return the import path of the app for a child process; ConfigError if there is none."""
        homes = {task.function.__module__ for task in self._tasks if task.in_process}
        modules = sorted({importable_module(f"{home}.x").rpartition(".")[0] for home in homes})
        found = self.target or _search(self._app, sorted(homes))
        if found is None:
            raise ConfigError(_nowhere(self._tasks))
        path = tuple(entry or "." for entry in sys.path)
        return AppLocation(found, tuple(name for name in modules if name != "__main__"), path)


def _search(app: object, homes: list[str]) -> str | None:
    """Search the modules that define its tasks, then all imported modules."""
    for name in [*homes, *list(sys.modules)]:
        module = sys.modules.get(name)
        if not isinstance(module, ModuleType):
            continue
        proper = importable_module(f"{name}.x").rpartition(".")[0]
        if proper == "__main__":
            continue  # typed into an interpreter: no other process can import it
        for variable, value in list(vars(module).items()):
            if value is app:
                return f"{proper}:{variable}"
    return None


def _nowhere(tasks: TaskRegistry) -> str:
    return (
        f'{", ".join(child_tasks(tasks))}: run_in="process" starts another Python that imports '
        f"the app, and this app is not a variable of a module. Write app = Windlass(...) and the "
        f"tasks at the top level of a file, not inside a function or an interactive session"
    )
