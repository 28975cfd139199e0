"""Log lines of runs: bounded, collected, and kept with the attempt about once a second."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime

import msgspec

from windlass._core.job.job import Claim, ClaimedJob
from windlass._core.values.redaction import redacted_text
from windlass._observe.current_run import secrets_of_run
from windlass._settings.settings import StoredLogs
from windlass._storage.protocol.journal import LogChunk, LogLine
from windlass._storage.protocol.storage import Storage
from windlass._storage.shared.errors import is_retryable
from windlass._worker.run.error_text import truncate_middle
from windlass._worker.run.log_capture import capture_logs

__all__ = ["LogCollector", "RunLogBuffer", "level_of", "line_of"]

log = logging.getLogger("windlass")

_PAUSE = 1.0
_GATHER = 0.05
"""Short runs end by the hundred: their lines go together."""
_LAST_CALL = 2.0
_LINES, _BYTES, _LINE = 1000, 64 * 1024, 4 * 1024
_HELD = 20_000
"""Lines that wait for a store that does not answer; beyond, the oldest are forgotten."""
_words = logging.Formatter()


def level_of(kept: StoredLogs) -> int | None:
    """Return the lowest level that is kept; None: nothing is."""
    return None if kept == "off" else logging.getLevelNamesMapping()[kept.upper()]


def line_of(job: ClaimedJob, record: logging.LogRecord) -> LogLine | None:
    """Return a record as it is kept; None for one whose arguments do not fit its text."""
    try:
        text = record.getMessage()
        if record.exc_info:
            text += f"\n{record.exc_text or _words.formatException(record.exc_info)}"
    except Exception:  # noqa: BLE001 -- formatting runs user code, and logging itself reports it
        return None
    text = redacted_text(truncate_middle(text, 2 * _LINE), secrets_of_run(job)).replace("\0", "\\0")
    at = datetime.fromtimestamp(record.created, UTC)
    return LogLine(max(at, job.started_at), record.levelno, truncate_middle(text, _LINE))


class RunLogBuffer(msgspec.Struct):
    """The log lines of one run so far, up to a bound."""

    waiting: list[LogLine] = []
    lines: int = 0
    size: int = 0
    dropped: int = 0
    last: LogLine | None = None

    def add(self, line: LogLine) -> None:
        """Keep it, or count it."""
        size = len(line.text.encode())
        self.last = line
        if self.dropped or self.lines >= _LINES or self.size + size > _BYTES:
            self.dropped += 1
            return
        self.lines += 1
        self.size += size
        self.waiting.append(line)

    def close(self) -> None:
        """Add the last line of a run that had too many."""
        if self.dropped and self.last is not None:
            text = (
                f"… {self.dropped:,} more line{'' if self.dropped == 1 else 's'} not stored: a run "
                f"stores at most {_LINES:,} lines and {_BYTES // 1024} KiB"
            )
            self.waiting.append(LogLine(self.last.at, logging.WARNING, text))
            self.dropped, self.last = 0, None

    def take(self) -> list[LogLine]:
        """Return the lines since the last call."""
        lines, self.waiting = self.waiting, []
        return lines


class _RunLog(msgspec.Struct):
    claim: Claim
    said: RunLogBuffer
    chunks: int = 0

    def chunk(self) -> LogChunk | None:
        lines = self.said.take()
        if not lines:
            return None
        self.chunks += 1
        return LogChunk(self.claim, self.chunks, lines)


class LogCollector:
    """Collects what runs of one worker log, on any thread, and stores it. A run that logs nothing
    costs nothing, and no job waits for its lines, or fails with them.
    """

    def __init__(self, storage: Storage, kept: StoredLogs, active: Collection[Claim]) -> None:
        """``active``: the runs of this worker, as they are now."""
        self._storage = storage
        self._active = active
        self._level = level_of(kept)
        self._lock = threading.RLock()
        """Reentrant: a destructor may log wherever memory is asked for, also while it is held."""
        self.runs: dict[Claim, _RunLog] = {}
        """Runs that have logged something and are not over: nearly always none."""
        self._ended: list[_RunLog] = []
        self._unstored: list[LogChunk] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._woken = False
        self._hurry, self._flushing = asyncio.Event(), asyncio.Lock()
        self._deaf: Callable[[], None] | None = None
        self._failing = False

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to listen; ``loop`` is where lines are stored. Also where none is kept: what is
        heard is masked.
        """
        self._loop = loop
        if self._deaf is None:
            self._deaf = capture_logs(self._hear)

    def _hear(self, job: ClaimedJob, record: logging.LogRecord) -> bool:
        if job.claim not in self._active and job.claim not in self.runs:
            return False
        if self._level is not None and record.levelno >= self._level:
            line = line_of(job, record)
            if line is not None:
                with self._lock:
                    self._run(job.claim).said.add(line)
                self._wake()
        return True

    def keep(self, claim: Claim, lines: Sequence[LogLine]) -> None:
        """Store what a child process has collected; it has minded the bounds."""
        with self._lock:
            self._run(claim).said.waiting.extend(lines)
        self._wake()

    def _run(self, claim: Claim) -> _RunLog:
        run = self.runs.get(claim)
        if run is None:
            run = self.runs[claim] = _RunLog(claim, RunLogBuffer())
        return run

    def _wake(self) -> None:
        if not self._woken and self._loop is not None:
            self._woken = True  # one call however many lines: a thread's reaches through a pipe
            with suppress(RuntimeError):  # a thread speaks after its worker's loop has ended
                self._loop.call_soon_threadsafe(self._begin)

    def ended(self, claim: Claim) -> None:
        """Store the lines of an ended run now."""
        if claim not in self.runs:
            return
        with self._lock:
            run = self.runs.pop(claim)
            run.said.close()
            self._ended.append(run)
        self._hurry.set()
        self._begin()

    def _begin(self) -> None:
        self._woken = False
        if self._task is None:
            # In no run's context: what is logged there would be taken for that run's.
            self._task = asyncio.get_running_loop().create_task(
                self._store(), context=contextvars.Context()
            )

    async def _store(self) -> None:
        """Store until nothing is left: about once a second, and when runs have ended."""
        try:
            while self._waiting():
                with suppress(TimeoutError):
                    async with asyncio.timeout(_PAUSE):
                        await self._hurry.wait()
                        await asyncio.sleep(_PAUSE if self._failing else _GATHER)
                await self.flush()
        finally:
            self._task = None

    def _waiting(self) -> bool:
        with self._lock:
            return bool(self._unstored or self._ended) or any(
                run.said.waiting for run in self.runs.values()
            )

    async def flush(self) -> None:
        """Store what there is. What cannot be stored now is tried again."""
        async with self._flushing:
            self._hurry.clear()
            with self._lock:
                runs, self._ended = [*self._ended, *self.runs.values()], []
                fresh = [chunk for run in runs if (chunk := run.chunk()) is not None]
            chunks = self._unstored = [*self._unstored, *fresh]
            if not chunks:
                return
            try:
                await self._storage.journal.append_logs(chunks)
            except Exception as error:  # noqa: BLE001 -- a log line is worth no job and no worker
                if is_retryable(error):
                    self._failed(error, chunks)
                    return
                await self._one_by_one(chunks)
            self._unstored, self._failing = [], False

    async def _one_by_one(self, chunks: Sequence[LogChunk]) -> None:
        """Store lines one by one: one that can never be stored must not take the others with it."""
        for chunk in chunks:
            try:
                await self._storage.journal.append_logs([chunk])
            except Exception as error:  # noqa: BLE001 -- likewise
                count, job = len(chunk.lines), chunk.claim.job
                log.warning("%d log lines of job %s could not be stored: %s", count, job, error)

    def _failed(self, error: Exception, chunks: list[LogChunk]) -> None:
        if not self._failing:
            log.warning("log lines of jobs cannot be stored, retrying: %s", error)
        self._failing = True
        while sum(len(chunk.lines) for chunk in chunks) > _HELD:
            chunks = chunks[1:]
        self._unstored = chunks

    async def close(self) -> None:
        """Store the rest, if the store answers soon, and hear nothing more."""
        if self._deaf is not None:
            self._deaf()
            self._deaf = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        with self._lock:
            for run in self.runs.values():
                run.said.close()
            self._ended += self.runs.values()
            self.runs.clear()
        try:
            async with asyncio.timeout(_LAST_CALL):
                await self.flush()
        except TimeoutError:
            log.warning("the last log lines of jobs were not stored: the store does not answer")
