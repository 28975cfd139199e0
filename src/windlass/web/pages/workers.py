"""Workers: who works, who has gone silent, who is gone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response

from windlass.core.job import Job
from windlass.observe.log import brief
from windlass.storage.protocol import JobFilter, WorkerRecord, WorkerState
from windlass.web.visit import Visit

if TYPE_CHECKING:
    from windlass.admin import Admin

__all__ = ["look", "worker", "workers"]

_SHOWN = timedelta(days=1)
"""How long those that have ended stay on the page."""
_JOBS = 100
_PAST = 10
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

    @property
    def why(self) -> str:
        """What became of one that is not live, in words."""
        lease = brief(self.record.start.lease)
        match self.state:
            case "silent":
                return f"not heard of within its lease of {lease}; others take over what it holds"
            case "dead":
                return (
                    f"it went without a word, or was not heard of within its lease of {lease}; "
                    f"what it ran went to others"
                )
            case "gone":
                return "it stopped, and said so"
            case _:
                return ""

    @property
    def lived(self) -> timedelta:
        """How long it worked, or has so far."""
        return (self.record.ended_at or self.now) - self.record.started_at


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


async def worker(visit: Visit) -> Response:
    """One of them: what it runs, and what it could."""
    wanted = visit.needed("worker")
    now = await visit.admin.now()
    known = await visit.admin.workers()
    record = next((one for one in known if one.start.id == wanted), None)
    if record is None:
        notice = f"No worker {wanted} is known: those that ended are forgotten after a while."
        return visit.go("/workers", notice=notice, bad=True)
    row = WorkerRow(record, now)
    jobs: Sequence[Job] = await visit.admin.jobs_of(wanted, limit=_JOBS) if row.works else ()
    found = await visit.admin.find(JobFilter(worker=wanted), limit=_JOBS + _PAST)
    running = {job.id for job in jobs}
    return await visit.render(
        "worker.html",
        now=now,
        row=row,
        jobs=jobs,
        past=[job for job in found if job.id not in running][:_PAST],
    )


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
