"""A job of another storage, as restore.lua takes it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import datetime

import msgspec

from windlass._core.job.error_origin import frame_of
from windlass._core.job.job import JobRecord
from windlass._core.job.unique import Window
from windlass._core.values.instants import to_us
from windlass._storage.protocol.copy import StoredJob
from windlass._storage.redis.copy.flows import packed_member
from windlass._storage.redis.io.layout import (
    CANCEL,
    CODES,
    ERROR,
    REASON,
    RESULT,
    SOLO,
    SPENT,
    THROTTLED,
    VERB_CODES,
)
from windlass._storage.redis.io.records import attempt_record, error_bytes
from windlass._storage.redis.jobs.insert import as_text
from windlass._storage.redis.jobs.request import request_record
from windlass._storage.redis.journal import chunk_bytes
from windlass._storage.shared.restored_job import asked_of
from windlass._storage.shared.stored_text import metadata_text, note_text

__all__ = ["restored_job"]

_NUMBER = struct.Struct(">I")
_pack = msgspec.msgpack.Encoder().encode


def restored_job(stored: StoredJob) -> Sequence[object]:
    """Return the request, the state as jobs.lua names its parts, and the rest."""
    job = stored.job
    state = _state(stored)
    fields = _fields(stored)
    rest: dict[str, object] = {
        # A job that was never changed has no state record.
        "touched": any(state[name] for name in _TOUCHED) or job.max_attempts != job.budget,
        "fields": {name: as_text(text) for name, text in fields.items()},
        "history": [as_text(attempt_record(attempt)) for attempt in stored.history],
        "logs": [as_text(part) for chunk in stored.logs for part in chunk_bytes(chunk)],
        "held": job.key_held,
        "held_until": _us(stored.key_until),
    }
    member = packed_member(stored)
    if member is not None:
        rest["member"] = member
    return ("job", as_text(request_record(asked_of(stored))), state, rest)


_TOUCHED = ("state", "flags", "number", "attempt", "lost", "missed", "ended_number", "worker")


def _state(stored: StoredJob) -> dict[str, object]:
    job = stored.job
    number, verb, by = (0, None, "") if stored.ended is None else stored.ended
    tail = job.result if job.result is not None else (job.reason or "").encode()
    return {
        "created": to_us(job.created_at),
        "due": to_us(job.due),
        "expires": _us(job.expires_at),
        "state": CODES[job.state],
        "flags": _flags(job) + _spent(stored),
        "most": job.max_attempts,
        "number": job.claim_number,
        "attempt": job.attempt,
        "lost": job.lost,
        "started": _us(job.started_at),
        "finished": _us(job.finished_at),
        "missed": _us(job.missed_at),
        "ended_number": number,
        "ended_verb": 0 if verb is None else VERB_CODES[verb],
        "worker": job.worker or "",
        "by": by,
        "tail": as_text(tail),
    }


def _flags(job: JobRecord) -> int:
    marked = (
        (CANCEL, job.cancel_requested),
        (SOLO, job.solo),
        (ERROR, job.error is not None),
        (RESULT, job.result is not None),
        (REASON, job.result is None and job.reason is not None),
        (THROTTLED, job.throttled > 0),
    )
    return sum(flag for flag, on in marked if on)


def _spent(stored: StoredJob) -> int:
    unique = stored.unique
    keyed = unique is not None and unique.window is Window.UNTIL_STARTED
    return SPENT if keyed and not stored.job.key_held else 0


def _fields(stored: StoredJob) -> dict[str, bytes]:
    """Return the values of separate hashes, by their keys."""
    job = stored.job
    fields: dict[str, bytes] = {}
    if job.error is not None:
        fields["errors"] = error_bytes(job.error)
        fields["tracebacks"] = job.error.traceback.encode()
        fields["frames"] = frame_of(job.error.traceback).encode()
    if job.progress is not None:
        fields["progress"] = _pack((float(job.progress.fraction), note_text(job.progress)))
    if job.metadata and stored.ended is not None:
        noted = (metadata_text(job.metadata) or "").encode()
        fields["metadata"] = _NUMBER.pack(stored.ended[0]) + noted
    if job.throttled:
        fields["throttled"] = str(job.throttled).encode()
    if job.missed_at is not None and job.missed_why:
        fields["missed"] = job.missed_why.encode()
    return {key: text for key, text in fields.items() if text}


def _us(instant: datetime | None) -> int:
    return 0 if instant is None else to_us(instant)
