"""The effect of an action on one job. The caller decides what the answers mean."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import apsw

from windlass._core.flows.part import ended_as
from windlass._core.job.job import JobId
from windlass._core.job.state import State
from windlass._core.job.unique import Window
from windlass._core.values.instants import LAST_US, to_us
from windlass._storage.protocol.actions import ActionResult, Edit
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.sqlite.flows.parts import BLOCKED, PartChanges
from windlass._storage.sqlite.io.rows import (
    NEVER,
    STATES,
    fetch,
    fetch_shown,
    limits_of,
    rows_by_id,
    value_of,
)
from windlass._storage.sqlite.jobs.apply_effects import delete_jobs
from windlass._storage.sqlite.jobs.unique_keys import find_holder, free_keys, take_key
from windlass._storage.sqlite.jobs.waiting_jobs import end_waiting
from windlass._storage.sqlite.limits.lanes import LaneChanges

__all__ = ["REQUEUABLE", "JobChanges", "RequestRow", "members_after", "request_rows"]

_JOBS = load_sql("windlass._storage.sqlite.sql", "jobs.sql")
_REQUEST_CANCEL = _JOBS["request_cancel"]
_SQL = load_sql("windlass._storage.sqlite.sql", "actions.sql")
_ASKED, _REQUEUE, _DISCARD, _MOVE = _SQL["asked"], _SQL["requeue"], _SQL["discard"], _SQL["move"]
_MEMBERS_AFTER = _SQL["members_after"]
_FLOWS = load_sql("windlass._storage.sqlite.sql", "flows.sql")
_STANDING, _WAITS = _FLOWS["standing"], _FLOWS["waits"]

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
    part: int | None
    flow_state: int | None


def request_rows(connection: apsw.Connection, ids: Iterable[JobId]) -> dict[str, RequestRow]:
    """Return those of the jobs that are stored, by id."""
    return {job: RequestRow(*row) for job, row in rows_by_id(connection, _ASKED, ids).items()}


def members_after(connection: apsw.Connection, part: int, seq: int, limit: int) -> list[RequestRow]:
    """Return the next jobs of a part."""
    rows = fetch_shown(connection, _MEMBERS_AFTER, (part, seq, limit))
    return [RequestRow(*row) for row in rows]


class JobChanges:
    """The changes of one operation. Call `settle` before it ends."""

    def __init__(self, connection: apsw.Connection, now: int) -> None:
        self._connection, self._now = connection, now
        self._lanes = LaneChanges(connection)
        self._parts = PartChanges(connection, now)
        self._cancelled: list[int] = []
        self._deleted: list[int] = []

    def refusal(self, job: RequestRow) -> ActionResult | None:
        """Return why a member is not requeued; None: nothing is in the way."""
        if job.part is None:
            return None
        if job.flow_state is not None:
            return ActionResult.WRONG_STATE  # it comes back with what stopped it
        ((refused, superseded),) = fetch(self._connection, _STANDING, (job.part,))
        if refused:
            return ActionResult.WRONG_STATE
        return ActionResult.CONFLICT if superseded else None

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
        if job.part is not None:
            counted = {str(ended_as(STATES[job.state])): -1}
            self._parts.add(job.part, **counted, open=1)
            if value_of(self._connection, _WAITS, (job.part,)):
                # What it waits for may be open again, or have failed: settling decides.
                self._connection.execute(_REQUEUE, (job.seq, 0, None, NEVER, BLOCKED))
                self._parts.add(job.part, blocked=1)
                return True
        ready, lane = self._stand(job._replace(due=self._now, solo=0))
        self._connection.execute(_REQUEUE, (job.seq, ready, lane, self._now, None))
        return True

    def discard(self, job: RequestRow, reason: str) -> None:
        """Discard a failed job."""
        self._connection.execute(_DISCARD, (job.seq, self._now, reason))
        if job.part is not None:
            self._parts.add(job.part, failed=-1, cancelled=1)

    def cancel(self, job: RequestRow) -> None:
        """Cancel a waiting job."""
        self._cancelled.append(job.seq)

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
        if self._cancelled:
            cancelled, state = self._cancelled, State.CANCELLED
            end_waiting(
                self._connection, cancelled, self._lanes, state=state, reason=None, now=self._now
            )
            self._cancelled = []
        self._parts.store()
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
