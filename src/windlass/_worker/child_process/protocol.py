"""Messages between a worker and its children: length, then MessagePack."""

from __future__ import annotations

import logging
import struct
from collections.abc import Sequence
from typing import Any

import msgspec

from windlass._core.job import outcome as core
from windlass._core.job.job import ClaimedJob, FlowId, Progress
from windlass._core.job.outcome import Outcome
from windlass._core.schedule.previous_run import PreviousRun
from windlass._core.values.metadata import Metadata
from windlass._storage.protocol.flows import Member
from windlass._storage.protocol.journal import LogLine
from windlass._tasks.app_location import AppLocation

__all__ = [
    "HEAD",
    "CapturedLines",
    "EnqueueReply",
    "EnqueueRequest",
    "ExitProcess",
    "ForwardedRecord",
    "FromChild",
    "Hello",
    "Levels",
    "MetadataUpdate",
    "ProgressUpdate",
    "Ready",
    "ResultsReply",
    "ResultsRequest",
    "RunJob",
    "RunOutcome",
    "StartFailed",
    "StopRun",
    "ToChild",
    "decode_from_child",
    "decode_outcome",
    "decode_to_child",
    "encode_frame",
    "encode_outcome",
    "levels",
]

HEAD = struct.Struct("!I")
Levels = dict[str, int]
"""Loggers and their levels, the root's under the empty name."""


# --- to the child ---


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """The identity of the child. Sent once."""

    address: AppLocation
    levels: Levels
    result_limit: int
    error_limit: int
    kept: int | None = None
    """The level from which log lines are kept with their run; None: none are."""


class RunJob(msgspec.Struct, frozen=True, tag="start"):
    """Run this."""

    job: ClaimedJob
    levels: Levels
    """Again: they may have changed since."""
    trace: str | None = None
    """The trace that the run is in, where runs are traced."""


class StopRun(msgspec.Struct, frozen=True, tag="stop"):
    """The run should end now; it will be killed soon."""


class ExitProcess(msgspec.Struct, frozen=True, tag="leave"):
    """No more jobs: end in order."""


class EnqueueReply(msgspec.Struct, frozen=True, tag="answer"):
    """To an `EnqueueRequest`."""

    number: int
    job: str = ""
    created: bool = False
    replaced: bool = False
    error: str | None = None


class PreviousRunReply(msgspec.Struct, frozen=True, tag="before"):
    """To a `PreviousRunRequest`."""

    number: int
    run: PreviousRun | None = None
    error: str | None = None


class ResultsReply(msgspec.Struct, frozen=True, tag="results"):
    """To a `ResultsRequest`."""

    number: int
    page: Sequence[Member] = ()
    error: str | None = None
    unavailable: bool = False
    """The store did not answer: reading again may help."""


ToChild = Hello | RunJob | StopRun | ExitProcess | EnqueueReply | PreviousRunReply | ResultsReply


# --- from the child ---


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The app is imported and its lifespan has begun."""

    kib: int
    """Peak memory so far, as the system counts it for this process."""


class StartFailed(msgspec.Struct, frozen=True, tag="failed"):
    """It could not get ready, and ends."""

    text: str


class ProgressUpdate(msgspec.Struct, frozen=True, tag="noted"):
    """How far the run is."""

    progress: Progress


class MetadataUpdate(msgspec.Struct, frozen=True, tag="metadata"):
    """All that the handler has noted. At once, so that a run that is killed keeps it."""

    metadata: Metadata


class ForwardedRecord(msgspec.Struct, frozen=True, tag="logged"):
    """A log record, its text already made."""

    record: dict[str, Any]


class CapturedLines(msgspec.Struct, frozen=True, tag="said"):
    """Log lines to keep with the run."""

    lines: list[LogLine]


class EnqueueRequest(msgspec.Struct, frozen=True, tag="ask"):
    """Enqueue this for me."""

    number: int
    task: str
    payload: bytes
    options: dict[str, Any]
    """The fields of its options that say something."""
    trace: str | None = None
    """The trace that the caller is in, where runs are traced."""


class PreviousRunRequest(msgspec.Struct, frozen=True, tag="previous"):
    """Read the run before this one of the job's schedule."""

    number: int


class ResultsRequest(msgspec.Struct, frozen=True, tag="read"):
    """Read jobs of a part of the job's flow."""

    number: int
    flow: FlowId
    part: int
    after: int
    limit: int


class RunOutcome(msgspec.Struct, frozen=True, tag="ended"):
    """The run has ended."""

    kind: str
    """The name of the outcome's class."""
    outcome: bytes
    megabytes: float
    """The memory that the process uses now."""


FromChild = (
    Ready
    | PreviousRunRequest
    | ResultsRequest
    | StartFailed
    | ProgressUpdate
    | MetadataUpdate
    | ForwardedRecord
    | CapturedLines
    | EnqueueRequest
    | RunOutcome
)

_encode = msgspec.msgpack.Encoder().encode
decode_to_child = msgspec.msgpack.Decoder(ToChild).decode
decode_from_child = msgspec.msgpack.Decoder(FromChild).decode

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
        core.Interrupted,
    )
}


def levels() -> Levels:
    """Return those of this process."""
    return {name: logging.getLogger(name or None).level for name in ("", "windlass")}


def encode_frame(frame: ToChild | FromChild) -> bytes:
    """Return the bytes of a message."""
    body = _encode(frame)
    return HEAD.pack(len(body)) + body


def encode_outcome(outcome: Outcome, megabytes: float) -> RunOutcome:
    """Return an outcome for the line."""
    return RunOutcome(type(outcome).__name__, _encode(outcome), megabytes)


def decode_outcome(frame: RunOutcome) -> Outcome:
    """Return the outcome that was sent."""
    outcome: Outcome = msgspec.msgpack.decode(frame.outcome, type=_KINDS[frame.kind])
    return outcome
