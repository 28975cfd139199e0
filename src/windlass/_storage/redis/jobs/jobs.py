"""Where jobs wait, are claimed and are finished."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from windlass._core.job.job import Claim, JobId, NewJob, Progress
from windlass._core.job.transition import Transition
from windlass._core.values.instants import instant_of, span_us
from windlass._storage.protocol.actions import ActionResult
from windlass._storage.protocol.jobs import (
    Applied,
    CancelAnswer,
    ClaimReply,
    Inserted,
    Outlook,
    Settled,
    Want,
)
from windlass._storage.protocol.wakeups import Topic
from windlass._storage.redis.admin.actions import ANSWERS
from windlass._storage.redis.io.database import Argument, RedisDatabase
from windlass._storage.redis.io.records import settled_of
from windlass._storage.redis.io.scripts import script
from windlass._storage.redis.jobs import apply, insert
from windlass._storage.redis.jobs.claim import UnreadableJob, read_claim
from windlass._storage.shared.job_ids import known_id
from windlass._storage.shared.stored_text import note_text
from windlass._storage.shared.subscribers import changed_queues

__all__ = ["RedisJobs"]

log = logging.getLogger("windlass")

_INSERT, _CLAIM, _APPLY, _CANCEL = (script(name) for name in ("insert", "claim", "apply", "cancel"))
_OUTLOOK, _ACTIVE, _REPORT, _SETTLED = (
    script(name) for name in ("outlook", "active", "report", "settled")
)
_DAMAGED = script("damaged")

_CANCELLED = {
    ActionResult.DONE: CancelAnswer.CANCELLED,
    ActionResult.REQUESTED: CancelAnswer.REQUESTED,
    ActionResult.WRONG_STATE: CancelAnswer.TOO_LATE,
    ActionResult.UNKNOWN: CancelAnswer.UNKNOWN,
}

_pack = msgspec.msgpack.Encoder().encode
_NONE = timedelta(0)


class RedisJobs:
    """A `JobStore`."""

    def __init__(self, database: RedisDatabase) -> None:
        self._db = database
        self._breakers = False
        """Whether the server has said that there are any: none ever goes."""

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        if not jobs:
            return []
        reply, unsure = await self._db.run_told(_INSERT, *insert.insert_args(jobs))
        answers = insert.insert_answers(jobs, reply, unsure=unsure)
        self._db.wake(changed_queues(jobs, answers))
        return answers

    def insert_here(self, jobs: Sequence[NewJob]) -> Sequence[Inserted] | None:
        """Implement `DirectInserts`."""
        reply = self._db.run_here(_INSERT, *insert.insert_args(jobs))
        if reply is None:
            return None
        answers = insert.insert_answers(jobs, reply)
        self._db.wake_from_thread(changed_queues(jobs, answers))
        return answers

    async def claim(
        self,
        worker: str,
        wants: Sequence[Want],
        *,
        total: int,
        solo: bool = False,
        head_start: timedelta = _NONE,
    ) -> ClaimReply:
        wanted: list[Argument] = [worker, total, "1" if solo else "", span_us(head_start)]
        for want in wants:
            wanted += (want.queue, want.limit)
        taken = read_claim(worker, await self._db.run(_CLAIM, *wanted))
        self._db.timings.claims.add(len(taken.reply.jobs))
        for job in taken.aside:
            log.error("job %s cannot be read; its record was moved to the list of dead jobs", job)
        if taken.unread:
            await self._fail(worker, taken.unread)
        if taken.reply.expired or taken.aside:
            self._db.wake()  # for those who wait for their results
        return taken.reply

    async def _fail(self, worker: str, unread: Sequence[UnreadableJob]) -> None:
        """Fail jobs that cannot be decoded at once: no other worker could run them either."""
        given: list[Argument] = [worker]
        for job in unread:
            given += (job.id, job.number, _blame(job.reason))
            log.error("job %s cannot be read and has failed: %s", job.id.hex(), job.reason)
        await self._db.run(_DAMAGED, *given)
        self._db.wake()

    async def apply(self, transitions: Sequence[Transition]) -> Applied:
        batch = apply.apply_batch_of(transitions, breakers=self._breakers)
        reply = await self._db.run(_APPLY, *batch.items)
        if reply[0] == b"order":
            self._breakers = True
            return await self.apply(transitions)
        self._db.timings.finishes.add(len(transitions))
        self._db.wake()
        return apply.apply_answers(reply, batch.order)

    async def outlook(self, queues: Sequence[str]) -> Outlook:
        at, claimable, next_at = await self._db.run(_OUTLOOK, *queues)
        opens = None if next_at is None else instant_of(next_at)
        return Outlook(instant_of(at), bool(claimable), opens)

    async def active(self, queues: Sequence[str]) -> bool:
        return bool(await self._db.run(_ACTIVE, *queues))

    async def report(self, progress: Sequence[tuple[Claim, Progress]]) -> None:
        given: list[Argument] = []
        for claim, done in progress:
            said = _pack((float(done.fraction), note_text(done)))
            given += (known_id(claim.job), claim.number, claim.seq, said)
        await self._db.run(_REPORT, *given)

    async def settled(self, ids: Sequence[JobId]) -> Sequence[Settled]:
        reply = await self._db.run(_SETTLED, *(known_id(job) for job in ids))
        answers: list[Settled] = []
        for job, record, said in zip(ids, reply[::2], reply[1::2], strict=True):
            if record is None:
                answers.append(Settled(job, None))
            elif record:
                answers.append(settled_of(job, record, said))
        return answers

    async def cancel(self, ids: Sequence[JobId]) -> Sequence[CancelAnswer]:
        answers = await self._db.run(_CANCEL, *(known_id(job) for job in ids))
        self._db.wake(topics={Topic.CANCEL})
        return [_CANCELLED[ANSWERS[character]] for character in answers]


def _blame(reason: str) -> str:
    return (
        f"This job's record cannot be read, so it was not run: {reason}. Its record is in the "
        f"list of dead jobs; discard the job and enqueue it again."
    )
