"""One thread of this process for slow reads: the event loop does not wait for them.

One, so that many reads take no more of the interpreter from an event loop than one does. It works
in the order of asking and ends when it was idle for a while.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from windlass._system.forks import renew_in_child
from windlass._system.seams import start_thread

__all__ = ["run_on_reader_thread"]

T = TypeVar("T")

_LINGERS = 5.0
"""Seconds that the thread waits for more."""


class _Request(NamedTuple):
    work: Callable[[], Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


class _ReaderThread:
    """The thread, while there is one."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Forget everything: in a forked child there is no thread and no waiting caller."""
        self._changed = threading.Condition()
        self._line: deque[_Request] = deque()
        self._works = False

    def submit(self, work: Callable[[], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        asked = _Request(work, future, loop)
        with self._changed:
            self._line.append(asked)
            self._changed.notify()
            starts, self._works = not self._works, True
        if starts:
            self._start(asked)
        return future

    def _start(self, asked: _Request) -> None:
        try:
            start_thread("aside", self._run)
        except BaseException:  # the system has no thread left: the next question tries again
            with self._changed:
                self._works = False
                self._line.remove(asked)
            raise

    def _run(self) -> None:
        while (asked := self._next()) is not None:
            if asked.future.cancelled():
                continue
            try:
                answer, error = asked.work(), None
            except BaseException as raised:  # noqa: BLE001 -- it is the asker's, who will get it
                answer, error = None, raised
            with suppress(RuntimeError):  # its event loop was closed: no caller waits for it
                asked.loop.call_soon_threadsafe(_settle, asked.future, answer, error)
            del asked, answer, error  # nothing large is kept until the next one

    def _next(self) -> _Request | None:
        with self._changed:
            while not self._line:
                if not self._changed.wait(_LINGERS) and not self._line:
                    self._works = False
                    return None
            return self._line.popleft()


def _settle(future: asyncio.Future[Any], answer: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(answer)
    elif isinstance(error, StopIteration):  # which a future cannot carry
        future.set_exception(RuntimeError(f"a question raised {error!r}"))
    else:
        future.set_exception(error)


_BESIDE = _ReaderThread()
renew_in_child(_BESIDE)


def run_on_reader_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Run ``work`` on the thread; the future of the running loop gets its value or its error.

    Cancelling the future drops work that waits and merely ignores work that has begun.
    """
    return _BESIDE.submit(work)
