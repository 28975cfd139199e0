"""What a worker and its children say to each other: length, then MessagePack."""

from __future__ import annotations

import logging
import struct
from typing import Any

import msgspec

from windlass.core import outcome as core
from windlass.core.job import ClaimedJob, Progress
from windlass.core.outcome import Outcome
from windlass.runtime.address import Address
from windlass.storage.journal import LogLine

__all__ = [
    "HEAD",
    "Answer",
    "Ask",
    "Ended",
    "Failed",
    "FromChild",
    "Hello",
    "Leave",
    "Levels",
    "Logged",
    "Noted",
    "Ready",
    "Said",
    "Start",
    "Stop",
    "ToChild",
    "ended",
    "framed",
    "from_child",
    "levels",
    "outcome_of",
    "to_child",
]

HEAD = struct.Struct("!I")
Levels = dict[str, int]
"""Loggers and their levels, the root's under the empty name."""


# --- to the child ---


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """Who you are going to be. Said once."""

    address: Address
    levels: Levels
    result_limit: int
    error_limit: int
    kept: int | None = None
    """The level from which log lines are kept with their run; None: none are."""


class Start(msgspec.Struct, frozen=True, tag="start"):
    """Run this."""

    job: ClaimedJob
    levels: Levels
    """Again: they may have changed since."""
    trace: str | None = None
    """The trace that the run is in, where runs are traced."""


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Whatever runs should end now; it will be killed soon."""


class Leave(msgspec.Struct, frozen=True, tag="leave"):
    """No more jobs: end in order."""


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """To an `Ask`."""

    number: int
    job: str = ""
    created: bool = False
    replaced: bool = False
    error: str | None = None


ToChild = Hello | Start | Stop | Leave | Answer


# --- from the child ---


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The app is imported and its lifespan has begun."""

    kib: int
    """Peak memory so far, as the system counts it for this process."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """It could not get ready, and ends."""

    text: str


class Noted(msgspec.Struct, frozen=True, tag="noted"):
    """How far the run is."""

    progress: Progress


class Logged(msgspec.Struct, frozen=True, tag="logged"):
    """A log record, its text already made."""

    record: dict[str, Any]


class Said(msgspec.Struct, frozen=True, tag="said"):
    """Log lines to keep with the run."""

    lines: list[LogLine]


class Ask(msgspec.Struct, frozen=True, tag="ask"):
    """Enqueue this for me."""

    number: int
    task: str
    payload: bytes
    options: dict[str, Any]
    """The fields of its options that say something."""
    trace: str | None = None
    """The trace that the caller is in, where runs are traced."""


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """The run has ended."""

    kind: str
    """The name of the outcome's class."""
    outcome: bytes
    megabytes: float
    """What the process uses now."""


FromChild = Ready | Failed | Noted | Logged | Said | Ask | Ended

_encode = msgspec.msgpack.Encoder().encode
to_child = msgspec.msgpack.Decoder(ToChild).decode
from_child = msgspec.msgpack.Decoder(FromChild).decode

_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        core.Succeeded,
        core.Raised,
        core.GaveUp,
        core.Crashed,
        core.CutOff,
        core.Snoozed,
        core.Throttled,
        core.Missing,
        core.Misfit,
        core.Cancelled,
    )
}


def levels() -> Levels:
    """Those of this process."""
    return {name: logging.getLogger(name or None).level for name in ("", "windlass")}


def framed(frame: ToChild | FromChild) -> bytes:
    """What goes over the line."""
    body = _encode(frame)
    return HEAD.pack(len(body)) + body


def ended(outcome: Outcome, megabytes: float) -> Ended:
    """An outcome for the line."""
    return Ended(type(outcome).__name__, _encode(outcome), megabytes)


def outcome_of(frame: Ended) -> Outcome:
    """The outcome that was sent."""
    outcome: Outcome = msgspec.msgpack.decode(frame.outcome, type=_KINDS[frame.kind])
    return outcome
