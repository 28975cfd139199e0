"""Orders for one job: done or refused, recorded, and told on the bus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from windlass._admin.jobs.read import JobReadAdmin
from windlass._admin.session import AdminSession
from windlass._client.client import needs_limits, new_job, note_ids
from windlass._client.job_events import publish_action_events, publish_expired_events
from windlass._core.job.event import enqueued_event
from windlass._core.job.ids import job_id_of
from windlass._core.job.job import JobId, JobRecord
from windlass._core.job.state import TERMINAL, Verb
from windlass._core.values.instants import aware
from windlass._core.values.names import check_queue, check_text
from windlass._storage.protocol.actions import (
    ActionResult,
    AuditNote,
    Cancel,
    Delete,
    Discard,
    Edit,
    JobAction,
    Requeue,
    RunNow,
)
from windlass._storage.protocol.job_list import JobFilter
from windlass._storage.protocol.jobs import CancelAnswer, Inserted
from windlass._storage.protocol.storage import Storage
from windlass._tasks.limits import LimitDefinitions
from windlass._tasks.options import check_priority
from windlass._tasks.task import Call
from windlass.errors import InvalidArgument, JobNotFound, KeyConflict, WrongState

if TYPE_CHECKING:
    from uuid import UUID

__all__ = [
    "NEEDS",
    "EnqueueAdmin",
    "JobActionAdmin",
    "action_name_of",
    "audit_detail_of",
    "audit_name_of",
    "edit_of",
]

NEEDS: Mapping[type[Any], str] = {
    Requeue: "failed, cancelled or discarded",
    Discard: "failed",
    Cancel: "waiting or running",
    RunNow: "waiting",
    Delete: "stored",
    Edit: "waiting",
}
"""The states each order is for, in words."""
_WORDS: Mapping[type[Any], str] = {
    Requeue: "requeue",
    Discard: "discard",
    Cancel: "cancel",
    RunNow: "run now",
    Delete: "delete",
    Edit: "edit",
}
_COPIES = 64
"""Copies of one job that are looked for at once."""
_VERBS: Mapping[type[Any], Verb] = {
    Requeue: Verb.REQUEUE,
    Discard: Verb.DISCARD,
    Cancel: Verb.CANCEL,
}


class EnqueueAdmin(AdminSession):
    """The part of ``app.admin`` that enqueues."""

    async def enqueue(self, call: Call[Any], *, id: str | UUID | None = None) -> Inserted:  # noqa: A002
        """Store a call made by ``task.call(…)`` or ``task.options(…).call(…)``, with a record of
        who asked for it. Code of an application uses ``task.enqueue``, which is quicker.

        ``id``: the job's; the same call with the same id stores nothing twice.
        """
        job_id = self._new_ids(1)[0] if id is None else job_id_of(id)
        try:
            return await self._enqueue(call, job_id)
        except BaseException as error:
            note_ids(error, (job_id,))
            raise

    async def _enqueue(self, call: Call[Any], job_id: JobId) -> Inserted:
        storage = await self._storage()
        new = new_job(call, self._settings, job_id)
        if needs_limits(call):
            await LimitDefinitions(storage.limits).keep(call.task.needs)
        note = self._note("jobs.enqueue", f"job {job_id}", f"task {new.task}, queue {new.queue}")
        (answer,) = await storage.orders.insert([new], note)
        if answer.created and not answer.repeated and self._bus.heard:
            self._bus.publish(enqueued_event(new))
        if answer.expired is not None:
            await publish_expired_events(storage, self._bus, [answer.expired])
        return answer


def action_name_of(order: JobAction) -> str:
    """What an order is called."""
    return _WORDS[type(order)]


def audit_name_of(order: JobAction) -> str:
    """What an order is called in the record."""
    return f"jobs.{action_name_of(order).replace(' ', '-')}"


def audit_detail_of(order: JobAction) -> str:
    """What else there is to say of it there."""
    match order:
        case Discard(reason=reason):
            return reason
        case Edit(due=due, priority=priority, queue=queue):
            said = {"due": due and due.isoformat(), "priority": priority, "queue": queue}
            return ", ".join(f"{name}={value}" for name, value in said.items() if value is not None)
        case _:
            return ""


class JobActionAdmin(JobReadAdmin):
    """The part of ``app.admin`` that orders something for one job."""

    async def requeue(
        self, job_id: str, *, as_new: bool = False, key: str | None = None
    ) -> JobRecord:
        """Run a failed, cancelled or discarded job again, with a fresh budget of attempts.

        ``as_new``: make another job of it, with an id of its own, and leave the old one as it is;
        also of one that succeeded. Of several who requeue one job at once one succeeds.

        One copy is made at a time: while the last one has not ended, it is the answer. With a
        ``key``, one copy is made for each key, whether it has ended or not: say the same key when
        you repeat an order whose answer was lost, another one for another copy.
        """
        if as_new:
            return await self._again(job_id, key)
        if key is not None:
            raise InvalidArgument("key= is for a copy: say as_new=True, or leave key= out")
        job_id = await self.resolve(job_id)
        await self._order(Requeue(), job_id)
        return await self.get(job_id)

    async def _again(self, job_id: str, key: str | None) -> JobRecord:
        storage, job_id = await self._storage(), await self.resolve(job_id)
        (old,) = await storage.admin.get([job_id])
        if old is None:
            raise JobNotFound(job_id)
        refusal = WrongState(job_id, old.state, "copy", "one that has ended")
        if old.state not in TERMINAL and key is None:
            raise refusal
        copies = _Copies(storage, old)
        new_id, made = await (copies.next() if key is None else copies.of(key))
        if made is not None:
            return made
        if old.state not in TERMINAL:
            raise refusal
        note = await self._note_of_copy(old.id, new_id)
        (answer,) = await storage.orders.insert([old.again(new_id)], note)
        if not answer.created:
            raise KeyConflict(await self._shades.text(old.key or ""), answer.id)
        if not answer.repeated and self._bus.heard:
            self._bus.publish(enqueued_event(old.again(new_id)))
        if answer.expired is not None:
            await publish_expired_events(storage, self._bus, [answer.expired])
        return await self.get(new_id)

    async def _note_of_copy(self, job: JobId, copy: JobId) -> AuditNote:
        """The record of a copy: one, also of orders that cross each other."""
        note = self._note("jobs.requeue", f"job {job}", f"as job {copy}")
        minute = int((await self.now()).timestamp() // 60)
        same = blake2b(f"{copy}\x1f{minute}".encode(), digest_size=16)
        return msgspec.structs.replace(note, id=same.hexdigest())

    async def discard(self, job_id: str, *, reason: str = "discarded by an operator") -> None:
        """Give up on a failed job for good."""
        await self._order(Discard(reason), job_id)

    async def cancel(self, job_id: str) -> CancelAnswer:
        """Ask for a job's end."""
        match await self._answer(Cancel(), job_id):
            case ActionResult.DONE:
                return CancelAnswer.CANCELLED
            case ActionResult.REQUESTED:
                return CancelAnswer.REQUESTED
            case ActionResult.UNKNOWN:
                return CancelAnswer.UNKNOWN
            case _:
                return CancelAnswer.TOO_LATE

    async def run_now(self, job_id: str) -> bool:
        """Make a waiting job due now; False when it is not waiting."""
        return await self._answer(RunNow(), job_id) is ActionResult.DONE

    async def delete(self, job_id: str) -> bool:
        """Remove a job with all that is stored of it. A running one is asked to end instead:
        False, delete it again when it has ended.
        """
        return await self._order(Delete(), job_id) is ActionResult.DONE

    async def edit(
        self,
        job_id: str,
        *,
        due: datetime | None = None,
        priority: int | None = None,
        queue: str | None = None,
    ) -> JobRecord:
        """Give a waiting job another due time, priority or queue."""
        order, job_id = edit_of(due=due, priority=priority, queue=queue), await self.resolve(job_id)
        await self._order(order, job_id)
        return await self.get(job_id)

    async def _order(self, order: JobAction, job_id: str) -> ActionResult:
        """Carry it out, or say why not."""
        job_id = await self.resolve(job_id)
        answer = await self._answer(order, job_id)
        if answer in (ActionResult.DONE, ActionResult.REQUESTED):
            return answer
        (job,) = await (await self._storage()).admin.get([job_id])
        if answer is ActionResult.UNKNOWN or job is None:
            raise JobNotFound(job_id)
        if answer is ActionResult.CONFLICT:
            raise KeyConflict(await self._shades.text(job.key or ""), await self._holder(job))
        raise WrongState(job_id, job.state, action_name_of(order), NEEDS[type(order)])

    async def _answer(self, order: JobAction, job_id: str) -> ActionResult:
        wanted = await self.resolve(job_id)
        note = self._note(audit_name_of(order), f"job {wanted}", audit_detail_of(order))
        (answer,) = await self._carry_out(order, [wanted], note)
        return answer

    async def _carry_out(
        self, order: JobAction, ids: Sequence[JobId], note: AuditNote
    ) -> Sequence[ActionResult]:
        storage = await self._storage()
        verb = _VERBS.get(type(order))
        seen: dict[JobId, JobRecord] = {}
        if verb is Verb.REQUEUE and self._bus.heard:
            # The only order that leads out of several states: looked at before, for the event.
            found = await storage.admin.get(ids)
            seen = {job.id: job for job in found if job is not None}
        answers = await storage.orders.order(order, ids, note)
        if verb is not None:
            pairs = zip(ids, answers, strict=True)
            done = [job for job, answer in pairs if answer is ActionResult.DONE]
            await publish_action_events(storage, self._bus, verb, done, seen)
        return answers

    async def _holder(self, job: JobRecord) -> str:
        """Who has its key, as far as that can still be told."""
        alike = await (await self._storage()).admin.find(JobFilter(key=job.key), limit=100)
        # An ended one, too, may hold its key: for a time.
        return next((one.id for one in alike if one.key_held), "another job")


class _Copies:
    """The jobs that were made of one."""

    def __init__(self, storage: Storage, old: JobRecord) -> None:
        self._storage, self._old = storage, old

    async def of(self, key: str) -> tuple[JobId, JobRecord | None]:
        """The copy of an order: its id, and itself if it is made."""
        check_text(key, "the key of a copy")
        job_id = self._old.copy_id(f"key {key}")
        (made,) = await self._storage.admin.get([job_id])
        return job_id, made

    async def next(self) -> tuple[JobId, JobRecord | None]:
        """The copy that has not ended; else the id of the next one. All who ask now are answered
        the same, so those who come at once make one.
        """
        first = 1
        while True:
            ids = [self._old.copy_id(f"copy {first + place}") for place in range(_COPIES)]
            made = await self._storage.admin.get(ids)
            for place in reversed(range(_COPIES)):
                job = made[place]
                if job is not None and job.state not in TERMINAL:
                    return ids[place], job
            last = max((place for place, job in enumerate(made) if job is not None), default=-1)
            if last + 1 < _COPIES:
                return ids[last + 1], None
            if None in made:  # old copies are gone: from the beginning
                return ids[made.index(None)], None
            first += _COPIES


def edit_of(
    *, due: datetime | None = None, priority: int | None = None, queue: str | None = None
) -> Edit:
    """A checked `Edit`."""
    if due is None and priority is None and queue is None:
        message = "say what to change: due, priority or queue"
        raise InvalidArgument(message)
    if due is not None:
        aware(due, "due")
    if priority is not None:
        check_priority(priority)
    if queue is not None:
        check_queue(queue)
    return Edit(due=due, priority=priority, queue=queue)
