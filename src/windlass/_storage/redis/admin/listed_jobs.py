"""Jobs as people see them, from what lua/shared/shown.lua says of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from msgspec.structs import replace

from windlass._core.job.job import JobRecord
from windlass._storage.redis.io.records import job_of
from windlass._storage.shared.stored_text import metadata_of

__all__ = ["pairs", "shown_job"]


def shown_job(row: Sequence[Any]) -> JobRecord:
    """Return the whole job."""
    asked, kept, error, traceback, progress, held, throttled, why, metadata = row
    job = job_of(
        asked,
        kept,
        key_held=bool(held),
        error=error,
        traceback=traceback,
        progress=progress,
        throttled=throttled,
        why=why,
    )
    return replace(job, metadata=metadata_of(metadata)) if metadata else job


def pairs(flat: Sequence[Any]) -> Iterable[tuple[Any, Any]]:
    """Yield the pairs of a hash as Lua answers them."""
    return zip(islice(flat, 0, None, 2), islice(flat, 1, None, 2), strict=True)
