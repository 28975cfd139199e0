"""Orders for one job: done or refused, recorded, and told on the bus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any

import msgspec

from windlass.admin.jobs import JobDesk
from windlass.core.event import enqueued
from windlass.core.instant import aware
from windlass.core.job import Job, JobId
from windlass.core.state import TERMINAL, Verb
from windlass.core.text import check_queue, check_text
from windlass.errors import InvalidArgument, JobNotFound, KeyConflict, WrongState
from windlass.options import check_priority
from windlass.storage.answers import CancelAnswer
from windlass.storage.looks import JobFilter
from windlass.storage.ordering import (
    AuditNote,
    Cancel,
    Delete,
    Discard,
    Edit,
    Order,
    Ordered,
    Requeue,
    RunNow,
)
from windlass.storage.protocol import Storage
from windlass.telling import tell_expired, tell_ordered

__all__ = ["NEEDS", "OrderDesk", "detail_of", "edit_of", "what_of", "word_of"]

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


def word_of(order: Order) -> str:
    """What an order is called."""
    return _WORDS[type(order)]


def what_of(order: Order) -> str:
    """What an order is called in the record."""
    return f"jobs.{word_of(order).replace(' ', '-')}"


def detail_of(order: Order) -> str:
    """What else there is to say of it there."""
    match order:
        case Discard(reason=reason):
            return reason
        case Edit(due=due, priority=priority, queue=queue):
            said = {"due": due and due.isoformat(), "priority": priority, "queue": queue}
            return ", ".join(f"{name}={value}" for name, value in said.items() if value is not None)
        case _:
            return ""


class OrderDesk(JobDesk):
    """The part of ``app.admin`` that orders something for one job."""

    async def requeue(self, job_id: str, *, as_new: bool = False, key: str | None = None) -> Job:
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

    async def _again(self, job_id: str, key: str | None) -> Job:
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
            self._bus.publish(enqueued(old.again(new_id)))
        if answer.expired is not None:
            await tell_expired(storage, self._bus, [answer.expired])
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
            case Ordered.DONE:
                return CancelAnswer.CANCELLED
            case Ordered.REQUESTED:
                return CancelAnswer.REQUESTED
            case Ordered.UNKNOWN:
                return CancelAnswer.UNKNOWN
            case _:
                return CancelAnswer.TOO_LATE

    async def run_now(self, job_id: str) -> bool:
        """Make a waiting job due now; False when it is not waiting."""
        return await self._answer(RunNow(), job_id) is Ordered.DONE

    async def delete(self, job_id: str) -> bool:
        """Remove a job with all that is stored of it. A running one is asked to end instead:
        False, delete it again when it has ended.
        """
        return await self._order(Delete(), job_id) is Ordered.DONE

    async def edit(
        self,
        job_id: str,
        *,
        due: datetime | None = None,
        priority: int | None = None,
        queue: str | None = None,
    ) -> Job:
        """Give a waiting job another due time, priority or queue."""
        order, job_id = edit_of(due=due, priority=priority, queue=queue), await self.resolve(job_id)
        await self._order(order, job_id)
        return await self.get(job_id)

    async def _order(self, order: Order, job_id: str) -> Ordered:
        """Carry it out, or say why not."""
        job_id = await self.resolve(job_id)
        answer = await self._answer(order, job_id)
        if answer in (Ordered.DONE, Ordered.REQUESTED):
            return answer
        (job,) = await (await self._storage()).admin.get([job_id])
        if answer is Ordered.UNKNOWN or job is None:
            raise JobNotFound(job_id)
        if answer is Ordered.CONFLICT:
            raise KeyConflict(await self._shades.text(job.key or ""), await self._holder(job))
        raise WrongState(job_id, job.state, word_of(order), NEEDS[type(order)])

    async def _answer(self, order: Order, job_id: str) -> Ordered:
        wanted = await self.resolve(job_id)
        note = self._note(what_of(order), f"job {wanted}", detail_of(order))
        (answer,) = await self._carry_out(order, [wanted], note)
        return answer

    async def _carry_out(
        self, order: Order, ids: Sequence[JobId], note: AuditNote
    ) -> Sequence[Ordered]:
        storage = await self._storage()
        verb = _VERBS.get(type(order))
        seen: dict[JobId, Job] = {}
        if verb is Verb.REQUEUE and self._bus.heard:
            # The only order that leads out of several states: looked at before, for the event.
            found = await storage.admin.get(ids)
            seen = {job.id: job for job in found if job is not None}
        answers = await storage.orders.order(order, ids, note)
        if verb is not None:
            pairs = zip(ids, answers, strict=True)
            done = [job for job, answer in pairs if answer is Ordered.DONE]
            await tell_ordered(storage, self._bus, verb, done, seen)
        return answers

    async def _holder(self, job: Job) -> str:
        """Who has its key, as far as that can still be told."""
        alike = await (await self._storage()).admin.find(JobFilter(key=job.key), limit=100)
        # An ended one, too, may hold its key: for a time.
        return next((one.id for one in alike if one.key_held), "another job")


class _Copies:
    """The jobs that were made of one."""

    def __init__(self, storage: Storage, old: Job) -> None:
        self._storage, self._old = storage, old

    async def of(self, key: str) -> tuple[JobId, Job | None]:
        """The copy of an order: its id, and itself if it is made."""
        check_text(key, "the key of a copy")
        job_id = self._old.copy_id(f"key {key}")
        (made,) = await self._storage.admin.get([job_id])
        return job_id, made

    async def next(self) -> tuple[JobId, Job | None]:
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
