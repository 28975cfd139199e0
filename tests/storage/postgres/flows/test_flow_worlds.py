"""Random flows on PostgreSQL and in memory: after every step both say the same."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from windlass._core.flows.flow import Edge, FlowState, NewFlow, NewPart, PartKind
from windlass._core.flows.plan import complete
from windlass._core.job.job import ClaimedJob, FlowId, JobId, JobRecord, NewJob
from windlass._core.job.state import TERMINAL
from windlass._core.job.transition import Transition, fail, retry, succeed
from windlass._core.job.unique import UniqueKey
from windlass._storage.memory import MemoryDatabase, MemoryStorage
from windlass._storage.postgres import open_postgres
from windlass._storage.protocol.actions import Cancel, Discard, Edit, Requeue, RunNow
from windlass._storage.protocol.jobs import Want
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import new_job_id
from windlass.errors import KeyConflict
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import OOPS, a_note, a_worker

WORLDS = int(os.environ.get("FLOW_WORLDS", "12"))
MINUTE = timedelta(minutes=1)
MOST_JOBS = 120
"""With more jobs, none adds a flow."""


def random_flow(chance: random.Random, *, timed: bool = True) -> NewFlow:
    """Return a flow of up to 8 parts. ``timed``: with delays and expiries."""
    parts: list[NewPart] = []
    jobs: list[tuple[int, NewJob]] = []
    for number in range(chance.randint(1, 8)):
        joins = bool(number) and chance.random() < 0.2
        earlier = sorted(chance.sample(range(number), chance.randint(0, min(3, number))))
        on_failure = not joins and bool(number) and chance.random() < 0.15
        parts.append(
            NewPart(
                name=f"p{number}",
                kind=PartKind.JOIN if joins else PartKind.JOBS,
                task="t",
                when="failed" if on_failure else "succeeded",
                after=tuple(Edge(part, chance.random() < 0.75) for part in earlier),
            )
        )
        if not joins:
            jobs += [(number, random_job(chance, timed=timed)) for _ in range(chance.randint(0, 4))]
    callbacks: list[NewPart] = []
    for name, strict in (("succeeded", True), ("failed", True), ("succeeded", False)):
        if chance.random() < 0.5:
            jobs.append((len(parts) + 1 + len(callbacks), NewJob(id=new_job_id(), task="cb")))
            callbacks.append(
                NewPart(name=name, when=name, after=(Edge(0, strict),))  # type: ignore[arg-type]
            )
    return NewFlow(
        id=FlowId(new_job_id()),
        name="f",
        parts=complete(parts, callbacks),
        jobs=jobs,
        key="one" if chance.random() < 0.3 else None,
        expires=20 * MINUTE if timed and chance.random() < 0.1 else None,
    )


def added_flow(chance: random.Random, *, timed: bool = True) -> NewFlow:
    """Return a flow for a job to add."""
    flow = random_flow(chance, timed=timed)
    jobs = [(part, replace(job, unique=None)) for part, job in flow.jobs]
    return replace(flow, jobs=jobs, key=None, expires=None)


def random_job(chance: random.Random, *, timed: bool = True) -> NewJob:
    asked: dict[str, Any] = {}
    if timed and chance.random() < 0.1:
        asked["delay"] = MINUTE
    if timed and chance.random() < 0.1:
        asked["expires"] = 3 * MINUTE
    if chance.random() < 0.1:
        asked["unique"] = UniqueKey(f"k{chance.randint(0, 2)}")
    return NewJob(id=new_job_id(), task="t", **asked)


class World:
    """Two stores that are told the same."""

    def __init__(self, stores: Sequence[Storage], clock: VirtualClock, seed: int) -> None:
        self.stores, self.clock = stores, clock
        self.chance = random.Random(seed)
        self.flows: list[FlowId] = []
        self.jobs: list[JobId] = []
        self.running: list[list[ClaimedJob]] = [[] for _ in stores]
        self.done: list[str] = []

    async def start(self) -> None:
        flows = [random_flow(self.chance) for _ in range(self.chance.randint(1, 2))]
        answers: list[object] = []
        for store in self.stores:
            try:
                answers.append(list(await store.flows.start(flows)))
            except KeyConflict:  # by which of several keys is not promised
                answers.append("key")
        self.same("start", answers)
        if isinstance(answers[0], list):
            for flow, answer in zip(flows, answers[0], strict=True):
                if answer.created:
                    self.flows.append(flow.id)
                    self.jobs += [job.id for _, job in flow.jobs]

    async def claim(self, room: int) -> None:
        replies = [
            await store.jobs.claim("w1", [Want("default", room)], total=room)
            for store in self.stores
        ]
        self.same("claim", [[(j.claim.job, j.flow) for j in reply.jobs] for reply in replies])
        self.same("expired", [list(reply.expired) for reply in replies])
        for running, reply in zip(self.running, replies, strict=True):
            running.extend(reply.jobs)

    async def end(self, failures: float) -> None:
        order = list(range(len(self.running[0])))
        self.chance.shuffle(order)
        some = order[: self.chance.randint(1, max(1, len(order)))]
        ways = [self.way(failures) for _ in some]
        for store, running in zip(self.stores, self.running, strict=True):
            ends = [way(running[place]) for way, place in zip(ways, some, strict=True)]
            if ends:
                await store.jobs.apply(ends)
        left = [place for place in sorted(order) if place not in some]
        self.running = [[running[place] for place in left] for running in self.running]
        await self.settle(1000)

    def way(self, failures: float) -> Any:
        dice = self.chance.random()
        if dice < failures:
            return lambda job: fail(job, by="w1", error=OOPS)
        if dice < 1.4 * failures:
            return lambda job: retry(job, by="w1", error=OOPS, delay=MINUTE)
        then: tuple[NewJob, ...] = ()
        if failures and self.chance.random() < 0.1:
            then = (random_job(self.chance),)
            self.jobs += [job.id for job in then]
        flows: tuple[NewFlow, ...] = ()
        if failures and self.chance.random() < 0.08 and len(self.jobs) < MOST_JOBS:
            flows = (added_flow(self.chance),)
            self.jobs += [job.id for job in flows[0].new_jobs]
        keep = self.chance.random() < 0.8

        def ended(job: ClaimedJob) -> Transition:
            return replace(succeed(job, by="w1", result=b"1", keep=keep), then=then, flows=flows)

        return ended

    async def order(self) -> None:
        if not self.jobs:
            return
        jobs = [self.chance.choice(self.jobs) for _ in range(self.chance.randint(1, 3))]
        orders = (Requeue(), Requeue(), Cancel(), Discard("no"), RunNow(), Edit(priority=-1))
        order = self.chance.choice(orders)
        note = a_note()
        self.same(str(order), [list(await s.orders.order(order, jobs, note)) for s in self.stores])

    async def act(self) -> None:
        if self.flows:
            flow = self.chance.choice(self.flows)
            action = self.chance.choice(["cancel", "retry"])
            note = a_note()
            answers = [list(await s.flows.act([flow], action, note)) for s in self.stores]  # type: ignore[arg-type]
            self.same(action, answers)

    async def settle(self, limit: int) -> None:
        for store in self.stores:
            while await store.flows.settle(limit):
                pass

    async def step(self) -> None:
        dice = self.chance.random()
        if dice < 0.05:
            await self.start()
        elif dice < 0.35:
            await self.claim(self.chance.randint(1, 5))
        elif dice < 0.7:
            await self.end(0.2)
        elif dice < 0.85:
            await self.order()
        elif dice < 0.9:
            await self.act()
        elif dice < 0.93:
            self.clock.advance(MINUTE * self.chance.randint(0, 4))
        elif dice < 0.95:
            self.same("expire", [sorted(await s.maintenance.expire(100)) for s in self.stores])
        else:
            await self.settle(self.chance.randint(1, 3))
        await self.compare()

    async def finish(self) -> None:
        for _ in range(100):
            self.clock.advance(2 * MINUTE)
            await self.claim(50)
            await self.end(0.0)
            await self.compare()
            if not await self.open():
                return
        raise AssertionError("something never ends", self.done)

    async def open(self) -> bool:
        jobs = await self.stores[0].admin.get(self.jobs)
        return any(job is not None and job.state not in TERMINAL for job in jobs)

    async def compare(self) -> None:
        for flow in self.flows:
            graphs = [await store.flows.graph(flow) for store in self.stores]
            self.same("flow", [g and replace(g.flow, number=0) for g in graphs])
            self.same("parts", [g and list(g.parts) for g in graphs])
        looks = []
        for store in self.stores:
            jobs = await store.admin.get(self.jobs)
            looks.append([job and _seen(job) for job in jobs])
        self.same("jobs", looks)
        for store in self.stores:
            assert not (await store.flows.recount()).wrong

    def same(self, what: str, answers: Sequence[object]) -> None:
        self.done.append(what)
        assert answers[0] == answers[1], (what, self.done)


def _seen(job: JobRecord) -> tuple[object, ...]:
    expires_at = None if job.blocked or job.state in TERMINAL else job.expires_at
    return (job.id, job.state, job.blocked, job.reason, job.due, job.flow, job.key_held, expires_at)


@pytest.mark.parametrize("seed", range(WORLDS))
async def test_flows_on_postgres_are_those_in_memory(
    clean_schema: tuple[str, str], seed: int
) -> None:
    clock = VirtualClock()
    url, schema = clean_schema
    postgres = await open_postgres(url, schema=schema, clock=clock)
    world = World([MemoryStorage(MemoryDatabase(clock)), postgres], clock, seed)
    try:
        for store in world.stores:
            await store.workers.register(a_worker())
        await world.start()
        for _ in range(world.chance.randint(20, 80)):
            await world.step()
        await world.finish()
        for flow in world.flows:
            graph = await postgres.flows.graph(flow)
            assert graph is not None
            assert graph.flow.state is not FlowState.RUNNING
    finally:
        await postgres.close()
