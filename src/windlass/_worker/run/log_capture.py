"""Captures the log records of handlers, in every logger, thread and executor."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from typing import Any

from windlass._core.job.job import ClaimedJob
from windlass._core.values.redaction import redacted_text, redacted_value
from windlass._observe.current_run import job_of_run, secrets_of_run

__all__ = ["LogListener", "capture_logs"]

LogListener = Callable[[ClaimedJob, logging.LogRecord], bool]
"""Gets a record of a run, on any thread; returns whether the run is one of its own."""

_EVENTS = "windlass.jobs"
"""Job events are no log lines of handlers."""


class _CapturingFactory:
    """A record factory around the one there is.

    Not a handler of the root logger: with one, ``logging.basicConfig`` does nothing, warnings are
    not printed by default any more, and loggers that do not propagate are not heard.
    """

    def __init__(self) -> None:
        self._inner: Callable[..., logging.LogRecord] = logging.LogRecord
        self._changing = threading.Lock()
        self._ears: tuple[weakref.WeakMethod[LogListener], ...] = ()
        """Weak: a worker that was never closed must not be kept, nor told for ever."""

    def __call__(self, *args: Any, **named: Any) -> logging.LogRecord:
        record = self._inner(*args, **named)
        job = job_of_run()
        if job is not None and record.name != _EVENTS and isinstance(record.levelno, int):
            for found in self._ears:
                ear = found()
                if ear is not None and ear(job, record):
                    break
            _mask(record, job)
        return record

    def add(self, ear: LogListener) -> None:
        with self._changing:
            if logging.getLogRecordFactory() is not self and not self._ears:
                self._inner = logging.getLogRecordFactory()
                logging.setLogRecordFactory(self)
            alive = tuple(one for one in self._ears if one() is not None)
            self._ears = (*alive, weakref.WeakMethod(ear))

    def remove(self, ear: LogListener) -> None:
        with self._changing:
            self._ears = tuple(one for one in self._ears if one() not in (None, ear))
            # A wrapper that was installed after us contains us: then we stay, and hear nothing.
            if not self._ears and logging.getLogRecordFactory() is self:
                logging.setLogRecordFactory(self._inner)


_words = logging.Formatter()


def _mask(record: logging.LogRecord, job: ClaimedJob) -> None:
    """Take the job's secrets, and what looks like one, out of what it logs: handlers of the
    application print records as they are. What ``extra=`` adds comes later, and stays.
    """
    secrets = secrets_of_run(job)
    try:
        if isinstance(record.msg, dict):  # a structured line
            record.msg = redacted_value(record.msg, secrets)
        text = record.getMessage()
        hidden = redacted_text(text, secrets)
        if hidden != text:
            record.msg, record.args = hidden, ()
        if record.exc_info:
            trace = record.exc_text or _words.formatException(record.exc_info)
            hidden = redacted_text(trace, secrets)
            if hidden != trace:
                record.exc_text = hidden  # what formatters print in its place
    except Exception:  # noqa: BLE001 -- formatting runs user code, and logging itself reports it
        return


_FACTORY = _CapturingFactory()


def capture_logs(ear: LogListener) -> Callable[[], None]:
    """Let a method hear what runs in this process log; the answer ends it."""
    _FACTORY.add(ear)
    return lambda: _FACTORY.remove(ear)
