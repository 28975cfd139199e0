"""Audit: who ordered what, and on how many it took effect."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response

from windlass._storage.protocol.actions import AuditRecord
from windlass._web.request import PageRequest
from windlass.errors import InvalidArgument

if TYPE_CHECKING:
    from windlass.admin import Admin

__all__ = ["audit", "read_live_state"]

_SIZE = 50
_BULK = re.compile(r" ?\(bulk (?P<bulk>[0-9a-f]{8})\)$")
_PAGES = {"queue": "/queues/one", "schedule": "/schedules/one"}
_SPOKEN = {"limit": "/limits", "breaker": "/limits"}


class AuditRow(msgspec.Struct, frozen=True):
    """One order: a record, or the parts of one for many jobs taken together."""

    record: AuditRecord
    """The latest part."""
    detail: str
    bulk: str
    count: int
    parts: int
    since: datetime

    @property
    def verb(self) -> tuple[str, str]:
        """``queues.pause`` → what it is about, and what was done."""
        about, _, verb = self.record.note.what.partition(".")
        return about, verb.replace("-", " ")

    @property
    def link(self) -> tuple[str, dict[str, str]] | None:
        """The page of its subject, where there is one: a path and a query."""
        kind, _, name = self.record.note.subject.partition(" ")
        if not name:
            return None
        if kind in {"job", "flow"}:
            return (f"/{kind}s/{name}", {}) if re.fullmatch("[0-9a-f]{32}", name) else None
        if kind in _PAGES:
            return _PAGES[kind], {kind: name}
        return (_SPOKEN[kind], {}) if kind in _SPOKEN else None


async def audit(visit: PageRequest) -> Response:
    """Return the page."""
    subject, before = visit.asked("subject").strip(), _number(visit.asked("before"))
    records = await visit.admin.audit.list(limit=_SIZE + 1, before=before, subject=subject or None)
    shown = records[:_SIZE]
    older = len(records) > _SIZE
    return await visit.render(
        "audit.html",
        subject=subject,
        rows=group_bulk_records(shown),
        next=visit.changed(before=shown[-1].number) if older else None,
        back=visit.changed(before=None) if before is not None else None,
    )


async def read_live_state(admin: Admin) -> object:
    """Return the newest."""
    return [one.number for one in await admin.audit.list(limit=1)]


def _number(text: str) -> int | None:
    if not text:
        return None
    if not text.isdecimal() or len(text) > 18:
        message = f"before must be the number of an entry, got {text[:40]!r}"
        raise InvalidArgument(message)
    return int(text)


def group_bulk_records(records: Sequence[AuditRecord]) -> list[AuditRow]:
    """Return the parts of one order for many as one row; they need not stand side by side."""
    rows: dict[str, AuditRow] = {}
    for record in records:
        found = _BULK.search(record.note.detail)
        bulk = found["bulk"] if found is not None else ""
        detail = record.note.detail[: found.start()] if found is not None else record.note.detail
        name = bulk or record.note.id
        old = rows.get(name)
        if old is None:
            rows[name] = AuditRow(record, detail, bulk, record.count, 1, record.at)
        else:
            rows[name] = msgspec.structs.replace(
                old, count=old.count + record.count, parts=old.parts + 1, since=record.at
            )
    return list(rows.values())
