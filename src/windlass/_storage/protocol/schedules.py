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
    """A stored schedule. What it means is in ``body``, which is nothing to the store."""

    name: str
    revision: int
    """Rises by one with every write: the fence."""
    body: bytes
    """UTF-8 text."""
    next_at: datetime | None
    """When it is due; None: not by itself."""
    declared_at: datetime | None = None
    """When a process last said that its code has this schedule."""


class ScheduleWrite(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of one schedule, and the jobs that are inserted with it."""

    name: str
    revision: int
    """The one this was decided by; 0: there must be no such schedule."""
    body: bytes | None
    """None deletes it."""
    next_at: datetime | None = None
    jobs: tuple[NewJob, ...] = ()
    active: tuple[JobId, ...] = ()
    """Earlier jobs that may still be waiting or running …"""
    most_active: int | None = None
    """… of which there must be fewer than this; None: any number."""
    audit: AuditNote | None = None
    """Stored with it, if it is WRITTEN."""


class Written(StrEnum):
    """What became of one write."""

    WRITTEN = "written"
    STALE = "stale"
    """Somebody else was faster: read it again and decide again."""
    BUSY = "busy"
    """As many jobs are active as may be. Nothing was written."""
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
    """The store's now."""
    rows: Sequence[ScheduleRow]
    """Due at or before that, the longest first."""
    next_at: datetime | None
    """When the next one that is not due yet will be."""
    paused: bool = False
    """All schedules are paused: there are no rows, and no next one."""


class ScheduleStore(Protocol):
    """Schedules by name, and the one step that fires them."""

    async def rows(self, names: Sequence[str] | None = None) -> Sequence[ScheduleRow]:
        """All of them, by name; ``names``: those of these that are stored."""
        ...

    async def page(self, after: str, limit: int) -> Sequence[ScheduleRow]:
        """The first ``limit`` whose names come after this one, by name. Costs no more where there
        are thousands.
        """
        ...

    async def due(self, limit: int) -> DueSchedules:
        """What is due, at most ``limit``. Read-only, and cheap: it is asked often."""
        ...

    async def write(self, writes: Sequence[ScheduleWrite]) -> Sequence[ScheduleAnswer]:
        """Write each on its own, in order, if its revision still holds; answers in order.

        - With the row, in the same transaction, its ``jobs`` are inserted as `JobStore.insert`
          does, and workers are woken: both or neither.
        - A write that has already happened (the row has the next revision and this very body) is
          answered WRITTEN again; so is a delete of what is not there. Who must know whether the
          write was theirs or a rival's puts something into the body that no one else would.
        - BUSY, before anything else is written: ``most_active`` or more of ``active`` are waiting
          or running.
        - HELD, likewise: the unique key of one of ``jobs`` is held, as `JobStore.insert` says, or
          is that of an earlier one of them. What a job says of conflicts does not matter here. A
          job whose id is stored needs no key.
        - A new row has revision 1. ``declared_at`` stays as it is.
        - One that has to wait too long, for the key of one of its jobs for example, is answered
          STALE where others are written; where none can be, StoreBusy.
        - An unknown limit raises LimitUnknown, and nothing of the call is written.
        """
        ...

    async def declare(self, names: Sequence[str]) -> None:
        """Stamp these with now: some code has them. Those that are not stored are left out."""
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
        """Tell since when all schedules are paused; None: they are not. A second `pause` does not
        change it.
        """
        ...


def storable_names(names: Sequence[str]) -> list[str]:
    """Those of some names that a schedule can have: people look for others, too."""
    return [name for name in names if _is_text(name)]


def _is_text(name: str) -> bool:
    try:
        return b"\x00" not in name.encode()
    except UnicodeEncodeError:
        return False
