"""The event loop of blocking calls: one thread, started at the first call."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from windlass._client.client import Client
from windlass._client.connections import Connections
from windlass._system.forks import keep_open, renew_in_child
from windlass._system.greenlets import (
    GreenExecutor,
    green_threads,
    native_lock,
    on_trio,
    refuse_eventlet,
    wait_green,
)
from windlass._system.seams import sleep, start_native_thread
from windlass.errors import BlockingCallOnLoop

__all__ = ["BlockingLoop"]

R = TypeVar("R")
log = logging.getLogger("windlass")

_PATIENCE = 0.01
"""Seconds between two checks for calls under way."""


class _LoopThread:
    """A background event loop on its own thread, and the number of its calls under way."""

    loop: asyncio.AbstractEventLoop

    def __init__(self) -> None:
        refuse_eventlet()
        self.green = green_threads() is not None
        self.calls = 0
        self.ending = False
        self._stopped = False
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
            while not self._stopped:
                self._run_loop()
        finally:
            self.loop.close()

    def _run_loop(self) -> None:
        """Run the loop until it is stopped. Start it again if code of the app ends it.

        Otherwise the call under way and every later one would wait for ever.
        """
        try:
            self.loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:
            log.error(  # noqa: TRY400 -- the caller gets it with its traceback
                "code that runs on the loop of blocking calls raised %s; the loop is resumed",
                type(error).__name__,
            )

    def wait_for(self, work: Coroutine[Any, Any, R]) -> R:
        """Run ``work`` on the loop, and wait for it."""
        if self.green:
            return wait_green(self.loop, work)
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def start(self, work: Coroutine[Any, Any, object]) -> None:
        """Run ``work`` on the loop without waiting for it."""

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
        """Count a call as answered."""
        with self._counting:
            self.calls -= 1
            self._stop_if_done()

    def stop(self) -> None:
        """Refuse new calls, and stop when those under way have their answers."""
        with self._counting:
            if not self.ending:
                self.ending = True
                self._stop_if_done()

    def _stop_if_done(self) -> None:
        if self.calls == 0 and self.ending:
            self._stopped = True
            self.loop.call_soon_threadsafe(self.loop.stop)


class BlockingLoop:
    """Runs coroutines on a background loop, for code that has no event loop."""

    def __init__(self, connections: Connections) -> None:
        """Make a loop; ``connections`` is closed on it when it ends. The thread starts at the first
        call, and again after a fork.
        """
        self._connections = connections
        self._lock = native_lock()
        self._serving: _LoopThread | None = None
        renew_in_child(self)

    def renew(self) -> None:
        """Forget the parent's thread after a fork. Closing it would reach into the parent's
        loop.
        """
        if self._serving is not None:
            keep_open(self._serving)
        self._lock = native_lock()  # a thread of the parent may hold the other one
        self._serving = None

    def run(
        self,
        work: Coroutine[Any, Any, R],
        *,
        instead: str = "the coroutine itself",
        anywhere: bool = False,
    ) -> R:
        """Run ``work`` and wait for it; BlockingCallOnLoop names what to await ``instead``.

        ``anywhere``: also on an event loop, which is blocked meanwhile.
        """
        if _on_a_loop() and (not anywhere or self.is_here()):
            work.close()
            if on_trio():
                instead = "trio.to_thread.run_sync(...)"
            raise BlockingCallOnLoop("This blocking call", instead)
        return self.wait_for(work)

    def wait_for(self, work: Coroutine[Any, Any, R]) -> R:
        """Run ``work`` and wait for it, also on another event loop."""
        try:
            serving = self._begin()
        except BaseException:
            work.close()
            raise
        try:
            return serving.wait_for(work)
        finally:
            serving.end()

    def call_past(self, use: Callable[[Client], R | None]) -> R | None:
        """Call ``use`` on this thread, with the client that the loop has opened. None where there
        is no such client, or where `run` would refuse: `run` then does the work, or says why not.

        None on the main thread, too: Ctrl+C and other signals raise there in the middle of things.
        """
        serving = self._serving
        if serving is None or threading.current_thread() is threading.main_thread():
            return None
        if serving.green or _on_a_loop() or not serving.begin():
            return None
        try:
            client = self._connections.client_of(serving.loop)
            return None if client is None else use(client)
        finally:
            serving.end()

    def start(self, work: Coroutine[Any, Any, object]) -> None:
        """Run ``work`` without waiting for it, from any thread; an error is only logged."""
        try:
            serving = self._begin()
        except BaseException:
            work.close()
            raise
        serving.start(work)

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop, if this process has started it."""
        serving = self._serving
        return None if serving is None else serving.loop

    def is_here(self) -> bool:
        """Tell whether this is the loop's own thread, which cannot wait for itself."""
        return self._serving is not None and self._serving.loop is asyncio._get_running_loop()  # noqa: SLF001

    def close(self) -> None:
        """Let the calls under way finish, close the app on the loop and end it."""
        if _on_a_loop():
            instead = "asyncio.to_thread(app.blocking.close)"
            raise BlockingCallOnLoop("app.blocking.close()", instead)
        with self._lock:
            serving, self._serving = self._serving, None
        if serving is None:
            return
        # Repeated: a call under way may begin to wait for a result only now.
        while True:
            serving.wait_for(self._connections.settle())
            if serving.calls == 0:
                break
            sleep(_PATIENCE)
        serving.wait_for(self._connections.close())
        serving.stop()
        serving.join()

    def stop(self) -> None:
        """End the loop without closing the app on it, and without waiting for it.

        Calls under way get their answers; the next one starts another loop.
        """
        with self._lock:
            serving, self._serving = self._serving, None
        if serving is not None:
            serving.stop()

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
