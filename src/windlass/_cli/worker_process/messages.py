"""Messages of a worker when it starts, and about the jobs it leaves behind."""

from __future__ import annotations

import logging
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from windlass._admin.storage import format_fact
from windlass._app.app import Windlass
from windlass._cli.output.terminal import Terminal
from windlass._observe.log import brief, printable
from windlass._settings.settings import WorkerSettings
from windlass._storage.protocol.admin import QueueCounts
from windlass._storage.protocol.storage import Storage
from windlass._version import __version__
from windlass.errors import StorageError

__all__ = ["WorkerBanner", "banner", "log_storage", "remaining", "remaining_in_words"]

log = logging.getLogger("windlass")

_SHOWN = 12
_LABEL = 10

_EMPTY = "no jobs are left"


async def log_storage(storage: Storage) -> None:
    """Log how the storage is set up, at debug level: its timeouts, connections and sizes."""
    if not log.isEnabledFor(logging.DEBUG):
        return
    try:
        facts = await storage.health()
    except StorageError as error:
        log.debug("storage: %s", error)
    else:
        told = [f"{name} {format_fact(name, value)}" for name, value in facts.items()]
        log.debug("storage: %s", ", ".join(told))


async def remaining(storage: Storage, queues: Sequence[str]) -> str:
    """Describe the jobs left on ``queues``. The store decides: other programs use it, too."""
    try:
        counts = [one for one in await storage.admin.counts() if one.queue in queues]
        due = await storage.maintenance.next_due(queues)
        return remaining_in_words(counts, due, await storage.now())
    except StorageError:
        return "no job is ready"  # the store cannot say what else there is


def remaining_in_words(counts: Sequence[QueueCounts], due: datetime | None, now: datetime) -> str:
    """Describe counts: ``no job is ready; 2 jobs are scheduled, the next at 23:18:53``."""
    later = sum(one.scheduled for one in counts)
    paused = sum(one.ready for one in counts if one.paused)
    parts = []
    if later:
        at = f", the next at {_clock(due, now)}" if due is not None else ""
        parts.append(f"{_jobs(later)} scheduled{at}")
    if paused:
        parts.append(f"{_jobs(paused)} in a paused queue")
    return "; ".join(["no job is ready", *parts]) if parts else _EMPTY


def _jobs(count: int) -> str:
    return "1 job is" if count == 1 else f"{count:,} jobs are"


def _clock(due: datetime, now: datetime) -> str:
    """Local time, with the day when it is not within one."""
    near = due - now < timedelta(hours=24)
    return f"{due.astimezone():%H:%M:%S}" if near else f"{due.astimezone():%Y-%m-%d %H:%M:%S}"


class WorkerBanner(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one worker's start."""

    target: str
    worker: str
    pid: int
    storage: str
    settings: WorkerSettings
    grace: timedelta
    tasks: tuple[str, ...]
    elsewhere: Mapping[str, int]
    """Queues that tasks name and this worker does not serve, with the number of tasks."""
    loop: str

    @classmethod
    def of(cls, app: Windlass, settings: WorkerSettings, **facts: Any) -> WorkerBanner:
        """Collect the facts."""
        queue_of = app.settings.queue_of
        named = Counter(queue_of(task.name, task.settings.queue) for task in app.tasks)
        elsewhere = {queue: n for queue, n in named.items() if queue not in settings.served}
        return cls(settings=settings, tasks=tuple(app.tasks.names), elsewhere=elsewhere, **facts)

    def fields(self) -> dict[str, Any]:
        """Return the fields of a JSON log line."""
        return {
            "event": "start",
            "app": self.target,
            "worker": self.worker,
            "storage": self.storage,
            "queues": list(self.settings.served),
            "slots": self.settings.total_slots,
            "tasks": list(self.tasks),
            "not_served": sorted(self.elsewhere),
            "windlass": __version__,
            "event_loop": self.loop,
        }


def banner(start: WorkerBanner, terminal: Terminal) -> str:
    """Return a few lines for people."""
    rows = [
        ("app", start.target),
        ("storage", start.storage),
        ("queues", _queues(start.settings)),
        ("tasks", _tasks(start.tasks)),
    ]
    if start.elsewhere:
        others = ", ".join(f"{queue} ({n})" for queue, n in sorted(start.elsewhere.items()))
        rows.append(("not served", f"{others}: queues of the app's tasks"))
    rows.append(("stop", stop_hint(start.grace)))
    head = (
        f"windlass {__version__} · worker {start.worker} · pid {start.pid} · "
        f"event loop {start.loop}"
    )
    bold, plain = ("\x1b[1m", "\x1b[0m") if terminal.colour else ("", "")
    lines = ["", f"  {bold}{head}{plain}", *(_row(*row, terminal.width) for row in rows), "", ""]
    return "\n".join(lines)


def stop_hint(grace: timedelta) -> str:
    """Say how to stop the worker."""
    return (
        f"Ctrl-C or SIGTERM: running jobs may finish (up to {brief(grace)}), the rest is released; "
        f"twice: interrupt them"
    )


def _row(label: str, text: str, width: int) -> str:
    indent = " " * (_LABEL + 4)
    wrapped = textwrap.wrap(
        printable(text),
        max(width - 1, 60),
        subsequent_indent=indent,
        initial_indent=f"  {label:<{_LABEL}}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(wrapped)


def _queues(settings: WorkerSettings) -> str:
    if settings.queues is not None:
        return ", ".join(f"{queue} ({_slots(n)})" for queue, n in settings.queues.items())
    names = list(settings.served)
    if len(names) == 1:
        return f"{names[0]} ({_slots(settings.slots)})"
    if settings.order == "weighted":
        weights = settings.weights or {}
        shared = ", ".join(f"{name} ×{weights.get(name, 1)}" for name in names)
        return f"{shared} (weighted, {_slots(settings.slots)} together)"
    return f"{' before '.join(names)} ({_slots(settings.slots)} together)"


def _slots(count: int) -> str:
    return "1 slot" if count == 1 else f"{count} slots"


def _tasks(names: tuple[str, ...]) -> str:
    if not names:
        return "none: import the modules that define them, or list them in Windlass(imports=[...])"
    shown = ", ".join(names[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{len(names)}: {shown}{more}"
