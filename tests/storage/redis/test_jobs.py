"""Jobs on Redis: damaged records, batches, the keys scripts touch, and what they cost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from redis import Redis as BlockingRedis
from redis.asyncio import Redis

from tests.storage.redis.key_checker import disorder
from windlass._core.job.job import Claim, JobId, LimitUse, NewJob, Progress
from windlass._core.job.state import State
from windlass._core.job.transition import fail, retry, snooze, succeed
from windlass._core.job.unique import UniqueKey, Window
from windlass._core.limits.backoff import Backoff
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._storage.protocol.actions import ActionResult, Cancel, Delete, Edit, Requeue, RunNow
from windlass._storage.protocol.jobs import Verdict, Want
from windlass._storage.protocol.journal import EventRecord, LogChunk, LogLine
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.storage import Storage
from windlass._storage.redis import maintenance, open_redis
from windlass._storage.redis.io.records import unreadable_record_of
from windlass._storage.shared.job_ids import known_id
from windlass.errors import LimitUnknown, StorageError
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.jobs.unknown_tasks import missed
from windlass.testing.conformance.steps import (
    MINUTE,
    OOPS,
    a_job,
    a_note,
    add,
    ask,
    at_most,
    claim,
    claim_one,
    end,
    enlist,
    ids,
    keyed,
    limited,
    look,
    obeyed,
    started,
    total,
)

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
async def server(redis_prefix: tuple[str, str]) -> AsyncIterator[Redis]:
    """The bare server, for looking behind the storage."""
    connected = Redis.from_url(redis_prefix[0])
    yield connected
    await connected.aclose()


@pytest.fixture
async def storage(redis_prefix: tuple[str, str], clock: VirtualClock) -> AsyncIterator[Storage]:
    url, prefix = redis_prefix
    opened = await open_redis(url, clock=clock, prefix=prefix)
    yield opened
    await opened.close()


@pytest.fixture
def key(redis_prefix: tuple[str, str]) -> str:
    """What every key starts with."""
    return f"{{{redis_prefix[1]}}}:"


async def dead(server: Redis, key: str) -> list[Any]:
    found: Any = await server.lrange(key + "dead", 0, -1)
    return [unreadable_record_of(entry) for entry in found]


class TestDamage:
    """A record that cannot be read fails alone, and is kept for people."""

    async def test_a_damaged_record_blocks_no_job_and_is_kept(
        self, storage: Storage, server: Redis, key: str
    ) -> None:
        await enlist(storage)
        before, broken, behind = await add(storage, a_job(), a_job(), a_job())
        await server.hset(key + "jobs", known_id(broken), b"nonsense")
        reply = await ask(storage, 10)
        assert ids(list(reply.jobs)) == [before, behind]
        (entry,) = await dead(server, key)
        assert (entry.id, entry.asked) == (broken, b"nonsense")
        assert "cannot be read" in entry.reason
        assert (await total(storage), await storage.admin.get([broken])) == (2, [None])

    async def test_a_missing_record_blocks_no_job(
        self, storage: Storage, server: Redis, key: str
    ) -> None:
        await enlist(storage)
        broken, behind = await add(storage, a_job(), a_job())
        await server.hdel(key + "jobs", known_id(broken))
        assert ids(await claim(storage, 10)) == [behind]
        assert [entry.id for entry in await dead(server, key)] == [broken]

    async def test_a_record_that_only_the_worker_cannot_read_fails_its_job(
        self, storage: Storage, server: Redis, key: str
    ) -> None:
        await enlist(storage)
        backed = a_job(backoff=Backoff.fixed(MINUTE), correlation_id="c")
        broken, behind = await add(storage, backed, a_job())
        field: Any = known_id(broken)
        stored: Any = await server.hget(key + "jobs", field)
        await server.hset(key + "jobs", field, stored[:-3])
        reply = await ask(storage, 10)
        assert (ids(list(reply.jobs)), reply.next_at) == ([behind], reply.at)
        job = await look(storage, broken)
        assert job.state is State.FAILED
        assert job.error is not None
        assert job.error.kind == "Damaged"
        (entry,) = await dead(server, key)
        assert entry.asked == stored[:-3]
        assert await storage.jobs.active(["default"])
        assert await claim(storage, 10) == []

    async def test_a_limited_job_that_cannot_be_read_leaves_its_lane_to_the_next(
        self, storage: Storage, server: Redis, key: str
    ) -> None:
        await at_most(storage, db=1)
        broken, behind = await add(storage, limited("db"), limited("db"))
        await server.hset(key + "jobs", known_id(broken), b"nonsense")
        found = ids(await claim(storage, 10)) or ids(await claim(storage, 10))
        assert found == [behind]

    async def test_a_state_that_cannot_be_read_is_put_aside(
        self, storage: Storage, server: Redis, key: str
    ) -> None:
        running = await started(storage)
        await end(storage, retry(running, by="w1", error=OOPS, delay=timedelta(0)))
        (behind,) = await add(storage, a_job(priority=1))
        await server.hset(key + "state", known_id(running.claim.job), b"?")
        assert ids(await claim(storage, 10)) == [behind]
        assert [entry.kept for entry in await dead(server, key)] == [b"?"]

    async def test_a_job_that_is_put_aside_leaves_nothing_behind_and_frees_its_key(
        self, storage: Storage, server: Redis, key: str, redis_prefix: tuple[str, str]
    ) -> None:
        running = await started(storage, keyed("k", max_attempts=9))
        await storage.jobs.report([(running.claim, Progress(0.5, "half"))])
        await end(storage, retry(running, by="w1", error=OOPS, delay=timedelta(0)))
        await server.hset(key + "jobs", known_id(running.claim.job), b"nonsense")
        assert await claim(storage, 10) == []
        await add(storage, keyed("k"))
        assert len(await claim(storage, 10)) == 1
        with BlockingRedis.from_url(redis_prefix[0]) as looker:
            assert disorder(looker, key) == []

    async def test_a_finished_job_that_cannot_be_read_is_pruned_and_no_longer_counted(
        self, storage: Storage, server: Redis, key: str, clock: VirtualClock
    ) -> None:
        running = await started(storage)
        await end(storage, fail(running, by="w1", error=OOPS))
        await server.hset(key + "jobs", known_id(running.claim.job), b"nonsense")
        clock.advance(60)
        pruned = await storage.maintenance.prune(
            state=State.FAILED, older_than=MINUTE / 2, limit=10
        )
        assert (pruned, list(await storage.admin.counts())) == (1, [])


async def test_ended_jobs_stay_up_to_a_number_and_the_oldest_go_first(
    storage: Storage, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "_MOST_KEPT", 2)
    await enlist(storage)
    ended = await add(storage, *(a_job() for _ in range(5)))
    for job in await claim(storage, 5):
        await end(storage, succeed(job, by="w1", result=None))
        clock.advance(1)
    (waiting,) = await add(storage, a_job())
    await storage.maintenance.tidy()
    kept = [job.id for job in await storage.admin.get([*ended, waiting]) if job is not None]
    assert kept == [*ended[-2:], waiting]


async def test_a_job_named_twice_in_two_spellings_is_requeued_once(
    storage: Storage, redis_prefix: tuple[str, str], key: str
) -> None:
    running = await started(storage)
    await end(storage, fail(running, by="w1", error=OOPS))
    job = running.claim.job
    answers = await obeyed(storage, Requeue(), job, JobId(job.upper()))
    assert answers == [ActionResult.DONE, ActionResult.WRONG_STATE]
    with BlockingRedis.from_url(redis_prefix[0]) as looker:
        assert disorder(looker, key) == []


async def test_the_rollups_of_a_minute_are_sorted_by_queue_and_task(
    storage: Storage, clock: VirtualClock
) -> None:
    for queue, task in (("b", "t"), ("a", "u"), ("a", "t")):
        await enlist(storage)
        await add(storage, a_job(queue=queue, task=task))
        (job,) = (await storage.jobs.claim("w1", [Want(queue, 1)], total=1)).jobs
        await end(storage, succeed(job, by="w1", result=None))
    now = clock.now()
    rollups = await storage.admin.rollups(now - MINUTE, now + MINUTE)
    assert [(one.queue, one.task) for one in rollups] == [("a", "t"), ("a", "u"), ("b", "t")]


class TestBatches:
    async def test_ten_thousand_jobs_are_stored_claimed_and_finished_in_one_go_each(
        self, storage: Storage
    ) -> None:
        await enlist(storage)
        wanted = await add(storage, *(a_job() for _ in range(10_000)))
        jobs = await claim(storage, 10_000)
        assert ids(jobs) == wanted
        answers = await end(storage, *(succeed(job, by="w1", result=b"1") for job in jobs))
        assert {answer.verdict for answer in answers} == {Verdict.APPLIED}
        (counts,) = await storage.admin.counts()
        assert (counts.succeeded, counts.running, counts.ready) == (10_000, 0, 0)

    async def test_a_repeated_batch_of_many_is_recognised(self, storage: Storage) -> None:
        jobs = [a_job() for _ in range(3000)]
        await add(storage, *jobs)
        await add(storage, *jobs)
        assert await total(storage) == 3000

    async def test_a_batch_with_an_unknown_limit_leaves_not_one_key(
        self, storage: Storage, server: Redis, key: str
    ) -> None:
        async def stored() -> set[bytes]:
            return {found async for found in server.scan_iter(match=f"{key}*", count=1000)}

        before = await stored()
        with pytest.raises(LimitUnknown):
            await storage.jobs.insert([a_job(), a_job(delay=MINUTE), limited("nobody")])
        assert await stored() == before

    async def test_a_mixed_batch_of_endings_is_answered_in_its_order(
        self, storage: Storage
    ) -> None:
        await enlist(storage)
        await add(storage, *(a_job() for _ in range(4)))
        one, two, three, four = await claim(storage, 10)
        answers = await end(
            storage,
            retry(one, by="w1", error=OOPS, delay=MINUTE),
            succeed(two, by="w1", result=b"2"),
            succeed(three, by="w1", result=None),
            succeed(four, by="w2", result=None, keep=False),
            succeed(two, by="w1", result=b"2"),
        )
        verbs = [(answer.verdict.value, answer.verb and answer.verb.value) for answer in answers]
        assert verbs == [
            ("applied", "retry"),
            ("applied", "succeed"),
            ("applied", "succeed"),
            ("applied", "succeed"),
            ("repeated", "succeed"),
        ]
        assert (await look(storage, two)).result == b"2"


async def a_day(storage: Storage, clock: VirtualClock) -> None:
    """One of everything the job half does."""
    await storage.limits.define(
        [LimitSpec(name="db", concurrency=1), LimitSpec(name="api", rate=Rate(1, MINUTE))]
    )
    await enlist(storage)
    unique = UniqueKey("k", Window.UNTIL_STARTED)
    await add(
        storage, a_job(), a_job(delay=MINUTE), a_job(unique=unique), a_job(expires=MINUTE / 2),
        limited("db", "api"), limited("db"), limited("api:x", expires=MINUTE / 2),
        a_job(queue="other", limits=(LimitUse("api", cost=3),)),
    )  # fmt: skip
    first = await claim_one(storage)
    await end(storage, retry(first, by="w1", error=OOPS, delay=timedelta(0), solo=True, lost=2))
    await claim(storage, solo=True)
    jobs = await claim(storage, 10)
    await storage.jobs.outlook(["default", "other"])
    await storage.jobs.active(["default", "other"])
    await storage.jobs.cancel([job.claim.job for job in jobs[:1]])
    await end(storage, *(succeed(job, by="w1", result=b"1") for job in jobs))
    await storage.jobs.settled([job.claim.job for job in jobs])
    clock.advance(MINUTE)
    await storage.maintenance.promote(10)
    await storage.maintenance.expire(10)
    await storage.limits.states("db")
    await claim(storage, 10)
    await an_operators_day(storage)


async def an_operators_day(storage: Storage) -> None:
    """One of everything that people ask and order."""
    now = await storage.now()
    running = (await storage.admin.find(JobFilter(states=[State.RUNNING]), limit=1))[0]
    held = Claim(running.id, running.claim_number, running.seq)
    await storage.journal.append_logs([LogChunk(held, 1, [LogLine(now, 20, "hello")])])
    event = EventRecord(at=now, kind="started", job=running.id, task="t", queue="q")
    await storage.journal.append_events([event])
    await storage.journal.logs(running.id)
    await storage.journal.events(now, now + MINUTE, limit=5)
    await storage.journal.events(now, now + MINUTE, limit=5, job=running.id)
    made = await add(storage, a_job(), a_job(delay=MINUTE), limited("db"))
    for order in (Edit(queue="other", priority=3), RunNow(), Cancel(), Requeue(), Delete()):
        await storage.orders.order(order, made, a_note())
    await storage.orders.insert([a_job(unique=UniqueKey("n"))], a_note())
    await storage.orders.audits(limit=5)
    await storage.orders.audits(limit=5, subject="nothing")
    await storage.admin.pause("other", audit=a_note())
    for wanted in (JobFilter(text="x"), JobFilter(key="n", states=[State.WAITING])):
        await storage.admin.find(wanted, limit=5)
    await storage.admin.counts(cap=2)
    await storage.admin.errors()
    await storage.moving.restore(await storage.moving.dump(after=0, limit=100))
    await storage.maintenance.compact_rollups(older_than=timedelta(0), limit=10)
    await storage.maintenance.prune_audits(older_than=timedelta(0), limit=10)
    await storage.maintenance.prune_events(older_than=timedelta(0), limit=10)


class TestKeys:
    async def test_every_key_that_a_script_touches_starts_with_the_prefix(
        self, storage: Storage, server: Redis, key: str, clock: VirtualClock
    ) -> None:  # Cluster and ACLs rest on it
        seen: list[str] = []
        async with server.monitor() as monitor:
            await a_day(storage, clock)
            await server.echo("the end")
            async for event in monitor.listen():
                if event["command"].endswith("the end"):
                    break
                if event["client_type"] == "lua":
                    seen.append(event["command"])
        keyless = {"TIME"}
        named = [line.split(" ", 2) for line in seen if line.split(" ", 1)[0] not in keyless]
        of_ours = [parts for parts in named if key in " ".join(parts[1:])]
        assert len(of_ours) > 100
        strays = [parts for parts in named if not parts[1].startswith(key)]
        # Another test may work on the same server, under a prefix of its own.
        assert [parts for parts in strays if not parts[1].startswith("{")] == []


class TestCost:
    @pytest.mark.parametrize("many", [100_000])
    async def test_the_calls_of_a_claim_do_not_grow_with_the_number_of_jobs(
        self, storage: Storage, server: Redis, key: str, many: int
    ) -> None:
        await at_most(storage, db=1)
        await add(storage, *(a_job(queue="few") for _ in range(20)))
        few = await self.calls(storage, server, key, "few")
        for _ in range(many // 10_000):
            await add(storage, *(a_job(queue="much") for _ in range(5000)))
            await add(storage, *(a_job(queue="much", delay=MINUTE) for _ in range(5000)))
        much = await self.calls(storage, server, key, "much")
        assert much <= few + 2

    async def calls(self, storage: Storage, server: Redis, key: str, queue: str) -> int:
        """Count the commands that one claim of ten and their finishes call inside the scripts."""

        async def work() -> None:
            jobs = await claim(storage, 10, queue=queue)
            await end(storage, *(succeed(job, by="w1", result=None) for job in jobs))

        return len(await self.commands(server, key, work))

    async def test_what_jobs_cost_that_are_not_kept_does_not_grow_with_their_number(
        self, storage: Storage, server: Redis, key: str
    ) -> None:
        await add(storage, *(a_job() for _ in range(110)))
        await enlist(storage)
        few = await claim(storage, 10)
        many = await claim(storage, 100)
        assert len(many) == 100
        for jobs in (few, many):  # the first one also writes what both have in common
            done = [succeed(job, by="w1", result=b"1", keep=False) for job in jobs]
            calls = await self.commands(server, key, partial(end, storage, *done))
            assert len(calls) <= 25, calls

    async def commands(
        self, server: Redis, key: str, act: Callable[[], Awaitable[object]]
    ) -> list[str]:
        """List the commands that scripts call in the meantime."""
        async with server.monitor() as monitor:
            await act()
            await server.echo("the end")
            calls: list[str] = []
            async for event in monitor.listen():
                if event["command"].endswith("the end"):
                    break
                # Other tests use this server at the same time, under other prefixes.
                if event["client_type"] == "lua" and key in event["command"]:
                    calls.append(event["command"].partition(" ")[0])
        return calls

    async def test_a_full_server_refuses_a_claim_and_loses_nothing(
        self, own_valkey: Any, clock: VirtualClock
    ) -> None:
        valkey = own_valkey()
        opened = await open_redis(valkey.url, clock=clock)
        bare = Redis.from_url(valkey.url)
        try:
            await enlist(opened)
            wanted = await add(opened, *(a_job() for _ in range(20)), a_job(unique=UniqueKey("k")))
            await bare.config_set("maxmemory", 1)
            with pytest.raises(StorageError):
                await claim(opened, 100)
            await bare.config_set("maxmemory", 0)
            assert ids(await claim(opened, 100)) == wanted
        finally:
            await bare.aclose()
            await opened.close()


async def test_jobs_that_are_not_kept_leave_nothing_behind(
    storage: Storage, redis_prefix: tuple[str, str], key: str
) -> None:
    await storage.limits.define([LimitSpec(name="db", concurrency=9)])
    await enlist(storage)
    await add(storage, a_job(), a_job(), a_job(), keyed("k"), limited("db"))
    (first,) = await claim(storage)
    await end(storage, snooze(first, by="w1", delay=timedelta(0)))
    jobs = await claim(storage, 5)
    now = await storage.now()
    chunk = LogChunk(jobs[0].claim, 1, [LogLine(now, 20, "hello")])
    await storage.journal.append_logs([chunk])
    await storage.jobs.report([(jobs[1].claim, Progress(0.5, "half"))])
    done = [succeed(job, by="w1", result=b"1", keep=False) for job in jobs]
    assert {answer.verdict for answer in await end(storage, *done)} == {Verdict.APPLIED}
    assert {answer.verdict for answer in await end(storage, *done)} == {Verdict.UNKNOWN}
    with BlockingRedis.from_url(redis_prefix[0]) as bare:
        left = {name.decode().removeprefix(key) for name in bare.scan_iter(match=f"{key}*")}
        assert disorder(bare, key) == []
    of_jobs = ("jobs", "state", "all", "counts", "progress", "keys", "journal", "holders")
    per_job = ("ready", "finished", "oldest", "running", "history", "logs", "holds")
    assert [name for name in left if name in of_jobs or name.partition(":")[0] in per_job] == [
        "holders"
    ]
    (rollup,) = await storage.admin.rollups(now - MINUTE, now + MINUTE)
    assert rollup.counts["succeed"] == 5


async def test_instants_before_1970_order_jobs_too(storage: Storage, clock: VirtualClock) -> None:
    await enlist(storage)
    now = clock.now()
    jobs: list[NewJob] = [a_job(at=now.replace(year=year)) for year in (1971, 1969, 1, 1700, 1970)]
    await add(storage, *jobs)
    reply = await storage.jobs.claim("w1", [Want("default", 9)], total=9)
    wanted = [jobs[place].id for place in (2, 3, 1, 4, 0)]
    assert [job.claim.job for job in reply.jobs] == wanted


async def test_a_cancelled_job_does_not_start_from_a_place_that_was_left_behind(
    storage: Storage, clock: VirtualClock, server: Redis, key: str
) -> None:
    running = await missed(storage)
    later = key + "later:default"
    places: Any = await server.zrange(later, 0, -1, withscores=True)
    await storage.jobs.cancel([running.claim.job])
    # As a process of the release before leaves it, which does not know how missed jobs wait.
    await server.zadd(later, dict(places))
    other = a_job()
    await add(storage, other)
    clock.advance(2 * MINUTE)
    assert ids(await claim(storage, 5)) == [other.id]
    assert (await look(storage, running)).state is State.CANCELLED
