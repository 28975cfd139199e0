"""Windlass: background jobs for Python that survive, from one SQLite file to many machines."""

from windlass import errors
from windlass._version import __version__
from windlass.app import Windlass
from windlass.context import Context, current
from windlass.control import GiveUp, Retry, Snooze, Throttled
from windlass.core.backoff import Backoff
from windlass.core.limit import Rate
from windlass.handle import Job
from windlass.limits import Limit
from windlass.task import Task

__all__ = [
    "Backoff",
    "Context",
    "GiveUp",
    "Job",
    "Limit",
    "Rate",
    "Retry",
    "Snooze",
    "Task",
    "Throttled",
    "Windlass",
    "__version__",
    "current",
    "errors",
]
