"""The same client for code without an event loop: one loop thread, no second implementation."""

from __future__ import annotations

import asyncio
import logging
import os
import weakref
from collections.abc import Coroutine, Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from windlass._client.client import needs_limits
from windlass._client.transactional import Outbox, Wake
from windlass._core.job.ids import job_ids_of
from windlass._core.job.job import JobRecord
from windlass._storage.protocol.jobs import CancelAnswer
from windlass._storage.protocol.transactions import UserConnection
from windlass._system.greenlets import (
    GreenExecutor,
    green_threads,
    native_lock,
    on_trio,
    refuse_eventlet,
    wait_green,
)
from windlass._system.seams import sleep, start_native_thread
from windlass._tasks.context import report_wait
from windlass._tasks.handle import Job
from windlass._tasks.task import Call
from windlass.errors import BlockingCallOnLoop

if TYPE_CHECKING:
    from uuid import UUID

    from windlass._app.blocking_admin.admin import BlockingAdmin
    from windlass.admin import Admin

__all__ = ["BlockingClient"]

R = TypeVar("R")
log = logging.getLogger("windlass")

_PATIENCE = 0.01
"""Seconds between two looks at what is still under way."""


class _App(Protocol):
    async def enqueue_many(
        self,
        calls: Iterable[Call[R]],
        *,
        ids: Iterable[str | UUID] | None = None,
        connection: UserConnection | None = None,
        wake: Wake | None = None,
    ) -> list[Job[R]]: ...
    def _checked(
        self, calls: Iterable[Call[R]], connection: UserConnection | None, wake: Wake | None
    ) -> list[Call[R]]: ...
    @property
    def admin(self) -> Admin: ...
    @property
    def _outbox(self) -> Outbox: ...
    async def _define_for(self, calls: Sequence[Call[Any]]) -> None: ...
    async def close(self) -> None: ...
    async def _settle(self) -> None: ...


class _LoopThread:
    """One background loop on an OS thread, and how many calls it is at."""

    loop: asyncio.AbstractEventLoop

    def __init__(self) -> None:
        refuse_eventlet()
        self.green = green_threads() is not None
        self.calls = 0
        self.ending = False
        self._counting = native_lock()
        self._background: set[asyncio.Task[object]] = set()
        self._failed: Exception | None = None
        self._ready = native_lock()
        self._ready.acquire()
        self.join = start_native_thread("blocking", self._serve)
        self._ready.acquire()  # for as long as a loop takes to be made
        if self._failed is not None:
            raise self._failed

    def _serve(self) -> None:
        # Made here: under gevent a loop belongs to the thread that makes it.
        try:
            self.loop = asyncio.new_event_loop()
        except Exception as error:  # noqa: BLE001 -- no file descriptor is left; the caller gets it
            self._failed = error
            self._ready.release()
            return
        if self.green:
            self.loop.set_default_executor(GreenExecutor())
        asyncio.set_event_loop(self.loop)
        self.loop.call_soon(self._ready.release)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    def wait_for(self, work: Coroutine[Any, Any, R]) -> R:
        """Run ``work`` on the loop, and wait for it."""
        if self.green:
            return wait_green(self.loop, work)
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def start(self, work: Coroutine[Any, Any, object]) -> None:
        """Run ``work`` on the loop as a call that nothing waits for."""

        def begin() -> None:
            task = self.loop.create_task(work)
            self._background.add(task)
            task.add_done_callback(ended)

        def ended(task: asyncio.Task[object]) -> None:
            self._background.discard(task)
            self.end()
            if not task.cancelled() and (error := task.exception()) is not None:
                log.debug("a background task failed: %s", error)

        self.loop.call_soon_threadsafe(begin)

    def begin(self) -> bool:
        """Count a call; False when the loop takes no more."""
        with self._counting:
            self.calls += not self.ending
            return not self.ending

    def end(self) -> None:
        """A call has its answer."""
        with self._counting:
            self.calls -= 1
            self._stop_if_done()

    def stop(self) -> None:
        """Take no more calls, and stop when those under way have their answers."""
        with self._counting:
            if not self.ending:
                self.ending = True
                self._stop_if_done()

    def _stop_if_done(self) -> None:
        if self.calls == 0 and self.ending:
            self.loop.call_soon_threadsafe(self.loop.stop)


_INHERITED: list[_LoopThread] = []
"""Of a parent process. Kept, because closing one would reach into the parent's own loop."""
_EVERY: weakref.WeakSet[BlockingClient] = weakref.WeakSet()


def _after_fork() -> None:
    for blocking in list(_EVERY):
        if blocking._serving is not None:  # noqa: SLF001
            _INHERITED.append(blocking._serving)  # noqa: SLF001
        blocking._start_afresh()  # noqa: SLF001 -- a thread of the parent may hold its lock


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class BlockingClient:
    """Blocking twins. Every call runs on one background loop and waits for its answer."""

    def __init__(self, app: _App) -> None:
        """Starts its thread at the first call, and again after a fork."""
        self._app = app
        self._start_afresh()
        _EVERY.add(self)

    def _start_afresh(self) -> None:
        self._lock = native_lock()
        self._serving: _LoopThread | None = None

    @property
    def admin(self) -> BlockingAdmin:
        """``app.admin`` with the same parts, each of whose calls waits for its answer."""
        # Imported here: a program that only enqueues does not need it.
        from windlass._app.blocking_admin.admin import BlockingAdmin  # noqa: PLC0415

        return BlockingAdmin(self, self._app.admin)

    def enqueue_many(
        self,
        calls: Iterable[Call[R]],
        *,
        ids: Iterable[str | UUID] | None = None,
        connection: UserConnection | None = None,
        wake: Wake | None = None,
    ) -> list[Job[R]]:
        """``await app.enqueue_many(calls)``; with ``connection``, on yours and on this thread."""
        if connection is not None:
            every = self._app._checked(calls, connection, wake)  # noqa: SLF001
            given = None if ids is None else job_ids_of(ids, len(every))
            if any(map(needs_limits, every)) and not self._is_here():
                # On a loop, too: whoever gives a connection that blocks has settled for blocking.
                self._wait_for(self._app._define_for(every))  # noqa: SLF001
            jobs = self._app._outbox.enqueue_sync(every, connection, wake, given)  # noqa: SLF001
            if jobs is not None:
                return jobs
            calls, ids = every, given
        work = self._app.enqueue_many(calls, ids=ids, connection=connection, wake=wake)
        return self.run(work, instead="app.enqueue_many(...)")

    def result(self, job: Job[R], timeout: timedelta | float | None = None) -> R:
        """``await job.result(timeout)``."""
        report_wait(job.id)
        return self.run(job.result(timeout), instead="job.result(...)")

    def refresh(self, job: Job[Any]) -> JobRecord:
        """``await job.refresh()``."""
        return self.run(job.refresh(), instead="job.refresh()")

    def cancel(self, job: Job[Any]) -> CancelAnswer:
        """``await job.cancel()``."""
        return self.run(job.cancel(), instead="job.cancel()")

    def wake(self) -> None:
        """Let workers look for jobs now: after a commit on the connection that enqueued."""
        self._app._outbox.wake()  # noqa: SLF001

    def run(
        self,
        work: Coroutine[Any, Any, R],
        *,
        instead: str = "the coroutine itself",
        anywhere: bool = False,
    ) -> R:
        """Run any of the app's coroutines, such as ``app.uninstall(name)``, and wait for it.

        ``anywhere``: also on an event loop, which is blocked meanwhile.
        """
        if _on_a_loop() and (not anywhere or self._is_here()):
            work.close()
            if on_trio():
                instead = "trio.to_thread.run_sync(...)"
            raise BlockingCallOnLoop("This blocking call", instead)
        return self._wait_for(work)

    def _wait_for(self, work: Coroutine[Any, Any, R]) -> R:
        try:
            serving = self._begin()
        except BaseException:
            work.close()
            raise
        try:
            return serving.wait_for(work)
        finally:
            serving.end()

    def start(self, work: Coroutine[Any, Any, object]) -> None:
        """Run something nobody waits for, from any thread; what goes wrong is only logged."""
        try:
            serving = self._begin()
        except BaseException:
            work.close()
            raise
        serving.start(work)

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The background loop, if this process has started it."""
        serving = self._serving
        return None if serving is None else serving.loop

    def close(self) -> None:
        """Let the calls under way finish, close the app on the background loop and end it.

        Who waits for a result is told that the app was closed. The next call starts another loop.
        """
        if _on_a_loop():
            instead = "asyncio.to_thread(app.blocking.close)"
            raise BlockingCallOnLoop("app.blocking.close()", instead)
        with self._lock:
            serving, self._serving = self._serving, None
        if serving is None:
            return
        # Again and again: a call under way may begin to wait for a result only now.
        while True:
            serving.wait_for(self._app._settle())  # noqa: SLF001
            if serving.calls == 0:
                break
            sleep(_PATIENCE)
        serving.wait_for(self._app.close())
        serving.stop()
        serving.join()

    def stop(self) -> None:
        """End the background loop without closing the app on it, and without waiting for it.

        Calls under way get their answers; the next one starts another loop.
        """
        with self._lock:
            serving, self._serving = self._serving, None
        if serving is not None:
            serving.stop()

    def _is_here(self) -> bool:
        """Whether this is the background loop's own thread, which cannot wait for itself."""
        return self._serving is not None and self._serving.loop is asyncio._get_running_loop()  # noqa: SLF001

    def _begin(self) -> _LoopThread:
        with self._lock:
            if self._serving is None or not self._serving.begin():
                self._serving = _LoopThread()
                self._serving.begin()
            return self._serving


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return on_trio()
    return True
