"""What a worker says about itself when it starts."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from windlass._version import __version__
from windlass.app import Windlass
from windlass.cli.terminal import Terminal
from windlass.config import WorkerSettings
from windlass.observe.log import brief, printable

__all__ = ["Start", "banner"]

_SHOWN = 12
_LABEL = 9


class Start(msgspec.Struct, frozen=True, kw_only=True):
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
    def of(cls, app: Windlass, settings: WorkerSettings, **facts: Any) -> Start:
        """Collect them."""
        default = app.settings.default_queue
        named = Counter(task.settings.queue or default for task in app.tasks)
        elsewhere = {queue: n for queue, n in named.items() if queue not in settings.served}
        return cls(settings=settings, tasks=tuple(app.tasks.names), elsewhere=elsewhere, **facts)

    def fields(self) -> dict[str, Any]:
        """For a JSON log line."""
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


def banner(start: Start, terminal: Terminal) -> str:
    """A few lines for people."""
    rows = [
        ("app", start.target),
        ("storage", start.storage),
        ("queues", _queues(start.settings)),
        ("tasks", _tasks(start.tasks)),
    ]
    if start.elsewhere:
        others = ", ".join(f"{queue} ({n})" for queue, n in sorted(start.elsewhere.items()))
        rows.append(("not here", f"{others}: these queues have tasks but are not served"))
    rows.append(("stop", stop_words(start.grace)))
    head = (
        f"windlass {__version__} · worker {start.worker} · pid {start.pid} · "
        f"event loop {start.loop}"
    )
    bold, plain = ("\x1b[1m", "\x1b[0m") if terminal.colour else ("", "")
    lines = ["", f"  {bold}{head}{plain}", *(_row(*row, terminal.width) for row in rows), "", ""]
    return "\n".join(lines)


def stop_words(grace: timedelta) -> str:
    """How it is stopped."""
    return (
        f"Ctrl+C or SIGTERM: running jobs may end (up to {brief(grace)}), the rest is given back; "
        f"again: now"
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
