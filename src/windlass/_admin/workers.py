"""Workers: their rows, their jobs, and the commands that operators send them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from windlass._admin.explain.cause import few, shell_command
from windlass._admin.jobs.redaction import redacted_page
from windlass._admin.session import AdminSession, SweepReport
from windlass._core.job.state import State
from windlass._core.values.names import shown
from windlass._storage.protocol.lists.job_list import JobFilter, Page
from windlass._storage.protocol.workers import Duty, WorkerRecord, WorkerState
from windlass.errors import InvalidArgument, suggestion

__all__ = ["WorkerAdmin"]


class WorkerAdmin:
    """``app.admin.workers``: list workers, see their jobs, pause, stop and sweep.

    A worker gets a command with its next heartbeat. A worker that is stopped loses no job: running
    jobs may finish, and a job that does not finish in time is given back with its attempt.
    """

    def __init__(self, session: AdminSession) -> None:
        self._session = session

    async def list(self, *, ended_within: timedelta | None = None) -> Sequence[WorkerRecord]:
        """List workers, the newest first. ``ended_within``: leave out workers that ended longer
        ago; None keeps all that are stored.
        """
        storage = await self._session.storage()
        rows = await storage.workers.workers()
        if ended_within is None:
            return rows
        oldest = await storage.now() - ended_within
        return [row for row in rows if row.ended_at is None or row.ended_at >= oldest]

    async def jobs(self, worker: str, *, limit: int = 100) -> Page:
        """List the jobs that a worker is running."""
        wanted = JobFilter(states=[State.RUNNING], worker=worker)
        found = await (await self._session.storage()).admin.find(wanted, limit=limit)
        page = await redacted_page(found)
        return Page(await self._session.masks.jobs(page), page.next, page.reached)

    async def quiet(self, *workers: str) -> None:
        """Let these workers claim no more jobs. Running jobs finish, and the workers stay."""
        await self._assign(workers, Duty.QUIET)

    async def resume(self, *workers: str) -> None:
        """Let quiet workers claim jobs again."""
        await self._assign(workers, Duty.WORK)

    async def stop(self, *workers: str) -> None:
        """Stop these workers, as SIGTERM does. This cannot be undone."""
        await self._assign(workers, Duty.STOP)

    async def sweep(self) -> SweepReport:
        """Find dead workers now, release their jobs, and mark due jobs ready.

        Live workers do this every few seconds, so it helps where none is left. A worker counts as
        dead when its process has provably ended, or its last heartbeat is older than its lease.
        """
        report = await self._session.sweep()
        dead, released, promoted = len(report.dead), report.released, report.promoted
        detail = f"{dead:,} dead, {released:,} released, {promoted:,} promoted"
        note = self._session.note("workers.sweep", "all workers", detail)
        await (await self._session.storage()).orders.record(note, 1)
        return report

    async def _assign(self, workers: Sequence[str], duty: Duty) -> None:
        """Send a command to all of them, or to none if one is not a live worker."""
        if not workers:
            message = f"name a worker: {shell_command('workers', 'list')} shows them"
            raise InvalidArgument(message)
        rows = {row.start.id: row for row in await self.list()}
        for worker in workers:
            _check(worker, rows, duty)
        subject = f"worker {workers[0]}" if len(workers) == 1 else f"{len(workers):,} workers"
        detail = "" if len(workers) == 1 else few(list(workers))
        what = {Duty.WORK: "resume", Duty.QUIET: "quiet", Duty.STOP: "stop"}[duty]
        audit = self._session.note(f"workers.{what}", subject, detail)
        store = (await self._session.storage()).workers
        # A worker may have ended since it was read. The store leaves it out.
        await store.assign(workers, duty, audit=audit)


def _check(worker: str, rows: dict[str, WorkerRecord], duty: Duty) -> None:
    live = [name for name, row in rows.items() if row.state is WorkerState.LIVE]
    row = rows.get(worker)
    if row is None or worker not in live:
        became = "is not known" if row is None else f"is {row.state.value}"
        near = "" if row is not None else suggestion(worker, live)
        message = (
            f"Worker {shown(worker)} {became}.{near} {shell_command('workers', 'list')} shows all "
            f"workers"
        )
        raise InvalidArgument(message)
    if row.duty is Duty.STOP and duty is not Duty.STOP:
        message = (
            f"Worker {shown(worker)} is stopping, which cannot be undone. Start another: "
            f"{shell_command('worker', 'MODULE:APP')}"
        )
        raise InvalidArgument(message)
