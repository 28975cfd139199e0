"""The record of who ordered what: see lua/shared/audits.lua."""

from __future__ import annotations

import struct

import msgspec

from windlass._core.values.instants import instant_of
from windlass._storage.protocol.actions import AuditNote, AuditRecord

__all__ = ["note_bytes", "record_of"]

_HEAD = struct.Struct(">dII")
"""A record begins with instant, count and the length of the note; the answers come last."""

_pack = msgspec.msgpack.Encoder().encode
_note_parts = msgspec.msgpack.Decoder(tuple[str, str, str, str, str]).decode


def note_bytes(note: AuditNote | None) -> bytes:
    """Return a note as the scripts take it; nothing for none."""
    if note is None:
        return b""
    return _pack((note.id, note.who, note.what, note.subject, note.detail))


def record_of(number: int, record: bytes) -> AuditRecord:
    """Decode a stored record."""
    at, count, length = _HEAD.unpack_from(record)
    note = _note_parts(record[_HEAD.size : _HEAD.size + length])
    return AuditRecord(
        number=number,
        note=AuditNote(id=note[0], who=note[1], what=note[2], subject=note[3], detail=note[4]),
        at=instant_of(int(at)),
        count=count,
    )
