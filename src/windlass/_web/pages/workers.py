"""Workers: who works, who has gone silent, who is gone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response

from windlass._admin.explain.cause import plural
from windlass._core.job.job import JobRecord
from windlass._core.job.state import State
from windlass._observe.log import brief
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.workers import HEARD, Duty, Standing, WorkerRecord
from windlass._web.jobs import find_page
from windlass._web.render.confirmation import ActionNotice, ActionPage, Confirmation
from windlass._web.render.forms import page_path
from windlass._web.render.paging import page_rows
from windlass._web.request import PageRequest

if TYPE_CHECKING:
    from windlass.admin import Admin

__all__ = ["QUIET", "RESUME", "STOP", "SWEEP", "read_live_state", "worker", "workers"]

_SHOWN = timedelta(days=1)
"""How long those that have ended stay on the page."""
_JOBS = 100
_PAST = 10
_ORDER = tuple(Standing)
_PAGE = "/workers"


class WorkerListRow(msgspec.Struct, frozen=True):
    """One worker as its row shows it."""

    record: WorkerRecord
    now: datetime

    @property
    def state(self) -> Standing:
        return self.record.standing(self.now)

    @property
    def works(self) -> bool:
        """Whether it may still be running something."""
        return self.state in HEARD or self.state is Standing.SILENT

    @property
    def why(self) -> str:
        """How one that is not simply live came to be so."""
        lease = brief(self.record.start.lease)
        match self.state:
            case Standing.LIVE:
                return ""
            case Standing.QUIET:
                return "it takes no new jobs; running jobs finish"
            case Standing.STOPPING:
                return "it takes no new jobs and stops when its running jobs have finished"
            case Standing.SILENT:
                return (
                    f"no heartbeat within its lease of {lease}; other workers will take over its "
                    f"jobs"
                )
            case Standing.DEAD:
                return (
                    f"its process ended, or it sent no heartbeat within its lease of {lease}; "
                    f"other workers took over its jobs"
                )
            case Standing.GONE:
                return "it stopped"

    @property
    def actions(self) -> Sequence[tuple[str, str]]:
        """List what an operator can ask of it, each with its label."""
        if not self.works or self.record.duty is Duty.STOP:
            return ()
        quiet = self.record.duty is Duty.QUIET
        return (("resume", "Resume") if quiet else ("quiet", "Pause"), ("stop", "Stop"))

    @property
    def lived(self) -> timedelta:
        """How long it worked, or has so far."""
        return (self.record.ended_at or self.now) - self.record.started_at


class WorkerTotals(msgspec.Struct, frozen=True):
    """All of them together."""

    live: int
    resting: int
    """Of those: told to take nothing new, or to stop."""
    silent: int
    dead: int
    slots: int
    running: int
    free: int
    """Slots of those that take something new."""
    versions: tuple[str, ...]


async def workers(visit: PageRequest) -> Response:
    """Return the page."""
    now = await visit.admin.storage.now()
    rows = [
        WorkerListRow(record, now) for record in await visit.admin.workers.list(ended_within=_SHOWN)
    ]
    rows.sort(key=lambda row: (_ORDER.index(row.state), row.record.start.host, row.record.start.id))
    shown = page_rows(visit, rows)
    return await visit.render(
        "workers.html", now=now, rows=shown.rows, shown=shown, crew=_crew(rows)
    )


async def read_live_state(admin: Admin) -> object:
    """Read the values of the page, heartbeats included."""
    return await admin.workers.list(ended_within=_SHOWN)


async def worker(visit: PageRequest) -> Response:
    """Show one worker with its running and latest jobs."""
    wanted = visit.needed("worker")
    now = await visit.admin.storage.now()
    known = await visit.admin.workers.list()
    record = next((one for one in known if one.start.id == wanted), None)
    if record is None:
        notice = f"Worker {wanted} is not stored. Ended workers are deleted after a while."
        return visit.go("/workers", notice=notice, bad=True)
    row = WorkerListRow(record, now)
    running = JobFilter(states=[State.RUNNING], worker=wanted)
    jobs: Sequence[JobRecord] = await find_page(visit.admin, running, _JOBS) if row.works else ()
    past = JobFilter(states=[state for state in State if state is not State.RUNNING], worker=wanted)
    return await visit.render(
        "worker.html",
        now=now,
        row=row,
        jobs=jobs,
        past=await find_page(visit.admin, past, _PAST),
    )


def _crew(rows: Iterable[WorkerListRow]) -> WorkerTotals:
    rows = list(rows)
    states = [row.state for row in rows]
    live = [row.record for row in rows if row.state in HEARD]
    return WorkerTotals(
        live=len(live),
        resting=len(live) - states.count(Standing.LIVE),
        silent=states.count(Standing.SILENT),
        dead=states.count(Standing.DEAD),
        slots=sum(record.start.slots for record in live),
        running=sum(record.running for record in live),
        free=sum(
            max(record.start.slots - record.running, 0)
            for record in live
            if record.duty is Duty.WORK
        ),
        versions=tuple(sorted({record.start.version for record in live})),
    )


# --- orders ---------------------------------------------------------------------------------------


def _back(visit: PageRequest) -> str:
    """Return the page that the action came from."""
    if visit.asked("back") != "worker":
        return _PAGE
    return page_path("/workers/one", worker=visit.needed("worker"))


def _order(
    verb: str,
    *,
    sentence: str,
    told: str,
    act: Callable[[Admin, str], Awaitable[None]],
    danger: bool = False,
) -> ActionPage:
    async def ask(visit: PageRequest) -> Confirmation:
        wanted = visit.needed("worker")
        known = {one.start.id: one.start for one in await visit.admin.workers.list()}
        place = f" on {known[wanted].host}" if wanted in known else ""
        return Confirmation(
            title=f"{verb} worker {wanted}{place}?",
            sentence=sentence,
            button=f"{verb} worker",
            back=_back(visit),
            danger=danger,
        )

    async def carry_out(visit: PageRequest) -> ActionNotice:
        wanted = visit.needed("worker")
        await act(visit.orders, wanted)
        return ActionNotice(told.format(worker=wanted), _back(visit))

    return ActionPage(ask=ask, act=carry_out)


QUIET = _order(
    "Pause",
    sentence="It takes no new jobs until you resume it. Running jobs finish. Its next heartbeat "
    "delivers the request, within seconds.",
    told="Asked worker {worker} to take no new jobs.",
    act=lambda admin, worker: admin.workers.quiet(worker),
)
RESUME = _order(
    "Resume",
    sentence="It takes jobs again from its next heartbeat on.",
    told="Asked worker {worker} to take jobs again.",
    act=lambda admin, worker: admin.workers.resume(worker),
)
STOP = _order(
    "Stop",
    sentence="It takes no new jobs and stops when its running jobs have finished. Jobs that take "
    "longer than its grace period are interrupted and released without using an attempt. This "
    "cannot be undone. systemd or Kubernetes may start another worker.",
    told="Asked worker {worker} to stop.",
    act=lambda admin, worker: admin.workers.stop(worker),
    danger=True,
)


async def _ask_sweep(_: PageRequest) -> Confirmation:
    return Confirmation(
        title="Sweep dead workers now?",
        sentence="Workers whose lease has passed are declared dead and their jobs released. Due "
        "jobs are marked ready. Live workers do this every few seconds; use it when none is left.",
        button="Sweep workers",
        back=_PAGE,
    )


async def _sweep(visit: PageRequest) -> ActionNotice:
    done = await visit.orders.workers.sweep()
    dead, released = plural(len(done.dead), "worker"), plural(done.released, "job")
    ready = plural(done.promoted, "due job")
    notice = f"Declared {dead} dead, released {released}, marked {ready} ready."
    return ActionNotice(notice, _PAGE)


SWEEP = ActionPage(ask=_ask_sweep, act=_sweep)
