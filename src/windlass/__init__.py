"""Windlass: background jobs for Python that survive, from one SQLite file to many machines."""

from windlass import errors
from windlass._version import __version__
from windlass.app import Windlass
from windlass.context import Context, current
from windlass.control import GiveUp, Retry, Snooze, Throttled
from windlass.core.backoff import Backoff
from windlass.core.breaker import Breaker
from windlass.core.limit import Rate
from windlass.core.payload import Secret
from windlass.core.rules import Cron, Every, Manual, Once
from windlass.followup import Failure
from windlass.handle import Job
from windlass.limits import Limit
from windlass.task import Task
from windlass.unique import Unique

__all__ = [
    "Backoff",
    "Breaker",
    "Context",
    "Cron",
    "Every",
    "Failure",
    "GiveUp",
    "Job",
    "Limit",
    "Manual",
    "Once",
    "Rate",
    "Retry",
    "Secret",
    "Snooze",
    "Task",
    "Throttled",
    "Unique",
    "Windlass",
    "__version__",
    "current",
    "errors",
]
