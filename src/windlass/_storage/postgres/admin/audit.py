"""The audit log: notes as the functions take them, records as they are read."""

from __future__ import annotations

import msgspec

from windlass._storage.postgres.io.connection import Row
from windlass._storage.postgres.io.rows import stored_text
from windlass._storage.protocol.actions import AuditNote, AuditRecord

__all__ = ["audit_note_text", "record_of"]


def audit_note_text(note: AuditNote | None) -> str | None:
    """Return a note as ``keep_audit`` reads it; None: no record is wanted."""
    if note is None:
        return None
    texts = {name: stored_text(text) for name, text in msgspec.structs.asdict(note).items()}
    return msgspec.json.encode(texts).decode()


def record_of(row: Row) -> AuditRecord:
    """Decode a row of ``audits`` in actions.sql."""
    return AuditRecord(
        number=row["number"],
        note=AuditNote(
            id=row["id"],
            who=row["who"],
            what=row["what"],
            subject=row["subject"],
            detail=row["detail"],
        ),
        at=row["at"],
        count=row["count"],
    )
