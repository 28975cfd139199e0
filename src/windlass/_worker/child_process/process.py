"""One child process as its worker sees it: a job in, an outcome out, or a death."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

import msgspec

from windlass._core.job import outcome as core
from windlass._core.job.job import NO_TIMEOUT, AttemptError, ClaimedJob
from windlass._core.job.outcome import Outcome
from windlass._observe.current_run import context_in_trace, current_trace
from windlass._storage.shared.errors import is_retryable
from windlass._tasks.context import ContextHost
from windlass._tasks.options import JobOptions
from windlass._tasks.task import Task
from windlass._worker.child_process import protocol
from windlass._worker.child_process.exit_reason import ExitReason
from windlass._worker.child_process.spawn import spawn
from windlass._worker.child_process.watched_process import (
    LAST_WORDS,
    ProcessExit,
    WatchedProcess,
    first_of,
)
from windlass._worker.run.arguments import ReadPage
from windlass._worker.run.error_text import exception_name
from windlass._worker.run.log_store import LogCollector
from windlass.errors import ChildNotStarted, WindlassError

__all__ = ["ChildProcess"]

log = logging.getLogger("windlass")


class ChildProcess:
    """A warm Python that runs one job at a time."""

    def __init__(
        self,
        hello: protocol.Hello,
        host: ContextHost,
        task_named: Callable[[str], Task[..., Any]],
        limit: int | None,
        lines: LogCollector,
        *,
        read: ReadPage,
    ) -> None:
        """``limit``: megabytes at which a run is ended. ``lines`` stores logs, ``read`` reads
        results for its runs. Call `start`.
        """
        self._lines = lines
        self._read = read
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
        self._process: WatchedProcess | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None
        self._exit_report: asyncio.Task[None] | None = None
        self._answers: set[asyncio.Task[None]] = set()
        self._silent = False
        self.jobs: int = 0
        """How many it was given."""
        self.megabytes: float = 0.0
        """The memory it used after the last run."""

    @property
    def usable(self) -> bool:
        """Whether it can be given a job."""
        return self._process is not None and self._process.usable and self._job is None

    @property
    def _started(self) -> WatchedProcess:
        if self._process is None:
            message = "the child process was not started"
            raise ChildNotStarted(message)
        return self._process

    async def start(self) -> None:
        """Bring it up to where it can be given a job."""
        ours, theirs = socket.socketpair()
        try:
            self._process = WatchedProcess(spawn(theirs), self._limit, 0)
        except OSError as error:
            ours.close()
            self.death.cancel()  # there is nothing that could end
            raise ChildNotStarted(str(error)) from error
        finally:
            theirs.close()
        self._process.exited.add_done_callback(self._exited)
        reader, self._writer = await asyncio.open_connection(sock=ours)
        self._listening = self._loop.create_task(self._listen(reader))
        self._send(self._hello)
        await first_of(self._ready, self.death)
        if not self._ready.done():
            raise ChildNotStarted(self.death.result().words)
        self._ready.result()

    # --- one run ---

    async def run(self, job: ClaimedJob) -> Outcome:
        """Run ``job`` there. Cancelled, it ends the run: by asking first, then by force."""
        process = self._started
        over: asyncio.Future[Outcome] = self._loop.create_future()
        self._over, self._job = over, job
        self.jobs += 1
        # The worker applies the rules and owns the clock.
        bare = msgspec.structs.replace(job, backoff=None, timeout=NO_TIMEOUT, on_failure=None)
        process.begin_run()
        self._send(protocol.RunJob(bare, protocol.levels(), current_trace()))
        try:
            await first_of(over, self.death)
        except asyncio.CancelledError:
            self._send(protocol.StopRun())
            await process.end_soon(over, self.death)
            if not over.done() or not isinstance(over.result(), core.Succeeded):
                raise  # in any case: it ended because it was asked to
        finally:
            self._job = None
            process.end_run()
        if over.done():
            return over.result()
        return core.Lost(AttemptError("ChildDied", self.death.result().words))

    # --- its end ---

    def leave(self) -> None:
        """Let it end in order; it runs nothing."""
        if self._process is not None and not self._process.ending:
            self._send(protocol.ExitProcess())
            self._process.end_later()

    def end_now(self) -> None:
        """End it at once, with every process that its handlers have started."""
        if self._process is not None:
            self._process.end_now()

    def close(self) -> None:
        """End it, and wait for it: the event loop may not turn again."""
        if self._process is not None:
            self._process.close()
        for task in (self._listening, self._exit_report, *self._answers):
            if task is not None:
                task.cancel()
        if self._writer is not None:
            self._writer.transport.abort()

    def _exited(self, exited: asyncio.Future[ProcessExit]) -> None:
        self._exit_report = self._loop.create_task(self._report_exit(exited.result()))

    async def _report_exit(self, end: ProcessExit) -> None:
        if self._listening is not None:
            await asyncio.wait({self._listening}, timeout=LAST_WORDS)
            self._listening.cancel()
        if self._writer is not None:
            self._writer.close()
        death = ExitReason(code=end.code, peak=end.peak, limit=end.limit, silent=self._silent)
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
        if self._process is not None and self._process.usable:
            self._loop.call_later(LAST_WORDS, self._fell_silent, self._process)

    def _fell_silent(self, process: WatchedProcess) -> None:
        if process.alive:
            self._silent = True
            process.end_now()

    def _hear(self, frame: protocol.FromChild) -> None:
        match frame:
            case protocol.Ready(kib):
                self._started.has_started(kib)
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
            case (
                protocol.EnqueueRequest()
                | protocol.PreviousRunRequest()
                | protocol.ResultsRequest()
            ):
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

    async def _answer_results(self, ask: protocol.ResultsRequest, job: ClaimedJob | None) -> None:
        try:
            if job is None or job.flow is None or job.flow.flow != ask.flow:
                message = "a run reads results of its own flow only, until it has ended"
                raise WindlassError(message)
            page = await self._read(ask.flow, ask.part, ask.after, ask.limit)
            answer = protocol.ResultsReply(ask.number, page)
        except Exception as error:  # noqa: BLE001 -- raised where it was asked for
            words = f"{exception_name(error)}: {error}"
            answer = protocol.ResultsReply(ask.number, error=words, unavailable=is_retryable(error))
        self._send(answer)

    def _begin_answer(
        self, ask: protocol.EnqueueRequest | protocol.PreviousRunRequest | protocol.ResultsRequest
    ) -> None:
        variables = None
        if isinstance(ask, protocol.EnqueueRequest):
            work, variables = self._answer(ask, self._job), context_in_trace(ask.trace)
        elif isinstance(ask, protocol.PreviousRunRequest):
            work = self._answer_previous(ask.number, self._job)
        else:
            work = self._answer_results(ask, self._job)
        answering = self._loop.create_task(work, context=variables)
        self._answers.add(answering)
        answering.add_done_callback(self._answers.discard)


def _log(record: dict[str, object]) -> None:
    made = logging.makeLogRecord(record)
    logger = logging.getLogger(made.name)
    if logger.isEnabledFor(made.levelno):
        logger.handle(made)
