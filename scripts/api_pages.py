"""The pages of the API reference: which names are on which, and whose options are tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

__all__ = ["FIELDS", "INTERNAL", "LEFT_OUT", "OPTIONS", "PAGES", "SIGNATURES", "ApiPage"]


class ApiPage(NamedTuple):
    """A page: its file, title, introduction, and the names of each door on it."""

    file: str
    title: str
    about: str
    names: Mapping[str, Sequence[str] | None]
    """None: every name of the door."""


PAGES = (
    ApiPage("app", "The app", "`Windlass` is what you create first. It registers tasks, enqueues "
            "jobs and runs workers.", {"windlass": ("Windlass",)}),
    ApiPage("tasks", "Tasks and jobs", "Tasks, the handles of their jobs, and everything that a "
            "handler uses.", {"windlass": (
                "Task", "Call", "Job", "Context", "current", "Services", "Secret", "Backoff",
                "Program", "Retry", "Snooze", "Throttled", "GiveUp", "SoftTimeout", "Failure",
                "Success")}),
    ApiPage("limits", "Limits and unique jobs", "Values for the options `limits`, `breaker` and "
            "`unique` of a task.", {"windlass": ("Limit", "Rate", "Breaker", "Unique")}),
    ApiPage("schedules", "Schedules", "Rules for `app.schedule`.",
            {"windlass": ("Cron", "Every", "Once", "Manual", "PreviousRun")}),
    ApiPage("flows", "Flows", "Jobs that wait for jobs. The guide: [Flows](../../guides/flows.md).",
            {"windlass": ("Flow", "Node", "Group", "ended", "Results", "Done", "FlowRun")}),
    ApiPage("admin", "Admin interface", "Everything that the command line and the dashboard can "
            "do: `app.admin`. Without an event loop, use `app.blocking.admin`.",
            {"windlass.admin": None}),
    ApiPage("observe", "Monitoring and frameworks", "Events, log records, users of the dashboard, "
            "and the frameworks and services that Windlass connects to.", {
                "windlass.observe": None, "windlass.web": None,
                "windlass.integrations.celery": None, "windlass.integrations.fastapi": None,
                "windlass.integrations.flask": None,
                "windlass.integrations.django": None, "windlass.integrations.sentry": None}),
    ApiPage("plugins", "Plugins", "Tasks and schedules of other packages. The guide is "
            "[Plugins](../../guides/plugins.md).",
            {"windlass": ("Plugin", "Registrar", "Grants"), "windlass.plugins": None}),
    ApiPage("testing", "Testing", "The test kit. The guide is [Testing](../../guides/testing.md).",
            {"windlass.testing": None}),
    ApiPage("errors", "Errors", "Every exception of Windlass. Each message says what to do next.",
            {"windlass.errors": None}),
    ApiPage("storage", "Storage backends", "The protocols and records that a storage backend "
            "implements. You need them only to write one: see "
            "[Storage backends](../../inside/backends.md).", {"windlass.storage": None}),
)  # fmt: skip

LEFT_OUT = {("windlass", "__version__"), ("windlass", "errors")}
"""Names of doors without an entry: the version, and a module that has its own page."""

INTERNAL = {"Flow.plan", "Flow.fix", "Flow.close"}
"""Members that other parts of Windlass call, and users do not."""

OPTIONS = {
    "Windlass": ("windlass._settings.keywords", "SettingsKeywords"),
    "Windlass.task": ("windlass._tasks.decorators", "TaskKeywords"),
    "Windlass.schedule": ("windlass._schedules.declarations", "ScheduleKeywords"),
    "Windlass.worker": ("windlass._settings.keywords", "WorkerKeywords"),
    "Task.options": ("windlass._tasks.call", "CallKeywords"),
}
"""Callables that take options as keywords, and the types of these."""
SIGNATURES = {"Windlass.task": "@app.task\n@app.task(**options)"}
"""Callables whose signature says less than an example."""
FIELDS = {
    "Windlass": ("windlass._settings.settings", "Settings"),
    "Windlass.worker": ("windlass._settings.settings", "WorkerSettings"),
}
"""Options that are explained where they are fields; the others are explained by a docstring."""
