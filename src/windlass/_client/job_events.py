"""Events of edges that no worker took. Jobs are read for them, and only if something listens."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from windlass._core.job.event import action_event
from windlass._core.job.job import JobId, JobRecord
from windlass._core.job.state import TRANSITIONS, Verb
from windlass._observe.bus import Bus
from windlass._storage.protocol.storage import Storage
from windlass.errors import StorageError

__all__ = ["publish_action_events", "publish_expired_events"]

log = logging.getLogger("windlass")

_NONE: Mapping[JobId, JobRecord] = MappingProxyType({})


async def publish_action_events(
    storage: Storage,
    bus: Bus,
    verb: Verb,
    jobs: Sequence[JobId],
    seen: Mapping[JobId, JobRecord] = _NONE,
) -> None:
    """Publish one event for each of these jobs, which took this edge just now.

    ``seen``: the jobs as they were before, for an edge that leads out of several states, and for
    one that may be gone by now.
    """
    if not jobs or not bus.heard:
        return
    now = await storage.now()
    for job_id, found in zip(jobs, await storage.admin.get(jobs), strict=True):
        before = seen.get(job_id)
        job = found or before
        if job is not None:
            possible = before is not None and verb in TRANSITIONS[before.state]
            origin = before.state if before is not None and possible else None
            ended = job.finished_at if verb is not Verb.REQUEUE else None
            bus.publish(action_event(verb, job, ended or now, origin=origin))


async def publish_expired_events(storage: Storage, bus: Bus, jobs: Sequence[JobId]) -> None:
    """Publish the end of jobs that were discarded because their time had passed.

    What was done beside it is done: a store that is away now costs the events alone.
    """
    try:
        await publish_action_events(storage, bus, Verb.EXPIRE, jobs)
    except StorageError as error:
        log.debug("cannot publish the events of %d expired jobs: %s", len(jobs), error)
