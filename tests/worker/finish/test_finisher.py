"""Outcomes are stored in batches, survive outages, fail alone, and are told exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.worker.fixtures import Bench, Hook, World, bench, logged, register, simulate, working
from windlass._app.parts import parts_of
from windlass._core.job.event import Event, JobMoved
from windlass._core.job.job import ClaimedJob, JobRecord
from windlass._core.job.outcome import Succeeded
from windlass._core.job.state import State, Verb
from windlass._core.job.transition import Transition, succeed
from windlass._storage.protocol.jobs import Applied, Want
from windlass._worker.run.execution import RunEnded
from windlass.errors import StorageReplaced, StorageUnavailable


async def claims(it: Bench, count: int, worker: str | None = None) -> list[ClaimedJob]:
    """Running jobs, held by the bench's worker."""
    task = it.app.tasks.find("job")
    if task is None:

        @it.app.task(name="job")
        async def job() -> None: ...

        task = it.app.tasks["job"]
    await it.app.enqueue_many([task.call() for _ in range(count)])
    storage = await parts_of(it.app).storage()
    worker = worker or it.engine.identity.id
    reply = await storage.jobs.claim(worker, [Want("default", count)], total=count)
    return list(reply.jobs)


def finished(it: Bench, jobs: Sequence[ClaimedJob]) -> None:
    for job in jobs:
        it.engine.finisher.add(RunEnded(job, Succeeded()))


async def states(it: Bench, jobs: Sequence[ClaimedJob]) -> list[State]:
    return [(await parts_of(it.app).producer.refresh(job.claim.job)).state for job in jobs]


def listening(it: Bench) -> list[JobMoved]:
    moved: list[JobMoved] = []

    def hear(event: Event) -> None:
        if isinstance(event, JobMoved):
            moved.append(event)

    it.app.on_transition(hear)
    return moved


# --- batches -------------------------------------------------------------------------------------


def test_while_one_write_is_under_way_the_next_one_collects() -> None:
    async def scenario(world: World) -> list[int]:
        store = await world.tampered()
        sizes: list[int] = []

        async def apply(call: Hook, transitions: Sequence[Transition]) -> Any:
            sizes.append(len(transitions))
            await asyncio.sleep(1)
            return await call(transitions)

        store.on("jobs.apply", apply)

        @world.app.task(name="job")
        async def job(seconds: float) -> None:
            await asyncio.sleep(seconds)

        async with working(world.app, store=store, slots=30):
            # One ends at once; the others while that one is being written.
            calls = [job.call(0.0), *(job.call(0.1 + n / 100) for n in range(29))]
            jobs = await world.app.enqueue_many(calls)
            await asyncio.gather(*(each.result() for each in jobs))
        return sizes

    assert simulate(scenario) == [1, 29]


async def test_a_batch_has_an_upper_bound() -> None:
    async with bench(slots=1200) as it:
        jobs = await claims(it, 1200)
        finished(it, jobs)
        while not it.engine.finisher.idle:
            assert await it.engine.finisher.flush() <= 500
        assert it.store.calls["jobs.apply"] == 3
        assert set(await states(it, jobs)) == {State.SUCCEEDED}


async def test_an_idle_finisher_makes_no_call() -> None:
    async with bench() as it:
        assert it.engine.finisher.idle
        assert await it.engine.finisher.flush() == 0
        assert it.store.calls["jobs.apply"] == 0


# --- outages -------------------------------------------------------------------------------------


def test_an_outage_is_waited_out_and_nothing_is_lost() -> None:
    async def scenario(world: World) -> None:
        store = await world.tampered()

        @world.app.task(name="job")
        async def job(number: int) -> int:
            await asyncio.sleep(1)
            return number

        with logged() as lines:
            async with working(world.app, store=store, slots=5):
                jobs = await world.app.enqueue_many([job.call(n) for n in range(5)])
                await world.until(0.5)
                store.down = True
                await world.until(120)
                assert [(await each.refresh()).state for each in jobs] == [State.RUNNING] * 5
                store.down = False
                assert [await each.result() for each in jobs] == [0, 1, 2, 3, 4]
                assert world.loop.time() < 125
        assert len(lines.having("outcomes cannot be stored, retrying")) == 1
        assert len(lines.having("outcomes are stored again")) == 1

    # A lease as long as the outage: what is tested is the finisher.
    simulate(scenario, lease=600)


async def test_a_lost_answer_is_requested_again_and_published_once() -> None:
    async with bench() as it:
        moved = listening(it)
        jobs = await claims(it, 3)
        finished(it, jobs)

        async def answer_lost(call: Hook, transitions: Sequence[Transition]) -> Applied:
            await call(transitions)
            it.store.hooks.clear()
            raise StorageUnavailable("the answer was lost")

        it.store.on("jobs.apply", answer_lost)
        stop = asyncio.Event()
        running = asyncio.ensure_future(it.engine.finisher.run(stop))
        stop.set()
        await running
        assert [event.verb for event in moved] == [Verb.SUCCEED] * 3
        assert len({event.job for event in moved}) == 3
        assert it.engine.finisher.counts[Verb.SUCCEED] == 3


async def test_a_passing_failure_fails_no_job_and_splits_no_batch() -> None:
    for count in (1, 4):
        async with bench() as it:
            jobs = await claims(it, count)

            async def blip(call: Hook, transitions: Sequence[Transition]) -> Applied:
                it.store.hooks.clear()
                raise StorageUnavailable("away for a moment")

            it.store.on("jobs.apply", blip)
            finished(it, jobs)
            stop = asyncio.Event()
            stop.set()
            await it.engine.finisher.run(stop)
            assert await states(it, jobs) == [State.SUCCEEDED] * count
            assert it.store.calls["jobs.apply"] == 2


async def test_an_outcome_counts_as_held_until_the_store_has_answered() -> None:
    async with bench() as it:
        (job,) = await claims(it, 1)
        finished(it, [job])
        finisher = it.engine.finisher
        assert finisher.holds(job.claim)
        assert len(finisher.waiting) == 1

        async def look(call: Hook, transitions: Sequence[Transition]) -> Applied:
            assert finisher.holds(job.claim)
            assert not finisher.waiting
            assert not finisher.idle
            applied: Applied = await call(transitions)
            return applied

        it.store.on("jobs.apply", look)
        await finisher.flush()
        assert not finisher.holds(job.claim)
        assert finisher.idle


# --- what can never be stored --------------------------------------------------------------------


def refusing(culprit: str) -> Hook:
    """A store that chokes on one outcome of one job, but can store its failure."""

    async def apply(call: Hook, transitions: Sequence[Transition]) -> Any:
        if any(t.claim.job == culprit and t.verb is not Verb.FAIL for t in transitions):
            raise ValueError("integer out of range")
        return await call(transitions)

    return apply


async def test_an_outcome_that_cannot_be_stored_fails_alone_and_says_so() -> None:
    async with bench() as it:
        moved = listening(it)
        jobs = await claims(it, 10)
        culprit = jobs[6].claim.job
        it.store.on("jobs.apply", refusing(culprit))
        finished(it, jobs)
        with logged() as lines:
            await it.engine.finisher.flush()
        expected = [State.SUCCEEDED] * 10
        expected[6] = State.FAILED
        assert await states(it, jobs) == expected
        record = await parts_of(it.app).producer.refresh(culprit)
        assert record.error is not None
        assert record.error.kind == "OutcomeNotStorable"
        assert record.error.message == "succeed: ValueError: integer out of range"
        assert len(lines.having("cannot be stored")) == 1
        assert sorted(event.verb for event in moved) == [Verb.FAIL, *[Verb.SUCCEED] * 9]
        assert it.engine.finisher.idle


async def test_events_are_published_once_when_an_outage_interrupts_the_halving() -> None:
    async with bench() as it:
        moved = listening(it)
        jobs = await claims(it, 4)
        culprit = jobs[3].claim.job
        search = refusing(culprit)
        outages = [StorageUnavailable("away"), StorageUnavailable("away")]

        async def apply(call: Hook, transitions: Sequence[Transition]) -> Any:
            if transitions[0].verb is Verb.FAIL and outages:
                raise outages.pop()
            return await search(call, transitions)

        it.store.on("jobs.apply", apply)
        finished(it, jobs)
        stop = asyncio.Event()
        stop.set()
        await it.engine.finisher.run(stop)
        assert not outages
        assert sorted(event.verb for event in moved) == [Verb.FAIL, *[Verb.SUCCEED] * 3]
        assert it.engine.finisher.counts == {Verb.SUCCEED: 3, Verb.FAIL: 1}


async def test_a_replaced_database_is_no_reason_to_fail_a_job() -> None:
    async with bench() as it:
        jobs = await claims(it, 3)

        async def replaced(call: Hook, transitions: Sequence[Transition]) -> Applied:
            it.store.hooks.clear()
            raise StorageReplaced("jobs.db is another file now")

        it.store.on("jobs.apply", replaced)
        finished(it, jobs)
        stop = asyncio.Event()
        stop.set()
        with pytest.raises(StorageReplaced):
            await it.engine.finisher.run(stop)
        assert all(it.engine.finisher.holds(job.claim) for job in jobs)
        await it.engine.finisher.flush()
        assert await states(it, jobs) == [State.SUCCEEDED] * 3


async def test_an_outcome_that_cannot_even_fail_blocks_no_other() -> None:
    async with bench() as it:
        moved = listening(it)
        jobs = await claims(it, 5)
        culprit, cured = jobs[1].claim.job, False

        async def apply(call: Hook, transitions: Sequence[Transition]) -> Any:
            if not cured and any(t.claim.job == culprit for t in transitions):
                raise ValueError("this row is cursed")
            return await call(transitions)

        it.store.on("jobs.apply", apply)
        finished(it, jobs)
        with pytest.raises(ValueError, match="cursed"):
            await it.engine.finisher.flush()
        others = [*jobs[:1], *jobs[2:]]
        assert set(await states(it, others)) == {State.SUCCEEDED}
        assert it.engine.finisher.holds(jobs[1].claim)
        late = await claims(it, 3)
        finished(it, late)
        with pytest.raises(ValueError, match="cursed"):
            await it.engine.finisher.flush()
        assert set(await states(it, late)) == {State.SUCCEEDED}
        cured = True
        await it.engine.finisher.flush()
        assert await states(it, jobs) == [State.SUCCEEDED] * 5
        assert len(moved) == len({event.job for event in moved}) == 8


def test_one_outcome_that_cannot_even_fail_slows_no_other() -> None:
    async def scenario(world: World) -> None:
        store = await world.tampered()
        cursed: list[str] = []

        async def apply(call: Hook, transitions: Sequence[Transition]) -> Any:
            if any(t.claim.job in cursed for t in transitions):
                raise ValueError("this row is cursed")
            return await call(transitions)

        store.on("jobs.apply", apply)

        @world.app.task(name="job")
        async def job() -> None: ...

        async with working(world.app, store=store, slots=4):
            await world.until(1)
            bad = await job.options(delay=0.5).enqueue()
            cursed.append(bad.id)
            await world.until(20)
            for _ in range(50):
                good = await job.enqueue()
                await good.result(timeout=60)
            assert world.loop.time() < 22
            cursed.clear()
            await bad.result(timeout=60)

    simulate(scenario)


# --- refused -------------------------------------------------------------------------------------


async def test_a_refused_outcome_emits_nothing_and_logs_one_line() -> None:
    async with bench() as it:
        moved = listening(it)
        storage = await parts_of(it.app).storage()
        await register(storage, "dead")
        (job,) = await claims(it, 1, worker="dead")
        await storage.jobs.apply([Transition(Verb.RETRY, job.claim, "reaper")])
        again = await claims(it, 1)
        assert again[0].claim.number == 2
        with logged() as lines:
            finished(it, [job])
            await it.engine.finisher.flush()
        assert moved == []
        (line,) = lines.records
        assert line.levelname == "WARNING"
        assert line.getMessage() == (
            f"job {job.claim.job} claim 1: the claim was lost, its outcome (succeed) is not stored"
        )
        assert it.engine.finisher.counts == {"refused": 1}
        record: JobRecord = await parts_of(it.app).producer.refresh(job.claim.job)
        assert record.state is State.RUNNING
        assert record.claim_number == 2


async def test_an_outcome_of_a_job_that_is_gone_emits_nothing() -> None:
    async with bench(keep_succeeded=0) as it:
        moved = listening(it)
        (job,) = await claims(it, 1)
        moved.clear()
        transition = succeed(job, by=job.worker, result=None, keep=False)
        for _ in range(2):
            it.engine.finisher.waiting[job.claim] = (job, transition)
            await it.engine.finisher.flush()
        assert [event.verb for event in moved] == [Verb.SUCCEED]
        assert it.engine.finisher.counts == {Verb.SUCCEED: 1, "unknown": 1}


# --- after the commit ----------------------------------------------------------------------------


async def test_an_event_is_published_only_after_the_write() -> None:
    async with bench() as it:
        moved = listening(it)
        seen: list[int] = []

        async def apply(call: Hook, transitions: Sequence[Transition]) -> Any:
            seen.append(len(moved))
            answer = await call(transitions)
            seen.append(len(moved))
            return answer

        it.store.on("jobs.apply", apply)
        finished(it, await claims(it, 1))
        await it.engine.finisher.flush()
        assert seen == [0, 0]
        assert len(moved) == 1


async def test_an_event_follows_the_verb_that_was_answered() -> None:
    async with bench() as it:
        moved = listening(it)
        (job,) = await claims(it, 1)
        await parts_of(it.app).producer.cancel(job.claim.job)
        it.engine.finisher.waiting[job.claim] = (job, Transition(Verb.RETRY, job.claim, job.worker))
        await it.engine.finisher.flush()
        assert [(event.verb, event.delay) for event in moved] == [(Verb.CANCEL, None)]
