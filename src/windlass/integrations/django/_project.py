"""The Django project of this process: its app, its tasks and its databases.

Django has one set of settings, applications and tasks in a process. The state that belongs to them
is kept here, in one object.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from windlass._app.app import Windlass
from windlass.integrations.django._interface import AnyTask, Interface

__all__ = ["PROJECT"]


class Project:
    """Finds the app once, and keeps it."""

    def __init__(self) -> None:
        """Start without an app."""
        # Two requests at once must not make two apps. Reentrant: finding it may import the caller.
        self._finding = threading.RLock()
        self._apps: dict[str | None, Windlass] = {}
        self._waiting: list[Callable[[Windlass], object]] = []
        self._met: set[str] = set()
        self._same_database: dict[tuple[str, ...], bool] = {}
        self.defined: dict[str, tuple[AnyTask, Interface]] = {}
        """Django's tasks as they were defined, by the names of the app's tasks."""

    def app(self, target: str | None, find: Callable[[str | None], Windlass]) -> Windlass:
        """Return the app at ``target``, the same one each time; ``find`` is called once."""
        with self._finding:
            if target not in self._apps:
                self._apps[target] = find(target)
            app = self._apps[target]
            while self._waiting:
                self._waiting[0](app)
                del self._waiting[0]  # not before: a refusal must be repeated
            return app

    def when_known(self, tell: Callable[[Windlass], object]) -> None:
        """Call ``tell`` with the app at its first use."""
        self._waiting.append(tell)

    def meet(self, task: str) -> bool:
        """Tell whether a Django task, by its path, is seen for the first time."""
        new = task not in self._met
        self._met.add(task)
        return new

    def define(self, name: str, task: AnyTask, interface: Interface) -> None:
        """Remember the Django task of one of the app's tasks."""
        self.defined[name] = (task, interface)

    def same_database(self, names: tuple[str, ...], ask: Callable[[], bool]) -> bool:
        """Tell whether a database is the one with the jobs, by their names. ``ask`` asks both once:
        their addresses change only with a new process.
        """
        if names not in self._same_database:
            self._same_database[names] = ask()
        return self._same_database[names]


PROJECT = Project()
