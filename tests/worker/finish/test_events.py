"""What listeners hear: every stored transition once, in order, and nothing that was refused."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from tests.worker.fixtures import Bench, Hook, World, bench, logged, register, simulate, working
from windlass import Backoff, GiveUp, Snooze, Throttled
from windlass._app.parts import parts_of
from windlass._core.job.event import Event, JobCoalesced, JobEnqueued, JobMoved
from windlass._core.job.job import JobId
from windlass._core.job.state import State, Verb
from windlass._storage.protocol.jobs import Want
from windlass._worker.liveness.reaper import Reaper
from windlass._worker.liveness.store_contact import StoreContact
from windlass.errors import StorageUnavailable


def listening(it: Bench) -> list[Event]:
    events: list[Event] = []
    it.app.on_transition(events.append)
    return events


def verbs(events: list[Event]) -> list[Verb]:
    return [event.verb for event in events if isinstance(event, JobMoved)]


async def heard(it: Bench, error: BaseException | None, **options: Any) -> list[Event]:
    events = listening(it)

    @it.app.task(name="job", **options)
    async def job() -> None:
        if error is not None:
            raise error

    await it.run(job.call())
    return events


# --- one run -------------------------------------------------------------------------------------


async def test_the_successful_path_is_enqueue_claim_succeed_and_nothing_else() -> None:
    async with bench() as it:
        events = await heard(it, None)
        assert [type(event) for event in events] == [JobEnqueued, JobMoved, JobMoved]
        assert verbs(events) == [Verb.CLAIM, Verb.SUCCEED]


async def test_the_way_to_a_retry_shows_no_failure_in_between() -> None:
    async with bench() as it:
        events = await heard(it, ValueError("x"), backoff=Backoff.fixed(9))
        assert verbs(events) == [Verb.CLAIM, Verb.RETRY]
        retry = events[-1]
        assert isinstance(retry, JobMoved)
        assert retry.delay == timedelta(seconds=9)
        assert retry.error is not None
        assert retry.error.kind == "ValueError"


async def test_a_permanent_failure_is_claim_and_fail() -> None:
    async with bench() as it:
        events = await heard(it, GiveUp("no"))
        assert verbs(events) == [Verb.CLAIM, Verb.FAIL]
        failed = events[-1]
        assert isinstance(failed, JobMoved)
        assert failed.delay is None


async def test_a_snooze_is_published_as_a_snooze() -> None:
    async with bench() as it:
        assert verbs(await heard(it, Snooze(5))) == [Verb.CLAIM, Verb.SNOOZE]
    async with bench() as it:
        assert verbs(await heard(it, Throttled(5))) == [Verb.CLAIM, Verb.THROTTLE]


async def test_without_a_listener_jobs_run_all_the_same() -> None:
    async with bench() as it:

        @it.app.task(name="job")
        async def job() -> None: ...

        assert not parts_of(it.app).hooks.bus.heard
        assert (await it.run(job.call())).state is State.SUCCEEDED


async def test_an_event_tells_who_what_when_and_how_long() -> None:
    async with bench() as it:
        events = listening(it)

        @it.app.task(name="shop.send", max_attempts=4)
        async def job() -> None:
            it.clock.advance(2)

        bound = job.options(correlation_id="r-1", tenant="acme")
        enqueued = await bound.enqueue()
        it.clock.advance(3)
        await it.engine.step()
        _, claim, success = events
        assert isinstance(claim, JobMoved)
        assert isinstance(success, JobMoved)
        for event in (claim, success):
            assert (event.job, event.task, event.queue) == (enqueued.id, "shop.send", "default")
            assert (event.claim_number, event.attempt, event.max_attempts) == (1, 1, 4)
            assert event.worker == it.engine.identity.id
            assert (event.correlation_id, event.tenant) == ("r-1", "acme")
            assert event.waited == timedelta(seconds=3)
        assert claim.ran is None
        assert success.ran == timedelta(seconds=2)
        assert success.at - claim.at == timedelta(seconds=2)


async def test_an_event_carries_the_jobs_record_and_the_state_it_leaves() -> None:
    async with bench() as it:
        events = listening(it)

        @it.app.task(name="job", max_attempts=1)
        async def job(number: int) -> None:
            raise ValueError("x")

        done = await it.run(job.options(tags=["vip"]).call(7))
        await it.app.admin.jobs.requeue(done.id)
        await it.app.admin.jobs.cancel(done.id)
        await it.app.admin.jobs.requeue(done.id)
        stored, *moves = events
        assert isinstance(stored, JobEnqueued)
        assert stored.record is not None
        assert (stored.record.payload, stored.record.tags) == (b'{"number":7}', ("vip",))
        told = [event for event in moves if isinstance(event, JobMoved)]
        assert [(event.previous, event.verb, event.state) for event in told] == [
            (State.WAITING, Verb.CLAIM, State.RUNNING),
            (State.RUNNING, Verb.FAIL, State.FAILED),
            (State.FAILED, Verb.REQUEUE, State.WAITING),
            (State.WAITING, Verb.CANCEL, State.CANCELLED),
            (State.CANCELLED, Verb.REQUEUE, State.WAITING),
        ]
        for event in told:
            assert event.record is not None
            assert (event.record.payload, event.record.tags) == (b'{"number":7}', ("vip",))


async def test_a_requeue_of_a_job_that_moved_meanwhile_does_not_guess_where_it_was() -> None:
    async with bench() as it:

        @it.app.task(name="job", max_attempts=1)
        async def job() -> None:
            raise ValueError("x")

        stuck = await job.enqueue()
        (storage, events) = (await parts_of(it.app).storage(), listening(it))
        get = storage.admin.get
        with pytest.MonkeyPatch.context() as patch:

            async def before_it_failed(ids: Sequence[JobId]) -> Any:
                found = await get(ids)
                patch.undo()
                await it.engine.step()
                return found

            patch.setattr(storage.admin, "get", before_it_failed)
            await it.app.admin.jobs.requeue(stuck.id)
        requeue = events[-1]
        assert isinstance(requeue, JobMoved)
        assert (requeue.verb, requeue.previous) == (Verb.REQUEUE, None)


async def test_a_claim_answered_too_late_is_published_with_its_release() -> None:
    async with bench() as it:
        events = listening(it)

        @it.app.task(name="job")
        async def job() -> None: ...

        async def claim(call: Hook, *args: Any, **options: Any) -> Any:
            reply = await call(*args, **options)
            it.engine.claimer.quiet.set()
            return reply

        it.store.on("jobs.claim", claim)
        await job.enqueue()
        await it.engine.step()
        assert verbs(events) == [Verb.CLAIM, Verb.RELEASE]


async def test_two_sweeps_of_one_worker_tell_of_a_lost_run_once() -> None:
    async with bench() as it:
        events = listening(it)

        @it.app.task(name="job")
        async def job() -> None: ...

        await job.enqueue()
        storage = it.store.storage
        await register(storage, "doomed")
        await storage.jobs.claim("doomed", [Want("default", 1)], total=1)
        await storage.workers.bury(["doomed"])

        async def orphans(call: Hook, *args: Any) -> Any:
            found = await call(*args)
            await asyncio.sleep(0)  # both have looked before either writes
            return found

        it.store.on("workers.orphans", orphans)
        lease = timedelta(seconds=30)
        reaper = Reaper(
            storage,
            it.engine.identity,
            StoreContact(beat=lease, lease=lease, clock=lambda: 100.0),
            decisions=it.engine.decisions,
            bus=parts_of(it.app).hooks.bus,
        )
        await asyncio.gather(reaper.reap(), reaper.reap())
        assert verbs(events) == [Verb.RETRY]


# --- listeners that misbehave --------------------------------------------------------------------


async def test_a_broken_listener_harms_neither_the_job_nor_the_next_listener() -> None:
    async with bench() as it:

        def broken(event: Event) -> None:
            raise RuntimeError("broken")

        it.app.on_transition(broken)
        events = listening(it)

        @it.app.task(name="job")
        async def job() -> None: ...

        with logged() as lines:
            record = await it.run(job.call())
        assert record.state is State.SUCCEEDED
        assert verbs(events) == [Verb.CLAIM, Verb.SUCCEED]
        assert len(lines.having("failed on JobMoved")) == 2


async def test_a_reused_job_is_no_new_event() -> None:
    async with bench() as it:
        events = listening(it)

        @it.app.task(name="job")
        async def job() -> None: ...

        for _ in range(3):
            await job.options(key="once").enqueue()
        assert [type(event) for event in events] == [JobEnqueued, JobCoalesced, JobCoalesced]


# --- a busy day ----------------------------------------------------------------------------------


def test_every_stored_transition_is_heard_exactly_once() -> None:
    async def scenario(world: World) -> None:
        events: list[Event] = []
        world.app.on_transition(events.append)

        @world.app.task(name="job", backoff=Backoff.none(), max_attempts=3)
        async def job(number: int) -> None:
            await asyncio.sleep(0.1 + (number % 7) / 10)
            if number % 3 == 0:
                raise ValueError("x")

        store = await world.tampered()
        async with working(world.app, store=store, slots=5), working(world.app, slots=5):
            jobs = await world.app.enqueue_many([job.call(n) for n in range(60)])
            await world.until(2)
            store.down = True
            await world.until(8)
            store.down = False
            await world.until(60)
        moved = [event for event in events if isinstance(event, JobMoved)]
        ended = [event for event in moved if event.verb is not Verb.CLAIM]
        keys = [(event.job, event.claim_number) for event in ended]
        assert len(keys) == len(set(keys))
        for enqueued in jobs:
            record = await enqueued.refresh()
            assert record.state in (State.SUCCEEDED, State.FAILED)
            mine = [event.verb for event in ended if event.job == enqueued.id]
            history = [a.verb for a in await world.app.admin.jobs.history(enqueued.id)]
            if record.state is State.SUCCEEDED:
                history.append(Verb.SUCCEED)
            assert mine == history

    simulate(scenario, lease=600)


async def test_a_job_that_a_claim_finds_expired_is_published() -> None:
    async with bench() as it:
        moves: list[Event] = []
        it.app.on_transition(moves.append)

        @it.app.task(name="job")
        async def job() -> None: ...

        late = await job.options(expires=60, tenant="acme").enqueue()
        it.clock.advance(61)
        await it.engine.step()
        (told,) = [m for m in moves if isinstance(m, JobMoved)]
        assert (told.verb, told.job, told.task) == (Verb.EXPIRE, late.id, "job")
        assert (told.tenant, told.at) == ("acme", it.clock.now())


async def test_an_unreadable_expired_job_costs_no_claim() -> None:
    async with bench() as it:
        it.app.on_transition(lambda _: None)

        @it.app.task(name="job")
        async def job() -> None: ...

        async def get(*_: object) -> None:
            raise StorageUnavailable("away")

        it.store.on("admin.get", get)
        await job.options(expires=60).enqueue()
        it.clock.advance(61)
        fresh = await job.enqueue()
        await it.engine.step()
        assert (await fresh.refresh()).state is State.SUCCEEDED
