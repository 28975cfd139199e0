"""Shortened job ids, as pages, tables and logs show them."""

from __future__ import annotations

from collections.abc import Sequence

from windlass._admin.session import AdminSession
from windlass._core.job.ids import IdPattern, id_as_stored, id_patterns_of, is_full_id
from windlass._core.job.job import JobId
from windlass._storage.protocol.admin import AdminStore
from windlass.errors import AmbiguousId, JobNotFound

__all__ = ["NEWEST", "resolve_id"]

NEWEST = 100_000
"""Jobs among which the end of an id is looked for: no index has it."""
_CANDIDATES = 10


async def resolve_id(session: AdminSession, job_id: str) -> JobId:
    """Return the whole id for a shortened one. A whole id is not looked up."""
    stored = id_as_stored(job_id)
    if is_full_id(stored.lower()):
        return JobId(stored.lower())
    wanted = id_patterns_of(stored)
    if not wanted:
        message = (
            f"No job {job_id} is stored. Give the whole id (32 hex digits), a shortened one as "
            f"in 0192f3a1…9c4e07, or its last eight digits or more."
        )
        raise JobNotFound(job_id, message)
    store = (await session.storage()).admin
    for pattern in wanted:
        found = await _matching(store, pattern)
        if len(found) > 1:
            more = len(found) > _CANDIDATES
            raise AmbiguousId(job_id, found[:_CANDIDATES], more=more)
        if found:
            return found[0]
    if wanted[-1].first:
        raise JobNotFound(job_id)
    message = (
        f"None of the newest {NEWEST:,} jobs has an id that ends with {job_id}. Give the "
        f"first eight digits, too, as in 0192f3a1…9c4e07, or the whole id."
    )
    raise JobNotFound(job_id, message)


async def _matching(store: AdminStore, wanted: IdPattern) -> Sequence[JobId]:
    """Find ids until there are more than an error message names."""
    found: list[JobId] = []
    looked, after = 0, None
    while True:
        named = await store.named(wanted.first, wanted.last, after=after)
        found += named.ids
        looked, after = looked + named.looked, named.after
        far = not wanted.first and looked >= NEWEST
        if after is None or far or len(found) > _CANDIDATES:
            return found
