"""Windlass: background jobs for Python that survive, from one SQLite file to many machines."""

from windlass import errors
from windlass._version import __version__
from windlass.app import Windlass
from windlass.context import Context, current
from windlass.control import GiveUp, Retry, Snooze, Throttled
from windlass.core.backoff import Backoff
from windlass.core.breaker import Breaker
from windlass.core.grants import Grants
from windlass.core.limit import Rate
from windlass.core.payload import Secret
from windlass.core.rules import Cron, Every, Manual, Once
from windlass.followup import Failure
from windlass.handle import Job
from windlass.limits import Limit
from windlass.plugins import Plugin, Registrar
from windlass.services import Services
from windlass.task import Call, Task
from windlass.unique import Unique

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
