"""The audit log: which operator did what, and when."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass._admin.jobs.ids import resolve_id
from windlass._admin.session import AdminSession
from windlass._core.values.hidden_keys import has_digest
from windlass._storage.protocol.actions import AuditRecord

__all__ = ["AuditAdmin"]


class AuditAdmin:
    """``app.admin.audit``: the records of operators' actions."""

    def __init__(self, session: AdminSession) -> None:
        self._session = session

    async def list(
        self, *, limit: int = 50, before: int | None = None, subject: str | None = None
    ) -> Sequence[AuditRecord]:
        """List audit records, the newest first. For the next page, give ``before=`` the number of
        the last record.

        ``subject``: only actions on this, such as ``job 0192f3a1…9c4e07`` or ``queue mail``.
        """
        store = (await self._session.storage()).orders
        kind, _, name = (subject or "").partition(" ")
        if kind == "job" and name:
            subject = f"job {await resolve_id(self._session, name)}"
        size = min(max(limit, 1), 1000)
        records = await store.audits(limit=size, before=before, subject=subject)
        return [await self._masked(record) for record in records]

    async def _masked(self, record: AuditRecord) -> AuditRecord:
        note, masks = record.note, self._session.masks
        if not has_digest(note.subject) and not has_digest(note.detail):
            return record
        subject, detail = await masks.text(note.subject), await masks.text(note.detail)
        shown = msgspec.structs.replace(note, subject=subject, detail=detail)
        return msgspec.structs.replace(record, note=shown)
