"""Orders that meet claims, ends and each other: every job is one's or the other's, never both's."""

from __future__ import annotations

import asyncio

from windlass._core.job.state import State
from windlass._core.job.transition import succeed
from windlass._storage.protocol.actions import ActionResult, Cancel, Delete, Edit, Requeue
from windlass._storage.protocol.jobs import Verdict
from windlass._storage.protocol.storage import Storage
from windlass.testing.conformance.steps import (
    a_job,
    a_note,
    add,
    at_most,
    claim,
    end,
    enlist,
    ids,
    keyed,
    limited,
    obeyed,
)

__all__ = ["ActionRaceConformance"]

ROUNDS, CROWD = 4, 8
DONE, REQUESTED, WRONG_STATE = ActionResult.DONE, ActionResult.REQUESTED, ActionResult.WRONG_STATE


class ActionRaceConformance:
    """Concurrent calls, several times over: an order of events is left to chance."""

    async def test_a_job_is_deleted_or_claimed(self, storage: Storage) -> None:
        await enlist(storage)
        for _ in range(ROUNDS):
            jobs = await add(storage, *(a_job() for _ in range(CROWD)))
            answers, claimed = await asyncio.gather(
                obeyed(storage, Delete(), *jobs), claim(storage, CROWD // 2)
            )
            running = {*ids(claimed)}
            kept = {job.id for job in await storage.admin.get(jobs) if job is not None}
            asked = {job for job, one in zip(jobs, answers, strict=True) if one is REQUESTED}
            assert kept == running == asked
            await end(storage, *(succeed(job, by="w1", result=None) for job in claimed))

    async def test_a_job_is_moved_or_claimed(self, storage: Storage) -> None:
        await at_most(storage, ten=10)
        for _ in range(ROUNDS):
            plain, lined = (a_job() for _ in range(4)), (limited("ten") for _ in range(4))
            jobs = await add(storage, *plain, *lined)
            answers, here = await asyncio.gather(
                obeyed(storage, Edit(queue="b"), *jobs), claim(storage, CROWD // 2)
            )
            moved = {job for job, one in zip(jobs, answers, strict=True) if one is DONE}
            there = await claim(storage, CROWD, queue="b")
            assert {*ids(there)} == moved
            assert {*ids(here)} == {*jobs} - moved
            claimed = [*here, *there]
            await end(storage, *(succeed(job, by="w1", result=None) for job in claimed))

    async def test_a_job_is_requeued_by_one_of_two_who_name_them_in_another_order(
        self, storage: Storage
    ) -> None:  # A4, ADMIN-9
        await at_most(storage, ten=10)
        mixed = [
            *(a_job() for _ in range(3)),
            *(limited("ten") for _ in range(3)),
            *(keyed(key) for key in ("a", "b")),
        ]
        jobs = await add(storage, *mixed)
        for _ in range(ROUNDS):
            await storage.jobs.cancel(jobs)
            there, back = await asyncio.gather(
                obeyed(storage, Requeue(), *jobs), obeyed(storage, Requeue(), *jobs[::-1])
            )
            for pair in zip(there, back[::-1], strict=True):
                assert sorted(pair) == [DONE, WRONG_STATE]

    async def test_a_cancel_and_an_end_both_come_through(self, storage: Storage) -> None:
        await at_most(storage, ten=10)
        for _ in range(ROUNDS):
            await add(storage, *(limited("ten") for _ in range(3)), *(a_job() for _ in range(5)))
            claimed = await claim(storage, CROWD)
            jobs = ids(claimed)
            answers, ends = await asyncio.gather(
                obeyed(storage, Cancel(), *jobs[::-1]),
                end(storage, *(succeed(job, by="w1", result=None) for job in claimed)),
            )
            assert {*answers} <= {REQUESTED, WRONG_STATE}
            assert {answer.verdict for answer in ends} == {Verdict.APPLIED}
            found = await storage.admin.get(jobs)
            assert {job and job.state for job in found} == {State.SUCCEEDED}

    async def test_an_action_and_its_repeat_at_the_same_time_are_one(
        self, storage: Storage
    ) -> None:
        for _ in range(ROUNDS):
            jobs, note = await add(storage, *(a_job() for _ in range(3))), a_note()
            one, two = await asyncio.gather(
                *(obeyed(storage, Delete(), *jobs, note=note) for _ in range(2))
            )
            assert one == two == [DONE, DONE, DONE]
        assert len(await storage.orders.audits(limit=100)) == ROUNDS
