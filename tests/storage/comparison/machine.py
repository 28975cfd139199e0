"""Two stores that are told the same: every rule compares what they say, and what they hold."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar, TypeVar

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from tests.storage.comparison.choices import (
    CONFLICTS,
    FOLLOW_UPS,
    LIMITS,
    OUTCOMES,
    QUEUES,
    RATES,
    WORKERS,
)
from windlass._core.job.job import (
    AttemptError,
    Claim,
    ClaimedJob,
    JobId,
    JobRecord,
    NewJob,
)
from windlass._core.job.outcome import Lost, Outcome, Policy
from windlass._core.job.state import Verb
from windlass._core.job.transition import Transition, decide
from windlass._core.job.unique import UniqueKey, Window
from windlass._core.limits.breaker import Breaker
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._storage.memory import MemoryDatabase, MemoryStorage
from windlass._storage.protocol.actions import AuditNote, Discard, Requeue, RunNow
from windlass._storage.protocol.jobs import Want
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.workers import WorkerStart
from windlass._storage.sqlite import open_in_memory
from windlass._storage.sqlite.io.connection import MemorySource
from windlass.errors import WindlassError
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import obeyed

T = TypeVar("T")
Key = tuple[JobId, int]

PLAIN = msgspec.structs.replace
SEEDS = st.integers(0, 2**32)
"""Chance of its own: drawn one by one, jobs would be few, small and alike."""


class Machine(RuleBasedStateMachine):
    """Every rule does one thing to both stores and compares what they say."""

    histories_at_every_step: ClassVar[bool] = True
    """A question per job: to a server only at the end."""
    promotions_are_counted: ClassVar[bool] = True
    """Not where a job that was made due may stand among the later ones until it is promoted."""
    expired_are_met_alike: ClassVar[bool] = True
    """Not where a claim meets jobs that have expired when it puts them into their lanes."""

    async def opened(self) -> Storage:
        """The store under test, empty."""
        return await open_in_memory(MemorySource(), clock=self.clock)

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = VirtualClock()
        self.stores: list[Storage] = []
        self.claims: list[dict[Key, ClaimedJob]] = []
        self.ids: list[JobId] = []
        self.names = {slot: slot for slot in WORKERS}
        self.operated = 0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def both(self, ask: Callable[[Storage, int], Awaitable[T]]) -> list[T | str]:
        """Both answers; an error answers by its kind."""

        async def one(index: int) -> T | str:
            try:
                return await ask(self.stores[index], index)
            except WindlassError as error:
                return type(error).__name__

        return [self.run(one(0)), self.run(one(1))]

    def agree(self, ask: Callable[[Storage, int], Awaitable[T]]) -> T | str:
        reference, ours = self.both(ask)
        assert ours == reference
        return ours

    @initialize()
    def open(self) -> None:
        memory = MemoryStorage(MemoryDatabase(self.clock))
        self.stores = [memory, self.run(self.opened())]
        self.claims = [{}, {}]
        for slot in WORKERS:
            self.register(slot)
        self.define(1, 2, RATES[0], 2)

    def teardown(self) -> None:
        if self.stores and not self.histories_at_every_step:
            self.agree(self._histories)
        for store in self.stores:
            self.run(store.close())
        self.loop.close()

    # --- producing ---

    @rule(seed=SEEDS)
    def insert(self, seed: int) -> None:
        chance = random.Random(seed)
        news = [self.a_job(chance) for _ in range(chance.randint(1, 5))]
        self.agree(lambda store, _: _listed(store.jobs.insert(news)))

    def a_job(self, chance: random.Random) -> NewJob:
        job_id = JobId(f"{len(self.ids) + 1:032x}")
        self.ids.append(job_id)
        delay, expires = chance.choice([None, None, 0, 2, 30]), chance.choice([None, None, None, 4])
        return NewJob(
            id=job_id,
            task=chance.choice(["t"] * 9 + ["u"]),
            queue=chance.choice(QUEUES),
            payload=job_id.encode(),
            priority=chance.randint(-1, 1),
            delay=None if delay is None else timedelta(seconds=delay),
            unique=self.a_key(chance) if chance.random() < 0.4 else None,
            limits=chance.choice(LIMITS),
            expires=None if expires is None else timedelta(seconds=expires),
            max_attempts=chance.randint(1, 3),
            trace=job_id,
            on_failure=chance.choice(FOLLOW_UPS),
            on_lost=chance.choice(["retry", "retry", "fail"]),
        )

    def a_key(self, chance: random.Random) -> UniqueKey:
        window = chance.choice(list(Window))
        period = timedelta(seconds=20) if window is Window.FOR_A_TIME else None
        return UniqueKey(
            chance.choice(["k1", "k2", "k3"]), window, period, chance.choice(CONFLICTS)
        )

    # --- working ---

    @rule(
        slot=st.sampled_from(WORKERS),
        a=st.integers(0, 4),
        b=st.integers(0, 4),
        solo=st.booleans(),
        gone=st.sampled_from([False] * 9 + [True]),
    )
    def claim(self, slot: str, a: int, b: int, *, solo: bool, gone: bool) -> None:
        """By a worker that lives, or by one that may have gone."""
        self.take(slot if gone else self.names[slot], a, b, solo=solo)

    def take(self, worker: str, a: int, b: int, *, solo: bool) -> list[Key]:
        """Claim; the answer is what the worker got."""
        wants = [Want(queue, limit) for queue, limit in zip(QUEUES, (a, b), strict=True) if limit]
        claimed: list[Key] = []

        async def ask(store: Storage, index: int) -> object:
            reply = await store.jobs.claim(worker, wants, total=max(a, b), solo=solo)
            for job in reply.jobs:
                self.claims[index][_key(job.claim)] = job
            claimed[:] = [_key(job.claim) for job in reply.jobs]
            jobs = [PLAIN(job, claim=PLAIN(job.claim, seq=0)) for job in reply.jobs]
            return jobs, reply.live, reply.solo_due, reply.at

        if wants:
            self.agree(ask)
        return claimed

    @rule(
        slot=st.sampled_from(WORKERS),
        seed=SEEDS,
    )
    def work(self, slot: str, seed: int) -> None:
        """Claim, and end most of what was claimed: jobs are to get as far as that."""
        chance = random.Random(seed)
        self.advance(chance.choice([0, 0, 1, 5]))
        worker = self.names[slot]
        claimed = self.take(worker, 3, 3, solo=False) or self.take(worker, 3, 3, solo=True)
        ended = [(key, chance.choice(OUTCOMES)) for key in claimed if chance.random() < 0.9]
        if ended:
            self.finish(ended, None)

    @rule(seed=SEEDS)
    def busy_moment(self, seed: int) -> None:
        """Of all that can happen this is what mostly does."""
        chance = random.Random(seed)
        for _ in range(3):
            self.insert(chance.getrandbits(32))
            for slot in WORKERS:
                self.work(slot, chance.getrandbits(32))

    @precondition(lambda self: self.claims and self.claims[0])
    @rule(seed=SEEDS, by=st.sampled_from([None, None, "reaper"]))
    def apply(self, seed: int, by: str | None) -> None:
        """End some claims of any time: most of them are not held any more."""
        chance, keys = random.Random(seed), sorted(self.claims[0])
        picked = [chance.choice(keys[-6:]) for _ in range(chance.randint(1, 4))]
        self.finish([(key, chance.choice(OUTCOMES)) for key in picked], by)

    def finish(self, runs: list[tuple[Key, Outcome]], by: str | None) -> None:
        async def ask(store: Storage, index: int) -> object:
            held = [(self.claims[index][key], outcome) for key, outcome in runs]
            transitions = [self.ending(job, outcome, by or job.worker) for job, outcome in held]
            return list((await store.jobs.apply(transitions)).answers)

        self.agree(ask)
        self.ids += [then for key, _ in runs if (then := _after(key)) not in self.ids]

    def ending(self, job: ClaimedJob, outcome: Outcome, by: str) -> Transition:
        """What the runtime makes of an outcome; a final failure may be followed by a job."""
        # About a third of the jobs has a queue that keeps no successes.
        policy = Policy(keep_succeeded=int(job.claim.job[-2:], 16) % 3 > 0)
        made = decide(job, outcome, policy, by=by, now=self.clock.now(), chance=0.5)
        if job.claim.number % 3:  # one run in three notes nothing
            made = PLAIN(made, metadata={"claim": job.claim.number, "by": by})
        if made.verb is not Verb.FAIL or job.on_failure is None:
            return made
        follow_up = job.on_failure
        then = NewJob(
            id=_after(_key(job.claim)),
            task=follow_up.task,
            queue=follow_up.queue,
            limits=follow_up.limits,
            tags=follow_up.tags,
            parent=job.claim.job,
        )
        return PLAIN(made, then=(then,))

    @rule(slot=st.sampled_from(WORKERS))
    def register(self, slot: str) -> None:
        start = WorkerStart(
            id=self.names[slot],
            host="h",
            pid=1,
            version="0",
            queues=QUEUES,
            slots=4,
            lease=timedelta(seconds=9),
        )
        self.agree(lambda store, _: store.workers.register(start))

    def renew(self, *ended: str) -> None:
        """Who has ended stays ended; somebody else comes in its place."""
        for slot, name in list(self.names.items()):
            if name in ended:
                self.names[slot] = f"{slot}-{len(self.ids)}-{self.clock.now():%H%M%S%f}"
                self.register(slot)

    @rule(slot=st.sampled_from(WORKERS))
    def beat(self, slot: str) -> None:
        async def ask(store: Storage, _: int) -> object:
            beat = await store.workers.beat(self.names[slot])
            return beat.live, _keys(beat.cancelled), _keys(beat.holding)

        self.agree(ask)

    @rule()
    def bury_the_overdue_and_reap(self) -> None:
        async def ask(store: Storage, _: int) -> object:
            buried = await store.workers.bury(await store.workers.overdue())
            lost = await store.workers.orphans(50)
            gone = Lost(AttemptError("WorkerLost", "gone"))
            applied = await store.jobs.apply([self.ending(job, gone, "reaper") for job in lost])
            gone_for_good.update(buried)
            return sorted(buried), [job.claim.job for job in lost], list(applied.answers)

        gone_for_good: set[str] = set()
        self.agree(ask)
        self.renew(*gone_for_good)

    @rule(slot=st.sampled_from(WORKERS))
    def leave(self, slot: str) -> None:
        worker = self.names[slot]

        async def ask(store: Storage, _: int) -> object:
            return list((await store.workers.leave(worker, [])).answers)

        self.agree(ask)
        self.renew(worker)

    # --- operating ---

    @precondition(lambda self: self.ids)
    @rule(
        pick=st.integers(0, 10_000), verb=st.sampled_from(["cancel", "requeue", "discard", "run"])
    )
    def operate(self, pick: int, verb: str) -> None:
        job, note = self.ids[pick % len(self.ids)], self.next_note()

        async def ask(store: Storage, _: int) -> object:
            match verb:
                case "cancel":
                    return list(await store.jobs.cancel([job]))
                case "requeue":
                    return await obeyed(store, Requeue(), job, note=note)
                case "discard":
                    return await obeyed(store, Discard("enough"), job, note=note)
                case _:
                    return await obeyed(store, RunNow(), job, note=note)

        self.agree(ask)

    def next_note(self) -> AuditNote:
        self.operated += 1
        return AuditNote(id=f"f{self.operated:031x}", who="carol", what="jobs.try")

    @rule(
        queue=st.sampled_from(QUEUES), verb=st.sampled_from(["pause", "resume", "resume", "resume"])
    )
    def hold(self, queue: str, verb: str) -> None:
        self.agree(lambda store, _: getattr(store.admin, verb)(queue))

    @rule(
        one=st.integers(1, 2),
        two=st.integers(1, 3),
        rate=st.sampled_from(RATES),
        failures=st.integers(1, 3),
    )
    def define(self, one: int, two: int, rate: Rate, failures: int) -> None:
        breaker = Breaker(failures, cool_down=4, growth=3, longest=20)
        specs = [
            LimitSpec(name="one", concurrency=one),
            LimitSpec(name="two", concurrency=two),
            LimitSpec(name="rate", rate=rate),
            LimitSpec(name="breaker", breaker=breaker),
        ]
        self.agree(lambda store, _: store.limits.define(specs))

    @rule(seconds=st.sampled_from([0.000001, 0.5, 1, 2, 5, 10, 40, 120]))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        if not self.expired_are_met_alike:
            self.do_chore("expire")

    @rule(chore=st.sampled_from(["promote", "expire"]))
    def do_chore(self, chore: str) -> None:
        async def ask(store: Storage, _: int) -> object:
            if chore == "expire":
                return sorted(await store.maintenance.expire(100))
            done = await store.maintenance.promote(100)
            return done if self.promotions_are_counted else 0

        self.agree(ask)

    # --- what must agree after every step ---

    @invariant()
    def every_row_is_the_same(self) -> None:
        if self.stores:
            if not self.expired_are_met_alike:
                # One that ran past its expiry and waits again is met by a claim, or is not.
                self.both(lambda store, _: store.maintenance.expire(1000))
            self.agree(self._rows)
            if self.histories_at_every_step:
                self.agree(self._histories)

    async def _rows(self, store: Storage, _: int) -> object:
        jobs = await store.admin.find(JobFilter(), limit=1000)
        workers = [(w.start.id, w.state, w.running) for w in await store.workers.workers()]
        # Sorted: of two that came at one instant either may be the newer one.
        return [_comparable(job) for job in jobs], sorted(workers)

    async def _histories(self, store: Storage, _: int) -> object:
        jobs = await store.admin.find(JobFilter(), limit=1000)
        return [list(await store.admin.history(job.id)) for job in jobs]

    @invariant()
    def every_sum_is_the_same(self) -> None:
        if self.stores:
            self.agree(self._sums)

    async def _sums(self, store: Storage, _: int) -> object:
        now = self.clock.now()
        rollups = await store.admin.rollups(datetime(2000, 1, 1, tzinfo=now.tzinfo), now + _MINUTE)
        return list(rollups), list(await store.admin.counts())


_MINUTE = timedelta(minutes=1)


async def _listed(work: Awaitable[Sequence[T]]) -> list[T]:
    return list(await work)


def _key(claim: Claim) -> Key:
    return (claim.job, claim.number)


def _after(key: Key) -> JobId:
    """The id of what follows this run."""
    job, number = key
    return JobId(f"f{number:03x}{job[4:]}")


def _keys(claims: Sequence[Claim]) -> list[Key]:
    return sorted(_key(claim) for claim in claims)


def _comparable(job: JobRecord) -> JobRecord:
    """Insertion order is compared by the order of the list; the numbers themselves are private."""
    return PLAIN(job, seq=0)
