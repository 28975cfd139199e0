"""Jobs that operators enqueue: new calls, and copies of ended jobs."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

from windlass._admin.session import AdminSession
from windlass._client.client import needs_limits, new_job
from windlass._client.job_events import publish_expired_events
from windlass._core.flows.pending import has_pending
from windlass._core.job.event import enqueued_event
from windlass._core.job.job import JobId, JobRecord, NewJob
from windlass._core.job.state import TERMINAL
from windlass._core.values.names import check_text
from windlass._storage.protocol.actions import AuditNote
from windlass._storage.protocol.jobs import Inserted
from windlass._storage.protocol.storage import Storage
from windlass._tasks.limits import LimitDefinitions
from windlass._tasks.task import Call
from windlass.errors import InvalidArgument, JobNotFound, KeyConflict, WrongState

__all__ = ["enqueue_copy", "enqueue_new"]

_COPIES = 64
"""Copies of one job that one read looks for."""


async def enqueue_new(session: AdminSession, call: Call[Any], job_id: JobId) -> Inserted:
    """Store a call together with its audit record."""
    storage = await session.storage()
    new = new_job(call, session.settings, job_id)
    if needs_limits(call):
        await LimitDefinitions(storage.limits).keep(call.task.needs)
    note = session.note("jobs.enqueue", f"job {job_id}", f"task {new.task}, queue {new.queue}")
    return await _insert(session, storage, new, note)


async def enqueue_copy(session: AdminSession, job_id: JobId, key: str | None) -> JobId:
    """Store a copy of an ended job, and return its id.

    Without a ``key``, a copy that has not ended is the answer. With one, the copy of that key is.
    """
    storage = await session.storage()
    (old,) = await storage.admin.get([job_id])
    if old is None:
        raise JobNotFound(job_id)
    if has_pending(old.payload):
        message = (
            f"job {job_id} takes results of its flow, and a copy would be in no flow: requeue the "
            f"job, or retry the flow"
        )
        raise InvalidArgument(message)
    refusal = WrongState(job_id, old.state, "copy", "one that has ended")
    if old.state not in TERMINAL and key is None:
        raise refusal
    copies = _Copies(storage, old)
    new_id, made = await (copies.next() if key is None else copies.of(key))
    if made:
        return new_id
    if old.state not in TERMINAL:
        raise refusal
    note = await _note_of_copy(session, storage, old.id, new_id)
    answer = await _insert(session, storage, old.again(new_id), note)
    if not answer.created:
        raise KeyConflict(await session.masks.text(old.key or ""), answer.id)
    return new_id


async def _insert(
    session: AdminSession, storage: Storage, new: NewJob, note: AuditNote
) -> Inserted:
    (answer,) = await storage.orders.insert([new], note)
    if answer.created and not answer.repeated and session.bus.heard:
        session.bus.publish(enqueued_event(new))
    if answer.expired is not None:
        await publish_expired_events(storage, session.bus, [answer.expired])
    return answer


async def _note_of_copy(
    session: AdminSession, storage: Storage, job: JobId, copy: JobId
) -> AuditNote:
    """Make the audit record of a copy. Requests that cross each other make the same one."""
    note = session.note("jobs.requeue", f"job {job}", f"as job {copy}")
    minute = int((await storage.now()).timestamp() // 60)
    same = blake2b(f"{copy}\x1f{minute}".encode(), digest_size=16)
    return msgspec.structs.replace(note, id=same.hexdigest())


class _Copies:
    """The copies of one job. Their ids follow from the job's, so that a repeat finds them."""

    def __init__(self, storage: Storage, old: JobRecord) -> None:
        self._storage, self._old = storage, old

    async def of(self, key: str) -> tuple[JobId, bool]:
        """Return the id of the copy for ``key``, and whether it is stored."""
        check_text(key, "the key of a copy")
        job_id = self._old.copy_id(f"key {key}")
        (made,) = await self._storage.admin.get([job_id])
        return job_id, made is not None

    async def next(self) -> tuple[JobId, bool]:
        """Return the id of the copy that has not ended; else that of the next one.

        All who ask at the same time get the same id, so they make one copy.
        """
        first = 1
        while True:
            ids = [self._old.copy_id(f"copy {first + place}") for place in range(_COPIES)]
            made = await self._storage.admin.get(ids)
            for place in reversed(range(_COPIES)):
                job = made[place]
                if job is not None and job.state not in TERMINAL:
                    return ids[place], True
            last = max((place for place, job in enumerate(made) if job is not None), default=-1)
            if last + 1 < _COPIES:
                return ids[last + 1], False
            if None in made:  # old copies are gone: from the beginning
                return ids[made.index(None)], False
            first += _COPIES
