"""Threads for plain functions."""

from __future__ import annotations

import asyncio
import functools
import queue
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context as Variables
from typing import Any, TypeVar

from windlass._system.seams import start_thread
from windlass.errors import WindlassError

__all__ = ["Return", "ThreadPool", "wait_on_loop"]

T = TypeVar("T")


def wait_on_loop(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop, instead: str) -> T:
    """Run ``work`` on the worker's event loop, for a handler on a thread. ``instead``: what a
    coroutine writes; it would wait for itself here.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run_coroutine_threadsafe(work, loop).result()
    work.close()
    message = f"this call blocks the event loop: write `{instead}` in a coroutine"
    raise WindlassError(message)


class Return:
    """The end of a function.

    Not the future's own exception: a future refuses StopIteration, a task that waits for one chokes
    on GeneratorExit, and an exception without a waiting caller would be logged as forgotten.
    """

    __slots__ = ("_error", "_value")

    def __init__(self, value: object, error: BaseException | None) -> None:
        """Make it with a value or an error: one of the two counts."""
        self._value = value
        self._error = error

    def value(self) -> Any:
        """Return its result, or raise its exception."""
        if self._error is not None:
            raise self._error
        return self._value


_Work = tuple["asyncio.Future[Return]", Callable[[], Any]]


class ThreadPool:
    """Daemon threads that grow with demand and are reused.

    Not the standard pool: that one joins its threads when the interpreter exits, so a handler
    that never returns would keep a stopped worker alive for ever.
    """

    def __init__(self) -> None:
        """Make it; no thread runs before the first function."""
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._idle = 0
        self._count = 0

    def submit(self, variables: Variables, function: Callable[[], Any]) -> asyncio.Future[Return]:
        """Run ``function`` on a thread, inside ``variables``; a future of this loop answers."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Return] = loop.create_future()
        if self._idle == 0:
            self._count += 1
            start_thread(f"job-{self._count}", self._serve)
        else:
            self._idle -= 1
        self._work.put((future, functools.partial(variables.run, function)))
        return future

    def close(self) -> None:
        """Let idle threads end; busy ones end with their function."""
        for _ in range(self._count):
            self._work.put(None)
        self._count = self._idle = 0

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            future, function = work
            loop = future.get_loop()
            try:
                end = Return(function(), None)
            except BaseException as raised:  # noqa: BLE001 -- any error is delivered to the loop
                end = Return(None, raised)
            with suppress(RuntimeError):  # the loop is gone: no caller waits any more
                loop.call_soon_threadsafe(self._deliver, future, end)
            del work, future, function, end

    def _deliver(self, future: asyncio.Future[Return], end: Return) -> None:
        self._idle += 1
        if not future.cancelled():
            future.set_result(end)
