"""A turn that ends a member and claims the next one: who is woken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from windlass._core.job.job import ClaimedJob
from windlass._core.job.transition import succeed
from windlass._storage.postgres import PostgresStorage, open_postgres
from windlass._storage.protocol.jobs import ClaimReply, Want
from windlass._storage.shared.subscribers import NO_QUEUE
from windlass.testing.conformance.flows.steps import Plan, start
from windlass.testing.conformance.steps import claim, enlist

ENDS = [{NO_QUEUE}]
"""Hints about ended jobs only."""
ANY = [None]
"""Hints about any queue."""


@pytest.fixture
async def storage(postgres_url: str) -> AsyncIterator[PostgresStorage]:
    opened = await open_postgres(postgres_url)
    yield opened
    await opened.close()


@pytest.fixture
def hints(storage: PostgresStorage, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    found: list[object] = []
    monkeypatch.setattr(storage._db, "wake", found.append)
    return found


async def turn(storage: PostgresStorage, job: ClaimedJob, queue: str) -> ClaimReply:
    """End a job and claim another one, asked for at once."""
    _, reply = await asyncio.gather(
        storage.jobs.apply([succeed(job, by="w1", result=b"1")]),
        storage.jobs.claim("w1", [Want(queue, 1)], total=1),
    )
    return reply


async def first_of(storage: PostgresStorage, plan: Plan) -> ClaimedJob:
    await enlist(storage, "w1")
    await start(storage, plan)
    (job,) = await claim(storage)
    return job


async def test_a_turn_that_claims_the_only_job_it_made_ready_wakes_no_other_worker(
    storage: PostgresStorage, hints: list[object]
) -> None:
    plan = Plan()
    plan.part("a")
    plan.part("b", after=["a"])
    first = await first_of(storage, plan)
    hints.clear()
    reply = await turn(storage, first, "default")
    assert [job.task for job in reply.jobs] == ["b"]
    assert hints == ENDS


async def test_a_turn_that_leaves_the_job_it_made_ready_wakes_others(
    storage: PostgresStorage, hints: list[object]
) -> None:
    plan = Plan()
    plan.part("a")
    plan.part("b", after=["a"])
    first = await first_of(storage, plan)
    hints.clear()
    reply = await turn(storage, first, "elsewhere")
    assert list(reply.jobs) == []
    assert hints == ANY


async def test_a_turn_that_makes_several_jobs_ready_wakes_others(
    storage: PostgresStorage, hints: list[object]
) -> None:
    plan = Plan()
    plan.part("a")
    plan.part("b", 2, after=["a"])
    first = await first_of(storage, plan)
    hints.clear()
    reply = await turn(storage, first, "default")
    assert len(reply.jobs) == 1
    assert hints == ANY
