"""The audit log: one record per action, with its answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from windlass._storage.protocol.actions import ActionResult, AuditNote, AuditRecord

__all__ = ["AuditRows"]


class AuditRows:
    """The records in the order they were made. Runs under the database's lock."""

    def __init__(self) -> None:
        self._records: dict[str, AuditRecord] = {}
        self._answers: dict[str, tuple[ActionResult, ...]] = {}
        self._last = 0

    def keep(
        self,
        note: AuditNote | None,
        count: int,
        now: datetime,
        answers: Sequence[ActionResult] = (),
    ) -> None:
        """Record an order that took effect, once however often it is said."""
        if note is None or note.id in self._records:
            return
        self._last += 1
        self._records[note.id] = AuditRecord(number=self._last, note=note, at=now, count=count)
        self._answers[note.id] = tuple(answers)

    def answers(self, note: AuditNote) -> Sequence[ActionResult] | None:
        """Return the answers of this action; None: it has not taken effect before."""
        return self._answers.get(note.id)

    def newest(self) -> Iterable[AuditRecord]:
        return reversed(self._records.values())

    def restore(self, record: AuditRecord) -> bool:
        """Take over a record, with a number of this store; False: it is here already."""
        if record.note.id in self._records:
            return False
        self._last += 1
        moved = msgspec.structs.replace(record, number=self._last)
        self._records[record.note.id] = moved
        self._answers[record.note.id] = ()
        return True

    def prune(self, before: datetime, limit: int) -> int:
        old = [note for note, record in self._records.items() if record.at < before][:limit]
        for note in old:
            del self._records[note], self._answers[note]
        return len(old)
