"""`Delete`: a job is gone, with all that hangs on it."""

from __future__ import annotations

from windlass._core.job.outcome import Raised
from windlass._core.job.state import State
from windlass._core.job.transition import succeed
from windlass._core.job.unique import Window
from windlass._storage.protocol.actions import ActionResult, Delete
from windlass._storage.protocol.jobs import Verdict
from windlass._storage.protocol.journal import EventRecord, LogChunk, LogLine
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import new_job_id
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    DAY,
    HOUR,
    MINUTE,
    OOPS,
    a_job,
    add,
    at_most,
    claim,
    claim_one,
    end,
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
    succeeded,
    total,
)

__all__ = ["DeleteConformance"]

DONE, REQUESTED = ActionResult.DONE, ActionResult.REQUESTED


class DeleteConformance:
    """Nothing is left of a deleted job."""

    async def test_a_job_that_does_not_run_is_gone_at_once(self, storage: Storage) -> None:
        dead, done = await failed(storage), await started(storage)
        await succeeded(storage, done)
        ready, later, cancelled = await add(storage, a_job(), a_job(delay=DAY), a_job())
        await storage.jobs.cancel([cancelled])
        everybody = [dead, done.claim.job, ready, later, cancelled]
        answers = await obeyed(storage, Delete(), *everybody, new_job_id())
        assert answers == [*[DONE] * 5, ActionResult.UNKNOWN]
        assert list(await storage.admin.get(everybody)) == [None] * 5
        assert await every(storage, JobFilter()) == []
        assert await total(storage) == 0
        settled = await storage.jobs.settled(everybody)
        assert [one.state for one in settled] == [None] * 5

    async def test_a_deleted_waiting_job_is_never_claimed(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        ready, later, other = await add(storage, a_job(), a_job(delay=MINUTE), a_job())
        assert await obeyed(storage, Delete(), ready, later) == [DONE, DONE]
        assert await storage.maintenance.next_due() is None
        clock.advance(HOUR)
        assert ids(await claim(storage, 10)) == [other]

    async def test_a_running_job_is_asked_to_end_and_stays(self, storage: Storage) -> None:
        running = await started(storage)
        assert await obeyed(storage, Delete(), running.claim.job) == [REQUESTED]
        assert list((await storage.workers.beat("w1")).cancelled) == [running.claim]
        await happened(storage, running, Raised(OOPS))
        assert (await look(storage, running)).state is State.CANCELLED
        assert await obeyed(storage, Delete(), running.claim.job) == [DONE]

    async def test_its_key_is_free(self, storage: Storage) -> None:
        (waiting,) = await add(storage, keyed("k"))
        ended = await failed(storage, keyed("timed", Window.FOR_A_TIME, priority=-1))
        assert await obeyed(storage, Delete(), waiting, ended) == [DONE, DONE]
        await add(storage, keyed("k"), keyed("timed", Window.FOR_A_TIME))

    async def test_its_lane_continues_without_it(self, storage: Storage) -> None:
        await at_most(storage, one=1)
        running = await started(storage, limited("one"))
        first, second = await add(storage, limited("one"), limited("one"))
        assert await claim(storage, 10) == []
        assert await obeyed(storage, Delete(), first) == [DONE]
        await succeeded(storage, running)
        (next_one,) = await claim(storage, 10)
        assert next_one.claim.job == second
        await succeeded(storage, next_one)
        (last,) = await add(storage, limited("one"))
        assert ids(await claim(storage, 10)) == [last]

    async def test_an_end_of_its_last_claim_that_comes_late_is_unknown(
        self, storage: Storage
    ) -> None:
        running = await started(storage)
        await happened(storage, running, Raised(OOPS))
        assert await obeyed(storage, Delete(), running.claim.job) == [DONE]
        (answer,) = await end(storage, succeed(running, by="w1", result=None))
        assert answer.verdict is Verdict.UNKNOWN

    async def test_the_same_id_may_come_again_and_knows_nothing_of_it(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        running = await started(storage)
        job = running.claim.job
        line = LogLine(clock.now(), 20, "so far")
        await storage.journal.append_logs([LogChunk(running.claim, 1, (line,))])
        event = EventRecord(at=clock.now(), kind="started", job=job, task="t", queue="q")
        assert await storage.journal.append_events([event]) == 1
        await happened(storage, running, Raised(OOPS))
        assert await obeyed(storage, Delete(), job) == [DONE]
        await add(storage, a_job(id=job))
        assert list(await storage.admin.history(job)) == []
        assert list(await storage.journal.logs(job)) == []
        now = clock.now()
        assert list(await storage.journal.events(now - DAY, now + DAY, limit=10)) == []
        again = await claim_one(storage)
        assert (again.claim.number, again.attempt, again.error) == (1, 1, None)
