"""Two stores that are told the same: every rule compares what they say, and what they hold."""

from __future__ import annotations

import asyncio
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

from tests.storage.choices import (
    FOLLOW_UPS,
    LIMITS,
    OUTCOMES,
    QUEUES,
    RATES,
    WORKERS,
)
from windlass.core.breaker import Breaker
from windlass.core.job import (
    AttemptError,
    Claim,
    ClaimedJob,
    Job,
    JobId,
    NewJob,
)
from windlass.core.limit import LimitSpec, Rate
from windlass.core.outcome import (
    Lost,
    Outcome,
    Policy,
    decide,
)
from windlass.core.state import Verb
from windlass.core.transition import Transition
from windlass.core.unique import OnConflict, Unique, Window
from windlass.errors import WindlassError
from windlass.storage.memory import MemoryDatabase, MemoryStorage
from windlass.storage.protocol import JobFilter, Storage, Want, WorkerStart
from windlass.storage.sqlite import open_in_memory
from windlass.storage.sqlite.connection import MemorySource
from windlass.testing.clock import VirtualClock

T = TypeVar("T")
Key = tuple[JobId, int]

PLAIN = msgspec.structs.replace


class Machine(RuleBasedStateMachine):
    """Every rule does one thing to both stores and compares what they say."""

    histories_at_every_step: ClassVar[bool] = True
    """A question per job: to a server only at the end."""
    promotions_are_counted: ClassVar[bool] = True
    """Not where a job that was made due may stand among the later ones until it is promoted."""

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
        for worker in WORKERS:
            self.register(worker)
        self.define(1, 2, RATES[0], 2)

    def teardown(self) -> None:
        if self.stores and not self.histories_at_every_step:
            self.agree(self._histories)
        for store in self.stores:
            self.run(store.close())
        self.loop.close()

    # --- producing ---

    @rule(
        jobs=st.lists(
            st.tuples(
                st.sampled_from(QUEUES),
                st.integers(-1, 1),
                st.sampled_from([None, 0, 2, 30]),
                st.sampled_from([None, None, "k1", "k2"]),
                st.sampled_from(list(Window)),
                st.sampled_from(LIMITS),
                st.sampled_from([None, None, 4]),
                st.integers(1, 3),
                st.sampled_from(list(OnConflict)),
                st.sampled_from(["t", "t", "t", "u"]),
                st.sampled_from(FOLLOW_UPS),
            ),
            min_size=1,
            max_size=5,
        )
    )
    def insert(self, jobs: list[tuple[Any, ...]]) -> None:
        news = []
        for queue, priority, delay, key, window, limits, expires, attempts, *others in jobs:
            what, task, follow_up = others
            job_id = JobId(f"{len(self.ids) + 1:032x}")
            self.ids.append(job_id)
            period = timedelta(seconds=20) if window is Window.FOR_A_TIME else None
            news.append(
                NewJob(
                    id=job_id,
                    task=task,
                    queue=queue,
                    payload=job_id.encode(),
                    priority=priority,
                    delay=None if delay is None else timedelta(seconds=delay),
                    unique=None if key is None else Unique(key, window, period, what),
                    limits=limits,
                    expires=None if expires is None else timedelta(seconds=expires),
                    max_attempts=attempts,
                    trace=job_id,
                    on_failure=follow_up,
                )
            )
        self.agree(lambda store, _: _listed(store.jobs.insert(news)))

    # --- working ---

    @rule(
        worker=st.sampled_from(WORKERS),
        a=st.integers(0, 4),
        b=st.integers(0, 4),
        solo=st.booleans(),
    )
    def claim(self, worker: str, a: int, b: int, *, solo: bool) -> None:
        wants = [Want(queue, limit) for queue, limit in zip(QUEUES, (a, b), strict=True) if limit]
        if not wants:
            return

        async def ask(store: Storage, index: int) -> object:
            reply = await store.jobs.claim(worker, wants, total=max(a, b), solo=solo)
            for job in reply.jobs:
                self.claims[index][_key(job.claim)] = job
            jobs = [PLAIN(job, claim=PLAIN(job.claim, seq=0)) for job in reply.jobs]
            return jobs, reply.live, reply.solo_due, reply.at

        self.agree(ask)

    @precondition(lambda self: self.claims and self.claims[0])
    @rule(
        picks=st.lists(
            st.tuples(st.integers(0, 10_000), st.sampled_from(OUTCOMES)), min_size=1, max_size=4
        ),
        by=st.sampled_from([None, None, "reaper"]),
    )
    def apply(self, picks: list[tuple[int, Outcome]], by: str | None) -> None:
        keys = sorted(self.claims[0])

        async def ask(store: Storage, index: int) -> object:
            transitions = []
            for pick, outcome in picks:
                job = self.claims[index][keys[pick % len(keys)]]
                transitions.append(self.ending(job, outcome, by or job.worker))
            return list((await store.jobs.apply(transitions)).answers)

        self.agree(ask)
        self.ids += [
            then for pick, _ in picks if (then := _after(keys[pick % len(keys)])) not in self.ids
        ]

    def ending(self, job: ClaimedJob, outcome: Outcome, by: str) -> Transition:
        """What the runtime makes of an outcome; a final failure may be followed by a job."""
        made = decide(job, outcome, Policy(), by=by, now=self.clock.now(), chance=0.5)
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
        return PLAIN(made, then=then)

    @rule(worker=st.sampled_from(WORKERS))
    def register(self, worker: str) -> None:
        start = WorkerStart(
            id=worker,
            host="h",
            pid=1,
            version="0",
            queues=QUEUES,
            slots=4,
            lease=timedelta(seconds=9),
        )
        self.agree(lambda store, _: store.workers.register(start))

    @rule(worker=st.sampled_from(WORKERS))
    def beat(self, worker: str) -> None:
        async def ask(store: Storage, _: int) -> object:
            beat = await store.workers.beat(worker)
            return beat.live, _keys(beat.cancelled), _keys(beat.holding)

        self.agree(ask)

    @rule()
    def bury_the_overdue_and_reap(self) -> None:
        async def ask(store: Storage, _: int) -> object:
            buried = await store.workers.bury(await store.workers.overdue())
            lost = await store.workers.orphans(50)
            gone = Lost(AttemptError("WorkerLost", "gone"))
            applied = await store.jobs.apply([self.ending(job, gone, "reaper") for job in lost])
            return sorted(buried), [job.claim.job for job in lost], list(applied.answers)

        self.agree(ask)

    @rule(worker=st.sampled_from(WORKERS))
    def leave(self, worker: str) -> None:
        async def ask(store: Storage, _: int) -> object:
            return list((await store.workers.leave(worker, [])).answers)

        self.agree(ask)

    # --- operating ---

    @precondition(lambda self: self.ids)
    @rule(
        pick=st.integers(0, 10_000), verb=st.sampled_from(["cancel", "requeue", "discard", "run"])
    )
    def operate(self, pick: int, verb: str) -> None:
        job = self.ids[pick % len(self.ids)]

        async def ask(store: Storage, _: int) -> object:
            match verb:
                case "cancel":
                    return list(await store.jobs.cancel([job]))
                case "requeue":
                    return [one.id for one in await store.admin.requeue([job])]
                case "discard":
                    await store.admin.discard([job], reason="enough")
                    return []
                case _:
                    return list(await store.admin.run_now([job]))

        self.agree(ask)

    @rule(queue=st.sampled_from(QUEUES), verb=st.sampled_from(["pause", "resume", "resume"]))
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

    @rule(chore=st.sampled_from(["promote", "expire"]))
    def do_chore(self, chore: str) -> None:
        async def ask(store: Storage, _: int) -> int:
            done: int = await getattr(store.maintenance, chore)(100)
            return done if chore == "expire" or self.promotions_are_counted else 0

        self.agree(ask)

    # --- what must agree after every step ---

    @invariant()
    def every_row_is_the_same(self) -> None:
        if self.stores:
            self.agree(self._rows)
            if self.histories_at_every_step:
                self.agree(self._histories)

    async def _rows(self, store: Storage, _: int) -> object:
        jobs = await store.admin.find(JobFilter(), limit=1000)
        workers = [(w.start.id, w.state, w.running) for w in await store.workers.workers()]
        return [_comparable(job) for job in jobs], workers

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


def _comparable(job: Job) -> Job:
    """Insertion order is compared by the order of the list; the numbers themselves are private."""
    return PLAIN(job, seq=0)
