"""Operating on Redis: what lies behind orders, looks and journals; what older stores lack."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from windlass._admin.doctor.storage_checks import check_health
from windlass._core.job.job import ClaimedJob, JobId, NewJob
from windlass._core.job.state import Shown, State
from windlass._core.job.transition import fail, retry, succeed
from windlass._storage.protocol.actions import ActionResult, Cancel, Delete, Edit, Requeue, RunNow
from windlass._storage.protocol.jobs import Want
from windlass._storage.protocol.journal import EventRecord, LogChunk, LogLine
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.storage import Storage
from windlass._storage.redis import open_redis
from windlass._storage.redis.admin import error_groups, find
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    MINUTE,
    OOPS,
    a_job,
    a_note,
    add,
    at_most,
    claim,
    claim_one,
    end,
    enlist,
    every,
    keyed,
    limited,
    started,
)

pytestmark = pytest.mark.timeout(120)

NO_TIME = timedelta(0)


async def reopened(redis_prefix: tuple[str, str], clock: VirtualClock) -> Storage:
    return await open_redis(redis_prefix[0], clock=clock, prefix=redis_prefix[1])


async def retrying(storage: Storage, number: int, queue: str = "default") -> list[ClaimedJob]:
    """So many jobs that wait for their second attempt."""
    await enlist(storage)
    await add(storage, *(a_job(queue=queue) for _ in range(number)))
    reply = await storage.jobs.claim("w1", [Want(queue, number)], total=number)
    await end(storage, *(retry(job, by="w1", error=OOPS, delay=MINUTE) for job in reply.jobs))
    return list(reply.jobs)


async def begun(storage: Storage, job: NewJob, worker: str = "w1") -> ClaimedJob:
    """A running job of any queue; nothing else of that queue must be ready."""
    await add(storage, job)
    reply = await storage.jobs.claim(worker, [Want(job.queue, 1)], total=1)
    (claimed,) = reply.jobs
    return claimed


async def failed_in(storage: Storage, queue: str) -> None:
    await end(storage, fail(await begun(storage, a_job(queue=queue)), by="w1", error=OOPS))


async def retry_counts(storage: Storage) -> dict[str, int]:
    return {counts.queue: counts.retrying for counts in await storage.admin.counts()}


def found(page: Any) -> list[JobId]:
    return [job.id for job in page]


# --- older stores -----------------------------------------------------------------------------


def to_layout_two(server: Redis, key: str) -> None:
    """Make of a store what the release before retrying jobs were listed would have made."""
    for line in list(server.scan_iter(f"{key}retrying:*")):
        server.delete(line)
    epoch = server.get(key + "epoch")
    assert isinstance(epoch, bytes)
    server.set(key + "epoch", b"2-" + epoch.partition(b"-")[2])


class TestOlderStores:
    async def test_jobs_that_retry_are_gathered_when_it_is_opened(
        self, storage: Storage, redis_prefix: tuple[str, str], clock: VirtualClock, server: Redis,
        key: str,
    ) -> None:  # fmt: skip
        await retrying(storage, 1200)  # more than one bite
        await retrying(storage, 2, queue="other")
        await add(storage, a_job(), a_job(queue="plain", delay=MINUTE))
        to_layout_two(server, key)
        newer = await reopened(redis_prefix, clock)
        assert await retry_counts(newer) == {"default": 1200, "other": 2, "plain": 0}
        await newer.close()

    async def test_gathering_that_was_interrupted_is_gone_on_with(
        self, storage: Storage, redis_prefix: tuple[str, str], clock: VirtualClock, server: Redis,
        key: str,
    ) -> None:  # fmt: skip
        await retrying(storage, 3)
        to_layout_two(server, key)
        epoch = server.get(key + "epoch")
        assert isinstance(epoch, bytes)
        server.set(key + "epoch", epoch.replace(b"2-", b"3-", 1))
        server.set(key + "gathering", 0)
        newer = await reopened(redis_prefix, clock)
        assert await retry_counts(newer) == {"default": 3}
        assert server.get(key + "gathering") is None
        await newer.close()

    async def test_errors_of_before_frames_are_a_group_without_a_place(
        self, storage: Storage, server: Redis, key: str
    ) -> None:
        await enlist(storage)
        await failed_in(storage, "default")
        server.delete(key + "frames")
        (group,) = (await storage.admin.errors()).groups
        assert (group.kind, group.frame, group.text) == ("ValueError", "", "boom")


# --- the way of a plain job -------------------------------------------------------------------


async def spoken(server: Redis, work: Any) -> list[str]:
    """What scripts called while ``work`` was done."""
    url = server.connection_pool.connection_kwargs
    lines: list[str] = []
    async with (
        AsyncRedis(host=url["host"], port=url["port"]) as watcher,
        watcher.monitor() as monitor,
    ):
        await work
        await watcher.echo("the end")
        async for event in monitor.listen():
            if event["command"].endswith("the end"):
                break
            if event["client_type"] == "lua":
                lines.append(event["command"])
    return lines


class TestCost:
    async def test_a_plain_job_touches_nothing_that_operating_needs(
        self, storage: Storage, server: Redis, key: str
    ) -> None:
        await enlist(storage)

        async def a_life() -> None:
            await add(storage, *(a_job() for _ in range(10)))
            jobs = await claim(storage, 10)
            await end(storage, *(succeed(job, by="w1", result=None) for job in jobs))

        lines = [line for line in await spoken(server, a_life()) if key in line]
        assert len(lines) > 20
        ours = ("retrying", "journal", "frames", "audit", "logs", "events", "copied")
        assert [line for line in lines if any(f"{key}{name}" in line for name in ours)] == []

    async def test_pruning_asks_once_whether_anything_is_written_of_jobs(
        self, storage: Storage, server: Redis, key: str, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        await add(storage, *(a_job() for _ in range(90)))
        await end(storage, *(succeed(j, by="w1", result=None) for j in await claim(storage, 90)))
        clock.advance(60)
        pruning = storage.maintenance.prune(state=State.SUCCEEDED, older_than=NO_TIME, limit=90)
        lines = [line for line in await spoken(server, pruning) if f"{key}journal" in line]
        assert len(lines) == 1

    async def test_a_look_for_a_rare_state_does_not_go_through_all_jobs(
        self, storage: Storage, server: Redis, key: str
    ) -> None:
        (one,) = await retrying(storage, 1)
        await add(storage, *(a_job() for _ in range(2000)))
        wanted = JobFilter(shown=[Shown.RETRYING])
        lines = [line for line in await spoken(server, every(storage, wanted)) if key in line]
        assert await every(storage, wanted) == [one.claim.job]
        assert len(lines) < 20


# --- looking ----------------------------------------------------------------------------------


async def one_of_each(storage: Storage, clock: VirtualClock) -> None:
    """Jobs in every state and in every line."""
    await at_most(storage, db=1)
    await enlist(storage, "w1", "w2")
    await retrying(storage, 2)
    solo = await begun(storage, a_job(queue="other"), "w2")
    await end(storage, retry(solo, by="w2", error=OOPS, delay=NO_TIME, solo=True))
    for queue in ("default", "other"):
        await failed_in(storage, queue)
        ended = await begun(storage, a_job(queue=queue, task="t"), "w2")
        await end(storage, succeed(ended, by="w2", result=b"1"))
        clock.advance(1)
    (gone,) = await add(storage, a_job())
    await storage.jobs.cancel([gone])
    await started(storage, limited("db", tags=("a", "b"), tenant="acme"))
    await add(storage, limited("db"), limited("db", expires=MINUTE), keyed("k"))
    await add(storage, a_job(priority=-1), a_job(queue="other", delay=MINUTE), keyed("l"))


WANTED = [
    *(JobFilter(states=[state]) for state in State),
    *(JobFilter(shown=[shown]) for shown in Shown),
    JobFilter(states=[State.FAILED, State.WAITING], shown=[Shown.FAILED, Shown.READY]),
    JobFilter(states=[State.WAITING], queue="other"),
    JobFilter(states=[State.SUCCEEDED], worker="w2", task="t"),
    JobFilter(states=[State.RUNNING], worker="w1"),
    JobFilter(states=[State.RUNNING, State.WAITING], tenant="acme", tag="b"),
    JobFilter(shown=[Shown.RETRYING, Shown.RUNNING], queue="default"),
]


class TestLooks:
    @pytest.mark.parametrize("few", [0, 1000])
    async def test_gathering_and_walking_find_the_same(
        self, storage: Storage, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, few: int
    ) -> None:
        await one_of_each(storage, clock)
        jobs = await storage.admin.find(JobFilter(), limit=100)
        now = await storage.now()
        monkeypatch.setattr(find, "SORTABLE_JOBS", few)
        for wanted in WANTED:
            expected = [job.id for job in jobs if matches(job, wanted, now)]
            assert await every(storage, wanted) == expected, wanted
            assert await every(storage, wanted, limit=1) == expected, wanted
        assert len(found(await storage.admin.find(WANTED[0], limit=100))) == 9

    async def test_a_bounded_search_says_how_far_it_came_and_finds_each_job_once(
        self, storage: Storage, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(find, "JOBS_PER_SCAN", 2)
        wanted = [a_job(task="rare")]
        made = await storage.now()
        await add(storage, *wanted)
        clock.advance(60)
        await add(storage, *(a_job() for _ in range(1200)))
        page = await storage.admin.find(JobFilter(task="rare"), limit=5)
        assert (found(page), page.reached) == ([], made + MINUTE)
        assert page.next is not None
        assert await every(storage, JobFilter(task="rare")) == [wanted[0].id]

    async def test_large_payloads_end_a_look_early(
        self, storage: Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(find, "_BYTES", 3_000_000)
        large = b'"' + b"x" * 999_998 + b'"'
        made = await add(storage, *(a_job(payload=large) for _ in range(6)))
        page = await storage.admin.find(JobFilter(tenant="nobody"), limit=5)
        assert (found(page), page.reached) == ([], await storage.now())
        assert page.next == 3
        assert await every(storage, JobFilter(text="XXX"), limit=2) == list(reversed(made))

    async def test_the_holder_of_a_key_is_on_the_first_page_however_old_and_once(
        self, storage: Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(find, "JOBS_PER_SCAN", 400)
        (old,) = await add(storage, keyed("k"))
        await add(storage, *(a_job() for _ in range(600)))
        await enlist(storage)
        await end(storage, fail(await claim_one(storage), by="w1", error=OOPS))
        (newer,) = await add(storage, keyed("k"))  # the first has given it up
        await storage.jobs.cancel([newer])
        assert await storage.orders.order(Requeue(), [old], a_note()) == [ActionResult.DONE]
        await add(storage, *(a_job() for _ in range(600)))
        wanted = JobFilter(key="k")
        for limit in (1, 5):
            assert old in found(await storage.admin.find(wanted, limit=limit))
            assert sorted(await every(storage, wanted, limit=limit)) == sorted([old, newer])

    @pytest.mark.parametrize("cut", [3, 40, 60, 90])
    async def test_damaged_records_stop_no_look(
        self, storage: Storage, server: Redis, key: str, cut: int
    ) -> None:
        sound, damaged = await add(
            storage, a_job(tags=("x",), payload=b'"soundly"'), keyed("k", tags=("x",))
        )
        uid = bytes.fromhex(damaged)
        record: Any = server.hget(key + "jobs", uid)
        server.hset(key + "jobs", uid, record[:-cut])
        for wanted in (JobFilter(tag="x"), JobFilter(text="SOUND"), JobFilter(queue="default")):
            assert sound in await every(storage, wanted)
        assert damaged not in await every(storage, JobFilter(tag="x", key="k", tenant="t"))
        server.hset(key + "jobs", uid, record)

    async def test_the_longest_wait_is_found_in_every_line(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        async def oldest() -> Any:
            (counts,) = await storage.admin.counts()
            return counts.oldest_due

        await at_most(storage, db=1)
        begun = await storage.now()
        await add(storage, a_job(delay=timedelta(seconds=10)))
        assert await oldest() is None
        clock.advance(20)
        assert await oldest() == begun + timedelta(seconds=10)  # nobody has made it ready yet
        for ago, job in enumerate((limited("db"), a_job(priority=3), limited("db", priority=2)), 3):
            due = begun - ago * MINUTE
            await add(storage, limited("db", priority=-1), a_job(priority=-1))
            await storage.orders.order(Edit(due=due), await add(storage, job), a_note())
            assert await oldest() == due

    async def test_the_failures_that_count_are_the_last_of_all_queues(
        self, storage: Storage, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(error_groups, "_LEAST", 2)
        await enlist(storage)
        for queue in ("one", "two", "one", "one", "one", "one", "two", "one"):
            await failed_in(storage, queue)
            clock.advance(1)
        now = await storage.now()
        second = timedelta(seconds=1)
        for look, queues in ((1, ["one"]), (2, ["one", "two"]), (7, ["one", "two"])):
            seen = await storage.admin.errors(look=look)
            (group,) = seen.groups
            assert (group.count, group.queues, seen.complete) == (look, queues, False)
            assert (group.last, group.first) == (now - second, now - look * second)
        assert (await storage.admin.errors(look=8)).complete
        recent = await storage.admin.errors(since=now - 2 * second, queue="two")
        assert [group.count for group in recent.groups] == [1]
        for queue in ("two", "three", "four", *["one"] * 5):  # page after page of one queue
            await failed_in(storage, queue)
            clock.advance(1)
        (group,) = (await storage.admin.errors(look=5)).groups
        assert (group.count, group.queues) == (5, ["one"])


def matches(job: Any, wanted: JobFilter, now: Any) -> bool:
    spent = job.attempt > job.max_attempts - job.budget
    waits = "retrying" if spent else "scheduled" if job.due > now else "ready"
    shown = waits if job.state is State.WAITING else job.state.value
    return (
        (wanted.states is None or job.state in wanted.states)
        and (wanted.shown is None or shown in wanted.shown)
        and (wanted.queue is None or job.queue == wanted.queue)
        and (wanted.task is None or job.task == wanted.task)
        and (wanted.worker is None or job.worker == wanted.worker)
        and (wanted.tenant is None or job.tenant == wanted.tenant)
        and (wanted.tag is None or wanted.tag in job.tags)
    )


# --- what goes with a job ---------------------------------------------------------------------


async def written_of(storage: Storage, job: ClaimedJob) -> None:
    """A log chunk and an event."""
    now = await storage.now()
    event = EventRecord(at=now, kind="started", job=job.claim.job, task="t", queue="q")
    await storage.journal.append_logs([LogChunk(job.claim, 1, [LogLine(now, 20, "hello")])])
    assert await storage.journal.append_events([event]) == 1


class TestWhatGoes:
    async def test_a_job_that_cannot_be_read_leaves_no_journal_and_no_retry_behind(
        self, storage: Storage, clock: VirtualClock, server: Redis, key: str
    ) -> None:
        await at_most(storage, db=2)
        await enlist(storage)
        jobs = [await started(storage), await started(storage, limited("db"))]
        for job in jobs:
            await written_of(storage, job)
        await end(storage, *(retry(job, by="w1", error=OOPS, delay=MINUTE) for job in jobs))
        for job in jobs:
            server.hset(key + "jobs", bytes.fromhex(job.claim.job), b"nonsense")
        clock.advance(120)
        assert await claim(storage, 10) == []
        assert server.exists(key + "journal", key + "events", key + "retrying:default") == 0

    async def test_events_that_are_old_go_and_logs_stay(
        self, storage: Storage, clock: VirtualClock, server: Redis, key: str
    ) -> None:
        job = await started(storage)
        await written_of(storage, job)
        clock.advance(60)
        assert await storage.maintenance.prune_events(older_than=NO_TIME, limit=10) == 1
        assert len(await storage.journal.logs(job.claim.job)) == 1
        assert server.scard(key + "journal") == 1
        await end(storage, succeed(job, by="w1", result=None))
        await storage.orders.order(Delete(), [job.claim.job], a_note())
        assert server.exists(key + "journal") == 0


async def test_the_list_of_those_that_retry_follows_every_way_out(
    storage: Storage, clock: VirtualClock
) -> None:
    jobs = [job.claim.job for job in await retrying(storage, 6)]
    assert await retry_counts(storage) == {"default": 6}
    await storage.orders.order(Edit(queue="other", priority=-1), jobs[:2], a_note())
    assert await retry_counts(storage) == {"default": 4, "other": 2}
    await storage.orders.order(Cancel(), jobs[2:3], a_note())
    await storage.orders.order(Delete(), jobs[3:4], a_note())
    await storage.orders.order(RunNow(), jobs[4:5], a_note())
    await claim_one(storage)
    assert await retry_counts(storage) == {"default": 1, "other": 2}
    await storage.orders.order(Requeue(), jobs[2:3], a_note())
    assert await retry_counts(storage) == {"default": 1, "other": 2}  # a new budget
    clock.advance(60)
    await storage.maintenance.promote(10)
    assert len(await claim(storage, 9)) == 2
    assert await retry_counts(storage) == {"default": 0, "other": 2}


async def test_forbidden_values_are_left_out_of_the_health(
    redis_prefix: tuple[str, str], server: Redis
) -> None:
    url, prefix = redis_prefix
    bare: Any = server
    rules = ("on", ">secret", "~{*", "+@all", "-info")
    bare.execute_command("ACL", "SETUSER", prefix, *rules)
    storage = await open_redis(
        url.replace("://", f"://{prefix}:secret@"), prefix=prefix, durability="none"
    )
    assert set(await storage.health()) == {"version", "durability", "retry_for"}
    await storage.close()
    bare.execute_command("ACL", "DELUSER", prefix)
    allowed = await open_redis(url, prefix=prefix, durability="none")
    assert float((await allowed.health())["size"]) > 0
    await allowed.close()


async def test_the_health_tells_connections_and_timeouts(
    redis_prefix: tuple[str, str],
) -> None:  # DBH-4
    url, prefix = redis_prefix
    storage = await open_redis(url, prefix=prefix, durability="none")
    health = await storage.health()
    await storage.close()
    assert 1 <= float(health["connections"]) <= float(health["max_connections"])
    assert float(health["connections_blocked"]) >= 0
    assert health["retry_for"] == 5


async def test_the_doctor_hears_what_a_server_keeps_when_it_dies(own_valkey: Any) -> None:
    url = own_valkey().url
    storage = await open_redis(url)
    with Redis.from_url(url) as server:
        bare: Any = server
        for name, value, level in [
            ("appendfsync", "always", "ok"),
            ("appendfsync", "no", "bad"),
            ("appendonly", "no", "bad"),
        ]:
            bare.config_set(name, value)
            facts = await storage.health()
            assert facts[name] == value
            assert [one.level for one in check_health(facts) if one.name == "persistence"] == [
                level
            ]
    await storage.close()
