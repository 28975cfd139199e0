"""Random flows on a backend and on the readable reference, step by step."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from windlass._core.flows.flow import Addition, Edge, FlowState, NewFlow, NewPart, PartKind
from windlass._core.flows.plan import complete
from windlass._core.job.job import ClaimedJob, FlowId, JobId, JobRecord, NewJob
from windlass._core.job.state import TERMINAL, State
from windlass._core.job.transition import Transition, fail, retry, succeed
from windlass._core.job.unique import OnConflict, UniqueKey, Window
from windlass._storage.protocol.actions import (
    ActionResult,
    Cancel,
    Delete,
    Discard,
    Edit,
    JobAction,
    Requeue,
    RunNow,
)
from windlass._storage.protocol.flows import AddAnswer
from windlass._storage.protocol.jobs import Want
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import new_job_id
from windlass.errors import KeyConflict
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    HOUR,
    MINUTE,
    OOPS,
    a_job,
    a_note,
    a_worker,
    at_most,
    limited,
)

__all__ = ["World"]

_MOST_JOBS = 120
"""With more jobs, none adds a flow."""

_ACTIONS: tuple[JobAction, ...] = (
    Requeue(),
    Requeue(),
    Cancel(),
    Discard("no use"),
    RunNow(),
    Delete(),
    Edit(priority=-1),
)


class World:
    """One history. Every step is taken on each store, and every answer must be the same."""

    def __init__(self, seed: int, stores: Sequence[Storage], clock: VirtualClock) -> None:
        self.chance = random.Random(seed)
        self.stores, self.clock = stores, clock
        self.running: list[list[ClaimedJob]] = [[] for _ in stores]
        self.flows: list[FlowId] = []
        self.ids: list[JobId] = []

    async def live(self) -> None:
        """Start flows, disturb them, let them end."""
        for store in self.stores:
            await store.workers.register(a_worker())
            await at_most(store, one=1)
        for _ in range(self.chance.randint(1, 3)):
            await self.start()
        for _ in range(self.chance.randint(20, 80)):
            await self.step()
        await self.end()

    # --- steps ----------------------------------------------------------------------------------

    async def step(self) -> None:
        """Take one step; most of the time all that is due is settled behind it."""
        (way,) = self.chance.choices(
            [
                *(self.claim, self.apply, self.order, self.act, self.add, self.wait, self.settle),
                self.start,
            ],
            [30, 40, 14, 5, 4, 6, 6, 2],
        )
        await way()
        for store in self.stores:
            assert not (await store.flows.recount()).wrong
        if self.chance.random() < 0.7:
            await self.agree()

    async def claim(self) -> None:
        most = self.chance.randint(1, 5)
        replies = [
            await store.jobs.claim("w1", [Want("default", most)], total=most)
            for store in self.stores
        ]
        self.same([[self.seen(job) for job in reply.jobs] for reply in replies])
        for held, reply in zip(self.running, replies, strict=True):
            held.extend(reply.jobs)

    async def apply(self) -> None:
        count = len(self.running[0])
        if not count:
            return
        places = self.chance.sample(range(count), self.chance.randint(1, count))
        plans = [self.chance.random() for _ in places]
        then = [self.then() for _ in places]
        await self.apply_all(places, plans, then)

    async def apply_all(
        self, places: list[int], plans: list[float], then: list[tuple[Addition, ...]]
    ) -> None:
        answers: list[Any] = []
        for number, store in enumerate(self.stores):
            held = self.running[number]
            ends = [
                self.transition(held[place], plan, more)
                for place, plan, more in zip(places, plans, then, strict=True)
            ]
            applied = await store.jobs.apply(ends)
            answers.append((applied.answers, set(applied.left_out)))
            left = set(places)
            self.running[number] = [job for n, job in enumerate(held) if n not in left]
        self.same(answers)
        for one in [one for more in then for one in more]:
            self.ids += [job.id for job in (one.new_jobs if isinstance(one, NewFlow) else [one])]
            if isinstance(one, NewFlow) and await self.stores[0].flows.graph(one.id) is not None:
                self.flows.append(one.id)  # a callback has added it

    def transition(self, job: ClaimedJob, plan: float, then: tuple[Addition, ...]) -> Transition:
        if plan < 0.70:
            jobs = tuple(one for one in then if isinstance(one, NewJob))
            flows = tuple(one for one in then if isinstance(one, NewFlow))
            keep = plan < 0.6
            return succeed(job, by="w1", result=b"7", then=jobs, flows=flows, keep=keep)
        if plan < 0.85:
            return fail(job, by="w1", error=OOPS)
        return retry(job, by="w1", error=OOPS, delay=timedelta(0) if plan < 0.95 else MINUTE)

    async def order(self) -> None:
        action = self.chance.choice(_ACTIONS)
        ids = self.chance.sample(self.ids, min(len(self.ids), self.chance.randint(1, 3)))
        note = a_note()
        self.same([await store.orders.order(action, ids, note) for store in self.stores])

    async def act(self) -> None:
        if not self.flows:
            return
        flow, note = self.chance.choice(self.flows), a_note()
        for store in self.stores:  # the order in which due parts are settled is each store's own
            await settle(store)
        if self.chance.random() < 0.5:
            self.same([await store.flows.act([flow], "cancel", note) for store in self.stores])
        else:
            self.same([await store.flows.act([flow], "retry", note) for store in self.stores])

    async def add(self) -> None:
        """Add a flow from outside, which may wait for parts that are there."""
        if not self.flows or len(self.ids) > _MOST_JOBS:
            return
        flow, added = self.chance.choice(self.flows), self.an_added_flow()
        for store in self.stores:
            await settle(store)
        graph = await self.stores[0].flows.graph(flow)
        if graph is None:
            return
        end = next(part.number for part in graph.parts if part.kind is PartKind.END)
        before = sorted(self.chance.sample(range(end), self.chance.randint(0, min(3, end))))
        after = tuple(Edge(one, self.chance.random() < 0.75) for one in before)
        new = replace(added, after=after)
        answers = [await store.flows.add(flow, new) for store in self.stores]
        self.same(answers)
        if answers[0] is AddAnswer.ADDED:
            self.ids += [job.id for job in new.new_jobs]

    async def wait(self) -> None:
        self.clock.advance(self.chance.choice([timedelta(seconds=1), MINUTE, HOUR]))
        if self.chance.random() < 0.5:
            for store in self.stores:
                await settle(store)
            self.same([sorted(await store.maintenance.expire(100)) for store in self.stores])

    async def settle(self) -> None:
        limit = self.chance.randint(1, 3)
        for store in self.stores:
            await store.flows.settle(limit)

    async def start(self) -> None:
        flow = self.a_flow()
        answers: list[Any] = []
        for store in self.stores:
            try:
                answers.append(await store.flows.start([flow]))
            except KeyConflict as error:
                answers.append(str(error))
        self.same(answers)
        if isinstance(answers[0], str) or not answers[0][0].created:
            return
        self.flows.append(flow.id)
        self.ids += [job.id for _, job in flow.jobs]
        await self.agree()

    # --- what is asked for ----------------------------------------------------------------------

    def a_flow(self) -> NewFlow:
        chance = self.chance
        parts: list[NewPart] = []
        jobs: list[tuple[int, NewJob]] = []
        for n in range(chance.randint(1, 8)):
            kind = PartKind.JOIN if n and chance.random() < 0.2 else PartKind.JOBS
            lone = kind is PartKind.JOIN or not n or chance.random() > 0.15
            before = sorted(chance.sample(range(n), chance.randint(0, min(3, n))))
            after = tuple(Edge(part, chance.random() < 0.75) for part in before)
            when: Any = "succeeded" if lone else "failed"
            parts.append(NewPart(name=f"p{n}", kind=kind, task="t", when=when, after=after))
            if kind is PartKind.JOBS:
                jobs += [(n, self.a_job()) for _ in range(chance.randint(0, 4))]
        callbacks = [
            NewPart(name="good", kind=PartKind.CALLBACK, after=(Edge(0),)),
            NewPart(name="bad", kind=PartKind.CALLBACK, when="failed", after=(Edge(0),)),
            NewPart(name="any", kind=PartKind.CALLBACK, after=(Edge(0, strict=False),)),
        ]
        some = [one for one in callbacks if chance.random() < 0.5]
        first = len(parts) + 1
        jobs += [(first + n, a_job(task="callback")) for n, _ in enumerate(some)]
        return NewFlow(
            id=FlowId(new_job_id()),
            name="flow",
            parts=complete(parts, some),
            jobs=jobs,
            key=chance.choice([None, None, "one"]),
            expires=chance.choice([None, None, None, HOUR]),
        )

    def a_job(self) -> NewJob:
        chance = self.chance
        asked: dict[str, Any] = {}
        if chance.random() < 0.1:
            asked["limits"] = limited("one").limits
        if chance.random() < 0.1:
            asked["delay"] = MINUTE
        if chance.random() < 0.1:
            asked["expires"] = 2 * MINUTE
        if chance.random() < 0.1:
            asked["unique"] = self.a_key()
        return a_job(task="t", **asked)

    def a_key(self) -> UniqueKey:
        window = self.chance.choice(list(Window))
        period = MINUTE if window is Window.FOR_A_TIME else None
        key = f"k{self.chance.randint(1, 6)}"
        return UniqueKey(key, window=window, period=period, on_conflict=OnConflict.REUSE)

    def then(self) -> tuple[Addition, ...]:
        if self.chance.random() < 0.08 and len(self.ids) < _MOST_JOBS:
            return (self.an_added_flow(),)
        if self.chance.random() > 0.1:
            return ()
        return tuple(self.a_job() for _ in range(self.chance.randint(1, 2)))

    def an_added_flow(self) -> NewFlow:
        flow = self.a_flow()
        jobs = [(part, replace(job, unique=None)) for part, job in flow.jobs]
        return replace(flow, jobs=jobs, key=None, expires=None)

    # --- looking --------------------------------------------------------------------------------

    def same(self, answers: Sequence[Any]) -> None:
        """Require the answers of all stores to be the same."""
        first, *others = answers
        for other in others:
            assert first == other

    def seen(self, job: ClaimedJob) -> tuple[Any, ...]:
        return job.claim.job, job.flow, job.attempt, job.due

    async def agree(self) -> None:
        """Settle all, and compare every flow, part and job."""
        looks: list[Any] = []
        for store in self.stores:
            await settle(store)
            graphs = [await store.flows.graph(flow) for flow in self.flows]
            jobs = [shown(job) for job in await store.admin.get(self.ids)]
            looks.append((graphs, jobs))
        self.same(looks)

    async def end(self) -> None:
        """Run everything to its end: nothing may be left open. Then retry what has failed."""
        await self.run_all(0.8)
        for store in self.stores:
            for job in await store.admin.get(self.ids):
                assert job is None or job.state in TERMINAL, job
            for flow in self.flows:
                graph = await store.flows.graph(flow)
                assert graph is not None
                assert graph.flow.state is not FlowState.RUNNING
        for flow in self.flows:
            await self.mend(flow)

    async def mend(self, flow: FlowId) -> None:
        """Retry a flow, and let nothing fail: it succeeds, unless others hold keys of its jobs."""
        note = a_note()
        answers = [await store.flows.act([flow], "retry", note) for store in self.stores]
        self.same(answers)
        if answers[0][0] is not ActionResult.DONE:
            return
        await self.run_all(0.5)
        graph = await self.stores[0].flows.graph(flow)
        jobs = [job for job in await self.stores[0].admin.get(self.ids) if job is not None]
        keyed = [job for job in jobs if job.key is not None and job.state is State.CANCELLED]
        assert graph is not None
        assert graph.flow.state is FlowState.SUCCEEDED or keyed, graph

    async def run_all(self, most: float) -> None:
        """Claim and end all jobs. ``most``: see `transition`; up to 0.7 all succeed."""
        for _ in range(200):
            await self.claim()
            count = len(self.running[0])
            if count:
                plans = [self.chance.random() * most for _ in range(count)]
                await self.apply_all(list(range(count)), plans, [()] * count)
            await self.agree()
            if not count:
                self.clock.advance(MINUTE)
            jobs = [job for job in await self.stores[0].admin.get(self.ids) if job is not None]
            if not count and all(job.state in TERMINAL for job in jobs):
                break


async def settle(store: Storage) -> None:
    while await store.flows.settle(1000):
        pass


def shown(job: JobRecord | None) -> tuple[Any, ...] | None:
    """Return what both must show of a job."""
    if job is None:
        return None
    expires_at = None if job.blocked or job.state in TERMINAL else job.expires_at
    return (
        job.id,
        job.state,
        job.blocked,
        job.flow,
        job.reason,
        job.finished_at,
        job.priority,
        job.attempt,
        job.max_attempts,
        job.key_held,
        job.cancel_requested,
        None if job.blocked or job.state in TERMINAL else job.due,
        expires_at,
    )
