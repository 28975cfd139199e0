"""Workers: who they are, what they run, and what is asked of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from windlass._admin.explain.cause import few, shell_command
from windlass._admin.jobs.redaction import redacted_page
from windlass._admin.session import AdminSession
from windlass._core.job.state import State
from windlass._core.values.names import shown
from windlass._storage.protocol.job_list import JobFilter, Page
from windlass._storage.protocol.workers import Duty, WorkerRecord, WorkerState
from windlass.errors import InvalidArgument, suggestion

__all__ = ["WorkerAdmin"]


class WorkerAdmin(AdminSession):
    """The part of ``app.admin`` that is about workers.

    They hear of an order with their next heartbeat. A worker that leaves in order gives nothing up:
    what it runs may end, and what does not end in time is given back with its attempt.
    """

    async def workers(self, *, ended_within: timedelta | None = None) -> Sequence[WorkerRecord]:
        """Every worker's row, newest first; of those that have ended, the ones that did so
        ``ended_within`` this time (None: all that are kept).
        """
        storage = await self._storage()
        rows = await storage.workers.workers()
        if ended_within is None:
            return rows
        oldest = await storage.now() - ended_within
        return [row for row in rows if row.ended_at is None or row.ended_at >= oldest]

    async def jobs_of(self, worker: str, *, limit: int = 100) -> Page:
        """What a worker is running."""
        wanted = JobFilter(states=[State.RUNNING], worker=worker)
        page = await redacted_page(await (await self._storage()).admin.find(wanted, limit=limit))
        return Page(await self._shades.jobs(page), page.next, page.reached)

    async def quiet_workers(self, *workers: str) -> None:
        """Let these take nothing new; what they run goes on, and they stay."""
        await self._assign(workers, Duty.QUIET)

    async def resume_workers(self, *workers: str) -> None:
        """Undo `quiet_workers`."""
        await self._assign(workers, Duty.WORK)

    async def stop_workers(self, *workers: str) -> None:
        """Let these leave in order, as after SIGTERM. It cannot be taken back."""
        await self._assign(workers, Duty.STOP)

    async def _assign(self, workers: Sequence[str], duty: Duty) -> None:
        """All of them or none: a name that is not a live worker's is refused."""
        if not workers:
            message = f"name a worker: {shell_command('workers', 'list')} shows them"
            raise InvalidArgument(message)
        rows = {row.start.id: row for row in await self.workers()}
        for worker in workers:
            _check(worker, rows, duty)
        subject = f"worker {workers[0]}" if len(workers) == 1 else f"{len(workers):,} workers"
        detail = "" if len(workers) == 1 else few(list(workers))
        what = {Duty.WORK: "resume", Duty.QUIET: "quiet", Duty.STOP: "stop"}[duty]
        audit = self._note(f"workers.{what}", subject, detail)
        store = (await self._storage()).workers
        # One that has ended since the look has done what was asked of it, or cannot any more.
        await store.assign(workers, duty, audit=audit)


def _check(worker: str, rows: dict[str, WorkerRecord], duty: Duty) -> None:
    live = [name for name, row in rows.items() if row.state is WorkerState.LIVE]
    row = rows.get(worker)
    if row is None or worker not in live:
        became = "is not known" if row is None else f"is {row.state.value}"
        near = "" if row is not None else suggestion(worker, live)
        message = (
            f"Worker {shown(worker)} {became}.{near} Those that work here: "
            f"{shell_command('workers', 'list')}"
        )
        raise InvalidArgument(message)
    if row.duty is Duty.STOP and duty is not Duty.STOP:
        message = (
            f"Worker {shown(worker)} was told to stop, and that is not taken back. Start another: "
            f"{shell_command('worker', 'MODULE:APP')}"
        )
        raise InvalidArgument(message)
