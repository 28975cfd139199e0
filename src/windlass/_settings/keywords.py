"""The settings that `Windlass` and its workers take as keyword arguments.

For type checkers and editors. Names and meanings are those of `windlass._settings.settings`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, TypedDict

from windlass._core.limits.backoff import Backoff
from windlass._core.values.grants import Grants
from windlass._settings.settings import QueueOrder, StoredLogs

__all__ = ["SettingsKeywords", "WorkerKeywords"]

Duration = timedelta | float | str
"""A timedelta, seconds, or text such as ``"30s"``."""


class SettingsKeywords(TypedDict, total=False):
    """The settings of ``Windlass(url, ...)``: see `windlass._settings.settings.Settings`."""

    default_queue: str
    routes: Mapping[str, str]
    max_attempts: int
    timeout: Duration | None
    backoff: Backoff | str | None
    keep_succeeded: Duration
    keep_failed: Duration
    keep_rollups: Duration
    keep_events: Duration
    keep_audit: Duration
    event_log: bool
    stored_logs: StoredLogs
    payload_limit: int
    result_limit: int
    error_limit: int
    missing_task: Literal["wait", "fail"]
    misfit_for: Duration
    durability: Literal["full", "normal", "local", "replicated", "none"] | None
    replicas: int
    schema: str
    prefix: str
    migrate: Literal["auto", "manual"]
    allow_network_filesystem: bool
    heartbeat: Duration
    lease: Duration
    reap_every: Duration
    poll: Duration
    grace: Duration
    max_throttle: Duration
    slots: int
    on_isolation: Literal["continue", "cancel"]
    child_max_jobs: int | None
    child_max_megabytes: int | None
    child_memory_limit: int | None
    imports: Sequence[str]
    plugins: Mapping[str, Grants | Mapping[str, Any]] | Sequence[str]
    dashboard_auth: Sequence[str]


class WorkerKeywords(TypedDict, total=False):
    """The settings of ``app.worker(...)`` besides its queues: the fields of `WorkerSettings`."""

    weights: Mapping[str, int] | None
    order: QueueOrder
    slots: int
    max_jobs: int | None
    max_megabytes: int | None
    until_empty: bool
