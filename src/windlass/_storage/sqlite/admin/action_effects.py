"""The effect of an action on one job. The caller decides what the answers mean."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import apsw

from windlass._core.job.job import JobId
from windlass._core.job.state import State
from windlass._core.job.unique import Window
from windlass._core.values.instants import LAST_US, to_us
from windlass._storage.protocol.actions import Edit
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.sqlite.io.rows import limits_of, rows_by_id
from windlass._storage.sqlite.jobs.apply_effects import delete_jobs
from windlass._storage.sqlite.jobs.unique_keys import find_holder, free_keys, take_key
from windlass._storage.sqlite.jobs.waiting_jobs import end_waiting
from windlass._storage.sqlite.limits.lanes import LaneChanges

__all__ = ["REQUEUABLE", "JobChanges", "RequestRow", "request_rows"]

_JOBS = load_sql("windlass._storage.sqlite.sql", "jobs.sql")
_REQUEST_CANCEL = _JOBS["request_cancel"]
_SQL = load_sql("windlass._storage.sqlite.sql", "actions.sql")
_ASKED, _REQUEUE, _DISCARD, _MOVE = _SQL["asked"], _SQL["requeue"], _SQL["discard"], _SQL["move"]

REQUEUABLE = frozenset({State.FAILED, State.CANCELLED, State.DISCARDED})


class RequestRow(NamedTuple):
    """A row of ``request_rows`` in actions.sql."""

    id: bytes
    seq: int
    state: int
    due: int
    queue: str
    priority: int
    solo: int
    limits: bytes | None
    key: str | None
    window: str | None
    period: int | None
    lane: int | None


def request_rows(connection: apsw.Connection, ids: Iterable[JobId]) -> dict[str, RequestRow]:
    """Return those of the jobs that are stored, by id."""
    return {job: RequestRow(*row) for job, row in rows_by_id(connection, _ASKED, ids).items()}


class JobChanges:
    """The changes of one operation. Call `settle` before it ends."""

    def __init__(self, connection: apsw.Connection, now: int) -> None:
        self._connection, self._now = connection, now
        self._lanes = LaneChanges(connection)
        self._deleted: list[int] = []

    def requeue(self, job: RequestRow) -> bool:
        """Let an ended job wait again; False: another one holds its key, and nothing changed."""
        # A window until the start stays released, whether the job ever started or not.
        if job.key is not None and job.window != Window.UNTIL_STARTED.value:
            holder = find_holder(self._connection, job.key, self._now)
            if holder is None:
                period = job.period
                take_key(self._connection, job.key, job.seq, period=period, now=self._now)
            elif holder.seq != job.seq:
                return False
        ready, lane = self._stand(job._replace(due=self._now, solo=0))
        self._connection.execute(_REQUEUE, (job.seq, ready, lane, self._now))
        return True

    def discard(self, job: RequestRow, reason: str) -> None:
        """Discard a failed job."""
        self._connection.execute(_DISCARD, (job.seq, self._now, reason))

    def cancel(self, job: RequestRow) -> None:
        """Cancel a waiting job."""
        seqs, state = [job.seq], State.CANCELLED
        end_waiting(self._connection, seqs, self._lanes, state=state, reason=None, now=self._now)

    def request_cancel(self, job: RequestRow) -> None:
        """Ask the worker of a running job to end it."""
        self._connection.execute(_REQUEST_CANCEL, (job.seq,))

    def run_now(self, job: RequestRow) -> RequestRow:
        """Make a waiting job due now, unless it already was."""
        return job if job.due <= self._now else self._move(job._replace(due=self._now))

    def edit(self, job: RequestRow, edit: Edit) -> RequestRow:
        """Move a waiting job to another place."""
        self._lanes.touch(job.lane)
        return self._move(
            job._replace(
                due=job.due if edit.due is None else min(to_us(edit.due), LAST_US),
                priority=job.priority if edit.priority is None else edit.priority,
                queue=job.queue if edit.queue is None else edit.queue,
            )
        )

    def delete(self, job: RequestRow) -> None:
        """Delete a job that does not run."""
        if job.key is not None:
            free_keys(self._connection, [(job.key, job.seq)])
        self._lanes.touch(job.lane)
        self._deleted.append(job.seq)

    def settle(self) -> None:
        """Make everything else follow."""
        delete_jobs(self._connection, self._deleted)
        self._deleted.clear()
        self._lanes.settle()

    def _move(self, job: RequestRow) -> RequestRow:
        ready, lane = self._stand(job)
        place = (job.due, ready, lane, job.queue, job.priority)
        self._connection.execute(_MOVE, (job.seq, *place))
        return job._replace(lane=lane)

    def _stand(self, job: RequestRow) -> tuple[int, int | None]:
        """Return the place of a waiting job: how it is ready, and its lane."""
        if job.due > self._now:
            return 0, None
        if job.solo:
            return 3, None
        if job.limits is None:
            return 1, None
        uses = limits_of(job.limits)
        if not uses:
            # An unreadable job is left to the step that makes it ready, and fails there.
            return 0, None
        return 2, self._lanes.enter(job.queue, uses, (job.priority, job.due, job.seq))
