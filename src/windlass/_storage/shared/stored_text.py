"""Texts that hold more than one field: a run's progress, a worker's description, JSON.

Progress is the note, and its data behind a mark. Both are written and cleared together, also by
processes that know no data, which show it as the end of the note.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from windlass._core.job.job import FollowUp, Progress
from windlass._core.limits.backoff import Backoff
from windlass._core.stats.gauges import Gauge
from windlass._core.values.metadata import Metadata, MetadataValue
from windlass._storage.protocol.workers import WorkerStart

__all__ = [
    "UNREADABLE",
    "WorkerDescription",
    "backoff_of",
    "follow_up_of",
    "gauges_of",
    "gauges_text",
    "metadata_of",
    "metadata_text",
    "note_text",
    "progress_of",
    "readable",
    "tags_of",
    "worker_description_of",
    "worker_description_text",
]

T = TypeVar("T")

UNREADABLE = (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError)
"""Errors of decoding a damaged record."""

_MARK = "\x1f"
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_decode_metadata = msgspec.json.Decoder(dict[str, MetadataValue]).decode


class WorkerDescription(msgspec.Struct, frozen=True, omit_defaults=True):
    """Fields of `WorkerStart`. A row of an older version has none of them."""

    signatures: Mapping[str, str] = {}
    pools: Mapping[str, int] = {}


_decode_about = msgspec.json.Decoder(WorkerDescription).decode


def worker_description_text(start: WorkerStart) -> str:
    """Return the text to store."""
    return msgspec.json.encode(WorkerDescription(start.signatures, start.pools)).decode()


def worker_description_of(text: str) -> WorkerDescription:
    """Decode a stored text; empty if it cannot be read, so that one row spoils no list."""
    try:
        return _decode_about(text)
    except (msgspec.MsgspecError, UnicodeError):
        return WorkerDescription()


def gauges_text(gauges: Mapping[str, Gauge]) -> str:
    """Return the gauges of one source as they are stored: name to samples, total and peak."""
    return msgspec.json.encode(gauges).decode()


gauges_of = msgspec.json.Decoder(dict[str, Gauge]).decode
"""Decode the gauges of one source."""


def note_text(progress: Progress) -> str:
    """Return the note with its data, as it is stored."""
    note = progress.note.replace(_MARK, " ")
    if progress.data is None:
        return note
    return f"{note}{_MARK}{msgspec.json.encode(progress.data).decode()}"


def progress_of(fraction: float, text: str) -> Progress:
    """Return the stored progress. Data that cannot be read is left out."""
    note, mark, data = text.partition(_MARK)
    if not mark:
        return Progress(fraction, note)
    try:
        return Progress(fraction, note, _decode(data))
    except msgspec.MsgspecError:
        return Progress(fraction, note)


def metadata_text(metadata: Metadata | None) -> str | None:
    """Return the facts of a run as they are stored; None for none, as most runs have."""
    return msgspec.json.encode(metadata).decode() if metadata else None


def metadata_of(text: str | bytes | None) -> Metadata | None:
    """Decode stored facts. None are shown where they cannot be read."""
    try:
        return _decode_metadata(text) if text else None
    except UNREADABLE:
        return None


def readable(decode: Callable[[str], T], text: str | None) -> T | None:
    """Decode what is stored; None where nothing is, or what cannot be read."""
    try:
        return None if text is None else decode(text)
    except UNREADABLE:
        return None


# Few tasks carry their own backoff, tags or follow-ups, and those that do repeat them.


@lru_cache(maxsize=256)
def backoff_of(text: str) -> Backoff:
    """Decode a job's own backoff."""
    return msgspec.json.decode(text, type=Backoff)


@lru_cache(maxsize=256)
def tags_of(text: str) -> tuple[str, ...]:
    """Decode a job's tags."""
    return msgspec.json.decode(text, type=tuple[str, ...])


@lru_cache(maxsize=256)
def follow_up_of(text: str) -> FollowUp:
    """Decode what comes after a job's failure."""
    return msgspec.json.decode(text, type=FollowUp)
