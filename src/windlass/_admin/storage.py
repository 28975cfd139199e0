"""The storage itself, and the records of who ordered and what happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from windlass._admin.jobs.read import JobIdAdmin
from windlass._core.values.hidden_keys import has_digest
from windlass._storage.protocol.actions import AuditRecord
from windlass._storage.protocol.journal import EventRecord
from windlass._storage.timings import Spread, timings_of
from windlass._system.seams import monotonic

__all__ = ["StorageAdmin", "StorageReport"]


class StorageReport(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of where jobs live."""

    description: str
    """Backend, version and place in one line, without secrets."""
    at: datetime
    """The store's clock."""
    facts: Mapping[str, float | str]
    """What the backend says of itself: sizes in bytes, connections, settings."""
    answered_in: timedelta
    """How long it took to ask for all this."""
    timings: Mapping[str, Spread]
    """How long this process's last reads and writes took, under ``read`` and ``write``."""


class StorageAdmin(JobIdAdmin):
    """The part of ``app.admin`` about the storage and its records."""

    async def storage(self) -> StorageReport:
        """How the storage is."""
        storage = await self._storage()
        began = monotonic()
        facts = await storage.health()
        at = await storage.now()
        took = timedelta(seconds=monotonic() - began)
        timings = timings_of(storage)
        return StorageReport(
            description=storage.describe(),
            at=at,
            facts=facts,
            answered_in=took,
            timings={} if timings is None else timings.spread(),
        )

    async def audits(
        self, *, limit: int = 50, before: int | None = None, subject: str | None = None
    ) -> Sequence[AuditRecord]:
        """Who ordered what, the newest first. The next page: ``before=`` the last one's number.

        ``subject``: only orders about this, such as ``job 0192f3a1…9c4e07`` or ``queue mail``.
        """
        store = (await self._storage()).orders
        kind, _, name = (subject or "").partition(" ")
        if kind == "job" and name:
            subject = f"job {await self.resolve(name)}"
        size = min(max(limit, 1), 1000)
        records = await store.audits(limit=size, before=before, subject=subject)
        return [await self._told(record) for record in records]

    async def _told(self, record: AuditRecord) -> AuditRecord:
        note = record.note
        if not has_digest(note.subject) and not has_digest(note.detail):
            return record
        texts = [await self._shades.text(text) for text in (note.subject, note.detail)]
        told = msgspec.structs.replace(note, subject=texts[0], detail=texts[1])
        return msgspec.structs.replace(record, note=told)

    async def events(
        self,
        since: datetime,
        until: datetime,
        *,
        limit: int = 1000,
        job_id: str | None = None,
    ) -> Sequence[EventRecord]:
        """The event log, oldest first, where it is switched on (``event_log=True``)."""
        store = (await self._storage()).journal
        job = None if job_id is None else await self.resolve(job_id)
        return await store.events(since, until, limit=min(max(limit, 1), 10_000), job=job)
