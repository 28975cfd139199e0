"""Moving house: everything of one storage in another, whatever the two are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from windlass import Windlass
from windlass._admin.copy.checks import JobChecksum
from windlass._admin.copy.copy import CopyProgress, CopyRefused, CopyReport, copy
from windlass._core.flows.flow import RETRIED_AT_ONCE, FlowState
from windlass._core.job.job import FollowUp, JobRecord, LimitUse, Progress
from windlass._core.job.outcome import GaveUp, Lost, Policy, Raised
from windlass._core.job.state import State
from windlass._core.job.transition import succeed
from windlass._core.job.unique import Window
from windlass._core.limits.backoff import Backoff
from windlass._core.limits.breaker import Breaker
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._core.limits.queue_settings import QueueSettings
from windlass._storage.memory import MemoryDatabase, MemoryStorage
from windlass._storage.protocol.actions import Cancel, Discard
from windlass._storage.protocol.copy import CopiedRecord, StoredJob
from windlass._storage.protocol.flows import FlowGraph
from windlass._storage.protocol.journal import EventRecord, LogChunk, LogLine
from windlass._storage.protocol.schedules import ScheduleWrite
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import START, VirtualClock
from windlass.testing.conformance.copy.flows import half_done
from windlass.testing.conformance.flows.steps import (
    Plan,
    act,
    agree,
    run_all,
    settle,
    start,
    state,
)
from windlass.testing.conformance.steps import (
    HOUR,
    MINUTE,
    OOPS,
    SECOND,
    a_job,
    a_note,
    a_worker,
    add,
    claim,
    claim_one,
    ended,
    enlist,
    happened,
    keyed,
    limited,
    obeyed,
    throttled,
)

Open = Callable[[], Awaitable[Storage]]
OOPS_AT = msgspec.structs.replace(OOPS, traceback='File "/shop/mail.py", line 3, in send\n  x')


async def furnish(storage: Storage) -> None:
    """One of everything there is, and nobody at work."""
    await storage.limits.define(
        [
            LimitSpec(name="api", rate=Rate(2, per=MINUTE, burst=2)),
            LimitSpec(name="printer", concurrency=1),
            LimitSpec(name="breaker pay", breaker=Breaker(failures=1)),
        ]
    )
    await storage.workers.register(a_worker("w1", lease=SECOND))
    await ended_ones(storage)
    await waiting_ones(storage)
    await storage.queues.change(
        "mail", QueueSettings(max_running=3, backoff=Backoff.fixed(5)), old=QueueSettings()
    )
    await storage.admin.pause("bank")
    await storage.schedules.write(
        [
            ScheduleWrite(name="hourly", revision=0, body=b'{"a":1}', next_at=await storage.now()),
            ScheduleWrite(name="by hand", revision=0, body='{"ü":"☃"}'.encode()),
        ]
    )
    await storage.schedules.declare(["hourly"])


async def ended_ones(storage: Storage) -> None:
    now = await storage.now()
    # A success, an endless failure with history and logs, and what people ended.
    await add(storage, a_job(task="fine", payload=b'{"text":"\\u2603 \xe2\x98\x83"}'))
    running = await claim_one(storage)
    await ended(storage, succeed(running, by="w1", result=b"[1,2]"))
    await add(storage, keyed("order 7", on_failure=FollowUp(task="told", tags=("x",))))
    running = await claim_one(storage)
    line = LogLine(now, 20, "half way")
    await storage.journal.append_logs([LogChunk(running.claim, 1, [line, line])])
    await happened(storage, running, GaveUp(OOPS_AT))
    event = EventRecord(at=now, kind="failed", job=running.claim.job, task="t", queue="q")
    later = msgspec.structs.replace(event, at=now + SECOND, worker="w1", attempt=2)
    assert await storage.journal.append_events([event, later]) == 2
    (cancelled,) = await add(storage, a_job(tags=("a", "b"), tenant="acme", principal="ada"))
    await obeyed(storage, Cancel(), cancelled, note=a_note(subject=f"job {cancelled}"))
    (discarded,) = await add(storage, a_job())
    await happened(storage, await claim_one(storage), GaveUp(OOPS_AT))
    await obeyed(storage, Discard("nobody wants it"), discarded)


async def waiting_ones(storage: Storage) -> None:
    # Retrying, lost, given time, throttled; limits that count, spend and are broken.
    await add(storage, a_job(backoff=Backoff.fixed(60)))
    await happened(storage, await claim_one(storage), Raised(OOPS_AT))
    await add(storage, a_job(task="heavy"))
    for _ in range(2):
        (running,) = await claim(storage)
        await happened(storage, running, Lost(OOPS), Policy(backoff=Backoff.fixed(0)))
    await add(storage, limited("printer"), limited("printer"), limited("api", "printer:x"))
    await add(storage, a_job(limits=(LimitUse("breaker pay"),), queue="bank"))
    (broken,) = await claim(storage, queue="bank")
    await happened(storage, broken, Raised(OOPS_AT))
    await add(storage, a_job(queue="cool"))
    (busy,) = await claim(storage, queue="cool")
    await throttled(storage, busy, MINUTE)
    # Two left running by somebody who is gone; one says how far it is.
    (left, *_) = await claim(storage, 2)
    await storage.jobs.report([(left.claim, Progress(0.5, "half"))])
    await add(
        storage,
        a_job(delay=HOUR, expires=2 * HOUR, priority=-3, timeout=MINUTE, correlation_id="c"),
        keyed("for a time", Window.FOR_A_TIME),
        keyed("until started", Window.UNTIL_STARTED, queue="mail"),
    )


async def jobs_of(storage: Storage) -> dict[str, StoredJob]:
    found = await storage.moving.dump(after=0, limit=1000)
    return {stored.job.id: stored for stored in found}


def same_but_for_numbers(ours: StoredJob, theirs: StoredJob) -> bool:
    first, second = JobChecksum(), JobChecksum()
    first.add([ours])
    second.add([theirs])
    return first.text == second.text and ours.key_until == theirs.key_until


@asynccontextmanager
async def houses(*opens: Open) -> AsyncIterator[list[Storage]]:
    opened = [await one() for one in opens]
    try:
        yield opened
    finally:
        for storage in opened:
            await storage.close()


@pytest.fixture
def another_memory(clock: VirtualClock) -> Open:
    database = MemoryDatabase(clock)

    async def opened() -> Storage:
        return MemoryStorage(database)

    return opened


# --- from one to the next -------------------------------------------------------------------------


async def test_everything_arrives_from_any_backend_in_any_other(
    request: pytest.FixtureRequest, another_memory: Open, clock: VirtualClock
) -> None:
    names = ("open_memory", "open_file", "open_schema", "open_prefix")
    opens = [request.getfixturevalue(name) for name in names]
    async with houses(*opens, another_memory) as stops:
        await furnish(stops[0])
        clock.advance(2)  # who worked there is taken for gone
        reports = [await copy(a, b) for a, b in pairwise(stops)]
        await are_alike(stops[0], stops[-1])
        await work_goes_on(stops[-1], clock)
    assert [report.problems for report in reports] == [()] * 4
    assert len({report.checksum for report in reports}) == 1
    assert {report.jobs for report in reports} == {14}
    assert {report.new for report in reports} == {14}


async def test_flows_arrive_from_any_backend_in_any_other_and_continue(
    request: pytest.FixtureRequest, another_memory: Open, clock: VirtualClock
) -> None:
    names = ("open_memory", "open_schema", "open_file", "open_prefix")
    opens = [request.getfixturevalue(name) for name in names]
    async with houses(*opens, another_memory) as stops:
        plan = await half_done(stops[0])
        await stops[0].workers.leave("w1", [])
        reports = [await copy(a, b) for a, b in pairwise(stops)]
        for storage in stops[1:]:
            await enlist(storage)
            assert await run_all(storage) == ["added", "anyway"]
        clock.advance(HOUR)
        for storage in stops[1:]:
            assert await run_all(storage) == ["later", "later", "sad"]
            assert (await state(storage, plan)).state is FlowState.FAILED
            assert await agree(storage)
    assert [report.problems for report in reports] == [()] * 4
    assert {(report.flows, report.jobs) for report in reports} == {(1, 13)}
    assert len({report.checksum for report in reports}) == 1


async def test_a_retry_continues_in_any_other_backend(
    request: pytest.FixtureRequest, another_memory: Open
) -> None:
    names = ("open_memory", "open_prefix", "open_file", "open_schema")
    opens = [request.getfixturevalue(name) for name in names]
    async with houses(*opens, another_memory) as stops:
        plan = Plan()
        plan.part("a", RETRIED_AT_ONCE + 10)
        plan.part("b", after=["a"])
        await start(stops[0], plan)
        await act(stops[0], plan, "cancel")
        await stops[0].flows.act([plan.id], "retry", a_note())
        await stops[0].workers.leave("w1", [])
        reports = [await copy(a, b) for a, b in pairwise(stops)]
        for storage in stops[1:]:
            await enlist(storage)
            assert (await state(storage, plan)).open <= RETRIED_AT_ONCE + 1
            await settle(storage)
            assert (await state(storage, plan)).open == RETRIED_AT_ONCE + 11
            assert await agree(storage)
    assert [report.problems for report in reports] == [()] * 4
    assert len({report.checksum for report in reports}) == 1


async def are_alike(first: Storage, last: Storage) -> None:
    ours, theirs = await jobs_of(first), await jobs_of(last)
    assert list(ours) == list(theirs)  # in the same order
    assert [job for job in ours if not same_but_for_numbers(ours[job], theirs[job])] == []
    assert await first.limits.specs() == await last.limits.specs()
    for spec in await first.limits.specs():
        assert await budgets(first, spec.name) == await budgets(last, spec.name)
    assert await first.queues.queues() == await last.queues.queues()
    day = timedelta(days=1)
    now = await first.now()
    span = (now - day, now + day)
    assert await first.admin.rollups(*span) == await last.admin.rollups(*span)
    assert await first.admin.counts() == await last.admin.counts()
    assert list(await first.journal.events(*span, limit=9)) == list(
        await last.journal.events(*span, limit=9)
    )
    rows = [[(r.name, r.body, r.next_at) for r in await s.schedules.rows()] for s in (first, last)]
    assert rows[0] == rows[1]
    orders = [{r.note.id for r in await s.orders.audits(limit=99)} for s in (first, last)]
    assert orders[0] < orders[1]  # and that it is a copy
    newest = (await last.orders.audits(limit=1))[0]
    assert newest.note.what == "db.copy"  # which was later than all that came along


async def budgets(storage: Storage, name: str) -> list[Any]:
    """But for what a backend tells of its own lanes."""
    states = await storage.limits.states(name)
    return [msgspec.structs.replace(state, parked=0) for state in states if state.running]


async def work_goes_on(storage: Storage, clock: VirtualClock) -> None:
    """What was left running is found, and what waits can be had."""
    assert len(await storage.workers.orphans(9)) == 2
    await storage.workers.register(a_worker("w2"))
    clock.advance(3 * 3600)
    assert await claim(storage, 9, worker="w2")


# --- again ----------------------------------------------------------------------------------------


class Cut:
    """Takes small bites and breaks off after so many writes, as Ctrl-C would."""

    def __init__(self, storage: Storage, after: int) -> None:
        self._storage, self._left = storage, after
        self.moving = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    async def dump(self, *, after: int, limit: int) -> Sequence[StoredJob]:
        return await self._storage.moving.dump(after=after, limit=min(limit, 4))

    async def dump_flows(self, *, after: int, limit: int) -> Sequence[FlowGraph]:
        return await self._storage.moving.dump_flows(after=after, limit=limit)

    async def restore(self, things: Sequence[CopiedRecord]) -> int:
        if not self._left:
            raise KeyboardInterrupt
        self._left -= 1
        return await self._storage.moving.restore(things)


@pytest.mark.parametrize("after", [0, 1, 2, 4, 6, 8])
async def test_an_interrupted_copy_is_run_again_to_its_end(
    open_memory: Open, another_memory: Open, clock: VirtualClock, after: int
) -> None:
    async with houses(open_memory, another_memory) as (source, target):
        await furnish(source)
        clock.advance(2)
        first: Any = Cut(source, 0)
        second: Any = Cut(target, after)
        with pytest.raises(KeyboardInterrupt):
            await copy(first, second)
        there = len(await jobs_of(target))
        report = await copy(source, target)
        assert (report.problems, report.new) == ((), 14 - there)
        again = await copy(source, target)
        assert (again.problems, again.new) == ((), 0)
        await are_alike(source, target)


@pytest.mark.parametrize("after", [1, 2, 3])
async def test_an_interrupted_copy_of_flows_is_run_again_to_its_end(
    open_memory: Open, another_memory: Open, after: int
) -> None:
    async with houses(open_memory, another_memory) as (source, target):
        plan = await half_done(source)
        await source.workers.leave("w1", [])
        second: Any = Cut(target, after)
        with pytest.raises(KeyboardInterrupt):
            await copy(source, second)
        report = await copy(source, target)
        assert (report.problems, report.flows, report.jobs) == ((), 1, 13)
        await enlist(target)
        assert await run_all(target) == ["added", "anyway"]
        assert await agree(target)
        assert (await state(target, plan)).open == 2


async def test_counts_of_flows_that_do_not_agree_are_found_out(
    open_memory: Open, another_memory: Open
) -> None:
    async with houses(open_memory, another_memory) as (source, target):
        plan = await half_done(source)
        await source.workers.leave("w1", [])
        (graph,) = await source.moving.dump_flows(after=0, limit=1)
        rows = msgspec.structs.replace(graph.parts[0], succeeded=7)
        await target.moving.restore(
            [msgspec.structs.replace(graph, parts=[rows, *graph.parts[1:]])]
        )
        differs, wrong = (await copy(source, target)).problems
        assert differs.startswith("the checksums of the jobs differ.")
        assert wrong.startswith(f"flow {plan.id}, rows: succeeded is 7, and 3 jobs are.")
        assert wrong.endswith("windlass flows recount --repair")


async def test_progress_is_reported_for_every_part(
    open_memory: Open, another_memory: Open, clock: VirtualClock
) -> None:
    told: list[CopyProgress] = []
    async with houses(open_memory, another_memory) as (source, target):
        await furnish(source)
        clock.advance(2)
        await copy(source, target, progress=told.append)
    assert list(dict.fromkeys(far.part for far in told)) == [
        *("audits", "jobs", "rollups", "events", "check")
    ]
    assert [far for far in told if far.part == "jobs"][-1] == CopyProgress("jobs", 14, 14)


# --- refused, and found out -----------------------------------------------------------------------


@pytest.mark.parametrize("side", [0, 1])
async def test_nothing_is_copied_while_a_worker_is_live(
    open_memory: Open, another_memory: Open, side: int
) -> None:
    async with houses(open_memory, another_memory) as both:
        await add(both[0], a_job())
        await both[side].workers.register(a_worker("w7"))
        with pytest.raises(CopyRefused, match=r"1 worker live on .*w7 \(process 1 on host\)"):
            await copy(both[0], both[1])
        assert await jobs_of(both[1]) == {}


async def test_a_target_with_other_jobs_is_refused_unless_it_is_said_to_be_ours(
    open_memory: Open, another_memory: Open
) -> None:
    async with houses(open_memory, another_memory) as (source, target):
        await add(source, a_job())
        await add(target, a_job())
        with pytest.raises(CopyRefused, match="already has jobs"):
            await copy(source, target)
        assert len(await jobs_of(target)) == 1
        report = await copy(source, target, resume=True)
        (problem,) = report.problems
        assert problem.startswith("1 jobs in the source, 2 in the target.")


async def test_a_storage_is_not_copied_onto_itself(open_file: Open) -> None:
    async with houses(open_file, open_file) as (one, other):
        with pytest.raises(CopyRefused, match="name another storage"):
            await copy(one, other)


async def test_a_difference_is_found_out(
    open_memory: Open, another_memory: Open, clock: VirtualClock
) -> None:
    """A job, a schedule and a limit that changed on the way; each is one of its own."""

    async def damaged(source: Storage, target: Storage) -> CopyReport:
        await copy(source, target)
        (job,) = await source.moving.dump(after=0, limit=1)
        await obeyed(target, Cancel(), job.job.id)
        return await copy(source, target)

    async with houses(open_memory, another_memory) as (source, target):
        await add(source, a_job(), a_job())
        report = await damaged(source, target)
        (problem,) = report.problems
        assert problem.startswith("the checksums of the jobs differ.")
        assert "empty the target" in problem


async def test_an_app_copies_its_storage_to_another_url(tmp_path: Path) -> None:
    url, parts = f"sqlite:///{tmp_path}/new.db", list[str]()
    async with Windlass("memory://") as app, Windlass(url) as other:

        @app.task(queue="mail")
        async def send(to: str) -> None: ...

        job = await send.enqueue("ada@example.org")
        await app.admin.queues.set("mail", max_running=3)
        report = await app.admin.storage.copy(url, progress=lambda far: parts.append(far.part))
        assert (report.jobs, report.new, report.queues, report.problems) == (1, 1, 1, ())
        assert {"jobs", "check"} <= set(parts)
        assert (await other.admin.jobs.get(job.id)).queue == "mail"
        assert (await other.admin.queues.get("mail")).settings.max_running == 3
        assert (await app.admin.storage.copy(url)).new == 0


async def test_a_copy_to_a_storage_that_does_not_last_is_refused(tmp_path: Path) -> None:
    async with Windlass(f"sqlite:///{tmp_path}/jobs.db") as app:
        with pytest.raises(CopyRefused, match="memory:// ends with this call"):
            await app.admin.storage.copy("memory://")


def test_a_checksum_does_not_depend_on_order_but_on_everything_else() -> None:
    def stored(**said: Any) -> StoredJob:
        job = JobRecord(
            **{
                "id": "a", "seq": 1, "task": "t", "queue": "q", "payload": b"{}",
                "state": State.WAITING, "priority": 0, "created_at": START, "due": START,
                "attempt": 0, "max_attempts": 5, "budget": 5, "claim_number": 0, **said,
            }
        )  # fmt: skip
        return StoredJob(job=job)

    def sum_of(*jobs: StoredJob) -> str:
        tally = JobChecksum()
        tally.add(jobs)
        return tally.text

    one, two = stored(), stored(id="b")
    assert sum_of(one, two) == sum_of(two, one) == sum_of(stored(seq=9), two)
    assert sum_of(one, one) != sum_of()  # twice the same does not cancel out
    others = [stored(payload=b"[]"), stored(attempt=1), stored(due=START + SECOND), two]
    assert len({sum_of(job) for job in (one, *others)}) == 5
