"""Where jobs wait, are claimed and are finished."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from windlass._core.job.job import Claim, JobId, NewJob, Progress
from windlass._core.job.state import TERMINAL
from windlass._core.job.transition import Transition
from windlass._core.values.instants import instant_of, span_us
from windlass._storage.postgres.io.connection import RETRY_SECONDS, Row
from windlass._storage.postgres.io.database import PostgresDatabase
from windlass._storage.postgres.io.errors import FunctionError
from windlass._storage.postgres.io.records import STATES, known_ids
from windlass._storage.postgres.io.rows import claimed_jobs, stored_text
from windlass._storage.postgres.jobs.apply import (
    answers_of,
    by_seq,
    cooldown_args,
    flow_args,
    frame_args,
    metadata_args,
    start_args,
    success_args,
    transition_args,
)
from windlass._storage.postgres.jobs.insert import (
    alike_args,
    are_alike,
    check_size,
    extra_args,
    insert_answers,
    is_keyed,
    limits_arg,
    lone_args,
    plain_args,
    raise_if_key_busy,
)
from windlass._storage.postgres.jobs.turns import Turns
from windlass._storage.postgres.limits.limits import limit_error_of
from windlass._storage.protocol.jobs import (
    Applied,
    CancelAnswer,
    ClaimReply,
    Inserted,
    Outlook,
    Settled,
    Want,
)
from windlass._storage.shared.migrations import major_of, refuse_newer
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.shared.stored_text import note_text
from windlass._storage.shared.subscribers import NO_QUEUE, changed_queues
from windlass.errors import StorageReplaced, StoreBusy

__all__ = ["PostgresJobs"]

_SQL = load_sql("windlass._storage.postgres.sql", "jobs.sql")
_INSERT_ALIKE, _INSERT_PLAIN = _SQL["insert_alike"], _SQL["insert_plain"]
_INSERT, _INSERT_ONE = _SQL["insert"], _SQL["insert_one"]
_INSERT_KEYED, _INSERT_LIMITED = _SQL["insert_keyed"], _SQL["insert_limited"]
_CLAIM, _APPLY, _END_AND_CLAIM = _SQL["claim"], _SQL["apply"], _SQL["end_and_claim"]
_SUCCEED, _SUCCEED_UNKEPT = _SQL["succeed"], _SQL["succeed_unkept"]
_OUTLOOK, _ACTIVE, _VERSION = _SQL["outlook"], _SQL["active"], _SQL["version"]
_REPORT, _SETTLED, _CANCEL = _SQL["report"], _SQL["settled"], _SQL["cancel"]

_MANY = 2**31 - 1
_LARGE = 100
"""Jobs in a claim, or outcomes, that are worth a separate statement: the server carries out both at
the same time. Fewer share one."""
_SECONDS_EACH = 0.002
"""Seconds for storing a job on a slow server, beyond those of every call."""
_NONE = timedelta(0)


class PostgresJobs:
    """A `JobStore`. Every operation is one statement, and so one transaction; a worker's ends and
    its next claim may share one.
    """

    def __init__(self, database: PostgresDatabase, on_ended: Callable[[int], None]) -> None:
        """Make the store. ``on_ended`` gets the number of claims that an operation has ended."""
        self._db, self._on_ended = database, on_ended
        self._turns = Turns(self._end_and_claim)

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        if not jobs:
            return []
        check_size(jobs)
        try:
            rows, unsure = await self._insert(jobs)
        except FunctionError as refused:
            raise await limit_error_of(self._db, refused) from None
        met = ((place, holder, replaced) for place, holder, replaced in rows)
        answers = insert_answers(jobs, met, unsure=unsure)
        # No rows: all were stored.
        self._db.wake(
            changed_queues(jobs, answers) if rows else Counter([job.queue for job in jobs])
        )
        return answers

    def start_insert(
        self, jobs: Sequence[NewJob], told: Callable[[Sequence[Inserted]], None]
    ) -> asyncio.Future[Sequence[Inserted]]:
        """Implement `StartedInserts`."""
        return self._db.work.start(self._insert_and_tell(jobs, told))

    async def _insert_and_tell(
        self, jobs: Sequence[NewJob], told: Callable[[Sequence[Inserted]], None]
    ) -> Sequence[Inserted]:
        answers = await self.insert(jobs)
        told(answers)
        return answers

    def insert_here(self, jobs: Sequence[NewJob]) -> Sequence[Inserted] | None:
        """Implement `DirectInserts`, for one plain job."""
        args = lone_args(jobs[0]) if len(jobs) == 1 else None
        if args is None:
            return None
        sql, now, durable = self._db.sql(_INSERT_ONE), self._db.instant(), self._db.durable
        rows = self._db.fetch_here(sql, now, durable, *args)
        if rows is None or not rows[0][0]:
            return None
        self._db.wake_from_thread({jobs[0].queue: 1})
        return [Inserted(jobs[0].id, created=True)]

    async def _insert(self, jobs: Sequence[NewJob]) -> tuple[list[Row], bool]:
        """Answer also whether an earlier try may have stored them."""
        unsure = False
        if len(jobs) == 1 and (one := lone_args(jobs[0])) is not None:
            stored, unsure = await self._insert_one(one)
            if stored:
                return [], unsure
        rows, again = await self._insert_any(jobs)
        return rows, unsure or again

    async def _insert_one(self, args: Sequence[Any]) -> tuple[bool, bool]:
        """Answer whether it was stored. If not, its id is stored, and `_insert_any` compares."""
        sql, now, durable = self._db.sql(_INSERT_ONE), self._db.instant(), self._db.durable
        rows, unsure = await self._db.fetch_told(sql, now, durable, *args, at_most=RETRY_SECONDS)
        return rows[0][0], unsure

    async def _insert_any(self, jobs: Sequence[NewJob]) -> tuple[list[Row], bool]:
        at_most = RETRY_SECONDS + len(jobs) * _SECONDS_EACH
        now = (self._db.instant(), self._db.durable)
        limits = limits_arg(jobs) if jobs[0].limits else None
        if limits is not None:
            sql = self._db.sql(_INSERT_LIMITED)
            return await self._db.fetch_told(sql, *now, *plain_args(jobs), limits, at_most=at_most)
        extras = extra_args(jobs)
        if extras is None and are_alike(jobs):
            sql, alike = self._db.sql(_INSERT_ALIKE), alike_args(jobs)
            return await self._db.fetch_told(sql, *now, *alike, at_most=at_most)
        args: tuple[Any, ...] = (*now, *plain_args(jobs))
        if extras is None:
            return await self._db.fetch_told(self._db.sql(_INSERT_PLAIN), *args, at_most=at_most)
        if not is_keyed(jobs):
            return await self._db.fetch_told(self._db.sql(_INSERT), *args, *extras, at_most=at_most)
        # On a separate connection: a caller that waits for a key must not delay others.
        try:
            return await self._db.fetch_told(
                self._db.sql(_INSERT_KEYED), *args, *extras, at_most=at_most, aside=True
            )
        except StoreBusy as error:
            raise_if_key_busy(error)
            raise

    async def claim(
        self,
        worker: str,
        wants: Sequence[Want],
        *,
        total: int,
        solo: bool = False,
        head_start: timedelta = _NONE,
    ) -> ClaimReply:
        args = (
            self._db.instant(),
            worker,
            [want.queue for want in wants],
            [min(max(want.limit, 0), _MANY) for want in wants],
            min(max(total, 0), _MANY),
            solo,
            self._db.known,
            span_us(head_start),
        )
        try:
            if solo:
                *rows, about = await self._claim_alone(args)
            elif total >= _LARGE:
                *rows, about = await self._db.fetch_claims(self._db.sql(_CLAIM), *args)
            else:
                *rows, about = await self._turns.claim(args, self._claim_alone)
        except FunctionError as refused:
            refuse_newer(int(refused.detail), self._db.known, self._place)
        except StorageReplaced:
            # A newer schema may have another function in its place.
            await self._refuse_newer()
            raise
        self._db.timings.claims.add(len(rows))
        at, next_us, expired = about["due"], about["timeout"], about["extras"]
        if expired:
            self._db.wake()  # for those who wait for their results
        return ClaimReply(
            claimed_jobs(rows, at, worker),
            at,
            live=about["number"] == 1,
            next_at=None if next_us is None else instant_of(next_us),
            solo_due=about["attempt"] == 1,
            expired=expired or (),
        )

    async def _claim_alone(self, args: Sequence[Any]) -> list[Row]:
        return await self._db.fetch(self._db.sql(_CLAIM), *args)

    async def _succeed_alone(self, args: Sequence[Any]) -> list[Row]:
        return await self._db.fetch(self._db.sql(_SUCCEED), *args)

    async def _end_and_claim(self, ends: Sequence[Any], claim: Sequence[Any]) -> list[Row]:
        _, worker, queues, limits, total, _, known, head_start = claim
        asked = (worker, queues, limits, total, known, head_start)
        return await self._db.fetch(self._db.sql(_END_AND_CLAIM), *ends, *asked)

    @property
    def _place(self) -> str:
        return f"the schema {self._db.schema} at {self._db.work.where}"

    async def _refuse_newer(self) -> None:
        """Raise `SchemaTooNew` where the stored major version is newer than the known one."""
        with suppress(StorageReplaced):
            rows = await self._db.fetch(self._db.sql(_VERSION), reads=True)
            if major_of(rows[0][0] or 0) > major_of(self._db.known):
                refuse_newer(rows[0][0], self._db.known, self._place)

    async def apply(self, transitions: Sequence[Transition]) -> Applied:
        order = by_seq(transitions)
        ordered = [transitions[place] for place in order]
        alike = success_args(ordered)
        now, durable, left_out = self._db.instant(), self._db.durable, None
        if alike is not None:
            args = (now, durable, *alike)
            if not ordered[0].keep:
                rows = await self._db.fetch(self._db.sql(_SUCCEED_UNKEPT), *args)
            elif len(ordered) >= _LARGE:
                rows = await self._succeed_alone(args)
            else:
                rows = await self._turns.end(args, self._succeed_alone)
            ((at, *answers, frees),) = rows
        else:
            args = transition_args(ordered)
            twice = len(set(args[0])) < len(ordered)
            flow = (
                *cooldown_args(ordered, order),
                frame_args(ordered),
                start_args(ordered),
                metadata_args(ordered),
                flow_args(ordered, now),
            )
            try:
                ((at, left_out, *answers),) = await self._db.fetch(
                    self._db.sql(_APPLY), now, durable, *args, twice, *flow
                )
                frees = True
            except FunctionError as refused:
                raise await limit_error_of(self._db, refused) from None
        self._db.wake(None if frees else {NO_QUEUE})
        self._db.timings.finishes.add(len(ordered))
        self._on_ended(len(ordered))
        found = dict(zip(order, answers_of(ordered, *answers), strict=True))
        return Applied(at, [found[place] for place in range(len(order))], left_out or ())

    async def active(self, queues: Sequence[str]) -> bool:
        return await self._asked(_ACTIVE, list(queues))

    async def outlook(self, queues: Sequence[str]) -> Outlook:
        ((at, claimable, next_us),) = await self._db.fetch(
            self._db.sql(_OUTLOOK), self._db.instant(), list(queues), self._db.known, reads=True
        )
        return Outlook(at, claimable, None if next_us is None else instant_of(next_us))

    async def _asked(self, statement: str, *args: object) -> bool:
        sql = self._db.sql(statement)
        rows = await self._db.fetch(sql, self._db.instant(), *args, reads=True)
        return bool(rows[0][0])

    async def report(self, progress: Sequence[tuple[Claim, Progress]]) -> None:
        if not progress:
            return
        await self._db.fetch(
            self._db.sql(_REPORT),
            [claim.seq for claim, _ in progress],
            [claim.number for claim, _ in progress],
            [float(done.fraction) for _, done in progress],
            [stored_text(note_text(done)) for _, done in progress],
        )

    async def settled(self, ids: Sequence[JobId]) -> Sequence[Settled]:
        rows = await self._db.fetch(self._db.sql(_SETTLED), known_ids(ids), reads=True)
        found = {row["id"].hex(): row for row in rows}
        return [answer for job in ids if (answer := _settled(job, found.get(job))) is not None]

    async def cancel(self, ids: Sequence[JobId]) -> Sequence[CancelAnswer]:
        known = known_ids(ids)
        rows = await self._db.fetch_aside(
            self._db.sql(_CANCEL), self._db.instant(), self._db.durable, known
        )
        self._db.wake()
        found = {
            job.hex: CancelAnswer(answer) for job, answer in zip(known, rows[0][0], strict=True)
        }
        answers: list[CancelAnswer] = []
        for job in ids:
            answer = found.get(job, CancelAnswer.UNKNOWN)
            answers.append(answer)
            if answer is CancelAnswer.CANCELLED:
                found[job] = CancelAnswer.TOO_LATE  # named twice: the first one did it
        return answers


def _settled(job: JobId, row: Row | None) -> Settled | None:
    if row is None:
        return Settled(job, None)
    state = STATES[row["state"]]
    if state not in TERMINAL:
        return None
    return Settled(
        job,
        state,
        row["result"],
        row["error_kind"] or "",
        row["error_message"] or "",
        row["reason"],
    )
