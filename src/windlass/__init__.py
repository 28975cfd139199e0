"""Windlass: background jobs for Python that survive, from one SQLite file to many machines."""

from windlass import errors
from windlass._version import __version__
from windlass.app import Windlass
from windlass.context import Context, current
from windlass.control import GiveUp, Retry, Snooze, Throttled
from windlass.core.backoff import Backoff
from windlass.handle import Job
from windlass.task import Task

__all__ = [
    "Backoff",
    "Context",
    "GiveUp",
    "Job",
    "Retry",
    "Snooze",
    "Task",
    "Throttled",
    "Windlass",
    "__version__",
    "current",
    "errors",
]
