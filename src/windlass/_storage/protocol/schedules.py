"""`ScheduleStore`: schedules by name, and the one step that fires them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol

import msgspec

from windlass._core.job.job import JobId, NewJob
from windlass._storage.protocol.actions import AuditNote

__all__ = [
    "DueSchedules",
    "ScheduleAnswer",
    "ScheduleRow",
    "ScheduleStore",
    "ScheduleWrite",
    "Written",
]


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A stored schedule. Its definition is in ``body``, which the store does not read."""

    name: str
    revision: int
    """Rises by one with every write: the fence."""
    body: bytes
    """UTF-8 text."""
    next_at: datetime | None
    """The next run; None: it does not run by itself."""
    declared_at: datetime | None = None
    """The last time that a process reported this schedule in its code."""


class ScheduleWrite(msgspec.Struct, frozen=True, kw_only=True):
    """The change of one schedule, and the jobs that are inserted with it."""

    name: str
    revision: int
    """The revision that this write is based on; 0: there must be no such schedule."""
    body: bytes | None
    """None deletes it."""
    next_at: datetime | None = None
    jobs: tuple[NewJob, ...] = ()
    active: tuple[JobId, ...] = ()
    """Earlier jobs that may still be waiting or running."""
    most_active: int | None = None
    """There must be fewer than this number of ``active`` jobs; None: any number."""
    audit: AuditNote | None = None
    """Stored with it, if it is WRITTEN."""


class Written(StrEnum):
    """The result of one write."""

    WRITTEN = "written"
    STALE = "stale"
    """Another writer was faster: read it again and decide again."""
    BUSY = "busy"
    """``most_active`` or more jobs are active. Nothing was written."""
    HELD = "held"
    """Other jobs hold unique keys of its jobs. Nothing was written."""


class ScheduleAnswer(msgspec.Struct, frozen=True):
    """The answer to one write."""

    what: Written
    holders: Mapping[JobId, JobId] = {}
    """HELD: the jobs whose keys are held, and who holds them: stored jobs, or earlier ones of the
    same write."""
    known: tuple[JobId, ...] = ()
    """WRITTEN: those of its jobs that were stored before, and not by this very write."""
    expired: tuple[JobId, ...] = ()
    """WRITTEN: jobs that held keys of its jobs, waited past their expiry and were discarded."""


class DueSchedules(msgspec.Struct, frozen=True):
    """The answer to `ScheduleStore.due`."""

    at: datetime
    """The store's clock at this call."""
    rows: Sequence[ScheduleRow]
    """Schedules due at or before that, the longest overdue first."""
    next_at: datetime | None
    """The next due time of a schedule that is not due yet."""
    paused: bool = False
    """All schedules are paused: there are no rows, and no next one."""


class ScheduleStore(Protocol):
    """Schedules by name, and the one step that fires them."""

    async def rows(self, names: Sequence[str] | None = None) -> Sequence[ScheduleRow]:
        """List schedules by name; with ``names``, those of them that are stored."""
        ...

    async def page(self, after: str, limit: int) -> Sequence[ScheduleRow]:
        """Return the first ``limit`` schedules whose names come after this one, by name. The cost
        does not grow with their number.
        """
        ...

    async def due(self, limit: int) -> DueSchedules:
        """Return the due schedules, at most ``limit``. Read-only and cheap: it is called often."""
        ...

    async def write(self, writes: Sequence[ScheduleWrite]) -> Sequence[ScheduleAnswer]:
        """Write each schedule separately, in order, if its revision still holds; answers in order.

        - Its ``jobs`` are inserted as `JobStore.insert` does, in the transaction of the row: both
          or neither. Workers are woken.
        - A write that has already happened (the row has the next revision and this body) is
          answered WRITTEN again. So is a delete of a missing row. A caller that must know whether
          the write was its own puts a unique value into the body.
        - BUSY, before anything else is written: ``most_active`` or more of ``active`` are waiting
          or running.
        - HELD, likewise: the unique key of one of ``jobs`` is held, as `JobStore.insert` says, or
          is that of an earlier one of them. The ``on_conflict`` of a job does not matter here. A
          job whose id is stored needs no key.
        - A new row has revision 1. ``declared_at`` stays as it is.
        - A write that waits too long for a lock, for example on the key of one of its jobs, is
          answered STALE if others are written. If none can be written, StoreBusy is raised.
        - An unknown limit raises LimitUnknown, and nothing of the call is written.
        """
        ...

    async def declare(self, names: Sequence[str]) -> None:
        """Stamp these schedules with now: a process has them in its code. Unknown names are
        ignored.
        """
        ...

    async def pause(self, *, audit: AuditNote | None = None) -> None:
        """Let `due` find nothing until `resume`, in every process. Everything else stays possible,
        and the schedules stay as they are.
        """
        ...

    async def resume(self, *, audit: AuditNote | None = None) -> None:
        """Undo `pause`. Wakes workers."""
        ...

    async def paused(self) -> datetime | None:
        """Return since when all schedules are paused; None if they are not. A second `pause` does
        not change it.
        """
        ...


def storable_names(names: Sequence[str]) -> list[str]:
    """Return the names that a schedule can have. People search for others, too."""
    return [name for name in names if _is_text(name)]


def _is_text(name: str) -> bool:
    try:
        return b"\x00" not in name.encode()
    except UnicodeEncodeError:
        return False
