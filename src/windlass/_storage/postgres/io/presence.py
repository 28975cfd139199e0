"""Locks that sessions hold to show what they listen for.

The listener of a process holds one advisory lock for each set of queues that its workers serve, and
one while callers wait for results. The server drops them with the session. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b

__all__ = ["ACQUIRE", "MEMBERS", "NOTIFY", "NOTIFY_WAITING", "RELEASE", "PresenceKeys"]

NOTIFY = """SELECT pg_notify($1, $2)
  FROM (SELECT set_config('synchronous_commit', 'off', true) OFFSET 0) AS unsynced"""
"""A hint need not be on disk: else its commit waits for a sync, and the next insert for it."""
NOTIFY_WAITING = f"{NOTIFY} WHERE NOT pg_try_advisory_xact_lock($3, $4)"
"""The same, if a session holds that lock. Two that ask at once may both be told so."""
ACQUIRE = "SELECT pg_advisory_lock_shared($1, key) FROM unnest($2::int[]) AS key"
RELEASE = "SELECT pg_advisory_unlock_shared($1, key) FROM unnest($2::int[]) AS key"
MEMBERS = """
SELECT l.objid::int8 AS key, l.pid
  FROM pg_locks l JOIN pg_stat_activity a USING (pid)
 WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.granted
   AND l.classid = $1::int4::oid AND l.objid = ANY ($2::int4[]::oid[])
   AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
   AND (a.state_change IS NULL OR a.state_change > clock_timestamp() - interval '30 s')
"""
"""The sessions that hold these locks. Each listener sends a statement every few seconds; a session
without one for long belongs to a process that is frozen, or to a host that is gone.
"""


class PresenceKeys:
    """The keys of the locks: the first of the two is the schema's."""

    def __init__(self, channel: str) -> None:
        self.schema: int = _number(channel)
        self._ends = _number("ends")

    @property
    def ends(self) -> tuple[int, int]:
        """Held while callers wait for the ends of jobs."""
        return self.schema, self._ends

    @staticmethod
    def group(queues: Collection[str]) -> int:
        """Held by the workers that serve exactly these queues."""
        return _number("\0".join(("work", *sorted(queues))))


def _number(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=4).digest()) >> 1
