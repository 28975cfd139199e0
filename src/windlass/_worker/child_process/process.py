"""One child process as its worker sees it: a job in, an outcome out, or a death."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from windlass._core.job import outcome as core
from windlass._core.job.job import NO_TIMEOUT, AttemptError, ClaimedJob
from windlass._core.job.outcome import Outcome
from windlass._observe.current_run import context_in_trace, current_trace
from windlass._tasks.context import ContextHost
from windlass._tasks.options import JobOptions
from windlass._tasks.task import Task
from windlass._worker.child_process import protocol
from windlass._worker.child_process.exit_reason import ExitReason, memory_of
from windlass._worker.child_process.spawn import spawn
from windlass._worker.run.error_text import exception_name
from windlass._worker.run.log_store import LogCollector
from windlass.errors import ChildNotStarted, WindlassError

__all__ = ["ChildProcess"]

log = logging.getLogger("windlass")

_GRACE = 1.0
"""Seconds for a run to end by itself once it is asked to, before its process is killed."""
_LEAVE = 5.0
"""Seconds for an idle child to end in order."""
_LAST_WORDS = 0.5
"""How long a dead child's line is read on: something else may hold its end open."""
_LOOK, _CLOSE_LOOK = 0.5, 0.1
"""How often memory is looked at, without and with a limit."""
_POLL = 0.02
"""How often a child is looked after where the system cannot tell of its death."""


class ChildProcess:
    """A warm Python that runs one job at a time."""

    def __init__(
        self,
        hello: protocol.Hello,
        host: ContextHost,
        task_named: Callable[[str], Task[..., Any]],
        limit: int | None,
        lines: LogCollector,
    ) -> None:
        """``limit``: megabytes at which a run is ended. ``lines`` stores logs. Call `start`."""
        self._lines = lines
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._hello = hello
        self._host = host
        self._task_named = task_named
        self._limit = limit
        self._ready: asyncio.Future[None] = loop.create_future()
        self.death: asyncio.Future[ExitReason] = loop.create_future()
        self._over: asyncio.Future[Outcome] | None = None
        self._job: ClaimedJob | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None
        self._exit_report: asyncio.Task[None] | None = None
        self._answers: set[asyncio.Task[None]] = set()
        self._pidfd: int | None = None
        self._next_look: asyncio.TimerHandle | None = None
        self._doomed = False
        """Told to leave, or killed: nothing more will run in it."""
        self._over_limit = self._silent = False
        self._first_kib = 0
        self._peak: int | None = None
        self.jobs: int = 0
        """How many it was given."""
        self.megabytes: float = 0.0
        """The memory it used after the last run."""

    @property
    def usable(self) -> bool:
        """Whether it can be given a job."""
        return not self._doomed and self._alive and self._job is None

    @property
    def _alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Bring it up to where it can be given a job."""
        ours, theirs = socket.socketpair()
        try:
            self._process = spawn(theirs)
        except OSError as error:
            ours.close()
            raise ChildNotStarted(str(error)) from error
        finally:
            theirs.close()
        self._watch(self._process.pid)
        reader, self._writer = await asyncio.open_connection(sock=ours)
        self._listening = self._loop.create_task(self._listen(reader))
        self._send(self._hello)
        await _first(self._ready, self.death)
        if not self._ready.done():
            raise ChildNotStarted(self.death.result().words)
        self._ready.result()

    # --- one run ---

    async def run(self, job: ClaimedJob) -> Outcome:
        """Run ``job`` there. Cancelled, it ends the run: by asking first, then by force."""
        over: asyncio.Future[Outcome] = self._loop.create_future()
        self._over, self._job = over, job
        self.jobs += 1
        # The worker applies the rules and owns the clock.
        bare = msgspec.structs.replace(job, backoff=None, timeout=NO_TIMEOUT, on_failure=None)
        self._look_at_memory()  # first: it may be dead before the next look
        self._send(protocol.RunJob(bare, protocol.levels(), current_trace()))
        try:
            await _first(over, self.death)
        except asyncio.CancelledError:
            await self._stop(over)
            if not over.done() or not isinstance(over.result(), core.Succeeded):
                raise  # in any case: it ended because it was asked to
        finally:
            self._job = None
            if self._next_look is not None:
                self._next_look.cancel()
        if over.done():
            return over.result()
        return core.Lost(AttemptError("ChildDied", self.death.result().words))

    async def _stop(self, over: asyncio.Future[Outcome]) -> None:
        self._send(protocol.StopRun())
        force = self._loop.call_later(_GRACE, self.end_now)
        try:
            await _first(over, self.death)
        except asyncio.CancelledError:
            self.end_now()  # asked once more: no time is left
            raise
        finally:
            force.cancel()

    def _look_at_memory(self) -> None:
        if self._job is None or not self._alive or self._process is None:
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

    # --- its end ---

    def leave(self) -> None:
        """Let it end in order; it runs nothing."""
        if not self._doomed:
            self._doomed = True
            self._send(protocol.ExitProcess())
            self._loop.call_later(_LEAVE, self.end_now)

    def end_now(self) -> None:
        """End it at once, with every process that its handlers have started."""
        self._doomed = True
        self._end_group()

    def _end_group(self) -> None:
        if self._process is None or not self._alive:
            return
        with suppress(ProcessLookupError, PermissionError):  # it has just ended
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End it, and wait for it: the event loop may not turn again."""
        self.end_now()
        if self._process is not None and self._alive:
            self._stop_watching()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_LEAVE)
        for task in (self._listening, self._exit_report, *self._answers):
            if task is not None:
                task.cancel()
        if self._writer is not None:
            self._writer.transport.abort()

    def _watch(self, pid: int) -> None:
        try:
            self._pidfd = os.pidfd_open(pid)
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
        if self._process is None or not self._alive:
            return
        code: int | None = None
        kib = 0
        if self._pidfd is not None:
            self._end_group()  # it has ended and is not collected: the number is still its own
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
        self._exit_report = self._loop.create_task(self._report_exit(code, kib))

    async def _report_exit(self, code: int | None, kib: int) -> None:
        if self._listening is not None:
            await asyncio.wait({self._listening}, timeout=_LAST_WORDS)
            self._listening.cancel()
        if self._writer is not None:
            self._writer.close()
        # Up to the exec the system counts the memory of the worker that started it.
        peak = kib if kib > self._first_kib else self._peak
        death = ExitReason(
            code=code,
            peak=peak,
            limit=self._limit if self._over_limit else None,
            silent=self._silent,
        )
        if not self.death.done():
            self.death.set_result(death)

    # --- what it says ---

    def _send(self, frame: protocol.ToChild) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(protocol.encode_frame(frame))

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                (size,) = protocol.HEAD.unpack(await reader.readexactly(protocol.HEAD.size))
                self._hear(protocol.decode_from_child(await reader.readexactly(size)))
        except (asyncio.IncompleteReadError, OSError):
            pass  # it has ended, or is about to
        except Exception:
            log.exception("a child process sent an unreadable message and is killed")
        if self._alive and not self._doomed:
            self._loop.call_later(_LAST_WORDS, self._fell_silent)

    def _fell_silent(self) -> None:
        if self._alive:
            self._silent = True
            self.end_now()

    def _hear(self, frame: protocol.FromChild) -> None:
        match frame:
            case protocol.Ready(kib):
                self._first_kib = kib
                self._ready.set_result(None)
            case protocol.StartFailed(text):
                if self._ready.done():
                    log.error("a child process did not stop cleanly: %s", text)
                else:
                    self._ready.set_exception(ChildNotStarted(text))
            case protocol.ProgressUpdate() | protocol.MetadataUpdate() | protocol.CapturedLines():
                if self._job is not None:  # else of a run that has ended
                    self._keep(frame, self._job)
            case protocol.ForwardedRecord(record):
                _log(record)
            case protocol.EnqueueRequest() | protocol.PreviousRunRequest():
                self._begin_answer(frame)
            case protocol.RunOutcome(megabytes=megabytes):
                self.megabytes = megabytes
                if self._over is not None and not self._over.done():
                    self._over.set_result(protocol.decode_outcome(frame))

    def _keep(
        self,
        told: protocol.ProgressUpdate | protocol.MetadataUpdate | protocol.CapturedLines,
        job: ClaimedJob,
    ) -> None:
        """Keep what a run tells about itself."""
        match told:
            case protocol.ProgressUpdate(progress):
                self._host.note(job, progress)
            case protocol.MetadataUpdate(metadata):
                self._host.noted(job, metadata)
            case protocol.CapturedLines(lines):
                self._lines.keep(job.claim, lines)

    async def _answer(self, ask: protocol.EnqueueRequest, job: ClaimedJob | None) -> None:
        try:
            if job is None:
                message = "the run has ended"
                raise WindlassError(message)
            options = msgspec.convert(ask.options, JobOptions)
            call = self._task_named(ask.task).call_of(ask.payload, options)
            made = await self._host.enqueue_from(job, call)
            answer = protocol.EnqueueReply(ask.number, made.id, made.created, made.replaced)
        except Exception as error:  # noqa: BLE001 -- raised where it was asked for
            answer = protocol.EnqueueReply(ask.number, error=f"{exception_name(error)}: {error}")
        self._send(answer)

    async def _answer_previous(self, number: int, job: ClaimedJob | None) -> None:
        try:
            run = None if job is None else await self._host.previous_run(job)
            answer = protocol.PreviousRunReply(number, run)
        except Exception as error:  # noqa: BLE001 -- raised where it was asked for
            words = f"{exception_name(error)}: {error}"
            answer = protocol.PreviousRunReply(number, error=words)
        self._send(answer)

    def _begin_answer(self, ask: protocol.EnqueueRequest | protocol.PreviousRunRequest) -> None:
        if isinstance(ask, protocol.EnqueueRequest):
            variables = context_in_trace(ask.trace)
            answering = self._loop.create_task(self._answer(ask, self._job), context=variables)
        else:
            answering = self._loop.create_task(self._answer_previous(ask.number, self._job))
        self._answers.add(answering)
        answering.add_done_callback(self._answers.discard)


async def _first(*futures: asyncio.Future[Any]) -> None:
    """Wait for one of them, and cancel none."""
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


def _log(record: dict[str, object]) -> None:
    made = logging.makeLogRecord(record)
    logger = logging.getLogger(made.name)
    if logger.isEnabledFor(made.levelno):
        logger.handle(made)
