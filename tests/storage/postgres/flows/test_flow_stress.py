"""Flows from eight sessions at once: no deadlock, no wrong count, nothing left open."""

from __future__ import annotations

import asyncio
import os
import random
from collections import deque
from collections.abc import Sequence
from datetime import timedelta

import psycopg
from msgspec.structs import replace

from tests.storage.postgres.flows.test_flow_worlds import added_flow, random_flow, random_job
from windlass._core.flows.flow import FlowRecord, FlowState
from windlass._core.job.job import ClaimedJob, FlowId, JobId
from windlass._core.job.transition import Transition, fail, retry, succeed
from windlass._storage.postgres import PostgresStorage, open_postgres
from windlass._storage.protocol.actions import Cancel, Discard, Requeue
from windlass._storage.protocol.flows import FlowFilter
from windlass._storage.protocol.jobs import Want
from windlass._system.seams import monotonic
from windlass.errors import KeyConflict, StoreBusy
from windlass.testing.conformance.steps import OOPS, a_note, a_worker

SECONDS = float(os.environ.get("FLOW_STRESS_SECONDS", "4"))
SESSIONS = 8
ENDED = [FlowState.SUCCEEDED, FlowState.FAILED, FlowState.CANCELLED]
WANTS = [Want("default", 20)]


class Session:
    """One process among others."""

    def __init__(
        self, storage: PostgresStorage, seed: int, flows: deque[FlowId], jobs: deque[JobId]
    ) -> None:
        self.storage, self.name = storage, f"w{seed}"
        self.chance = random.Random(seed)
        self.flows, self.jobs = flows, jobs

    async def run(self, until: float) -> None:
        await self.storage.workers.register(a_worker(self.name))
        while monotonic() < until:
            try:
                await self.step()
            except (KeyConflict, StoreBusy):
                continue  # a key is held, or under decision for too long

    async def step(self) -> None:
        dice = self.chance.random()
        if dice < 0.1:
            flow = random_flow(self.chance, timed=False)
            await self.storage.flows.start([flow])
            self.flows.append(flow.id)
            self.jobs.extend(job.id for _, job in flow.jobs)
        elif dice < 0.7:
            await self.work(0.2)
        elif dice < 0.85 and self.jobs:
            jobs = self.chance.choices(self.jobs, k=5)
            order = self.chance.choice((Requeue(), Cancel(), Discard("no")))
            await self.storage.orders.order(order, jobs, a_note())
        elif dice < 0.95 and self.flows:
            flows = self.chance.choices(self.flows, k=2)
            action = self.chance.choice(["cancel", "retry"])
            await self.storage.flows.act(flows, action, a_note())  # type: ignore[arg-type]
        else:
            await self.storage.flows.settle(self.chance.randint(1, 50))

    async def work(self, failures: float) -> int:
        reply = await self.storage.jobs.claim(self.name, WANTS, total=self.chance.randint(1, 20))
        if reply.jobs:
            await self.storage.jobs.apply([self.end(job, failures) for job in reply.jobs])
        return len(reply.jobs)

    def end(self, job: ClaimedJob, failures: float) -> Transition:
        dice = self.chance.random()
        if dice < failures:
            return fail(job, by=self.name, error=OOPS)
        if dice < 1.3 * failures:
            return retry(job, by=self.name, error=OOPS, delay=timedelta(0))
        then = (random_job(self.chance, timed=False),) if dice > 0.97 and failures else ()
        flows = (added_flow(self.chance, timed=False),) if 0.95 < dice < 0.97 and failures else ()
        self.jobs.extend(job.id for flow in flows for job in flow.new_jobs)
        return replace(succeed(job, by=self.name, result=None), then=then, flows=flows)


async def test_eight_sessions_never_lock_each_other_out(postgres_url: str) -> None:
    storages = [await open_postgres(postgres_url) for _ in range(SESSIONS)]
    # They act on the same few.
    flows, jobs = deque[FlowId](maxlen=20), deque[JobId](maxlen=150)
    sessions = [Session(storage, seed, flows, jobs) for seed, storage in enumerate(storages)]
    until = monotonic() + SECONDS
    await asyncio.gather(*(session.run(until) for session in sessions))
    one = sessions[0]
    running: Sequence[FlowRecord] = ()
    for _ in range(1000):
        done = await one.storage.flows.settle(500) + await one.work(0.0)
        running = await one.storage.flows.find(FlowFilter(states=[FlowState.RUNNING]), limit=1)
        if not done and not running:
            break
    ended = await one.storage.flows.find(FlowFilter(states=ENDED), limit=100000)
    assert len(ended) > SESSIONS
    assert not running
    assert all(flow.open == 0 for flow in ended)
    after: int | None = 0
    while after is not None:
        counted = await one.storage.flows.recount(after=after)
        assert list(counted.wrong) == []
        after = counted.next
    for storage in storages:
        await storage.close()
    with psycopg.connect(postgres_url) as line:
        (deadlocks,) = line.execute(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone() or (None,)
    assert deadlocks == 0
