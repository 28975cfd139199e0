"""`ActionStore`: what operators order for jobs, and the record of who did."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol

import msgspec

from windlass._core.job.job import JobId, NewJob
from windlass._storage.protocol.jobs import Inserted

__all__ = [
    "ActionResult",
    "ActionStore",
    "AuditNote",
    "AuditRecord",
    "Cancel",
    "Delete",
    "Discard",
    "Edit",
    "JobAction",
    "Requeue",
    "RunNow",
]


class Requeue(msgspec.Struct, frozen=True):
    """failed, cancelled, discarded → waiting, ready now, with a fresh budget of attempts.

    Same id; ``max_attempts`` becomes ``attempt + budget``; expiry, finish time, cancel request,
    lost count, solo mark and ``missed_at`` are cleared, last error and history kept; limits count
    again. The key is taken again (FOR_A_TIME: for a new period, unless it is still held; a window
    UNTIL_STARTED stays released): held by another job, CONFLICT.
    """


class Discard(msgspec.Struct, frozen=True):
    """failed → discarded, finished now."""

    reason: str


class Cancel(msgspec.Struct, frozen=True):
    """waiting → cancelled at once; the worker of a running one is asked (REQUESTED)."""


class RunNow(msgspec.Struct, frozen=True):
    """A waiting job is due now, unless it already was."""


class Delete(msgspec.Struct, frozen=True):
    """The job is gone, with its history, logs, events and the hold on its key. A running one is
    asked to end instead (REQUESTED): whoever runs it must not find it missing.
    """


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """A waiting job gets another due time, priority or queue; None leaves one as it is."""

    due: datetime | None = None
    priority: int | None = None
    queue: str | None = None


JobAction = Requeue | Discard | Cancel | RunNow | Delete | Edit


class ActionResult(StrEnum):
    """What became of an order for one job."""

    DONE = "done"
    REQUESTED = "requested"
    """It is running: its worker was asked."""
    UNKNOWN = "unknown"
    WRONG_STATE = "wrong_state"
    CONFLICT = "conflict"
    """Another job holds its unique key."""


class AuditNote(msgspec.Struct, frozen=True, kw_only=True):
    """Who orders what. The caller makes the id, so that a repeated order is recognised."""

    id: str
    """32 hex digits, like a job's."""
    who: str
    what: str
    """Such as ``jobs.requeue`` or ``queues.pause``."""
    subject: str = ""
    """What it is about: ``job 0192…``, ``queue mail``, a filter in words."""
    detail: str = ""


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One order as it is remembered."""

    number: int
    """Rises with every record: the cursor of the next page."""
    note: AuditNote
    at: datetime
    count: int
    """How many jobs, schedules … it took effect on."""


class ActionStore(Protocol):
    """Orders for jobs, each with its audit record in the same transaction."""

    async def order(
        self, order: JobAction, ids: Sequence[JobId], note: AuditNote
    ) -> Sequence[ActionResult]:
        """Carry out ``order`` for each job on its own; answers in order of ``ids``.

        - One transaction, one instant. Of two concurrent orders for one job each sees what the
          other left: of two requeues exactly one is DONE.
        - An id that comes twice meets what its first place left.
        - With at least one DONE or REQUESTED an `AuditRecord` is stored, counting them; else none.
        - Repeated with a note whose id is stored, nothing changes, and the answers are those given
          then (they are kept with the record).
        - Whoever waits for ready jobs, results, freed keys or cancel requests is woken.
        """
        ...

    async def insert(self, jobs: Sequence[NewJob], note: AuditNote) -> Sequence[Inserted]:
        """As `JobStore.insert`, with an audit record that counts the created ones (none: none)."""
        ...

    async def record(self, note: AuditNote, count: int) -> None:
        """Store an audit record alone: of an action that takes many steps, after the last one.
        ``count`` is 1 or more.
        """
        ...

    async def audits(
        self, *, limit: int, before: int | None = None, subject: str | None = None
    ) -> Sequence[AuditRecord]:
        """The newest records first, with a number below ``before``, about ``subject`` only."""
        ...
