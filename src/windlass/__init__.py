"""Windlass: background jobs for Python, on SQLite, PostgreSQL or Redis.

Import the names of everyday code from here. Other modules: ``windlass.admin`` for operators,
``.storage`` for backends, ``.plugins``, ``.testing``, ``.integrations`` and ``.errors``.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from windlass._version import __version__

__all__ = [
    "Backoff",
    "Breaker",
    "Call",
    "Context",
    "Cron",
    "Done",
    "Every",
    "Failure",
    "Flow",
    "FlowRun",
    "GiveUp",
    "Grants",
    "Group",
    "Job",
    "Limit",
    "Manual",
    "Node",
    "Once",
    "Plugin",
    "PreviousRun",
    "Program",
    "Rate",
    "Registrar",
    "Results",
    "Retry",
    "Secret",
    "Services",
    "Snooze",
    "SoftTimeout",
    "Success",
    "Task",
    "Throttled",
    "Unique",
    "Windlass",
    "__version__",
    "current",
    "ended",
    "errors",
]

if TYPE_CHECKING:
    from windlass import errors
    from windlass._app.app import Windlass
    from windlass._client.flow_run import FlowRun
    from windlass._core.flows.results import Done, Results
    from windlass._core.job.control import GiveUp, Retry, Snooze, Throttled
    from windlass._core.limits.backoff import Backoff
    from windlass._core.limits.breaker import Breaker
    from windlass._core.limits.limit import Rate
    from windlass._core.schedule.previous_run import PreviousRun
    from windlass._core.schedule.rules import Cron, Every, Manual, Once
    from windlass._core.values.grants import Grants
    from windlass._core.values.payload import Secret
    from windlass._plugins.registrar import Plugin, Registrar
    from windlass._tasks.context import Context, SoftTimeout, current
    from windlass._tasks.flows.flow import Flow, Group, Node, ended
    from windlass._tasks.follow_ups import Failure, Success
    from windlass._tasks.handle import Job
    from windlass._tasks.limits import Limit
    from windlass._tasks.options import Program
    from windlass._tasks.services import Services
    from windlass._tasks.task import Call, Task
    from windlass._tasks.unique import Unique
else:
    # The same names, each imported at its first use. A command that prints its help does not load
    # the app, and a program that enqueues does not load the parts for plugins.
    _HOMES = {
        "Backoff": "_core.limits.backoff",
        "Breaker": "_core.limits.breaker",
        "Call": "_tasks.task",
        "Context": "_tasks.context",
        "Cron": "_core.schedule.rules",
        "Done": "_core.flows.results",
        "Every": "_core.schedule.rules",
        "Failure": "_tasks.follow_ups",
        "Flow": "_tasks.flows.flow",
        "FlowRun": "_client.flow_run",
        "GiveUp": "_core.job.control",
        "Grants": "_core.values.grants",
        "Group": "_tasks.flows.flow",
        "Job": "_tasks.handle",
        "Limit": "_tasks.limits",
        "Manual": "_core.schedule.rules",
        "Node": "_tasks.flows.flow",
        "Once": "_core.schedule.rules",
        "Plugin": "_plugins.registrar",
        "PreviousRun": "_core.schedule.previous_run",
        "Program": "_tasks.options",
        "Rate": "_core.limits.limit",
        "Registrar": "_plugins.registrar",
        "Results": "_core.flows.results",
        "Retry": "_core.job.control",
        "Secret": "_core.values.payload",
        "Services": "_tasks.services",
        "Snooze": "_core.job.control",
        "SoftTimeout": "_tasks.context",
        "Success": "_tasks.follow_ups",
        "Task": "_tasks.task",
        "Throttled": "_core.job.control",
        "Unique": "_tasks.unique",
        "Windlass": "_app.app",
        "current": "_tasks.context",
        "ended": "_tasks.flows.flow",
    }

    def __getattr__(name: str) -> object:
        if name == "errors":
            return import_module("windlass.errors")
        if name not in _HOMES:
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(message)
        return getattr(import_module(f"windlass.{_HOMES[name]}"), name)

    def __dir__() -> list[str]:
        return [*__all__, *globals()]
