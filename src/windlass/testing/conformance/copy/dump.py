"""`CopyStore`: everything out of one storage and into another of the same kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from windlass._core.job.job import AttemptError, FollowUp, JobId, LimitUse, Progress
from windlass._core.job.outcome import GaveUp, Lost, Raised, Succeeded
from windlass._core.job.state import State
from windlass._core.job.unique import Window
from windlass._core.limits.backoff import Backoff
from windlass._core.limits.breaker import Breaker
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._storage.protocol.actions import Discard
from windlass._storage.protocol.copy import StoredJob
from windlass._storage.protocol.journal import LogChunk, LogLine
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.jobs.solo_runs import suspected
from windlass.testing.conformance.steps import (
    DAY,
    HOUR,
    INSTANT,
    MINUTE,
    OOPS,
    SECOND,
    a_job,
    add,
    claim,
    claim_one,
    enlist,
    every,
    failed,
    happened,
    ids,
    keyed,
    limited,
    look,
    obeyed,
    started,
    throttled,
)

__all__ = ["SPECS", "DumpConformance", "dumped", "furnished", "moved", "without_numbers"]

SPECS = (
    LimitSpec(name="one", concurrency=1),
    LimitSpec(name="rate", rate=Rate(1, HOUR, 2)),
    LimitSpec(name="fuse", breaker=Breaker(1, MINUTE)),
)
TRACE = 'Traceback:\n  File "/srv/shop/mail.py", line 3, in send\n    x()\nE: no\n'
EVERYTHING: dict[str, Any] = {
    "task": "send",
    "payload": '{"to":"zoë"}'.encode(),
    "priority": -3,
    "max_attempts": 7,
    "timeout": 5 * SECOND,
    "expires": 9 * DAY,
    "backoff": Backoff.fixed(7),
    "tags": ("a", "b"),
    "tenant": "acme",
    "principal": "zoë",
    "correlation_id": "c-1",
    "trace": "00-1",
    "parent": JobId("0" * 31 + "1"),
    "on_failure": FollowUp(task="sorry", tags=("x",)),
}


async def furnished(storage: Storage, clock: VirtualClock) -> list[JobId]:
    """Return jobs of every kind, in the order they were made."""
    await storage.limits.define(SPECS)
    jobs = [await failed(storage, max_attempts=3), await failed(storage)]
    await obeyed(storage, Discard("no use"), jobs[1])
    done = await started(storage)
    await happened(storage, done, Succeeded(b"42"))
    jobs.append(done.claim.job)
    jobs += await add(storage, a_job(delay=DAY))
    await storage.jobs.cancel(jobs[-1:])
    clock.advance(MINUTE)
    jobs.append((await suspected(storage)).claim.job)
    retried = await started(storage, a_job(**EVERYTHING))
    line = LogLine(clock.now(), 30, "so fär")
    await storage.journal.append_logs([LogChunk(retried.claim, n, (line, line)) for n in (1, 2)])
    await happened(storage, retried, Raised(AttemptError("E", "no", TRACE)))
    jobs.append(retried.claim.job)
    throttled_once = await started(storage, limited("rate", priority=-1))
    await throttled(storage, throttled_once, delay=HOUR)
    jobs.append(throttled_once.claim.job)
    clock.advance(MINUTE / 2)
    jobs += await _waiting_and_running(storage)
    clock.advance(SECOND)
    return jobs


async def _waiting_and_running(storage: Storage) -> list[JobId]:
    running = await started(storage, keyed("r", limits=(LimitUse("one", "x", 2.0),), priority=-9))
    await storage.jobs.report([(running.claim, Progress(0.5, "half", {"of": [1, 2]}))])
    await storage.jobs.cancel([running.claim.job])
    waiting = await add(
        storage,
        a_job(priority=2),
        a_job(priority=1),
        keyed("k", delay=HOUR, expires=DAY),
        keyed("t", Window.FOR_A_TIME, priority=9),
        keyed("s", Window.UNTIL_STARTED, priority=9),
        limited("one:x", "rate", priority=-1),
        a_job(queue="b", expires=MINUTE),
    )
    return [running.claim.job, *waiting]


async def dumped(storage: Storage, page: int = 3) -> list[StoredJob]:
    """Return all of them, page by page."""
    found: list[StoredJob] = []
    after = 0
    while more := await storage.moving.dump(after=after, limit=page):
        assert len(more) <= page
        assert more[0].job.seq > after, "a page repeats what the page before had: it never ends"
        found += more
        after = found[-1].job.seq
    return found


async def moved(here: Storage, there: Storage) -> list[StoredJob]:
    """Take the jobs to where the limits are defined."""
    await there.limits.define(await here.limits.specs())
    jobs = await dumped(here)
    assert await there.moving.restore(jobs) == len(jobs)
    return jobs


def without_numbers(jobs: Sequence[StoredJob]) -> list[StoredJob]:
    """Return all that is to be the same in both places."""
    return [
        replace(
            stored,
            job=replace(stored.job, seq=0),
            ended=stored.ended and tuple(stored.ended),
            history=tuple(stored.history),
            logs=tuple(
                replace(chunk, claim=replace(chunk.claim, seq=0), lines=tuple(chunk.lines))
                for chunk in stored.logs
            ),
        )
        for stored in jobs
    ]


class DumpConformance:
    """The dumped records, and their use in another storage."""

    async def test_jobs_come_out_in_order_and_in_pages(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        jobs = await furnished(storage, clock)
        out = await dumped(storage)
        assert [stored.job.id for stored in out] == jobs
        assert [stored.job for stored in out] == [await look(storage, job) for job in jobs]
        assert await dumped(storage, page=100) == out

    async def test_history_and_logs_of_a_job_are_dumped_with_it(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        timed = keyed("t", Window.FOR_A_TIME)
        running = await started(storage, timed)
        line = LogLine(clock.now(), 20, "x")
        await storage.journal.append_logs([LogChunk(running.claim, 1, (line,))])
        answer = await happened(storage, running, Raised(OOPS))
        (out,) = await dumped(storage)
        assert (out.unique, out.key_until) == (timed.unique, clock.now() + HOUR)
        assert out.ended is not None
        assert tuple(out.ended) == (1, answer.verb, "w1")
        assert list(out.history) == list(await storage.admin.history(timed.id))
        assert list(out.logs) == list(await storage.journal.logs(timed.id))
        clock.advance(HOUR)
        (later,) = await dumped(storage)
        assert (later.key_until, later.job.key_held) == (None, False)

    async def test_jobs_are_elsewhere_what_they_were_here(
        self, storage: Storage, elsewhere: Storage, clock: VirtualClock
    ) -> None:
        jobs = await furnished(storage, clock)
        await add(elsewhere, a_job(queue="theirs"))
        out = await moved(storage, elsewhere)
        back = [one for one in await dumped(elsewhere) if one.job.queue != "theirs"]
        assert without_numbers(back) == without_numbers(out)
        for job in jobs:
            here, there = await look(storage, job), await look(elsewhere, job)
            assert replace(there, seq=0) == replace(here, seq=0)
            assert await elsewhere.admin.history(job) == await storage.admin.history(job)
        here_counts = await storage.admin.counts()
        there_counts = await elsewhere.admin.counts()
        assert [one for one in there_counts if one.queue != "theirs"] == list(here_counts)

    async def test_jobs_are_found_elsewhere_by_all_they_are(
        self, storage: Storage, elsewhere: Storage, clock: VirtualClock
    ) -> None:
        await furnished(storage, clock)
        await moved(storage, elsewhere)
        for wanted in (
            JobFilter(),
            JobFilter(tag="b"),
            JobFilter(tenant="acme", principal="zoë", correlation_id="c-1"),
            JobFilter(key="k"),
            JobFilter(worker="w1"),
            JobFilter(error="E", frame="shop/mail.py send"),
            JobFilter(text="ZOë"),
            JobFilter(states=[State.FAILED, State.CANCELLED, State.DISCARDED]),
            JobFilter(finished_from=clock.now() - DAY, finished_until=clock.now()),
        ):
            found = await every(elsewhere, wanted)
            assert found == await every(storage, wanted), wanted
            assert found, wanted
        assert await elsewhere.admin.errors() == await storage.admin.errors()

    async def test_ready_jobs_are_claimed_elsewhere_in_the_same_order(
        self, storage: Storage, elsewhere: Storage, clock: VirtualClock
    ) -> None:
        await furnished(storage, clock)
        await moved(storage, elsewhere)
        order = []
        for store in (storage, elsewhere):
            await enlist(store, "new")
            order.append(
                [
                    ids(await claim(store, 20, worker="new", queue=queue, solo=solo))
                    for queue in ("default", "b")
                    for solo in (False, True)
                ]
            )
        assert order[1] == order[0]
        assert [len(found) for found in order[0]] == [5, 1, 1, 0]

    async def test_later_jobs_are_due_elsewhere_when_they_were_here(
        self, storage: Storage, elsewhere: Storage, clock: VirtualClock
    ) -> None:
        await enlist(elsewhere)
        first, second = await add(storage, a_job(delay=HOUR), a_job(delay=MINUTE))
        (late,) = await add(storage, a_job(expires=MINUTE))
        await moved(storage, elsewhere)
        assert await elsewhere.maintenance.next_due() == clock.now() + MINUTE
        clock.advance(MINUTE)
        assert ids(await claim(elsewhere, 10)) == [second]
        assert (await look(elsewhere, late)).reason == "expired"
        clock.advance(HOUR)
        assert ids(await claim(elsewhere, 10)) == [first]

    async def test_keys_are_held_elsewhere_as_they_were(
        self, storage: Storage, elsewhere: Storage, clock: VirtualClock
    ) -> None:
        held, timed, spent = (
            *await add(storage, keyed("held"), keyed("timed", Window.FOR_A_TIME)),
            await failed(storage, keyed("spent", priority=-1)),
        )
        clock.advance(MINUTE)
        await moved(storage, elsewhere)
        answers = await elsewhere.jobs.insert(
            [keyed("held"), keyed("timed", Window.FOR_A_TIME), keyed("spent")]
        )
        assert [(one.id, one.created) for one in answers[:2]] == [(held, False), (timed, False)]
        assert answers[2].created
        assert spent != answers[2].id
        clock.advance(HOUR - MINUTE - INSTANT)
        assert (await look(elsewhere, timed)).key_held
        clock.advance(INSTANT)
        assert not (await look(elsewhere, timed)).key_held

    async def test_running_jobs_count_elsewhere_until_the_reaper_ends_them(
        self, storage: Storage, elsewhere: Storage
    ) -> None:
        await storage.limits.define(SPECS)
        running = await started(storage, limited("one"))
        (waiting,) = await add(storage, limited("one"))
        await moved(storage, elsewhere)
        await enlist(elsewhere, "new")
        assert [one.running for one in await elsewhere.limits.states("one")] == [1]
        assert await claim(elsewhere, 10, worker="new") == []
        (orphan,) = await elsewhere.workers.orphans(10)
        assert (orphan.claim.job, orphan.claim.number, orphan.worker) == (
            running.claim.job,
            1,
            "w1",
        )
        await happened(elsewhere, orphan, Lost(OOPS), by="reaper")
        assert ids(await claim(elsewhere, 10, worker="new")) == [waiting]
        assert (await look(elsewhere, running)).state is State.WAITING

    async def test_claim_numbers_continue_where_they_were(
        self, storage: Storage, elsewhere: Storage
    ) -> None:
        await happened(storage, await started(storage), Raised(OOPS, 0 * MINUTE))
        await moved(storage, elsewhere)
        await enlist(elsewhere)
        again = await claim_one(elsewhere)
        assert (again.claim.number, again.attempt) == (2, 2)
        await happened(elsewhere, again, GaveUp(OOPS))
        numbers = [one.claim_number for one in await elsewhere.admin.history(again.claim.job)]
        assert numbers == [1, 2]

    async def test_logs_are_copied_and_continue(
        self, storage: Storage, elsewhere: Storage, clock: VirtualClock
    ) -> None:
        running, line = await started(storage), LogLine(clock.now(), 20, "first")
        await storage.journal.append_logs([LogChunk(running.claim, 1, (line,))])
        await happened(storage, running, Raised(OOPS, 0 * MINUTE))
        await moved(storage, elsewhere)
        await enlist(elsewhere)
        again = await claim_one(elsewhere)
        await elsewhere.journal.append_logs([LogChunk(again.claim, 1, (line,))])
        chunks = await elsewhere.journal.logs(again.claim.job)
        assert [(one.claim.number, one.number, list(one.lines)) for one in chunks] == [
            *((1, 1, [line]), (2, 1, [line]))
        ]
