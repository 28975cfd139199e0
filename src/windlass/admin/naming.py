"""Which job is meant by an id that people have copied from where it was shortened."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.admin.desk import Desk
from windlass.core.ids import Likeness, id_as_stored, is_whole, likenesses
from windlass.core.job import JobId
from windlass.errors import AmbiguousId, JobNotFound
from windlass.storage.protocol import AdminStore

__all__ = ["NEWEST", "NamingDesk"]

NEWEST = 100_000
"""Jobs among which the end of an id is looked for: no index knows it."""
_CANDIDATES = 10


class NamingDesk(Desk):
    """The part of ``app.admin`` that knows jobs by shortened ids."""

    async def resolve(self, job_id: str) -> JobId:
        """The whole id of the job that is meant.

        Takes the shortened form that pages, tables and logs show (``0192f3a1…9c4e07``), with or
        without the dots, and the last eight digits or more, which are looked for among the newest
        100,000 jobs. JobNotFound; AmbiguousId names those it may be. A whole id is not looked up.
        """
        stored = id_as_stored(job_id)
        if is_whole(stored.lower()):
            return JobId(stored.lower())
        wanted = likenesses(stored)
        if not wanted:
            return stored  # like no id: it will not be found
        store = (await self._storage()).admin
        for likeness in wanted:
            found = await _alike(store, likeness)
            if len(found) > 1:
                more = len(found) > _CANDIDATES
                raise AmbiguousId(job_id, found[:_CANDIDATES], more=more)
            if found:
                return found[0]
        raise JobNotFound(job_id, newest=None if wanted[-1].first else NEWEST)


async def _alike(store: AdminStore, wanted: Likeness) -> Sequence[JobId]:
    """Look until there are more than anybody wants to choose from."""
    found: list[JobId] = []
    looked, after = 0, None
    while True:
        named = await store.named(wanted.first, wanted.last, after=after)
        found += named.ids
        looked, after = looked + named.looked, named.after
        far = not wanted.first and looked >= NEWEST
        if after is None or far or len(found) > _CANDIDATES:
            return found
