"""Django: one app from your settings, jobs after the commit, ``manage.py windlass_worker``.

``INSTALLED_APPS`` names this package; ``WINDLASS`` says where the app is (``APP``) or what to make
one from (``URL`` and any other setting, in capitals).
"""

from __future__ import annotations

import atexit
import functools
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from windlass._app.app import Windlass
from windlass._app.parts import parts_of
from windlass._cli.app_loader import load_app
from windlass._tasks.task import BoundTask, Call, Task
from windlass.errors import ConfigError, MissingDependency, UnknownTask
from windlass.integrations.django._project import PROJECT

try:
    from django.conf import settings
    from django.db import close_old_connections, transaction
except ImportError as _missing:
    raise MissingDependency("windlass.integrations.django", "django") from _missing

__all__ = ["TARGET", "enqueue_on_commit", "fresh_connections", "get_app", "make_app", "on_commit"]

P = ParamSpec("P")
R = TypeVar("R")

TARGET = "windlass.integrations.django.ready:app"
"""The import path of the app for workers and their children. Importing it sets Django up first."""


def make_app(**overriding: Any) -> Windlass:
    """Make an app from ``settings.WINDLASS``, for the module that ``APP`` names."""
    chosen = {key.lower(): value for key, value in read_settings().items() if key != "APP"}
    chosen.update(overriding)
    app = Windlass(chosen.pop("url", None), **chosen)
    app.tasks.add_queues(_queues())
    return app


def get_app() -> Windlass:
    """Return the app of this project, the same one each time."""
    return PROJECT.app(read_settings().get("APP"), _find)


def _find(target: str | None) -> Windlass:
    if target is None:
        app = make_app()
        parts_of(app).load()
    else:
        app = load_app(target)
    # Found under this name only: anywhere else Django would not be set up.
    parts_of(app).location.loaded_from(TARGET)
    app.tasks.add_queues(_queues())
    atexit.register(app.blocking.close)
    return app


def read_settings() -> Mapping[str, Any]:
    """Read ``settings.WINDLASS``; ConfigError if it is missing or empty."""
    written = getattr(settings, "WINDLASS", None)
    if not isinstance(written, Mapping) or not {"APP", "URL"} & set(written):
        message = (
            'settings.WINDLASS must name the storage: WINDLASS = {"URL": "sqlite:///jobs.db"}, '
            'or the app: {"APP": "shop.jobs:app"}'
        )
        raise ConfigError(message)
    return written


def _queues() -> set[str]:
    """List the queues that Django's own tasks may use."""
    named: set[str] = set()
    for params in getattr(settings, "TASKS", {}).values():
        if str(params.get("BACKEND", "")).startswith(f"{__name__}."):
            named.update(params.get("QUEUES", ["default"]))
    return named


def enqueue_on_commit(
    task: Task[P, Any] | BoundTask[P, Any], /, *args: P.args, **kwargs: P.kwargs
) -> None:
    """Enqueue a job when the transaction on the default database commits; without one, at once.

    The arguments are encoded now: wrong ones are refused here, and later changes do not affect the
    job. After a rollback nothing is enqueued.
    """
    on_commit(task.call(*args, **kwargs))


def on_commit(*calls: Call[Any], using: str | None = None) -> None:
    """Enqueue several calls, all or none, when the transaction on the database ``using``
    commits.
    """
    app = get_app()
    for call in calls:
        if app.tasks.find(call.task.name) is not call.task:
            raise UnknownTask(call.task.name, app.tasks.names)
    transaction.on_commit(functools.partial(app.blocking.enqueue_many, calls), using=using)


def fresh_connections(function: Callable[P, R]) -> Callable[P, R]:
    """Close database connections that are broken or past ``CONN_MAX_AGE``, before and after a task.

    Write it below ``@app.task`` on tasks that use Django's database.
    """

    @functools.wraps(function)
    def fresh(*args: P.args, **kwargs: P.kwargs) -> R:
        close_old_connections()
        try:
            return function(*args, **kwargs)
        finally:
            close_old_connections()

    return fresh
