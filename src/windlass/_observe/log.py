"""Events → log lines: one per job, for people or as JSON.

Texts of a job (its error, a log line) are escaped, so that they cannot add a second line, or colour
or move the cursor of a reader's terminal.
"""

from __future__ import annotations

import functools
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, assert_never

from windlass._core.job.event import (
    Event,
    JobCoalesced,
    JobEnqueued,
    JobMoved,
    QueueCooled,
    WorkerChanged,
)
from windlass._core.job.ids import short_id
from windlass._core.job.job import AttemptError
from windlass._core.job.state import Verb
from windlass._core.values.redaction import MASK, looks_secret, redacted_json, redacted_text
from windlass._observe.current_run import job_fields, job_of_run, secrets_of_run

__all__ = [
    "EventLog",
    "HumanFormatter",
    "JsonFormatter",
    "brief",
    "error_in_one_line",
    "printable",
]

log = logging.getLogger("windlass.jobs")


# --- text that is safe to show ------------------------------------------------------------------

_UNSAFE = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # control characters, both sets: cursor, colours, line ends
    "\u2028\u2029"  # line and paragraph separators
    "\u200e\u200f\u202a-\u202e\u2066-\u2069"  # text direction: makes a line read as another
    "\ud800-\udfff"  # lone surrogates: cannot be encoded
    "]"
)


def printable(text: str) -> str:
    """``text`` with everything that is not plain text written as an escape."""
    return _UNSAFE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def error_in_one_line(error: AttemptError, limit: int = 160) -> str:
    """Return an error as ``Kind: first line of its text``, safe to show and not too long."""
    first = error.message.strip().partition("\n")[0]
    kind = error.kind.rpartition(".")[2]
    text = printable(f"{kind}: {first}" if first else kind)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def brief(span: timedelta) -> str:
    """Return a duration in at most two units: 3 ms, 1.2 s, 2 m 5 s, 3 h 20 m, 4 d 2 h."""
    seconds = max(span.total_seconds(), 0.0)
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    for size, unit, smaller, smaller_unit in ((86400, "d", 3600, "h"), (3600, "h", 60, "m")):
        if whole >= size:
            return _two(whole // size, unit, whole % size // smaller, smaller_unit)
    return f"{whole} s" if whole < 60 else _two(whole // 60, "m", whole % 60, "s")


def _two(large: int, unit: str, small: int, smaller_unit: str) -> str:
    return f"{large} {unit} {small} {smaller_unit}" if small else f"{large} {unit}"


# --- what an event is called ----------------------------------------------------------------------


class _Word(NamedTuple):
    level: int
    text: str
    symbol: str
    colour: str


_RED, _GREEN, _YELLOW, _CYAN, _DIM = "31", "32", "33", "36", "2"

_WORDS: Mapping[Verb, _Word] = {
    Verb.CLAIM: _Word(logging.DEBUG, "started", "▸", _DIM),
    Verb.SUCCEED: _Word(logging.INFO, "succeeded", "✓", _GREEN),
    Verb.RETRY: _Word(logging.WARNING, "retrying", "↻", _YELLOW),
    Verb.SNOOZE: _Word(logging.INFO, "snoozed", "…", _CYAN),
    Verb.THROTTLE: _Word(logging.INFO, "throttled", "…", _CYAN),
    Verb.RELEASE: _Word(logging.INFO, "released", "↩", _CYAN),
    Verb.FAIL: _Word(logging.ERROR, "failed", "✗", _RED),
    Verb.CANCEL: _Word(logging.INFO, "cancelled", "⊘", _YELLOW),
    Verb.REQUEUE: _Word(logging.INFO, "requeued", "↻", _CYAN),
    Verb.DISCARD: _Word(logging.INFO, "discarded", "⊘", _YELLOW),
    Verb.EXPIRE: _Word(logging.INFO, "expired", "⊘", _YELLOW),
}

_LEVELS: Mapping[int, _Word] = {
    logging.DEBUG: _Word(logging.DEBUG, "", "·", _DIM),
    logging.INFO: _Word(logging.INFO, "", "•", _CYAN),
    logging.WARNING: _Word(logging.WARNING, "", "!", _YELLOW),
    logging.ERROR: _Word(logging.ERROR, "", "✗", _RED),
}


class EventLog:
    """A listener that logs every event: success at INFO, a retry at WARNING, failure at ERROR."""

    wants_all = staticmethod(functools.partial(log.isEnabledFor, logging.INFO))
    """Whether more is logged than what goes wrong."""

    def __call__(self, event: Event) -> None:
        """Log one event. Costs next to nothing when its level is not logged."""
        match event:
            case JobMoved():
                # A job that cannot run here comes back again and again: that is said once per task.
                level = logging.DEBUG if event.missed else _WORDS[event.verb].level
            case QueueCooled():
                level = logging.WARNING
            case JobEnqueued() | JobCoalesced() | WorkerChanged():
                # The code that changes a worker logs that itself.
                level = logging.DEBUG
            case _:
                assert_never(event)
        if log.isEnabledFor(level):
            # Straight to a record: where in this file it was logged is nothing to look for.
            log.handle(log.makeRecord(log.name, level, __file__, 0, _LoggedEvent(event), (), None))


class _LoggedEvent:
    """An event as a log record's message: any formatter can print it, ours know more."""

    __slots__ = ("event",)

    def __init__(self, event: Event) -> None:
        self.event = event

    def __str__(self) -> str:
        match self.event:
            case JobMoved() as moved:
                return " ".join(
                    (_WORDS[moved.verb].text, moved.job, printable(moved.task), *_details(moved))
                )
            case JobEnqueued() as enqueued:
                return printable(f"enqueued {enqueued.job} {enqueued.task} on {enqueued.queue}")
            case JobCoalesced() as coalesced:
                what = "replaced" if coalesced.replaced else "reused"
                return printable(f"{what} {coalesced.job} {coalesced.task} on {coalesced.queue}")
            case QueueCooled() as cooled:
                return printable(
                    f"queue {cooled.queue} is cooling down for {brief(cooled.until - cooled.at)}, "
                    f"until {cooled.until.astimezone():%H:%M:%S}: job {cooled.job} "
                    f"({cooled.task}) was throttled"
                )
            case WorkerChanged() as changed:
                return printable(f"worker {changed.worker} {changed.what} {changed.detail}".strip())
            case _:
                assert_never(self.event)


def _details(moved: JobMoved) -> list[str]:
    """Return the details after job and task in a line for people."""
    parts = [f"{moved.attempt}/{moved.max_attempts}"]
    if moved.waited is not None:
        parts.append(f"waited {brief(moved.waited)}")
    if moved.ran is not None:
        parts.append(f"ran {brief(moved.ran)}")
    if moved.error is not None:
        parts.append(error_in_one_line(moved.error))
    if moved.delay is not None:
        parts.append(_again(moved.at, moved.delay))
    return parts


def _again(at: datetime, delay: timedelta) -> str:
    if delay <= timedelta(0):
        return "→ again at once"
    return f"→ again in {brief(delay)}, at {(at + delay).astimezone():%H:%M:%S}"


# --- formatters -----------------------------------------------------------------------------------


class HumanFormatter(logging.Formatter):
    """One line per job, in columns, and below a failed one its traceback. Further lines of a text
    are indented, so that none of them can pass for a separate log line.
    """

    def __init__(self, *, colour: bool = False, prefix: str = "") -> None:
        """``prefix`` tells processes apart."""
        super().__init__()
        self._colour = colour
        self._prefix = f"{prefix} " if prefix else ""
        self._last: tuple[int, str] = (0, "")

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text without a line end."""
        clock = self._paint(self._clock(record.created), _DIM)
        told = record.msg
        if isinstance(told, _LoggedEvent) and isinstance(told.event, JobMoved):
            text = self._moved(told.event)
        else:
            text = self._other(record)
        return f"{clock} {self._prefix}{text}"

    def _clock(self, created: float) -> str:
        """Local time, to the second: finer would not fit eighty columns, and JSON has it."""
        second, text = self._last
        if second != int(created):
            text = f"{datetime.fromtimestamp(int(created), UTC).astimezone():%H:%M:%S}"
            self._last = (int(created), text)
        return text

    def _moved(self, moved: JobMoved) -> str:
        word = _WORDS[moved.verb]
        attempt, *rest = _details(moved)
        task = printable(".".join(moved.task.split(".")[-2:]))
        line = f"{self._mark(word)} {word.text:<9} {short_id(moved.job)} {task:<14} {attempt}  "
        if moved.verb is Verb.FAIL:
            rest.append(f"(job {moved.job})")  # kept, because people will want to read it
        return "\n".join([line + "  ".join(rest), *_indented(_traceback(moved))])

    def _other(self, record: logging.LogRecord) -> str:
        word = _LEVELS.get(min(record.levelno // 10 * 10, logging.ERROR), _LEVELS[logging.DEBUG])
        source = "" if record.name.partition(".")[0] == "windlass" else f"{record.name}: "
        run = job_of_run()
        job = getattr(record, "job_id", None if run is None else run.claim.job)
        about = f"{short_id(job)}  " if isinstance(job, str) else ""
        text = f"{about}{source}{record.getMessage()}"
        if trace := _trace(self, record):
            text += f"\n{trace}"
        if record.stack_info:
            text += f"\n{self.formatStack(record.stack_info)}"
        first, *more = redacted_text(text, secrets_of_run(run)).rstrip().split("\n")
        return f"{self._mark(word)} " + "\n".join([printable(first), *_indented(more)])

    def _mark(self, word: _Word) -> str:
        return self._paint(word.symbol, word.colour)

    def _paint(self, text: str, colour: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._colour else text


def _traceback(moved: JobMoved) -> list[str]:
    """Return where a handler failed. A retry's is for debugging: it may yet succeed, and may be one
    of thousands in an outage.
    """
    if moved.error is None or not moved.error.traceback:
        return []
    wanted = moved.verb is Verb.FAIL or (
        moved.verb is Verb.RETRY and log.isEnabledFor(logging.DEBUG)
    )
    return moved.error.traceback.rstrip().split("\n") if wanted else []


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"    │ {printable(line.expandtabs(4))}" for line in lines)


_KNOWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """One JSON object per line, ASCII only. Durations are seconds, instants ISO 8601 in UTC."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        run = job_of_run()
        secrets = secrets_of_run(run)
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redacted_text(record.getMessage(), secrets),
            "pid": record.process,
        }
        about: Mapping[str, Any] = {}
        if isinstance(record.msg, _LoggedEvent):
            fields |= _fields(record.msg.event)
        elif run is not None:
            about = job_fields(run)
        if trace := _trace(self, record):
            fields["traceback"] = redacted_text(trace, secrets)
        if record.stack_info:
            fields["stack"] = self.formatStack(record.stack_info)
        own = {
            name: _own(name, value, secrets)
            for name, value in vars(record).items()
            if name not in _KNOWN
        }
        return json.dumps({**about, **own, **fields}, default=str)


def _own(name: str, value: object, secrets: Sequence[str]) -> object:
    """Return the fields of ``extra=``: the caller made them, so they may hold the value of an
    argument.
    """
    if isinstance(value, str):
        return MASK if looks_secret(name) else redacted_text(value, secrets)
    if value is None or isinstance(value, int | float):
        return value
    hidden = redacted_json(json.dumps({name: value}, default=str).encode(), (), secrets)
    try:
        return json.loads(hidden)[name]
    except (ValueError, LookupError):  # what was taken out was part of its shape
        return MASK


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """Its traceback; one that comes from another process is text already."""
    if record.exc_info:
        return formatter.formatException(record.exc_info)
    return record.exc_text or ""


def _fields(event: Event) -> dict[str, Any]:
    match event:
        case JobMoved():
            return _moved_fields(event)
        case JobEnqueued():
            return {
                "event": "enqueue",
                "job_id": event.job,
                "task": event.task,
                "queue": event.queue,
            }
        case JobCoalesced():
            return {
                "event": "coalesce",
                "job_id": event.job,
                "task": event.task,
                "queue": event.queue,
                "replaced": event.replaced,
            }
        case QueueCooled():
            return {
                "event": "cool",
                "queue": event.queue,
                "until": event.until.isoformat(),
                "job_id": event.job,
                "task": event.task,
                "worker": event.worker,
            }
        case WorkerChanged():
            return {
                "event": "worker",
                "worker": event.worker,
                "what": event.what,
                "detail": event.detail,
            }
        case _:
            assert_never(event)


def _moved_fields(moved: JobMoved) -> dict[str, Any]:
    error = moved.error
    back_at = None if moved.delay is None else (moved.at + moved.delay).isoformat()
    return {
        "event": moved.verb.value,
        "job_id": moved.job,
        "task": moved.task,
        "queue": moved.queue,
        "attempt": moved.attempt,
        "max_attempts": moved.max_attempts,
        "claim_number": moved.claim_number,
        "worker": moved.worker,
        "at": moved.at.isoformat(),
        "waited": _seconds(moved.waited),
        "ran": _seconds(moved.ran),
        "delay": _seconds(moved.delay),
        "again_at": back_at,
        "error_kind": None if error is None else error.kind,
        "error": None if error is None else error.message,
        "error_traceback": None if error is None else error.traceback,
        "correlation_id": moved.correlation_id,
        "tenant": moved.tenant,
    }


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()
