"""The only periodic loop, and the other loop beside it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Protocol

from windlass._observe.log import brief
from windlass._system.seams import start_thread
from windlass.errors import StorageError, StorageReplaced

__all__ = ["BackgroundLoop", "LoopOnThread", "run_every", "rung_at", "start_loop_thread"]

log = logging.getLogger("windlass")


async def run_every(
    interval: timedelta | Callable[[], timedelta],
    step: Callable[[], Awaitable[object]],
    *,
    stop: asyncio.Event,
    what: str,
    bell: asyncio.Event | None = None,
    at_once: bool = True,
) -> None:
    """Run ``step`` now and then every ``interval`` until ``stop`` is set.

    An interval that is a function is asked after each step. ``bell`` shortens the wait; a caller
    that sets ``stop`` must set it, too. Not ``at_once``: the first step comes after the first wait.

    A failing step is logged and tried again: a database blip must not end the reaper. The same
    failure is logged once, not every time: an outage must not flood the log. A store that was
    replaced never comes back: that is for the caller.
    """
    failing = ""
    if not at_once:
        await _wait(bell or stop, _span(interval))
    while not stop.is_set():
        if bell is not None:
            bell.clear()
        try:
            await step()
            if failing:
                log.info("%s works again", what)
            failing = ""
        except StorageReplaced:
            raise
        except StorageError as error:
            if str(error) != failing:
                again = brief(_span(interval))
                log.warning("%s failed, retrying every %s: %s", what, again, error)
            failing = str(error)
        except Exception:
            log.exception("%s failed, retrying in %s", what, brief(_span(interval)))
        await _wait(bell or stop, _span(interval))


@contextmanager
def rung_at(stop: asyncio.Event, bell: asyncio.Event) -> Iterator[None]:
    """Ring ``bell`` inside the block when ``stop`` is set, for a loop that waits for either."""
    stopping = asyncio.ensure_future(stop.wait())
    stopping.add_done_callback(lambda _: bell.set())
    try:
        yield
    finally:
        stopping.cancel()


async def _wait(event: asyncio.Event, span: timedelta) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(span.total_seconds()):
            await event.wait()


def _span(interval: timedelta | Callable[[], timedelta]) -> timedelta:
    return interval if isinstance(interval, timedelta) else interval()


Main = Callable[[asyncio.Event], Coroutine[Any, Any, None]]


class BackgroundLoop(Protocol):
    """Something that runs beside the worker's own loop until it is stopped."""

    async def stop(self) -> None:
        """Tell it to end and wait for it."""
        ...


class LoopOnThread:
    """A coroutine on a separate event loop and thread.

    It continues when a handler blocks the worker's loop: that is its whole point.
    """

    def __init__(self, name: str, main: Main) -> None:
        """Start at once."""
        self._name = name
        self._main = main
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._done = threading.Event()
        start_thread(name, self._run)
        self._ready.wait()

    def _run(self) -> None:
        try:
            asyncio.run(self._body())
        except Exception:
            log.exception("the %s thread failed", self._name)
        finally:
            self._ready.set()
            self._done.set()

    async def _body(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._ready.set()
        await self._main(self._stop)

    async def stop(self) -> None:
        """Tell it to end and wait for it."""
        if self._loop is not None and self._stop is not None:
            with suppress(RuntimeError):  # its loop has already ended
                self._loop.call_soon_threadsafe(self._stop.set)
        while not self._done.is_set():  # noqa: ASYNC110 -- it is another thread's event
            await asyncio.sleep(0.005)


def start_loop_thread(name: str, main: Main) -> BackgroundLoop:
    """Run something beside the loop, by default on a thread; a simulation replaces it."""
    return LoopOnThread(name, main)
