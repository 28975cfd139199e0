"""Events of edges that no worker took. Jobs are read for them, and only if something listens."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from windlass.core.event import ordered
from windlass.core.job import JobId
from windlass.core.state import TRANSITIONS, State, Verb
from windlass.errors import StorageError
from windlass.observe.bus import Bus
from windlass.storage.protocol import Storage

__all__ = ["tell_expired", "tell_ordered"]

log = logging.getLogger("windlass")

_NONE: Mapping[JobId, State] = MappingProxyType({})


async def tell_ordered(
    storage: Storage,
    bus: Bus,
    verb: Verb,
    jobs: Sequence[JobId],
    origins: Mapping[JobId, State] = _NONE,
) -> None:
    """Publish one event for each of these jobs, which took this edge just now.

    ``origins``: the states they were last seen in, for an edge that leads out of several.
    """
    if not jobs or not bus.heard:
        return
    now = await storage.now()
    for job in await storage.admin.get(jobs):
        if job is not None:
            seen = origins.get(job.id)
            origin = seen if seen is not None and verb in TRANSITIONS[seen] else None
            ended = job.finished_at if job.state is not State.WAITING else None
            bus.publish(ordered(verb, job, ended or now, origin=origin))


async def tell_expired(storage: Storage, bus: Bus, jobs: Sequence[JobId]) -> None:
    """Publish the end of jobs that were discarded because their time had passed.

    What was done beside it is done: a store that is away now costs the events alone.
    """
    try:
        await tell_ordered(storage, bus, Verb.EXPIRE, jobs)
    except StorageError as error:
        log.debug("cannot tell of %d expired jobs: %s", len(jobs), error)
