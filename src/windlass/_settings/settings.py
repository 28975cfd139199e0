"""The settings of an app and of a worker: frozen, and checked when they are made."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Literal

import msgspec

from windlass._core.limits.backoff import Backoff
from windlass._core.values.grants import Grants
from windlass._core.values.names import check_queue, shown
from windlass._core.values.payload import MIB
from windlass._core.values.redaction import MASK, redacted_url
from windlass._settings.durations import parse_duration
from windlass.errors import ConfigError, InvalidArgument

__all__ = [
    "QueueOrder",
    "Settings",
    "StoredLogs",
    "WorkerSettings",
    "parse_duration",
]

_MAX_TEXT = 16 * MIB
_MOST = 1_000_000
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,50}")
_PREFIX = re.compile(r"[A-Za-z0-9_.:/-]{1,100}")

QueueOrder = Literal["strict", "weighted"]
StoredLogs = Literal["off", "debug", "info", "warning", "error"]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an app. Durations are timedeltas, seconds, or text such as ``"30s"``."""

    url: str
    """The storage: ``sqlite:///…``, ``postgresql://…``, ``redis://…`` or ``memory://``."""
    default_queue: str = "default"
    """The queue of tasks that name none."""
    routes: dict[str, str] = {}
    """Queues by patterns of task names: ``{"reports.*": "slow"}``. The first match wins."""
    max_attempts: int = 5
    """Runs of one job, for tasks that do not set it."""
    timeout: timedelta | None = None
    """Longest run, for tasks that do not set it. It is stored with each job."""
    backoff: Backoff | None = None
    """Waits between attempts, for tasks and queues that do not set them."""
    keep_succeeded: timedelta = timedelta(days=7)
    """Keep succeeded, cancelled and discarded jobs this long. 0 deletes a job that succeeds."""
    keep_failed: timedelta = timedelta(days=30)
    """Keep failed jobs this long."""
    keep_rollups: timedelta = timedelta(days=30)
    """Keep the counts per minute this long."""
    keep_events: timedelta = timedelta(days=7)
    """Keep the event log this long."""
    keep_audit: timedelta = timedelta(days=90)
    """Keep the audit log this long."""
    event_log: bool = False
    """Store an event for each enqueue and each transition of a job."""
    stored_logs: StoredLogs = "info"
    """Store the log lines of handlers from this level on; "off" stores none."""
    payload_limit: int = MIB
    """Largest arguments of a job, in bytes of JSON."""
    result_limit: int = MIB
    """Largest result of a job, in bytes of JSON."""
    error_limit: int = 64 * 1024
    """Largest stored error with its traceback, in bytes. A longer one loses its middle."""
    missing_task: Literal["wait", "fail"] = "wait"
    """A job whose task the worker does not have, or whose arguments do not fit: leave it waiting
    for another worker, or fail it.
    """
    misfit_for: timedelta = timedelta(hours=1)
    """How long a job whose arguments do not fit waits for another worker before it fails."""
    durability: Literal["full", "normal", "local", "replicated", "none"] | None = None
    """Which crashes stored jobs survive. None: the backend's default, which loses no job whose
    enqueue has returned.
    """
    replicas: int = 1
    """Redis with durability ``replicated``: replicas that must confirm a write."""
    schema: str = "windlass"
    """PostgreSQL: schema of the tables."""
    prefix: str = "windlass"
    """Redis: prefix of every key. Deployments that share a server need different ones."""
    migrate: Literal["auto", "manual"] = "auto"
    """Create and migrate the tables when the storage is opened, or only by ``windlass db migrate``.
    """
    allow_network_filesystem: bool = False
    """SQLite: allow a file on a network file system that only this machine opens."""
    heartbeat: timedelta = timedelta(seconds=5)
    """How often a worker renews its lease. Must fit three times into ``lease``."""
    lease: timedelta = timedelta(seconds=30)
    """How long after its last heartbeat a worker counts as alive."""
    reap_every: timedelta = timedelta(seconds=5)
    """How often workers look for expired leases."""
    poll: timedelta = timedelta(seconds=1)
    """How often an idle worker looks for jobs without being woken."""
    grace: timedelta = timedelta(seconds=30)
    """How long running jobs may take after a stop."""
    max_throttle: timedelta = timedelta(hours=1)
    """Longest pause that ``Throttled(after)`` may ask for."""
    slots: int = 10
    """Jobs that one worker runs at once."""
    on_isolation: Literal["continue", "cancel"] = "continue"
    """Running handlers of a worker that cannot reach the storage: let them continue, or cancel
    them before the lease ends.
    """
    child_max_jobs: int | None = None
    """``run_in="process"``: replace a child process after this number of jobs."""
    child_max_megabytes: int | None = None
    """Replace a child process that uses more memory than this after a job."""
    child_memory_limit: int | None = None
    """Kill a child process that uses more megabytes than this during a job (Linux)."""
    imports: tuple[str, ...] = ()
    """Modules that define tasks. Workers import them."""
    plugins: dict[str, Grants] = {}
    """Plugins of installed packages to load, by entry point, with their grants."""
    dashboard_auth: tuple[str, ...] = ()
    """Users of the dashboard: NAME:ROLE:HASH, made by ``windlass dashboard --new-user``."""

    def queue_of(self, task: str, own: str | None) -> str:
        """Return the queue of a task's jobs: by the routes, its ``own``, or the default one."""
        if self.routes:
            for pattern, queue in self.routes.items():
                if fnmatchcase(task, pattern):
                    return queue
        return own or self.default_queue

    def __repr__(self) -> str:
        """Show the settings without passwords: they end up in logs and bug reports."""
        said = {name: getattr(self, name) for name in self.__struct_fields__}
        said["url"] = redacted_url(self.url)
        said["dashboard_auth"] = (MASK,) * len(self.dashboard_auth)
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in said.items())})"

    def __post_init__(self) -> None:
        if self.heartbeat * 3 > self.lease:
            message = (
                f"heartbeat ({self.heartbeat}) must fit three times into lease ({self.lease}): "
                f"one missed beat must not cost a worker its claims"
            )
            raise ConfigError(message)
        for name in ("max_attempts", "slots", "replicas"):
            _at_least(name, getattr(self, name), 1)
            if getattr(self, name) > _MOST:
                message = f"{name} may be at most {_MOST:,}, got {getattr(self, name):,}"
                raise ConfigError(message)
        try:
            check_queue(self.default_queue, "default_queue")
            for pattern, queue in self.routes.items():
                check_queue(queue, f"the queue of {pattern!r} in routes")
        except InvalidArgument as error:
            raise ConfigError(str(error)) from None
        if not _SCHEMA.fullmatch(self.schema):
            message = (
                f"schema is a name for PostgreSQL such as windlass or app_jobs (small letters, "
                f"digits and _, at most 51), got {self.schema!r}"
            )
            raise ConfigError(message)
        if not _PREFIX.fullmatch(self.prefix):
            message = (
                f"prefix is a name for Redis such as windlass or shop-jobs (letters, digits and "
                f"any of _ . : / -, at most 100), got {self.prefix!r}"
            )
            raise ConfigError(message)
        for name in ("payload_limit", "result_limit", "error_limit"):
            _at_least(name, getattr(self, name), 256)
            if getattr(self, name) > _MAX_TEXT:
                message = f"{name} may be at most {_MAX_TEXT:,} bytes, got {getattr(self, name):,}"
                raise ConfigError(message)
        _some_or_none(self, "child_max_jobs", "child_max_megabytes", "child_memory_limit")
        for name in ("heartbeat", "lease", "reap_every", "poll", "max_throttle"):
            if getattr(self, name) <= timedelta(0):
                message = f"{name} must be longer than nothing"
                raise ConfigError(message)


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one worker."""

    queues: Mapping[str, int] | None = None
    """Queues with their own slots. None: the ``shared`` queues use one pool."""
    shared: Sequence[str] = ("default",)
    """Queues that share ``slots``, in order."""
    weights: Mapping[str, int] | None = None
    """Weights of queues for order ``weighted``. A queue without one has weight 1."""
    order: QueueOrder = "strict"
    """``strict`` empties the first queue first; ``weighted`` shares the slots by weight."""
    slots: int = 10
    """Jobs that run at once, on the ``shared`` queues."""
    max_jobs: int | None = None
    """Stop after this many jobs. A supervisor restarts the worker."""
    max_megabytes: int | None = None
    """Stop when the process uses more memory than this. A supervisor restarts the worker."""
    until_empty: bool = False
    """Stop when nothing is ready or running on the served queues."""

    def __post_init__(self) -> None:
        _at_least("slots", self.slots, 1)
        for queue in self.served:
            _served(queue)
        for queue, slots in (self.queues or {}).items():
            _at_least(f"the slots of queue {queue!r}", slots, 1)
        for queue, weight in (self.weights or {}).items():
            _at_least(f"the weight of queue {queue!r}", weight, 1)
        if (self.queues is not None and not self.queues) or not self.shared:
            message = "a worker needs at least one queue: queue=..., or --queue NAME"
            raise ConfigError(message)
        _some_or_none(self, "max_jobs", "max_megabytes")

    @property
    def served(self) -> tuple[str, ...]:
        """The queues, in order."""
        return tuple(self.queues) if self.queues is not None else tuple(self.shared)

    @property
    def total_slots(self) -> int:
        """Jobs that run at once, on all queues."""
        return sum(self.queues.values()) if self.queues is not None else self.slots


def _served(queue: str) -> None:
    """Refuse a name that no queue can have: its worker would wait for ever."""
    try:
        check_queue(queue, "a queue that a worker serves")
    except InvalidArgument as error:
        several = 'Several queues are a list, queues=["mail", "billing"]'
        slots = 'slots of their own a mapping, queues={"mail": 10}'
        raise ConfigError(f"{str(error).rstrip('.')}. {several}; {slots}.") from None


def _some_or_none(settings: msgspec.Struct, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        if value is not None:
            _at_least(name, value, 1)


def _at_least(name: str, value: int, least: int) -> None:
    given: object = value
    if isinstance(given, bool) or not isinstance(given, int):
        message = f"{name} must be a whole number, got {shown(given)}"
        raise ConfigError(message)
    if value < least:
        message = f"{name} must be at least {least}, got {value!r}"
        raise ConfigError(message)
