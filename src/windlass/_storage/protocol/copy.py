"""`CopyStore`: copies all records of one storage into another."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal, Protocol

import msgspec

from windlass._core.job.job import Attempt, JobRecord
from windlass._core.job.state import Verb
from windlass._core.job.unique import UniqueKey
from windlass._core.stats.rollup import Rollup
from windlass._storage.protocol.actions import AuditRecord
from windlass._storage.protocol.flows import FlowGraph
from windlass._storage.protocol.journal import EventRecord, LogChunk
from windlass._storage.protocol.limits import LimitState
from windlass._storage.protocol.queues import QueueRecord

__all__ = ["CopiedRecord", "CopyStore", "HeldMember", "StoredJob"]


class HeldMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member that its flow holds back: blocked, or ended before its turn came."""

    ended: Literal["stopped", "skipped"] | None = None
    """None: it is blocked."""
    at: datetime | None = None
    delay: timedelta | None = None
    expires: timedelta | None = None
    """As they were asked for. Delay and expiry count from its turn."""


class StoredJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job with all that is stored of it."""

    job: JobRecord
    unique: UniqueKey | None = None
    key_until: datetime | None = None
    """The end of a key's hold, for a key that is held for a time."""
    ended: tuple[int, Verb, str] | None = None
    """The last ended claim: its number, the verb, and who ended it."""
    held: HeldMember | None = None
    """None: it is no member of a flow, or its turn has come."""
    history: Sequence[Attempt] = ()
    logs: Sequence[LogChunk] = ()


CopiedRecord = StoredJob | FlowGraph | Rollup | QueueRecord | LimitState | AuditRecord | EventRecord
"""Records that are copied as they are. Limits and schedules are defined again, by the usual calls.
"""


class CopyStore(Protocol):
    """Reads and writes whole records, for a storage that no worker and no client uses."""

    async def dump(self, *, after: int, limit: int) -> Sequence[StoredJob]:
        """Return jobs of every state with a ``seq`` above ``after``, in its order.

        Members of flows whose deletion has begun are left out.
        """
        ...

    async def dump_flows(self, *, after: int, limit: int) -> Sequence[FlowGraph]:
        """Return flows with a number above ``after``, in its order, with all ends counted, and how
        far their retries have come.
        """
        ...

    async def restore(self, things: Sequence[CopiedRecord]) -> int:
        """Store records of another storage, all or none. Return the number of new ones.

        - Jobs in order, with numbers of this store; a job whose id is stored is left out. States,
          instants, counters, claim numbers and the last ended claim are copied.
        - Waiting jobs enter their place (ready, later, lane, solo). Running jobs keep their
          worker's id. That worker has no row here, so the next sweep ends their claims.
        - Flows with their parts and counts, with numbers of this store; a flow whose id is stored
          is left out. The counts include the members, which come later and change no count. A
          member without its flow raises StorageError. Members that their flow holds (blocked,
          stopped, skipped) are held here. A cancel that had not reached all members starts again. A
          retry continues with the part that it had reached, from its first member.
        - A held key stays held until its end. The limits of jobs must be defined, else
          LimitUnknown.
        - Rollups replace those of an earlier copy for the same minute, queue and task, and add to
          those that workers wrote here. Queue records and limit states replace stored ones. Audit
          records and events that are stored already are left out.
        """
        ...
