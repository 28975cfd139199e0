"""The tasks of ``windlass bench``, and its worker in a separate process.

``python -m windlass._cli.bench.worker`` works on ``WINDLASS_URL`` until its standard input ends, so
it cannot outlive its parent. It prints when it was ready, and when each pick-up began.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from windlass._app.app import Windlass
from windlass._system.seams import monotonic
from windlass._tasks.task import Task

__all__ = ["QUEUE", "BenchApp", "fastest_loop"]

QUEUE = "windlass-bench"
"""A queue for the benchmark alone."""


class BenchApp:
    """An app with two tasks, on a separate queue."""

    def __init__(self, url: str, *, keep: bool, on_pick_up: Callable[[float], None]) -> None:
        """Make the app. ``keep``: finished jobs stay, as they do by default; else they are deleted
        at once.

        ``on_pick_up`` gets the start of each `pick_up`, on the clock that all processes of a
        machine share.
        """
        settings: dict[str, Any] = {"imports": (), "default_queue": QUEUE}
        if not keep:
            settings["keep_succeeded"] = timedelta(0)
        self.app: Windlass = Windlass(url, **settings)

        @self.app.task(name="bench.noop")
        async def noop(recipient: str, subject: str, template: str, number: int) -> None:
            """Do nothing, with arguments of an ordinary size."""

        @self.app.task(name="bench.pick_up")
        async def pick_up() -> None:
            on_pick_up(monotonic())

        self.noop: Task[[str, str, str, int], None] = noop
        self.pick_up: Task[[], None] = pick_up


def fastest_loop() -> tuple[Callable[[], asyncio.AbstractEventLoop] | None, str]:
    """Choose the event loop as ``windlass worker`` does."""
    try:
        import uvloop
    except ImportError:
        return None, "asyncio"
    return uvloop.new_event_loop, "uvloop"


def _tell(started: float) -> None:
    print(started, flush=True)  # noqa: T201 -- to the process that measures


async def _serve(bench: BenchApp) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
    async with bench.app, bench.app.worker():
        _tell(monotonic())
        await ended.wait()


if __name__ == "__main__":
    factory, _ = fastest_loop()
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(_serve(BenchApp(os.environ["WINDLASS_URL"], keep=False, on_pick_up=_tell)))
