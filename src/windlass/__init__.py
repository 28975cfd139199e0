"""Windlass: background jobs for Python that survive, from one SQLite file to many machines.

Import the names of everyday code from here. Operators' tools, storage backends, plugins and tests
have modules of their own: ``windlass.admin``, ``.storage``, ``.plugins``, ``.testing``.
"""

from windlass import errors
from windlass._app.app import Windlass
from windlass._core.job.control import GiveUp, Retry, Snooze, Throttled
from windlass._core.limits.backoff import Backoff
from windlass._core.limits.breaker import Breaker
from windlass._core.limits.limit import Rate
from windlass._core.schedule.rules import Cron, Every, Manual, Once
from windlass._core.values.grants import Grants
from windlass._core.values.payload import Secret
from windlass._tasks.context import Context, current
from windlass._tasks.handle import Job
from windlass._tasks.limits import Limit
from windlass._tasks.on_failure import Failure
from windlass._tasks.services import Services
from windlass._tasks.task import Call, Task
from windlass._tasks.unique import Unique
from windlass._version import __version__
from windlass.plugins import Plugin, Registrar

__all__ = [
    "Backoff",
    "Breaker",
    "Call",
    "Context",
    "Cron",
    "Every",
    "Failure",
    "GiveUp",
    "Grants",
    "Job",
    "Limit",
    "Manual",
    "Once",
    "Plugin",
    "Rate",
    "Registrar",
    "Retry",
    "Secret",
    "Services",
    "Snooze",
    "Task",
    "Throttled",
    "Unique",
    "Windlass",
    "__version__",
    "current",
    "errors",
]
