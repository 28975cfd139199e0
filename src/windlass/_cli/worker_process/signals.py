"""Signal handling of a worker's process, and the last resorts when it hangs."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from windlass._system.seams import monotonic, sleep, start_thread

__all__ = [
    "STOPPING",
    "TOGETHER",
    "StopBeforeStart",
    "StopRequests",
    "dump_on_request",
    "exit_within",
    "signal_name",
]

STOPPING = (signal.SIGTERM, signal.SIGINT)
TOGETHER = 0.5
"""Seconds in which signals count as one: ``timeout`` and systemd signal a process and its group."""


class StopBeforeStart(BaseException):
    """A stop was asked for before there was anything to stop. No ordinary handler catches it."""


class StopRequests:
    """SIGTERM and SIGINT, counted on a thread of their own.

    A handler that blocks the event loop must not keep the process from answering, so signals
    do not go through the loop: a thread learns of them and says what follows.
    """

    def __init__(self, *, supervised: bool = False) -> None:
        """Make it; no signal is caught before `install`. ``supervised``: two different signals are
        always two requests, because a supervisor passes on the second one as SIGINT.
        """
        self._supervised = supervised
        self._arrived: queue.SimpleQueue[tuple[int, float]] = queue.SimpleQueue()
        self._told: Callable[[int, int], None] | None = None

    def install(self) -> None:
        """Catch them. Until `tell` is called they raise `StopBeforeStart` in the main thread."""
        # A parent may have blocked them; a blocked signal would never arrive.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {*STOPPING, signal.SIGHUP, signal.SIGUSR1})
        for number in STOPPING:
            signal.signal(number, self._arrive)
        # A worker needs no terminal and no reader: losing one is no reason to stop. (SIGHUP is
        # caught, not ignored: programs that jobs start would inherit that.)
        signal.signal(signal.SIGHUP, lambda _number, _frame: None)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)

    def tell(self, told: Callable[[int, int], None]) -> None:
        """Call ``told(signal, how many so far)`` from now on, on another thread."""
        self._told = told
        start_thread("signals", self._serve)

    def _arrive(self, number: int, _frame: FrameType | None) -> None:
        self._arrived.put((number, monotonic()))  # safe inside a signal handler, unlike a lock
        if self._told is None:
            # Python ignores what is raised in a callback, such as those of imports. Then the
            # request is still there when `tell` is called.
            raise StopBeforeStart

    def _serve(self) -> None:
        count, last, counted_at = 0, 0, 0.0
        while True:
            number, at = self._arrived.get()
            same = number == last or not self._supervised
            if count and same and at - counted_at < TOGETHER:
                continue
            count, last, counted_at = count + 1, number, at
            if self._told is not None:
                self._told(number, count)


def exit_within(seconds: float, code: int, last_words: Callable[[], None] | None = None) -> None:
    """End the process with ``code`` after this time, with anything that still runs. This cannot be
    undone.

    Threads cannot be stopped, and the interpreter waits for some of them when it exits: a handler
    that never returns would keep a stopped worker alive for ever.
    """

    def wait() -> None:
        sleep(seconds)
        if last_words is not None:
            # The reader of our output may be the reason why we are stuck.
            start_thread("last-words", last_words)
            sleep(0.1)
        os._exit(code)

    start_thread("exit", wait)


def dump_on_request(tasks: Callable[[], set[asyncio.Task[object]]]) -> None:
    """Write the stack of every thread and asyncio task to standard error on SIGUSR1,
    and continue.
    """

    def dump_tasks(_number: int, _frame: FrameType | None) -> None:
        # Written past sys.stderr: a signal may arrive in the middle of one of its writes.
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, _describe(tasks()).encode())

    signal.signal(signal.SIGUSR1, dump_tasks)
    # Threads by the interpreter's own C code: it answers even when no Python code can run.
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=True, chain=True)


def _describe(tasks: set[asyncio.Task[object]]) -> str:
    lines = [
        f"Thread 0x{thread.ident or 0:016x} is called {thread.name}"
        for thread in threading.enumerate()
    ]
    lines += ["", f"{len(tasks)} asyncio tasks:"]
    for task in sorted(tasks, key=asyncio.Task.get_name):
        lines.append(f"{task.get_name()}:")
        lines += [
            f'  File "{frame.f_code.co_filename}", line {frame.f_lineno} in {frame.f_code.co_name}'
            for frame in _frames(task.get_coro())
        ]
    return "\n".join([*lines, "", ""])


def _frames(coroutine: object) -> Iterator[FrameType]:
    """Return the frames from the outermost to where it waits; asyncio's own print_stack shows the
    first one only.
    """
    while coroutine is not None:
        inner: object = None
        # Coroutines, generators and asynchronous generators each have their own names for it.
        for frame_name, inner_name in (
            ("cr_frame", "cr_await"),
            ("gi_frame", "gi_yieldfrom"),
            ("ag_frame", "ag_await"),
        ):
            frame = getattr(coroutine, frame_name, None)
            if frame is not None:
                yield frame
                inner = getattr(coroutine, inner_name, None)
        coroutine = inner


def signal_name(number: int) -> str:
    """SIGKILL and not 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
