"""The audit log: a record in the transaction of the change."""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import msgspec

from windlass._core.values.instants import instant_of, to_us
from windlass._storage.protocol.actions import ActionResult, AuditNote, AuditRecord
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.sqlite.io.rows import Row, fetch_shown, value_of

__all__ = ["audits", "earlier_answers", "keep_audit", "restore_audit"]

_SQL = load_sql("windlass._storage.sqlite.sql", "actions.sql")
_ANSWERS, _KEEP = _SQL["answers"], _SQL["keep"]
_AUDITS, _AUDITS_OF = _SQL["audits"], _SQL["audits_of"]

_encode = msgspec.json.Encoder().encode
_answers_of = msgspec.json.Decoder(list[ActionResult]).decode

_NEWEST = 2**63 - 1


def keep_audit(
    connection: apsw.Connection,
    note: AuditNote | None,
    count: int,
    at: int,
    answers: Sequence[ActionResult] = (),
) -> bool:
    """Record an action that changed this number of things; False: no record is wanted, or it is
    stored.
    """
    if note is None:
        return False
    values = (note.id, at, note.who, note.what, note.subject, note.detail, count)
    connection.execute(_KEEP, (*values, _encode(answers).decode()))
    return connection.changes() > 0


def restore_audit(connection: apsw.Connection, record: AuditRecord) -> bool:
    """Take over a record, with a number of this store; False: it is here already."""
    return keep_audit(connection, record.note, record.count, to_us(record.at))


def earlier_answers(connection: apsw.Connection, note: AuditNote) -> list[ActionResult] | None:
    """Return the answers of this action; None: it has not taken effect before."""
    found = value_of(connection, _ANSWERS, (note.id,))
    return None if found is None else _answers_of(found)


def audits(
    connection: apsw.Connection, limit: int, before: int | None, subject: str | None
) -> list[AuditRecord]:
    """List the newest records first."""
    below = _NEWEST if before is None else before
    if subject is None:
        rows = fetch_shown(connection, _AUDITS, (below, limit))
    else:
        rows = fetch_shown(connection, _AUDITS_OF, (below, limit, subject))
    return [_record(row) for row in rows]


def _record(row: Row) -> AuditRecord:
    number, uid, who, what, subject, detail, at, count = row
    note = AuditNote(id=uid, who=who, what=what, subject=subject, detail=detail)
    return AuditRecord(number=number, note=note, at=instant_of(at), count=count)
