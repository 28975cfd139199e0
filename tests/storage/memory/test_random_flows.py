"""Random flows, and random things that happen to them: the counts agree after every step, and in
the end nothing is left waiting.
"""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from windlass._core.flows.flow import Edge, FlowState, NewFlow, NewPart, PartKind, When
from windlass._core.flows.plan import complete
from windlass._core.job.job import ClaimedJob, FlowId, NewJob
from windlass._core.job.state import TERMINAL
from windlass._core.job.transition import Transition, fail, retry, succeed
from windlass._core.job.unique import UniqueKey
from windlass._storage.memory import MemoryDatabase, MemoryStorage
from windlass._storage.memory.flows.rows import MemoryFlow
from windlass._storage.protocol.actions import Cancel, Discard, JobAction, Requeue
from windlass._system.seams import new_job_id
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import OOPS, SECOND, a_note, claim, enlist, seeded

WORLDS = 100
MOST_JOBS = 100
"""With more jobs, none adds a flow."""


@pytest.mark.parametrize("seed", range(WORLDS))
async def test_counts_agree_after_every_step_and_every_flow_ends(seed: int) -> None:
    world = World(seeded(seed))
    await world.begin()
    for _ in range(world.chance.randint(20, 100)):
        await world.step()
        await world.check()
    await world.run_to_the_end()
    assert {row.state for row in world.database.rows.values()} <= TERMINAL
    assert FlowState.RUNNING not in {flow.state for flow in world.flows}


class World:
    """A few flows on one store, a worker, and an operator."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.clock = VirtualClock()
        self.database = MemoryDatabase(self.clock)
        self.storage = MemoryStorage(self.database)
        self.running: list[ClaimedJob] = []

    @property
    def flows(self) -> list[MemoryFlow]:
        return [*self.database.flows.by_id.values()]

    async def begin(self) -> None:
        await enlist(self.storage)
        await self.storage.flows.start(
            [a_flow(self.chance) for _ in range(self.chance.randint(1, 3))]
        )

    async def step(self) -> None:
        """Let one thing happen."""
        steps = (
            *([self._claim] * 8 + [self._end] * 9 + [self._operate] * 2 + [self._settle] * 2),
            *(self._act, self._take_a_key, self._wait),
        )
        await self.chance.choice(steps)()

    async def _claim(self) -> None:
        self.running += await claim(self.storage, self.chance.randint(1, 5))

    async def _end(self) -> None:
        self.chance.shuffle(self.running)
        some = self.chance.randint(0, len(self.running))
        ending, self.running = self.running[:some], self.running[some:]
        await self.storage.jobs.apply([self._ended(job, well=0.75) for job in ending])

    def _ended(self, job: ClaimedJob, *, well: float) -> Transition:
        if self.chance.random() >= well:
            if self.chance.random() < 0.3:
                return retry(job, by="w1", error=OOPS, delay=SECOND)
            return fail(job, by="w1", error=OOPS)
        adds = self.chance.random() < 0.15
        then = [a_member(self.chance) for _ in range(self.chance.randint(1, 2))] if adds else ()
        whole = self.chance.random() < 0.1 and len(self.database.rows) < MOST_JOBS
        flows = (an_added_flow(self.chance),) if whole else ()
        return succeed(job, by="w1", result=None, then=tuple(then), flows=flows)

    async def _operate(self) -> None:
        actions: list[JobAction] = [Requeue(), Requeue(), Cancel(), Discard("no use")]
        jobs = self.chance.choices([*self.database.by_id] or [new_job_id()])
        await self.storage.orders.order(self.chance.choice(actions), jobs, a_note())

    async def _act(self) -> None:
        flow = self.chance.choice(self.flows).asked.id
        if self.chance.random() < 0.5:
            await self.storage.flows.act([flow], "cancel", a_note())
        else:
            await self.storage.flows.act([flow], "retry", a_note())

    async def _take_a_key(self) -> None:
        """Insert a plain job with the key of a member, which may have ended."""
        keys = [row.asked.unique for row in self.database.rows.values() if row.asked.unique]
        if keys:
            unique = self.chance.choice(keys)
            await self.storage.jobs.insert([NewJob(id=new_job_id(), task="row", unique=unique)])

    async def _settle(self) -> None:
        await self.storage.flows.settle(self.chance.randint(1, 3))

    async def _wait(self) -> None:
        self.clock.advance(self.chance.choice([SECOND, 20 * SECOND]))

    async def run_to_the_end(self) -> None:
        """Run all that is left; now and then a job still fails."""
        for _ in range(300):
            self.clock.advance(2 * SECOND)
            jobs, self.running = [*self.running, *await claim(self.storage, 50)], []
            ends = [
                fail(job, by="w1", error=OOPS)
                if self.chance.random() < 0.1
                else succeed(job, by="w1", result=None)
                for job in jobs
            ]
            await self.storage.jobs.apply(ends)
            settled = await self.storage.flows.settle(10)
            await self.check()
            if not jobs and not settled:
                return

    async def check(self) -> None:
        """Hold the counts against the jobs, and what each part knows against the parts before."""
        assert not (await self.storage.flows.recount()).wrong
        for flow in self.flows:
            for part in flow.parts:
                before = [(flow.parts[edge.part].told, edge.strict) for edge in part.asked.after]
                assert part.gate.waiting == sum(not told.over for told, _ in before)
                assert part.gate.broken == sum(told.broken for told, strict in before if strict)
                assert part.gate.unneeded == sum(told.unneeded for told, strict in before if strict)
                added = [
                    other.told
                    for other in flow.parts
                    if other.asked.added and other.asked.added.counts_for == part.number
                ]
                assert part.gate.adding == sum(not told.over for told in added)
                assert part.gate.added_broken == sum(told.broken for told in added)
                assert part.told == part.tidings
                place = flow.asked.id, part.number
                assert part.is_due is (place in self.database.flows.due)


def a_flow(chance: random.Random) -> NewFlow:
    """Draw a flow of up to eight parts and three callbacks."""
    parts = [a_part(number, chance) for number in range(chance.randint(1, 8))]
    callbacks = [
        NewPart(name="good", after=(Edge(0),)),
        NewPart(name="bad", when="failed", after=(Edge(0),)),
        NewPart(name="any", after=(Edge(0, strict=False),)),
    ]
    graph = complete(parts, [one for one in callbacks if chance.random() < 0.5])
    jobs = [
        (number, a_member(chance))
        for number, part in enumerate(graph)
        for _ in range(size_of(part, chance))
    ]
    return NewFlow(
        id=FlowId(new_job_id()),
        name="flow",
        parts=graph,
        jobs=jobs,
        key=chance.choice([None, None, "one"]),
        expires=chance.choice([None, None, None, 60 * SECOND]),
    )


def an_added_flow(chance: random.Random) -> NewFlow:
    """Draw a flow that a job adds. Its jobs have no keys."""
    flow = a_flow(chance)
    jobs = [(number, replace(job, unique=None)) for number, job in flow.jobs]
    return replace(flow, jobs=jobs, key=None, expires=None)


def a_part(number: int, chance: random.Random) -> NewPart:
    """Draw a part that waits for up to three of those before it."""
    before = sorted(chance.sample(range(number), chance.randint(0, min(3, number))))
    after = tuple(Edge(one, strict=chance.random() < 0.75) for one in before)
    if number and chance.random() < 0.2:
        return NewPart(name=f"join {number}", kind=PartKind.JOIN, after=after)
    when: When = "failed" if number and chance.random() < 0.15 else "succeeded"
    return NewPart(name=f"part {number}", task="row", when=when, after=after)


def size_of(part: NewPart, chance: random.Random) -> int:
    """Draw how many jobs a part has."""
    match part.kind:
        case PartKind.JOBS:
            return chance.randint(0, 4)
        case PartKind.CALLBACK:
            return 1
        case _:
            return 0


def a_member(chance: random.Random) -> NewJob:
    """Draw a job, with or without a key that it gives back when it ends."""
    job = new_job_id()
    unique = UniqueKey(job) if chance.random() < 0.2 else None
    delay = SECOND if chance.random() < 0.1 else None
    return NewJob(id=job, task="row", unique=unique, delay=delay)
