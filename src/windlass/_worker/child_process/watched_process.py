"""A process that the worker has started: watched, limited, and ended with all that it started."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any

import msgspec

from windlass._worker.child_process.exit_reason import memory_of

__all__ = ["LAST_WORDS", "ProcessExit", "WatchedProcess", "first_of"]

_LEAVE = 5.0
"""Seconds for an idle process to end in order."""
LAST_WORDS = 0.5
"""How long the pipes of a dead process are read on: something else may hold their ends open."""
_GRACE = 1.0
"""Seconds for a run to end by itself once it is asked to, before its process is killed."""
_LOOK, _CLOSE_LOOK = 0.5, 0.1
"""How often memory is looked at, without and with a limit."""
_POLL = 0.02
"""How often a process is looked after where the system cannot tell of its death."""


class ProcessExit(msgspec.Struct, frozen=True):
    """The end of a process as the system reports it."""

    code: int | None
    """As `subprocess` counts: negative is a signal. None: other code collected it."""
    peak: int | None
    """Most memory it ever used, in KiB."""
    limit: int | None
    """The memory limit in MiB that it was ended for."""


class WatchedProcess:
    """A process with its own process group. Only this object collects it."""

    def __init__(self, process: subprocess.Popen[bytes], limit: int | None, own_kib: int) -> None:
        """Begin to watch. ``limit``: MiB at which a run is ended. ``own_kib``: memory that the
        system may count for it from the time before its exec.
        """
        self._loop = asyncio.get_running_loop()
        self._process = process
        self._limit = limit
        self._own_kib = own_kib
        self.exited: asyncio.Future[ProcessExit] = self._loop.create_future()
        self._pidfd: int | None = None
        self._next_look: asyncio.TimerHandle | None = None
        self._over_limit = False
        self.ending: bool = False
        """Killed, or told to leave: no further job runs in it."""
        self._peak: int | None = None
        self._watch()

    @property
    def pid(self) -> int:
        """Its number, which is also that of its group."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it was not collected yet."""
        return self._process.returncode is None

    @property
    def usable(self) -> bool:
        """Whether it can be given a job."""
        return self.alive and not self.ending

    @property
    def megabytes(self) -> float:
        """The memory that it uses now; 0 where the system does not say."""
        memory = memory_of(self.pid) if self.alive else None
        return 0.0 if memory is None else memory.now / 1024

    def has_started(self, kib: int) -> None:
        """Note its peak memory at its start, as the system counts it."""
        self._own_kib = kib

    def begin_run(self) -> None:
        """Look at its memory from now on."""
        self._look_at_memory()  # first: it may be dead before the next look

    def end_run(self) -> None:
        """Stop looking at its memory."""
        if self._next_look is not None:
            self._next_look.cancel()
            self._next_look = None

    async def end_soon(self, over: asyncio.Future[Any], death: asyncio.Future[Any]) -> None:
        """Give a run that was asked to end a moment to do so, then end the process by force."""
        force = self._loop.call_later(_GRACE, self.end_now)
        try:
            await first_of(over, death)
        except asyncio.CancelledError:
            self.end_now()  # asked once more: no time is left
            raise
        finally:
            force.cancel()

    def end_later(self) -> None:
        """Give it no more jobs, and a few seconds to end in order."""
        self.ending = True
        self._loop.call_later(_LEAVE, self.end_now)

    def end_now(self) -> None:
        """End it at once, with every process that it has started."""
        self.ending = True
        self._signal_group(signal.SIGKILL)

    def ask_to_end(self) -> None:
        """Send SIGTERM to it and to all that it has started; give it no more jobs."""
        self.ending = True
        self._signal_group(signal.SIGTERM)

    def _signal_group(self, number: signal.Signals) -> None:
        """Send a signal to it and to every process that it has started."""
        if self.alive:
            with suppress(ProcessLookupError, PermissionError):  # it has just ended
                os.killpg(self._process.pid, number)

    def close(self) -> None:
        """End it, and wait for it: the event loop may not turn again."""
        self.end_now()
        self.end_run()
        if self.alive:
            self._stop_watching()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_LEAVE)

    def _look_at_memory(self) -> None:
        if not self.alive:
            return
        memory = memory_of(self._process.pid)
        if memory is not None:
            self._peak = memory.peak
            if self._limit is not None and memory.now > self._limit * 1024:
                self._over_limit = True
                self.end_now()
                return
        pause = _LOOK if self._limit is None else _CLOSE_LOOK
        self._next_look = self._loop.call_later(pause, self._look_at_memory)

    def _watch(self) -> None:
        try:
            self._pidfd = os.pidfd_open(self._process.pid)
        except (AttributeError, OSError):
            self._look_after()
        else:
            self._loop.add_reader(self._pidfd, self._look_after)

    def _stop_watching(self) -> None:
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None

    def _look_after(self) -> None:
        """Collect it if it is dead. Here and nowhere else, so that no signal reaches an unrelated
        process.
        """
        if not self.alive:
            return
        code: int | None = None
        kib = 0
        if self._pidfd is not None:
            # It has ended and is not collected: the number is still its own.
            self.end_now()
        try:
            pid, state, usage = os.wait4(self._process.pid, os.WNOHANG)
        except ChildProcessError:
            pass  # this process lets the system collect its children
        else:
            if pid == 0:
                if self._pidfd is None:
                    self._loop.call_later(_POLL, self._look_after)
                return
            code = os.waitstatus_to_exitcode(state)
            kib = usage.ru_maxrss // (1024 if sys.platform == "darwin" else 1)
        self._process.poll()  # it was collected here, and notes so
        self._stop_watching()
        self.end_run()
        # Up to the exec the system counts the memory of the worker that started it.
        peak = kib if kib > self._own_kib else self._peak
        if not self.exited.done():
            self.exited.set_result(
                ProcessExit(code, peak, self._limit if self._over_limit else None)
            )


async def first_of(*futures: asyncio.Future[Any]) -> None:
    """Wait for one of them, and cancel none."""
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
