"""One process of a program as its worker sees it: a request in, a value or an exception out."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from windlass._core.job.control import Retry
from windlass._core.job.job import ClaimedJob
from windlass._core.values.redaction import redacted_text
from windlass._observe.current_run import secrets_of_run
from windlass._tasks.options import Program
from windlass._worker.child_process.exit_reason import ExitReason, own_peak
from windlass._worker.child_process.watched_process import (
    LAST_WORDS,
    ProcessExit,
    WatchedProcess,
    first_of,
)
from windlass._worker.program.group_guard import GroupGuard
from windlass._worker.program.pipes import LineReader, PipeWriter
from windlass._worker.program.protocol import (
    LEVELS,
    BadReply,
    ProgramCall,
    Reply,
    decode_reply,
    encode_request,
)
from windlass._worker.program.start_backoff import StartBackoff
from windlass._worker.run.execution import RunLimits
from windlass.errors import ChildNotStarted, InvalidArgument, JobTimeout, ProgramFailed

__all__ = ["ProgramProcess"]

log = logging.getLogger("windlass")

_AROUND = 64 * 1024
"""Bytes of a reply beside its result."""
_LOG_LINE = 16 * 1024
_SHOWN = 500


class _ProgramRun:
    """The run that the process has at the moment."""

    def __init__(self, call: ProgramCall, loop: asyncio.AbstractEventLoop) -> None:
        self.call = call
        self.over: asyncio.Future[Any] = loop.create_future()
        self.variables = contextvars.copy_context()
        """Lines that are logged inside them belong to the run."""
        self.output: list[bytes] = []
        self.size = 0

    def fail(self, error: Exception) -> None:
        """End it, unless it has ended."""
        if not self.over.done():
            self.over.set_exception(error)
            self.over.exception()  # seen: a run that is cancelled twice does not look at it

    def collect(self, line: bytes) -> None:
        """Keep a line of the result of a program that runs one job."""
        self.output.append(line)
        self.size += len(line) + 1


class ProgramProcess:
    """A process that runs one job at a time; the only one, unless the program is warm."""

    def __init__(
        self, program: Program, limits: RunLimits, guard: GroupGuard, starts: StartBackoff
    ) -> None:
        """Make it; `start` starts it. ``guard`` ends it with the worker."""
        self._program = program
        self._limits = limits
        self._guard = guard
        self._starts = starts
        self._loop = asyncio.get_running_loop()
        self.death: asyncio.Future[ExitReason] = self._loop.create_future()
        self._process: WatchedProcess | None = None
        self._input: PipeWriter | None = None
        self._readers: list[LineReader] = []
        self._run: _ProgramRun | None = None
        self._exit_report: asyncio.Task[None] | None = None
        self._silent = False
        self._answered = False
        self._last_line = ""
        """The last line that the run wrote to standard error."""
        self._last_job: ClaimedJob | None = None
        self.jobs: int = 0
        """How many it was given."""
        self.megabytes: float = 0.0
        """The memory it used after the last run."""

    @property
    def usable(self) -> bool:
        """Whether it can be given a job."""
        free = self._run is None and (self._program.warm or not self.jobs)
        return free and self._process is not None and self._process.usable

    async def start(self) -> None:
        """Start the program; ChildNotStarted if the system cannot."""
        try:
            process = _spawn(self._program)
        except ChildNotStarted as error:
            self.death.cancel()  # there is nothing that could end
            self._starts.failed(str(error))
            raise
        self._process = WatchedProcess(process, self._limits.memory_limit, own_peak())
        self._process.exited.add_done_callback(self._exited)
        self._guard.add(process.pid)
        stdin, stdout, stderr = filter(None, (process.stdin, process.stdout, process.stderr))
        output = LineReader(stdout, self._limits.result_limit + _AROUND, self._hear)
        output.ended.add_done_callback(self._output_ended)
        self._readers = [output, LineReader(stderr, _LOG_LINE, self._hear_log)]
        self._input = PipeWriter(stdin)

    # --- one run ---

    async def value(self, call: ProgramCall) -> Any:
        """Run a job, and return its result. Cancelled, it ends the run: by SIGTERM, then by
        force.
        """
        process, request = self._started, encode_request(call)
        run = self._run = _ProgramRun(call, self._loop)
        self.jobs += 1
        self._last_line, self._last_job = "", call.context.claimed
        soft = call.task.settings.soft_timeout
        reminder = None
        if soft is not None:
            reminder = self._loop.call_later(soft.total_seconds(), process.ask_to_end)
        process.begin_run()
        for reader in self._readers:
            reader.begin()  # not before: what a program says at its start belongs to its first job
        self._send(request)
        try:
            await first_of(run.over, self.death)
        except asyncio.CancelledError:
            process.ask_to_end()
            await process.end_soon(run.over, self.death)
            if not run.over.done() or run.over.exception() is not None:
                raise  # in any case, also with exit code 0: it ended because it was asked to
        finally:
            late = reminder is not None and self._loop.time() >= reminder.when()
            if reminder is not None:
                reminder.cancel()
            process.end_run()
            self.megabytes = process.megabytes
            self._run = None
            if process.alive and process.ending:
                self.leave()
        if run.over.done():
            return run.over.result()
        return self._value_at_exit(run, self.death.result(), soft if late else None)

    def _value_at_exit(self, run: _ProgramRun, end: ExitReason, late: timedelta | None) -> Any:
        """Return the result of a process that has ended, or raise why there is none."""
        # After SIGTERM many programs end with 0 and without a word. That is no result.
        if not self._program.warm and end.code == 0 and (late is None or run.output):
            return self._result(run)
        if late is not None:
            message = f"ran longer than its soft timeout of {late.total_seconds():g} s"
            raise JobTimeout(message)
        if self._program.warm and not self._answered:
            self._starts.died(end.words)
        last = f". The last line of its standard error: {self._last_line}" * bool(self._last_line)
        retry = end.code not in self._program.give_up_codes
        raise ProgramFailed("ProgramFailed", f"{end.words}{last}", retry=retry)

    def _result(self, run: _ProgramRun) -> Any:
        output = b"\n".join(run.output)
        if not output.strip():
            return None
        try:
            return msgspec.json.decode(output)
        except (msgspec.MsgspecError, ValueError) as error:
            shown = repr(output[:_SHOWN].decode("utf-8", "replace"))
            text = (
                f"{self._program} wrote {shown} to standard output, which is not JSON ({error}). "
                f"Print one JSON value there, or nothing, and everything else to standard error"
            )
            raise ProgramFailed("BadReply", text, retry=False) from None

    # --- its end ---

    def leave(self) -> None:
        """Let it end in order: its standard input ends."""
        if self._input is not None:
            self._input.finish()
        if self._process is not None:
            self._process.end_later()

    def end_now(self) -> None:
        """End it at once, with every process that it has started."""
        if self._process is not None:
            self._process.end_now()

    def close(self) -> None:
        """End it, and wait for it: the event loop may not turn again."""
        if self._process is not None:
            self._process.close()
            self._guard.remove(self._process.pid)
        if self._exit_report is not None:
            self._exit_report.cancel()
        self._close_pipes()

    @property
    def _started(self) -> WatchedProcess:
        if self._process is None:
            message = f"{self._program} was not started"
            raise ChildNotStarted(message)
        return self._process

    def _close_pipes(self) -> None:
        for reader in self._readers:
            reader.close()
        if self._input is not None:
            self._input.close()

    def _exited(self, exited: asyncio.Future[ProcessExit]) -> None:
        self._guard.remove(self._started.pid)
        self._exit_report = self._loop.create_task(self._report_exit(exited.result()))

    async def _report_exit(self, end: ProcessExit) -> None:
        for reader in self._readers:
            reader.begin()
        if self._readers:
            await asyncio.wait([reader.ended for reader in self._readers], timeout=LAST_WORDS)
        self._close_pipes()
        if not self.death.done():
            self.death.set_result(
                ExitReason(
                    code=end.code,
                    peak=end.peak,
                    limit=end.limit,
                    silent=self._silent,
                    who=f"the {self._program}",
                    early=self._program.warm,
                )
            )

    # --- what it says ---

    def _send(self, line: bytes) -> None:
        if self._input is not None:
            self._input.write(line)
            if not self._program.warm:
                self._input.finish()

    def _hear(self, line: bytes) -> None:
        """Take a line of standard output."""
        run = self._run
        if run is None or run.over.done():
            if self._program.warm and line.strip():
                log.error(
                    "%s wrote a line without a request, or a second reply, and is replaced: write "
                    "one result or one error for each request",
                    self._program,
                )
                self.end_now()
            return
        limit = self._limits.result_limit
        if not self._program.warm:
            run.collect(line)
        if max(run.size, len(line)) > limit + _AROUND:
            text = (
                f"{self._program} wrote more than result_limit={limit:,} bytes to standard output. "
                f"Write the result to a file and return its name, or raise result_limit"
            )
            run.fail(ProgramFailed("BadReply", text, retry=False))
            self.end_now()
        elif self._program.warm and line.strip():
            self._hear_reply(run, line)

    def _hear_reply(self, run: _ProgramRun, line: bytes) -> None:
        try:
            reply = decode_reply(line, run.call.context.job_id)
            run.variables.run(self._take_reply, run, reply)
        except (BadReply, InvalidArgument) as error:
            run.fail(ProgramFailed("BadReply", f"bad reply of {self._program}: {error}"))
            self.end_now()

    def _take_reply(self, run: _ProgramRun, reply: Reply) -> None:
        context = run.call.context
        if reply.progress is not None:
            context.progress(reply.progress, reply.note or "")
        elif reply.log is not None:
            context.log("%s", reply.log, level=LEVELS[reply.level or "info"])
        else:
            self._answered = True
            self._starts.worked()
            if reply.error is not None:
                run.fail(_error_of(reply))
            else:
                run.over.set_result(reply.result)

    def _hear_log(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").rstrip()
        self._last_line = text[:_SHOWN]
        run = self._run
        if run is not None:
            run.variables.run(run.call.context.log, "%s", text)
        elif text:  # perhaps a late word of its last job
            log.info("%s: %s", self._program, redacted_text(text, secrets_of_run(self._last_job)))

    def _output_ended(self, _: object) -> None:
        """End a warm program that can answer no more."""
        if self._program.warm and self._process is not None and self._process.usable:
            self._loop.call_later(LAST_WORDS, self._fell_silent, self._process)

    def _fell_silent(self, process: WatchedProcess) -> None:
        if process.alive:
            self._silent = True
            process.end_now()


def _spawn(program: Program) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            list(program.command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=program.cwd,
            env={**os.environ, **program.env},
            start_new_session=True,  # Ctrl+C is for the worker, and the group ends as a whole
        )
    except OSError as error:
        folder = Path(program.cwd or ".").absolute()
        message = (
            f"{program} cannot be started in {folder}: {error.strerror}: {error.filename!r}. "
            f"Install it on every worker of this queue, or correct its command"
        )
        raise ChildNotStarted(message) from error


def _error_of(reply: Reply) -> ProgramFailed:
    after = None if reply.after is None else Retry(after=reply.after).after
    kind, text = reply.kind or "ProgramFailed", reply.error or "no reason was given"
    return ProgramFailed(kind, text, retry=reply.retry is not False, after=after)
