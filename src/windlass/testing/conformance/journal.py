"""`JournalStore`: log lines of runs, and the event log."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from windlass._core.job.job import Claim, JobId
from windlass._core.job.outcome import GaveUp, Raised
from windlass._core.job.state import State
from windlass._core.job.transition import succeed
from windlass._storage.protocol.actions import Delete
from windlass._storage.protocol.journal import EventRecord, LogChunk, LogLine
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import new_job_id
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    DAY,
    HOUR,
    INSTANT,
    MINUTE,
    OOPS,
    a_job,
    add,
    claim_one,
    ended,
    failed,
    happened,
    obeyed,
    started,
)

__all__ = ["EventConformance", "LogConformance"]


def a_chunk(claim: Claim, number: int, *texts: str, at: datetime) -> LogChunk:
    return LogChunk(claim, number, tuple(LogLine(at, 20, text) for text in texts))


def told(chunks: Sequence[LogChunk]) -> list[tuple[int, int, list[str]]]:
    """Claim number, number and texts of each."""
    return [
        (chunk.claim.number, chunk.number, [line.text for line in chunk.lines]) for chunk in chunks
    ]


class LogConformance:
    """Chunks of log lines, by claim and number."""

    async def test_lines_come_back_as_they_were_said(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # H-7
        running = await started(storage)
        lines = (
            LogLine(clock.now() + INSTANT, 10, "ünï 'x' \"y\" \\ % 💥\nsecond line"),
            LogLine(clock.now() - DAY, 50, ""),
        )
        await storage.journal.append_logs([LogChunk(running.claim, 1, lines)])
        (chunk,) = await storage.journal.logs(running.claim.job)
        assert (chunk.claim, chunk.number, tuple(chunk.lines)) == (running.claim, 1, lines)

    async def test_chunks_come_by_claim_and_number_whenever_they_were_stored(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        first, now = await started(storage), clock.now()
        await happened(storage, first, Raised(OOPS, 0 * MINUTE))
        second = await claim_one(storage)
        await storage.journal.append_logs(
            [a_chunk(second.claim, 1, "c", at=now), a_chunk(first.claim, 10, "b", at=now)]
        )
        await storage.journal.append_logs([a_chunk(first.claim, 2, "a", at=now)])
        chunks = await storage.journal.logs(first.claim.job)
        assert told(chunks) == [(1, 2, ["a"]), (1, 10, ["b"]), (2, 1, ["c"])]

    async def test_reading_continues_after_the_last_chunk(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        first, now = await started(storage), clock.now()
        await happened(storage, first, Raised(OOPS, 0 * MINUTE))
        second = await claim_one(storage)
        chunks = [a_chunk(first.claim, n, f"1.{n}", at=now) for n in (1, 2)]
        chunks += [a_chunk(second.claim, n, f"2.{n}", at=now) for n in (1, 2)]
        await storage.journal.append_logs(chunks)
        job = first.claim.job
        places = [(0, 0), (1, 1), (1, 2), (2, 1), (2, 2)]
        lengths = [len(await storage.journal.logs(job, after=place)) for place in places]
        assert lengths == [4, 3, 2, 1, 0]
        assert told(await storage.journal.logs(job, after=(1, 2))) == [
            *((2, 1, ["2.1"]), (2, 2, ["2.2"]))
        ]

    async def test_a_repeated_chunk_is_stored_once(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # guarantee 8
        running = await started(storage)
        chunk = a_chunk(running.claim, 1, "a", at=clock.now())
        await storage.journal.append_logs([chunk, chunk])
        await storage.journal.append_logs([chunk, a_chunk(running.claim, 2, "b", at=clock.now())])
        chunks = await storage.journal.logs(running.claim.job)
        assert told(chunks) == [(1, 1, ["a"]), (1, 2, ["b"])]

    async def test_lines_may_come_after_their_run_has_ended(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        running = await started(storage)
        await happened(storage, running, GaveUp(OOPS))
        await storage.journal.append_logs([a_chunk(running.claim, 1, "last", at=clock.now())])
        assert told(await storage.journal.logs(running.claim.job)) == [(1, 1, ["last"])]

    async def test_lines_of_a_job_that_is_not_stored_are_left_out(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        gone, here = await started(storage), await started(storage)
        await ended(storage, succeed(gone, by="w1", result=None, keep=False))
        await storage.journal.append_logs(
            [a_chunk(one.claim, 1, "x", at=clock.now()) for one in (gone, here)]
        )
        assert list(await storage.journal.logs(gone.claim.job)) == []
        assert len(await storage.journal.logs(here.claim.job)) == 1
        assert list(await storage.journal.logs(new_job_id())) == []

    async def test_late_lines_of_a_deleted_job_are_not_those_of_the_next_with_its_id(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        running = await started(storage)
        await happened(storage, running, GaveUp(OOPS))
        await obeyed(storage, Delete(), running.claim.job)
        await add(storage, a_job(id=running.claim.job))
        await storage.journal.append_logs([a_chunk(running.claim, 1, "late", at=clock.now())])
        assert list(await storage.journal.logs(running.claim.job)) == []

    async def test_lines_go_with_a_job_that_is_pruned_or_not_kept(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        pruned, dropped = await started(storage), await started(storage)
        await storage.journal.append_logs(
            [a_chunk(one.claim, 1, "x", at=clock.now()) for one in (pruned, dropped)]
        )
        await happened(storage, pruned, GaveUp(OOPS))
        await ended(storage, succeed(dropped, by="w1", result=None, keep=False))
        clock.advance(HOUR)
        await storage.maintenance.prune(state=State.FAILED, older_than=MINUTE, limit=10)
        jobs = [pruned.claim.job, dropped.claim.job]
        await add(storage, *(a_job(id=job) for job in jobs))
        assert [list(await storage.journal.logs(job)) for job in jobs] == [[], []]


def an_event(job: JobId, at: datetime, kind: str = "started") -> EventRecord:
    return EventRecord(at=at, kind=kind, job=job, task="t", queue="q")


class EventConformance:
    """Facts in the order in which they happened."""

    async def test_events_come_back_as_they_were_recorded(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # EVT-1
        (job,) = await add(storage, a_job())
        now = clock.now()
        event = EventRecord(
            at=now + INSTANT,
            kind="retried",
            job=job,
            task="tâche 'x'",
            queue="夜",
            worker="w-1",
            attempt=3,
        )
        assert await storage.journal.append_events([event, an_event(job, now)]) == 2
        found = await storage.journal.events(now, now + HOUR, limit=10)
        assert list(found) == [an_event(job, now), event]

    async def test_events_of_jobs_that_are_not_stored_are_left_out(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        (job,) = await add(storage, a_job())
        now = clock.now()
        events = [an_event(new_job_id(), now), an_event(job, now), an_event(new_job_id(), now)]
        assert await storage.journal.append_events(events) == 1
        assert list(await storage.journal.events(now, now + HOUR, limit=10)) == [events[1]]

    async def test_events_of_one_instant_come_as_they_were_kept(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        one, two = await add(storage, a_job(), a_job())
        now = clock.now()
        kinds = ["enqueued", "started", "retried", "a", "failed"]
        for kind in kinds:
            job = two if kind == "a" else one
            assert await storage.journal.append_events([an_event(job, now, kind)]) == 1
        found = await storage.journal.events(now, now + INSTANT, limit=10)
        assert [event.kind for event in found] == kinds

    async def test_a_range_of_events_is_half_open_and_begins_with_the_oldest(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        (job,) = await add(storage, a_job())
        start = clock.now()
        events = [an_event(job, start + n * MINUTE, f"e{n}") for n in (3, 0, 2, 1)]
        await storage.journal.append_events(events)

        async def kinds(since: datetime, until: datetime, limit: int) -> list[str]:
            return [one.kind for one in await storage.journal.events(since, until, limit=limit)]

        assert await kinds(start, start + 3 * MINUTE, 10) == ["e0", "e1", "e2"]
        assert await kinds(start, start + HOUR, 2) == ["e0", "e1"]
        assert await kinds(start + INSTANT, start + HOUR, 2) == ["e1", "e2"]

    async def test_events_of_one_job(self, storage: Storage, clock: VirtualClock) -> None:
        one, two = await add(storage, a_job(), a_job())
        now = clock.now()
        await storage.journal.append_events(
            [an_event(job, now + n * MINUTE, f"e{n}") for n, job in enumerate((one, two, one))]
        )
        found = await storage.journal.events(now, now + HOUR, limit=10, job=one)
        assert [event.kind for event in found] == ["e0", "e2"]
        first = await storage.journal.events(now, now + HOUR, limit=1, job=two)
        assert [event.kind for event in first] == ["e1"]
        unknown = await storage.journal.events(now, now + HOUR, limit=1, job=new_job_id())
        assert list(unknown) == []

    async def test_the_newest_events_come_first_if_asked_for(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        one, two = await add(storage, a_job(), a_job())
        now = clock.now()
        told = [(one, 0, "a"), (two, 1, "b"), (one, 1, "c"), (one, 2, "d")]
        await storage.journal.append_events(
            [an_event(job, now + n * MINUTE, kind) for job, n, kind in told]
        )

        async def kinds(until: datetime, limit: int, job: JobId | None = None) -> str:
            found = await storage.journal.events(
                now, until, limit=limit, job=job, newest_first=True
            )
            return "".join(event.kind for event in found)

        assert await kinds(now + HOUR, 10) == "dcba"
        assert await kinds(now + HOUR, 2) == "dc"
        assert await kinds(now + 2 * MINUTE, 10) == "cba"
        assert await kinds(now + HOUR, 2, one) == "dc"
        assert await kinds(now + HOUR, 10, two) == "b"

    async def test_events_go_with_a_job_that_is_pruned_or_not_kept(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        pruned, dropped = await failed(storage), await started(storage)
        now = clock.now()
        jobs = [pruned, dropped.claim.job, *await add(storage, a_job())]
        await storage.journal.append_events([an_event(job, now) for job in jobs])
        await ended(storage, succeed(dropped, by="w1", result=None, keep=False))
        clock.advance(HOUR)
        await storage.maintenance.prune(state=State.FAILED, older_than=MINUTE, limit=10)
        found = await storage.journal.events(now, now + HOUR, limit=10)
        assert [event.job for event in found] == jobs[2:]

    async def test_old_events_are_pruned_in_chunks(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        one, two = await add(storage, a_job(), a_job())
        start = clock.now()
        await storage.journal.append_events([an_event(job, start) for job in (one, two, one)])
        clock.advance(HOUR)
        newest = an_event(one, clock.now())
        await storage.journal.append_events([newest])
        prune = storage.maintenance.prune_events
        assert await prune(older_than=DAY, limit=10) == 0
        assert [await prune(older_than=MINUTE, limit=2) for _ in range(3)] == [2, 1, 0]
        assert list(await storage.journal.events(start, start + DAY, limit=10)) == [newest]
