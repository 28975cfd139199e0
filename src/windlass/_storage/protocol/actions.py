"""`ActionStore`: operators' actions on jobs, and the audit log."""

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

    The id stays; ``max_attempts`` becomes ``attempt + budget``. Cleared: expiry, finish time,
    cancel request, lost count, solo mark and ``missed_at``. Kept: last error and history. Limits
    count again. The key is taken again; CONFLICT if another job holds it. FOR_A_TIME starts a new
    period unless the key is still held. A key UNTIL_STARTED stays released.
    """


class Discard(msgspec.Struct, frozen=True):
    """failed → discarded, finished now."""

    reason: str


class Cancel(msgspec.Struct, frozen=True):
    """waiting → cancelled at once; the worker of a running job is asked (REQUESTED)."""


class RunNow(msgspec.Struct, frozen=True):
    """Make a waiting job due now, unless it already was."""


class Delete(msgspec.Struct, frozen=True):
    """Delete the job with its history, logs, events and the hold on its key. A running job is asked
    to end instead (REQUESTED), because its worker must not find it missing.
    """


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """Give a waiting job another due time, priority or queue; None leaves a value as it is."""

    due: datetime | None = None
    priority: int | None = None
    queue: str | None = None


JobAction = Requeue | Discard | Cancel | RunNow | Delete | Edit
"""An action of an operator on jobs."""


class ActionResult(StrEnum):
    """The result of an action for one job."""

    DONE = "done"
    REQUESTED = "requested"
    """It is running: its worker was asked."""
    UNKNOWN = "unknown"
    WRONG_STATE = "wrong_state"
    CONFLICT = "conflict"
    """Another job holds its unique key."""


class AuditNote(msgspec.Struct, frozen=True, kw_only=True):
    """An operator and their action. The caller makes the id, so that a repeated action is
    recognised.
    """

    id: str
    """32 hex digits, like a job's."""
    who: str
    what: str
    """Such as ``jobs.requeue`` or ``queues.pause``."""
    subject: str = ""
    """The thing it is about: ``job 0192…``, ``queue mail``, a filter in words."""
    detail: str = ""


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One action as it is stored."""

    number: int
    """Rises with every record: the cursor of the next page."""
    note: AuditNote
    at: datetime
    count: int
    """Number of jobs, schedules … that it changed."""


class ActionStore(Protocol):
    """Actions on jobs, each with its audit record in the same transaction."""

    async def order(
        self, order: JobAction, ids: Sequence[JobId], note: AuditNote
    ) -> Sequence[ActionResult]:
        """Apply the action ``order`` to each job separately; answers in order of ``ids``.

        - One transaction, one instant. Of two concurrent actions on one job each sees the other's
          result: of two requeues exactly one is DONE.
        - An id that comes twice sees the result of its first place.
        - With at least one DONE or REQUESTED an `AuditRecord` is stored, counting them; else none.
        - Repeated with a note whose id is stored, nothing changes, and the answers are those given
          then (they are kept with the record).
        - Callers that wait for ready jobs, results, freed keys or cancel requests are woken.
        """
        ...

    async def insert(self, jobs: Sequence[NewJob], note: AuditNote) -> Sequence[Inserted]:
        """Insert jobs as `JobStore.insert` does, with an audit record that counts the created ones.
        If none was created, no record is stored.
        """
        ...

    async def record(self, note: AuditNote, count: int) -> None:
        """Store an audit record alone: of an action that takes many steps, after the last one.
        ``count`` is 1 or more.
        """
        ...

    async def audits(
        self, *, limit: int, before: int | None = None, subject: str | None = None
    ) -> Sequence[AuditRecord]:
        """List audit records, newest first: those below number ``before``, about ``subject``."""
        ...
