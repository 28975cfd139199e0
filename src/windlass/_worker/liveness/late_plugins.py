"""Tasks and schedules of plugins that are installed while a worker runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windlass._worker.dependencies import WorkerDependencies

__all__ = ["LatePluginWatcher"]

log = logging.getLogger("windlass")


class LatePluginWatcher:
    """Rings when there are some, and warns of queues that this worker does not serve."""

    def __init__(self, around: WorkerDependencies, served: Sequence[str]) -> None:
        """Make it. ``served``: the worker's queues, which stay the same as long as it runs."""
        self._around = around
        self._served = served
        self._known: set[str] = set()
        self._undo: Callable[[], None] | None = None
        self.bell: asyncio.Event = asyncio.Event()

    def listen(self) -> None:
        """Listen from now on, on this event loop."""
        loop = asyncio.get_running_loop()
        self._known = self._queues()

        def ring() -> None:
            with suppress(RuntimeError):  # its loop has just ended
                loop.call_soon_threadsafe(self._look)

        self._undo = self._around.on_change(ring)

    def close(self) -> None:
        """Stop listening; waiting callers of the bell are released."""
        if self._undo is not None:
            self._undo()
            self._undo = None
        self.bell.set()

    def _queues(self) -> set[str]:
        queue_of = self._around.settings.queue_of
        return {queue_of(task.name, task.settings.queue) for task in self._around.tasks}

    def _look(self) -> None:
        self.bell.set()
        new = self._queues() - self._known
        self._known |= new
        for queue in sorted(new.difference(self._served)):
            log.warning(
                "a plugin added tasks of queue %r, and this worker serves %s: their jobs wait "
                "until a worker of that queue starts, with --queue %s for example",
                queue,
                ", ".join(self._served),
                queue,
            )
