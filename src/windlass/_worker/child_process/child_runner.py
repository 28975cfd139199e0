"""A child process from the inside: the worker's own runner, at the other end of a line."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import Any

import msgspec

from windlass._core.flows.flow import Addition
from windlass._core.flows.results import READER
from windlass._core.job.job import ClaimedJob, FlowId, JobId, Progress
from windlass._core.schedule.previous_run import PreviousRun
from windlass._core.values.metadata import Metadata
from windlass._core.values.redaction import redacted_text
from windlass._observe.current_run import (
    context_in_trace,
    current_trace,
    job_fields,
    job_of_run,
    secrets_of_run,
)
from windlass._storage.protocol.flows import Member
from windlass._system.seams import monotonic, start_thread
from windlass._tasks.cancel_token import RUN_ENDED
from windlass._tasks.context import ContextHost
from windlass._tasks.flows.flow import Flow
from windlass._tasks.handle import Enqueuer, Job
from windlass._tasks.hooks import Hooks
from windlass._tasks.services import Services
from windlass._tasks.task import Call
from windlass._worker.child_process import protocol
from windlass._worker.child_process.exit_reason import own_peak
from windlass._worker.child_process.spawn import exit_with_descendants
from windlass._worker.liveness.recycling import megabytes_used
from windlass._worker.run.arguments import StoredResults
from windlass._worker.run.execution import RunEnded, RunLimits, StopCause
from windlass._worker.run.log_capture import capture_logs
from windlass._worker.run.log_store import RunLogBuffer, line_of
from windlass._worker.run.runner import Runner
from windlass._worker.run.threads import wait_on_loop
from windlass.errors import InvalidArgument, ResultsUnavailable, WindlassError

__all__ = ["ChildRunner", "ParentConnection", "ParentLogHandler", "set_levels"]

_NOTES = 0.05
"""Seconds between two notes of progress: a handler may have one for every line of a file."""
_PLAIN = (str, int, float, bool, type(None))


def set_levels(levels: protocol.Levels) -> None:
    """Log as much as the worker does."""
    for name, level in levels.items():
        logging.getLogger(name or None).setLevel(level)


class ParentConnection:
    """The child's end of the line. Any thread may speak; one listens."""

    def __init__(self, fd: int) -> None:
        """``fd`` was passed on by the worker."""
        self._socket = socket.socket(fileno=fd)
        self._socket.set_inheritable(False)
        self._speaking = threading.Lock()

    def say(self, frame: protocol.FromChild) -> None:
        """Send; waits while the worker is busy."""
        framed = protocol.encode_frame(frame)
        with self._speaking:
            self._socket.sendall(framed)

    def hear(self) -> protocol.ToChild | None:
        """Return the next frame; None when the worker is gone."""
        head = self._exactly(protocol.HEAD.size)
        if head is None:
            return None
        body = self._exactly(protocol.HEAD.unpack(head)[0])
        return None if body is None else protocol.decode_to_child(body)

    def _exactly(self, size: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < size:
            try:
                part = self._socket.recv(size - len(parts))
            except OSError:
                return None
            if not part:
                return None
            parts += part
        return bytes(parts)


class ParentLogHandler(logging.Handler):
    """Log records go to the worker, which knows where they belong."""

    def __init__(self, line: ParentConnection) -> None:
        super().__init__()
        self._line = line
        self._words = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        """Send it as text: what it was made of stays here."""
        told = {k: v if isinstance(v, _PLAIN) else repr(v) for k, v in vars(record).items()}
        job = job_of_run()
        secrets = secrets_of_run(job)
        told["msg"], told["args"] = redacted_text(record.getMessage(), secrets), None
        if record.exc_info:
            trace = record.exc_text or self._words.formatException(record.exc_info)
            told["exc_text"] = redacted_text(trace, secrets)
        told["exc_info"] = None
        if job is not None:
            told = {**job_fields(job), **told}
        try:
            self._line.say(protocol.ForwardedRecord(told))
        except (OSError, UnicodeEncodeError, OverflowError):
            self.handleError(record)


class ChildRunner:
    """Runs the jobs that the worker sends, one after the other, until it gets a leave message."""

    def __init__(
        self, hooks: Hooks, client: Enqueuer, line: ParentConnection, hello: protocol.Hello
    ) -> None:
        """``hooks`` and ``client``: of the app that this child has imported. Made on the loop it
        lives on.
        """
        self._hooks = hooks
        self._client = client
        self._line = line
        self._asks: dict[int, asyncio.Future[Any]] = {}
        self._results = StoredResults(self._read_results)
        self._numbers = count(1)
        self.runner: Runner = Runner(
            client.tasks,
            _ChildContextHost(self),
            self,
            RunLimits(result_limit=hello.result_limit, error_limit=hello.error_limit),
        )
        self._levels = hello.levels
        self._kept = hello.kept
        self._lines, self._adding = RunLogBuffer(), threading.RLock()
        self._loop = asyncio.get_running_loop()
        self._left = asyncio.Event()
        self._next_note = 0.0
        self._unsaid: Progress | None = None

    async def serve(self) -> None:
        """Live from the app's lifespan on to its end."""
        start_thread("line", self._listen)
        capture_logs(self._keep)  # also where no line is kept: what is heard is masked
        async with self._hooks.living():
            self._line.say(protocol.Ready(own_peak()))
            await self._left.wait()
        self.runner.close()

    @property
    def state(self) -> Any:
        """The application's own object, in this process."""
        return self._hooks.state

    @property
    def services(self) -> Services:
        """Return the services of the application, in this process."""
        return self._hooks.services.with_own({}, self._left.is_set)

    def _listen(self) -> None:
        while (frame := self._line.hear()) is not None:
            if isinstance(frame, protocol.StopRun):
                # At once: a handler may block the loop and still look at its token.
                for run in list(self.runner.active.values()):
                    run.set()
            self._loop.call_soon_threadsafe(self._obey, frame)
        exit_with_descendants()

    def _obey(self, frame: protocol.ToChild) -> None:
        match frame:
            case protocol.RunJob(job, levels, trace):
                if levels != self._levels:  # else the app may have its own way
                    self._levels = levels
                    set_levels(levels)
                variables = context_in_trace(trace)
                if job.flow is not None:
                    variables.run(READER.set, self._results)
                variables.run(self.runner.start, [job])
            case protocol.StopRun():
                self.runner.stop_all(StopCause.CANCEL)
            case (
                protocol.EnqueueReply(number)
                | protocol.PreviousRunReply(number)
                | protocol.ResultsReply(number)
            ):
                asked = self._asks.pop(number, None)
                if asked is not None and not asked.done():
                    asked.set_result(frame)
            case protocol.ExitProcess():
                self._left.set()
            case protocol.Hello():
                pass  # said before this one listened

    def add(self, ended: RunEnded) -> None:
        """Tell the worker how a run has ended."""
        self._catch_up()
        self._lines.close()
        self._say_lines()
        self._lines = RunLogBuffer()
        self._line.say(protocol.encode_outcome(ended.outcome, megabytes_used()))

    def _keep(self, job: ClaimedJob, record: logging.LogRecord) -> bool:
        """Send a log line to the worker. On any thread; at once, so that a crash does not lose the
        last lines.
        """
        if job.claim in self.runner.active and self._kept is not None:
            line = line_of(job, record) if record.levelno >= self._kept else None
            if line is not None:
                with self._adding:
                    self._lines.add(line)
                self._say_lines()
        return True

    def _say_lines(self) -> None:
        with self._adding:
            lines = self._lines.take()
        if lines:
            with suppress(OSError):  # the worker is gone, and this process will be in a moment
                self._line.say(protocol.CapturedLines(lines))

    def note(self, progress: Progress) -> None:
        """Pass on how far the run is; the newest word only, if it has many."""
        now = monotonic()
        if now >= self._next_note:
            self._next_note, self._unsaid = now + _NOTES, None
            self._line.say(protocol.ProgressUpdate(progress))
            return
        waits, self._unsaid = self._unsaid is not None, progress
        if not waits:
            self._loop.call_soon_threadsafe(self._loop.call_later, _NOTES, self._catch_up)

    def pass_on(self, metadata: Metadata) -> None:
        """Pass on what the run has noted."""
        self._line.say(protocol.MetadataUpdate(metadata))

    def _catch_up(self) -> None:
        unsaid, self._unsaid = self._unsaid, None
        if unsaid is not None and self.runner.active:
            self._line.say(protocol.ProgressUpdate(unsaid))

    async def ask(self, call: Call[Any]) -> Any:
        """Let the worker enqueue ``call``."""
        options = call.options
        if options.connection is not None:
            message = (
                "ctx.enqueue(...) goes through the worker, which does not have your connection. In "
                "a child process use task.options(connection=...).enqueue(...)"
            )
            raise InvalidArgument(message)
        call.task.check((call,), self._client.tasks)
        said = {k: v for k, v in msgspec.structs.asdict(options).items() if v is not None}
        number = next(self._numbers)
        ask = protocol.EnqueueRequest(number, call.task.name, call.payload, said, current_trace())
        answer: protocol.EnqueueReply = await self._answer_to(ask)
        return Job(
            self._client,
            JobId(answer.job),
            created=answer.created,
            replaced=answer.replaced,
            task=call.task,
        )

    def make_jobs(self, job: ClaimedJob, calls: Sequence[Call[Any] | Flow]) -> list[Addition]:
        """Make the jobs that the run adds to its success. They travel with its outcome."""
        if job.claim not in self.runner.active:
            raise WindlassError(RUN_ENDED)
        return self._client.make_jobs(job, calls)

    async def previous_run(self) -> PreviousRun | None:
        """Let the worker read the run before this one."""
        ask = protocol.PreviousRunRequest(next(self._numbers))
        answer: protocol.PreviousRunReply = await self._answer_to(ask)
        return answer.run

    def previous_run_sync(self) -> PreviousRun | None:
        """Return the same to a thread."""
        return wait_on_loop(self.previous_run(), self._loop, "await ctx.previous_run()")

    async def _read_results(
        self, flow: FlowId, part: int, after: int, limit: int
    ) -> Sequence[Member]:
        """Let the worker read results for `Results`."""
        ask = protocol.ResultsRequest(next(self._numbers), flow, part, after, limit)
        answer: protocol.ResultsReply = await self._answer_to(ask)
        return answer.page

    async def _answer_to(
        self, ask: protocol.EnqueueRequest | protocol.PreviousRunRequest | protocol.ResultsRequest
    ) -> Any:
        answered = self._asks[ask.number] = asyncio.get_running_loop().create_future()
        self._line.say(ask)
        answer = await answered
        if isinstance(answer, protocol.ResultsReply) and answer.unavailable:
            raise ResultsUnavailable(answer.error or "")
        if answer.error is not None:
            raise WindlassError(answer.error)
        return answer


class _ChildContextHost(ContextHost):
    """The calls of a context in a child."""

    def __init__(self, inside: ChildRunner) -> None:
        self._inside = inside

    @property
    def state(self) -> Any:
        return self._inside.state

    @property
    def services(self) -> Services:
        return self._inside.services

    def note(self, job: ClaimedJob, progress: Progress) -> None:  # noqa: ARG002 -- there is one job
        words = progress.note.encode("utf-8", "replace").decode("utf-8")
        self._inside.note(msgspec.structs.replace(progress, note=words))

    def noted(self, job: ClaimedJob, metadata: Metadata) -> None:  # noqa: ARG002
        self._inside.pass_on(metadata)

    async def enqueue_from(self, job: ClaimedJob, call: Call[Any]) -> Any:  # noqa: ARG002
        return await self._inside.ask(call)

    def make_jobs(self, job: ClaimedJob, calls: Sequence[Call[Any] | Flow]) -> list[Addition]:
        return self._inside.make_jobs(job, calls)

    async def previous_run(self, job: ClaimedJob) -> PreviousRun | None:  # noqa: ARG002
        return await self._inside.previous_run()

    def previous_run_sync(self, job: ClaimedJob) -> PreviousRun | None:  # noqa: ARG002
        return self._inside.previous_run_sync()

    async def finish(self, *_: object) -> None:
        raise WindlassError(_NO_FINISH)

    def finish_sync(self, *_: object) -> None:
        raise WindlassError(_NO_FINISH)


_NO_FINISH = (
    "ctx.finish(connection=...) does not work in a child process: the worker holds the claim. "
    'Leave run_in="process" out for this task, or write your rows first and return the result'
)
