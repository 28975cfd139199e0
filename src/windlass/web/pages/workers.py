"""Workers: who works, who has gone silent, who is gone."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response

from windlass.storage.protocol import WorkerRecord, WorkerState
from windlass.web.visit import Visit

if TYPE_CHECKING:
    from windlass.admin import Admin

__all__ = ["look", "workers"]

_SHOWN = timedelta(days=1)
"""How long those that have ended stay on the page."""
_ORDER = ("live", "silent", "dead", "gone")


class WorkerRow(msgspec.Struct, frozen=True):
    """One worker as its row shows it."""

    record: WorkerRecord
    now: datetime

    @property
    def state(self) -> str:
        """``silent``: not heard of within its lease; others are about to take it for dead."""
        record = self.record
        silent = self.now - record.beat_at > record.start.lease
        return "silent" if record.state is WorkerState.LIVE and silent else record.state.value

    @property
    def works(self) -> bool:
        return self.state in {"live", "silent"}


class Crew(msgspec.Struct, frozen=True):
    """All of them together."""

    live: int
    silent: int
    dead: int
    slots: int
    running: int
    versions: tuple[str, ...]


async def workers(visit: Visit) -> Response:
    """The page."""
    now = await visit.admin.now()
    rows = [WorkerRow(record, now) for record in await visit.admin.workers(ended_within=_SHOWN)]
    rows.sort(key=lambda row: (_ORDER.index(row.state), row.record.start.host, row.record.start.id))
    return await visit.render("workers.html", now=now, rows=rows, crew=_crew(rows))


async def look(admin: Admin) -> object:
    """What the page is made of, heartbeats included."""
    return await admin.workers(ended_within=_SHOWN)


def _crew(rows: Iterable[WorkerRow]) -> Crew:
    rows = list(rows)
    states = [row.state for row in rows]
    live = [row.record for row in rows if row.state == "live"]
    return Crew(
        live=len(live),
        silent=states.count("silent"),
        dead=states.count("dead"),
        slots=sum(record.start.slots for record in live),
        running=sum(record.running for record in live),
        versions=tuple(sorted({record.start.version for record in live})),
    )
