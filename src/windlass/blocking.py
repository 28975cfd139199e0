"""The same client for code without an event loop: one loop thread, no second implementation."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from typing import Any, Protocol, TypeVar

from windlass.core.job import Job as JobRecord
from windlass.errors import BlockingCallOnLoop
from windlass.handle import Job
from windlass.seams import start_thread
from windlass.storage.protocol import CancelAnswer
from windlass.task import Call

__all__ = ["Blocking"]

R = TypeVar("R")


class _App(Protocol):
    async def enqueue_many(self, calls: Sequence[Call]) -> list[Job[Any]]: ...


class Blocking:
    """Blocking twins. Every call runs on one background loop and waits for its answer."""

    def __init__(self, app: _App) -> None:
        """Starts its thread at the first call, and again after a fork."""
        self._app = app
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    def enqueue_many(self, calls: Sequence[Call]) -> list[Job[Any]]:
        """``await app.enqueue_many(calls)``."""
        return self.run(self._app.enqueue_many(calls), instead="app.enqueue_many(...)")

    def result(self, job: Job[R], timeout: timedelta | float | None = None) -> R:
        """``await job.result(timeout)``."""
        return self.run(job.result(timeout), instead="job.result(...)")

    def refresh(self, job: Job[Any]) -> JobRecord:
        """``await job.refresh()``."""
        return self.run(job.refresh(), instead="job.refresh()")

    def cancel(self, job: Job[Any]) -> CancelAnswer:
        """``await job.cancel()``."""
        return self.run(job.cancel(), instead="job.cancel()")

    def run(self, work: Coroutine[Any, Any, R], *, instead: str = "the coroutine itself") -> R:
        """Run any of the app's coroutines, such as ``app.admin.counts()``, and wait for it."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            future = asyncio.run_coroutine_threadsafe(work, self._running_loop())
            return future.result()
        work.close()
        raise BlockingCallOnLoop("This blocking call", instead)

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The background loop, if this process has started it."""
        return self._loop if self._pid == os.getpid() else None

    def stop(self) -> None:
        """End the background loop; the next call starts another."""
        loop = self.loop
        if loop is not None and loop.is_running():
            loop.call_soon_threadsafe(loop.stop)
        self._loop = None

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                # After a fork the parent's loop is a dead memory here: start afresh.
                self._pid = os.getpid()
                self._loop = self._start()
            return self._loop

    def _start(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        ready = threading.Event()

        def serve() -> None:
            asyncio.set_event_loop(loop)
            loop.call_soon(ready.set)
            try:
                loop.run_forever()
            finally:
                loop.close()

        start_thread("blocking", serve)
        ready.wait()
        return loop
