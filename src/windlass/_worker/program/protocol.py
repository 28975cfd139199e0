"""Lines of JSON between a worker and a program: one request, then its replies."""

from __future__ import annotations

import logging
import sys
from datetime import timedelta
from typing import Any, Literal

import msgspec

from windlass._core.values.payload import encode_any
from windlass._tasks.context import Context
from windlass._tasks.task import Task

__all__ = ["LEVELS", "BadReply", "ProgramCall", "Reply", "decode_reply", "encode_request"]

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_SHOWN = 200
_KINDS = ("result", "error", "progress", "log")
_OF_EACH = {"kind": "error", "retry": "error", "after": "error", "note": "progress", "level": "log"}


class ProgramCall(msgspec.Struct, frozen=True, eq=False):
    """One run of a program: the context of the run, its task, and its time limit."""

    context: Context
    task: Task[..., Any]
    timeout: timedelta | None


class Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a warm program. It has a result, an error, progress or a log line."""

    job: str | None = None
    result: Any = msgspec.UNSET
    error: str | None = None
    kind: str | None = None
    retry: bool | None = None
    after: float | None = None
    progress: float | None = None
    note: str | None = None
    log: str | None = None
    level: Literal["debug", "info", "warning", "error"] | None = None


class BadReply(Exception):
    """A line that is no reply, or not one to this request. Its text says what to change."""


_decode = msgspec.json.Decoder(Reply).decode


def encode_request(call: ProgramCall) -> bytes:
    """Return the line that asks for a run."""
    job = call.context.claimed
    request = {
        "job": job.claim.job,
        "task": job.task,
        "queue": job.queue,
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "timeout": None if call.timeout is None else call.timeout.total_seconds(),
        "correlation_id": job.correlation_id,
        "tenant": job.tenant,
        "arguments": call.task.arguments_in(job.payload),
    }
    return (encode_any(request, limit=sys.maxsize, what="the request") or b"") + b"\n"


def decode_reply(line: bytes, job: str) -> Reply:
    """Read a line of a warm program that runs ``job``; BadReply."""
    try:
        reply = _decode(line)
    except (msgspec.MsgspecError, ValueError) as error:
        shown = repr(line[:_SHOWN].decode("utf-8", "replace"))
        message = (
            f"it wrote {shown} to standard output, which is no reply ({error}). Write only replies "
            f"there, one line of JSON each, and everything else to standard error"
        )
        raise BadReply(message) from None
    given = [name for name in _KINDS if getattr(reply, name) is not None]
    if reply.result is msgspec.UNSET:
        given.remove("result")
    elif reply.result is None:
        given.insert(0, "result")
    if len(given) != 1:
        named = " and ".join(given) or "none"
        message = (
            f"a reply has one of result, error, progress and log, and it wrote {named}. Write one "
            f"line for each"
        )
        raise BadReply(message)
    for name, owner in _OF_EACH.items():
        if getattr(reply, name) is not None and owner != given[0]:
            message = f"{name!r} belongs to {owner!r}, and it wrote {name!r} with {given[0]!r}"
            raise BadReply(message)
    if reply.kind is not None and not (reply.kind and reply.kind.isprintable()):
        message = f"'kind' is a name such as \"NotFound\", and it wrote {reply.kind[:_SHOWN]!r}"
        raise BadReply(message)
    if reply.job != job and (reply.job is not None or given[0] in ("result", "error")):
        other = "no job" if reply.job is None else f"job {reply.job!r}"
        message = (
            f'its {given[0]} names {other} while it runs job {job!r}. Repeat the request\'s "job" '
            f"in the result or error, and write exactly one of them for each request"
        )
        raise BadReply(message)
    return reply
