"""Jobs by the first and the last digits of their ids.

Jobs are in the order of their numbers, which is the order in which they were made. An id begins
with the time it was made: what begins with certain digits lies where jobs of that time are. Those
whose ids begin with anything else are kept apart, see ``odd`` in `layout`.
"""

from __future__ import annotations

from windlass.core.job import JobId
from windlass.storage.protocol import Named
from windlass.storage.redis.database import Database
from windlass.storage.redis.scripts import script

__all__ = ["LOOK", "named"]

_NAMED = script("named")
LOOK = 5_000
"""Ids that one script meets."""
_DIGITS = 32


async def named(database: Database, first: str, last: str, after: str | None) -> Named:
    """`AdminStore.named`."""
    low, high = first.ljust(_DIGITS, "0"), first.ljust(_DIGITS, "f")
    # Whole bytes are compared there; half a byte more, here.
    end = bytes.fromhex(last[len(last) % 2 :])
    place = after or ("odd" if first else "all")
    where, _, at = place.partition(":")
    behind = bytes.fromhex(at) if where == "odd" else at
    further, looked, *found = await database.run_aside(
        _NAMED, bytes.fromhex(low), bytes.fromhex(high), end, where, behind, LOOK
    )
    ids = [JobId(job.hex()) for job in found]
    return Named(
        [job for job in ids if low <= job <= high and job.endswith(last)],
        int(looked),
        further.decode() or None,
    )
