"""Random flows on a backend and on the reference: after each step all jobs and parts agree."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from windlass._core.flows.flow import Edge, FlowState, NewFlow, NewPart, PartKind, When
from windlass._core.flows.plan import complete
from windlass._core.job.job import ClaimedJob, FlowId, JobId, NewJob
from windlass._core.job.state import TERMINAL, State
from windlass._core.job.transition import Transition, fail, retry, succeed
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.storage import MemoryStorage
from windlass._storage.protocol.actions import (
    Cancel,
    Delete,
    Discard,
    Edit,
    JobAction,
    Requeue,
    RunNow,
)
from windlass._storage.protocol.flows import FlowAction, FlowFilter
from windlass._storage.protocol.jobs import Want
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import new_job_id
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    HOUR,
    MINUTE,
    OOPS,
    a_note,
    a_worker,
    at_most,
    keyed,
    limited,
)

MOST = 1000
"""More jobs than a world has."""
MOST_JOBS = 120
"""With more jobs, none adds a flow."""
WANTS = [Want("default", MOST), Want("other", MOST)]


def random_job(chance: random.Random, task: str, **asked: Any) -> NewJob:
    """Return a job that is plain, or has a delay, an expiry, a limit or another queue."""
    job = NewJob(id=new_job_id(), task=task, **asked)
    match chance.randrange(8):
        case 0:
            return replace(job, delay=MINUTE)
        case 1:
            return replace(job, expires=MINUTE * 3)
        case 2:
            return replace(job, limits=limited("one").limits)
        case 3:
            return replace(job, queue="other", priority=-1)
        case _:
            return job


def random_flow(chance: random.Random, name: str) -> NewFlow:
    """Return a flow of a few parts with few jobs."""
    parts: list[NewPart] = []
    jobs: list[tuple[int, NewJob]] = []
    for number in range(chance.randint(1, 7)):
        is_join = bool(number) and chance.random() < 0.2
        when: When = "failed" if number and not is_join and chance.random() < 0.15 else "succeeded"
        before = sorted(chance.sample(range(number), chance.randint(0, min(3, number))))
        after = tuple(Edge(one, strict=chance.random() < 0.75) for one in before)
        kind = PartKind.JOIN if is_join else PartKind.JOBS
        parts.append(NewPart(name=f"p{number}", kind=kind, task="t", when=when, after=after))
        if not is_join:
            many = chance.randint(0, 4)
            jobs += [(number, random_job(chance, f"p{number}")) for _ in range(many)]
    callbacks: list[NewPart] = []
    endings: list[tuple[str, When, bool]] = [
        ("ok", "succeeded", True),
        ("bad", "failed", True),
        ("done", "succeeded", False),
    ]
    for called, when, strict in endings:
        if chance.random() < 0.5:
            jobs.append((len(parts) + 1 + len(callbacks), random_job(chance, called)))
            edge = Edge(0, strict=strict)
            callbacks.append(NewPart(name=called, task=called, when=when, after=(edge,)))
    return NewFlow(
        id=FlowId(new_job_id()),
        name=name,
        parts=complete(parts, callbacks),
        jobs=jobs,
        key=chance.choice([None, None, "one"]),
        expires=chance.choice([None, None, None, HOUR]),
    )


class FlowWorld:
    """The same steps on both. Call `run`."""

    def __init__(self, seed: int, clock: VirtualClock, tested: Storage) -> None:
        self._chance = random.Random(seed)
        self._clock = clock
        self._reference = MemoryStorage(MemoryDatabase(clock))
        self._both: tuple[Storage, Storage] = (self._reference, tested)
        self._tested = tested
        self._jobs: list[JobId] = []
        self._flows: list[FlowId] = []
        self._running: list[tuple[ClaimedJob, ClaimedJob]] = []
        """As each of them has it: numbers of jobs may differ."""

    async def run(self, steps: int) -> None:
        """Take random steps, then run everything to its end."""
        for store in self._both:
            await store.workers.register(a_worker())
            await at_most(store, one=1)
        await self._start()
        weighted = {
            self._start: 1,
            self._claim: 8,
            self._apply: 8,
            self._order: 4,
            self._act: 1,
            self._settle: 2,
            self._pass_time: 1,
        }
        steps_of = self._chance.choices([*weighted], [*weighted.values()], k=steps)
        for step in steps_of:
            await step()
            await self.check()
        await self._end()

    # --- steps --------------------------------------------------------------------------------

    async def _start(self) -> None:
        flow = random_flow(self._chance, f"f{len(self._flows)}")
        answers = [list(await store.flows.start([flow])) for store in self._both]
        assert answers[0] == answers[1]
        if answers[0][0].id == flow.id:
            self._flows.append(flow.id)
            self._jobs += [job.id for _, job in flow.jobs]

    async def _claim(self) -> None:
        total = self._chance.randint(1, 5)
        claimed = [(await store.jobs.claim("w1", WANTS, total=total)).jobs for store in self._both]
        places = [[(job.claim.job, job.claim.number, job.flow) for job in jobs] for jobs in claimed]
        assert places[0] == places[1], claimed
        self._running += zip(*claimed, strict=True)

    async def _apply(self) -> None:
        await self._settle()
        self._chance.shuffle(self._running)
        many = self._chance.randint(0, len(self._running))
        some, self._running = self._running[:many], self._running[many:]
        ends = [self._ending(job) for job, _ in some]
        same = [replace(end, claim=job.claim) for end, (_, job) in zip(ends, some, strict=True)]
        wanted = await self._reference.jobs.apply(ends)
        found = await self._tested.jobs.apply(same)
        assert list(found.answers) == list(wanted.answers), ends
        assert set(found.left_out) == set(wanted.left_out), ends

    def _ending(self, job: ClaimedJob) -> Transition:
        kind = self._chance.random()
        if kind < 0.15:
            return fail(job, by="w1", error=OOPS)
        if kind < 0.2:
            return retry(job, by="w1", error=OOPS, delay=timedelta(0))
        if kind < 0.3:
            added = [
                keyed("added") if self._chance.random() < 0.3 else random_job(self._chance, "added")
            ]
            self._jobs += [one.id for one in added]
            return succeed(job, by="w1", result=b"1", then=tuple(added))
        if kind < 0.38 and len(self._jobs) < MOST_JOBS:
            flow = random_flow(self._chance, "added")
            self._jobs += [one.id for one in flow.new_jobs]
            flow = replace(flow, key=None, expires=None)
            return succeed(job, by="w1", result=b"3", flows=(flow,))
        return succeed(job, by="w1", result=b"2", keep=self._chance.random() < 0.8)

    async def _order(self) -> None:
        if not self._jobs:
            return
        ids = self._chance.sample(self._jobs, min(len(self._jobs), self._chance.randint(1, 4)))
        orders: list[JobAction] = [
            Requeue(),
            Requeue(),
            Cancel(),
            Discard("no"),
            RunNow(),
            Delete(),
            Edit(priority=3),
            Edit(queue="other"),
            Edit(due=self._clock.now()),
        ]
        order = self._chance.choice(orders)
        note = a_note()
        answers = [list(await store.orders.order(order, ids, note)) for store in self._both]
        assert answers[0] == answers[1], order

    async def _act(self) -> None:
        action: FlowAction = self._chance.choice(["cancel", "retry"])
        flow, note = self._chance.choice(self._flows), a_note()
        answers = [list(await store.flows.act([flow], action, note)) for store in self._both]
        assert answers[0] == answers[1], action

    async def _settle(self) -> None:
        """All of it: which jobs a portion has is up to the backend."""
        while await self._reference.flows.settle(MOST):
            pass
        while await self._tested.flows.settle(self._chance.randint(1, 4)):
            pass

    async def _pass_time(self) -> None:
        self._clock.advance(self._chance.choice([1, 60, 3600]))
        for store in self._both:
            await store.maintenance.expire(MOST)
        if self._chance.random() < 0.2:
            await self._settle()
            for state in (FlowState.SUCCEEDED, FlowState.FAILED, FlowState.CANCELLED):
                pruned = [
                    await store.flows.prune(state=state, older_than=HOUR, limit=MOST)
                    for store in self._both
                ]
                assert pruned[0] == pruned[1]

    async def _end(self) -> None:
        for _ in range(100):
            self._clock.advance(60)
            await self._settle()
            await self._claim()
            some, self._running = self._running, []
            for store, jobs in zip(self._both, zip(*some, strict=True), strict=False):
                await store.jobs.apply([succeed(job, by="w1", result=None) for job in jobs])
            await self.check()
            if not some and await self._all_ended():
                break
        assert await self._all_ended(), "something is left open"

    async def _all_ended(self) -> bool:
        jobs = await self._tested.admin.get(self._jobs) if self._jobs else []
        flows = await self._tested.flows.find(FlowFilter(states=[FlowState.RUNNING]))
        return not flows and all(job is None or job.state in TERMINAL for job in jobs)

    # --- what agrees --------------------------------------------------------------------------

    async def check(self) -> None:
        """Compare all that is stored of flows and their jobs."""
        wanted, found = [await self._seen(store) for store in self._both]
        for what, value in wanted.items():
            assert found[what] == value, what
        counted = await self._tested.flows.recount()
        assert not counted.wrong

    async def _seen(self, store: Storage) -> dict[str, object]:
        graphs = [await store.flows.graph(flow) for flow in self._flows]
        seen: dict[str, object] = {}
        for job in self._jobs:
            (row,) = await store.admin.get([job])
            if row is not None:
                asked = row.cancel_requested and row.state is State.RUNNING
                # Of several parts that failed, the reason names one.
                reason = "after" if (row.reason or "").startswith("after ") else row.reason
                row = replace(
                    row, seq=0, error=None, payload=b"", cancel_requested=asked, reason=reason
                )
            seen[f"job {job}"] = row
        for graph in graphs:
            for part in () if graph is None else graph.parts:
                assert graph is not None
                jobs = await store.flows.members(graph.flow.id, part.number)
                seen[f"{graph.flow.id} {part.name}"] = (part, [one.id for one in jobs])
        seen["flows"] = await store.flows.find(FlowFilter(), limit=MOST)
        return seen
