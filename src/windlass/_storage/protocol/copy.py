"""`CopyStore`: everything out of one storage and into another."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from windlass._core.job.job import Attempt, JobRecord
from windlass._core.job.state import Verb
from windlass._core.job.unique import UniqueKey
from windlass._core.stats.rollup import Rollup
from windlass._storage.protocol.actions import AuditRecord
from windlass._storage.protocol.journal import EventRecord, LogChunk
from windlass._storage.protocol.limits import LimitState
from windlass._storage.protocol.queues import QueueRecord

__all__ = ["CopiedRecord", "CopyStore", "StoredJob"]


class StoredJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job with all that is stored of it."""

    job: JobRecord
    unique: UniqueKey | None = None
    key_until: datetime | None = None
    """Of a key that is held for a time, while it is."""
    ended: tuple[int, Verb, str] | None = None
    """The last ended claim: its number, the verb, and who ended it."""
    history: Sequence[Attempt] = ()
    logs: Sequence[LogChunk] = ()


CopiedRecord = StoredJob | Rollup | QueueRecord | LimitState | AuditRecord | EventRecord
"""What is moved as it is. Limits and schedules are defined again, by the means everybody has."""


class CopyStore(Protocol):
    """For a storage that nobody works on."""

    async def dump(self, *, after: int, limit: int) -> Sequence[StoredJob]:
        """Jobs of every state with a ``seq`` above ``after``, in its order."""
        ...

    async def restore(self, things: Sequence[CopiedRecord]) -> int:
        """Store things as they were elsewhere, all or none; how many were new.

        - Jobs in order, with numbers of this store; one whose id is stored is left out. States,
          instants, counters, claim numbers and the last ended claim are taken over; waiting ones
          stand where they belong (ready, later, lane, solo), running ones under the worker they
          name, whose row is missing here, so that the next sweep ends their claims. A held key is
          held, until then. Their limits must be defined: LimitUnknown.
        - Rollups replace what an earlier copy left of the same minute, queue and task, and add to
          what workers wrote here. Queue records and limit states replace what is stored. Audit
          records and events that are stored already are left out.
        """
        ...
