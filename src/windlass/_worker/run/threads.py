"""Threads for plain functions."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context as Variables
from datetime import timedelta
from enum import IntEnum
from typing import Any

from windlass._core.job.job import ClaimedJob
from windlass._system.seams import start_thread
from windlass._tasks.context import CancelToken

__all__ = ["Execution", "Return", "StopCause", "ThreadPool"]


class StopCause(IntEnum):
    """Why a run was asked to end. The higher reason wins."""

    CANCEL = 1
    """A stored request."""
    INTERRUPT = 2
    """The worker stops."""
    LOST = 3
    """The worker was buried: the claim is somebody else's, or soon will be."""


class Execution(CancelToken):
    """One execution in this process. It is its own cancel token: one object less per job."""

    __slots__ = ("body", "detached", "entered", "job", "on_loop", "why")

    def __init__(self, job: ClaimedJob) -> None:
        """Not started yet."""
        self._event = None  # this and the next: what `CancelToken` does; one is made per job
        self.wish: timedelta | None = None
        self.job: ClaimedJob = job
        self.why: StopCause | None = None
        self.body: asyncio.Task[None] | None = None
        self.entered: bool = True
        """False while it waits for a child process, before the handler is entered there."""
        self.on_loop: bool = False
        """A plain function gave back something to await, and that is what runs now."""
        self.detached: asyncio.Future[Return] | None = None
        """A thread that outlived its timeout: it keeps the slot until it ends."""


class Return:
    """How a function ended.

    Not the future's own exception: a future refuses StopIteration, a task that waits for one
    chokes on GeneratorExit, and what nobody waits for any more would be logged as forgotten.
    """

    __slots__ = ("_error", "_value")

    def __init__(self, value: object, error: BaseException | None) -> None:
        """One of the two counts."""
        self._value = value
        self._error = error

    def value(self) -> Any:
        """What it returned; raises what it raised."""
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
        """No thread runs before the first function."""
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
        self._work.put((future, lambda: variables.run(function)))
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
            except BaseException as raised:  # noqa: BLE001 -- delivered to the loop, whatever it is
                end = Return(None, raised)
            with suppress(RuntimeError):  # the loop is gone: nobody waits any more
                loop.call_soon_threadsafe(self._deliver, future, end)
            del work, future, function, end

    def _deliver(self, future: asyncio.Future[Return], end: Return) -> None:
        self._idle += 1
        if not future.cancelled():
            future.set_result(end)
