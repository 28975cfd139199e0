"""Flow control on Redis: what lies behind it, and stores that an older Windlass has made."""

from __future__ import annotations

import struct
from datetime import timedelta

import pytest
from msgspec.structs import replace
from redis import Redis

from tests.storage.redis.key_checker import disorder
from windlass._core.job.job import AttemptError, FollowUp, LimitUse, NewJob
from windlass._core.job.outcome import Missing
from windlass._core.job.state import State
from windlass._core.job.transition import fail, retry, succeed, throttle
from windlass._core.job.unique import OnConflict, UniqueKey
from windlass._core.limits.breaker import Breaker, BreakerState
from windlass._core.limits.cooldown import MAX_STEPS, RESET_AFTER
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._core.limits.queue_settings import QueueSettings
from windlass._core.values.instants import to_us
from windlass._storage.protocol.jobs import Want
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.storage import Storage
from windlass._storage.redis import maintenance, open_redis
from windlass.errors import KeyConflict, LimitUnknown, StorageReplaced
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    OOPS,
    a_job,
    add,
    claim,
    claim_one,
    end,
    enlist,
    happened,
    ids,
    look,
    started,
)

pytestmark = pytest.mark.timeout(120)

SECOND = timedelta(seconds=1)
NO_TIME = timedelta(0)


async def ended_in(storage: Storage, queue: str, number: int) -> list[str]:
    """So many jobs of a queue that have succeeded."""
    await enlist(storage)
    made = await add(storage, *(a_job(queue=queue) for _ in range(number)))
    reply = await storage.jobs.claim("w1", [Want(queue, number)], total=number)
    await end(storage, *(succeed(job, by="w1", result=None) for job in reply.jobs))
    return list(made)


def to_layout_one(server: Redis, key: str) -> None:
    """Make of a store what the release before retention by queue would have made."""
    for digit in range(2, 6):
        lines = list(server.scan_iter(f"{key}finished:{digit}:*"))
        if lines:
            server.zunionstore(f"{key}finished:{digit}", lines)
            server.delete(*lines, f"{key}oldest:{digit}")
    epoch = server.get(key + "epoch")
    assert isinstance(epoch, bytes)
    server.set(key + "epoch", b"1-" + epoch.partition(b"-")[2])


class TestOlderStores:
    async def test_ended_jobs_are_found_and_pruned_by_their_queue(
        self, storage: Storage, redis_prefix: tuple[str, str], clock: VirtualClock, server: Redis,
        key: str,
    ) -> None:  # fmt: skip
        kept = await ended_in(storage, "kept", 3)
        pruned = await ended_in(storage, "pruned", 600)  # more than one bite
        await end(storage, fail(await started(storage), by="w1", error=OOPS))
        to_layout_one(server, key)
        newer = await open_redis(redis_prefix[0], clock=clock, prefix=redis_prefix[1])
        assert disorder(server, key) == []
        assert len(await newer.admin.find(JobFilter(states=[State.FAILED]), limit=9)) == 1
        clock.advance(60)
        apart = {"kept": timedelta(hours=1)}
        number = await newer.maintenance.prune(
            state=State.SUCCEEDED, older_than=NO_TIME, limit=1000, apart=apart
        )
        assert number == len(pruned)
        left = await newer.admin.find(JobFilter(states=[State.SUCCEEDED]), limit=1000)
        assert sorted(job.id for job in left) == sorted(kept)
        await newer.close()

    async def test_processes_that_use_the_old_keys_get_an_error(
        self, storage: Storage, redis_prefix: tuple[str, str], clock: VirtualClock, server: Redis,
        key: str,
    ) -> None:  # fmt: skip
        server.set(key + "epoch", "1-anything")
        older = await open_redis(redis_prefix[0], clock=clock, prefix=redis_prefix[1])
        assert server.get(key + "epoch") == b"5-anything"
        with pytest.raises(StorageReplaced):
            await add(storage, a_job())
        await older.close()

    async def test_a_missed_job_is_stored_where_older_processes_look_for_it(
        self, storage: Storage, clock: VirtualClock, server: Redis, key: str
    ) -> None:
        running = await started(storage)
        await happened(storage, running, Missing(AttemptError("UnknownTask", "no such task")))
        (member,) = server.zrange(key + "later:default", 0, -1)
        place = struct.pack(">dd", to_us((await look(storage, running)).due), 1)
        rest = bytes.fromhex(running.claim.job) + b"1" + struct.pack(">d", 0)
        assert member == b"\1" + place + rest
        clock.advance(3600)
        assert ids(await claim(storage, 5)) == [running.claim.job]

    async def test_limits_of_before_breakers_are_read(
        self, storage: Storage, server: Redis, key: str
    ) -> None:
        await storage.limits.define([LimitSpec(name="api", rate=Rate(1, SECOND))])
        text = b'{"name":"api","rate":{"n":1,"per":"PT1S","burst":1},"concurrency":null}'
        packed = b"\x94\xd9" + bytes([len(text)]) + text + b"\xce\x00\x0f\x42\x40\x01\xc0"
        server.hset(key + "limits", "api", packed)
        assert list(await storage.limits.specs()) == [LimitSpec(name="api", rate=Rate(1, SECOND))]
        await started(storage, NewJob(id=a_job().id, task="t", limits=(LimitUse("api"),)))
        await storage.limits.define([LimitSpec(name="api", rate=Rate(2, SECOND))])
        (state,) = await storage.limits.states("api")
        assert state.spent_until == await storage.now() + SECOND / 2


class TestRetention:
    async def test_the_oldest_jobs_are_deleted_first_across_queues(
        self, storage: Storage, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(maintenance, "_MOST_KEPT", 3)
        made = []
        for queue in ("b", "a", "c", "a", "b", "c"):
            made += await ended_in(storage, queue, 1)
            clock.advance(1)
        await storage.maintenance.tidy()
        left = await storage.admin.find(JobFilter(states=[State.SUCCEEDED]), limit=9)
        assert sorted(job.id for job in left) == sorted(made[-3:])

    async def test_queues_that_keep_their_jobs_cost_one_look_each(
        self, storage: Storage, clock: VirtualClock, server: Redis, key: str
    ) -> None:
        keeping = [f"keeps{n}" for n in range(20)]
        for queue in keeping:
            await ended_in(storage, queue, 5)
        await ended_in(storage, "other", 1)
        clock.advance(60)
        apart = dict.fromkeys(keeping, timedelta(hours=1))
        server.config_resetstat()
        pruned = await storage.maintenance.prune(
            state=State.SUCCEEDED, older_than=SECOND, limit=100, apart=apart
        )
        looks = server.info("commandstats")["cmdstat_zrangebyscore"]["calls"]
        assert pruned == 1
        assert looks <= 3 * len(keeping)


class TestSettings:
    async def test_settings_in_another_spelling_are_the_same_settings(
        self, storage: Storage, server: Redis, key: str
    ) -> None:
        server.hset(key + "settings", "default", ' { "max_running" : 2 } ')
        assert await storage.queues.change(
            "default", QueueSettings(), old=QueueSettings(max_running=2)
        )
        assert list(await storage.queues.queues()) == []

    async def test_the_cool_down_policy_is_the_one_of_the_core(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        await add(storage, a_job())
        for _ in range(MAX_STEPS + 2):
            job = await claim_one(storage)
            await end(storage, throttle(job, by="w1", delay=NO_TIME, cools=(SECOND,)))
            clock.advance(2)
        (record,) = await storage.queues.queues()
        assert record.cool_downs == MAX_STEPS
        ends = record.cool_until
        assert ends is not None
        job = await claim_one(storage)
        clock.advance((ends + RESET_AFTER - await storage.now()).total_seconds())
        await end(storage, succeed(job, by="w1", result=None))
        assert list(await storage.queues.queues()) == []


class TestReplacing:
    async def test_a_replacement_keeps_rare_fields_except_for_the_context(
        self, storage: Storage
    ) -> None:
        unique = UniqueKey("k", on_conflict=OnConflict.REPLACE_ARGUMENTS)
        follow = FollowUp(task="f", limits=(LimitUse("x"),), timeout=SECOND)
        first = replace(
            a_job(), unique=unique, timeout=SECOND, tags=("a",), tenant="t", trace="old",
            parent=a_job().id, on_failure=follow,
        )  # fmt: skip
        await add(storage, first)
        for later in ("principal", "correlation_id", "trace"):
            new = replace(a_job(payload=later.encode() * 99), unique=unique, **{later: "ä" * 300})
            (answer,) = await storage.jobs.insert([new])
            assert answer.replaced
            job = await look(storage, first.id)
            wanted = {**dict.fromkeys(("principal", "correlation_id", "trace")), later: "ä" * 300}
            assert {name: getattr(job, name) for name in wanted} == wanted
            assert (job.timeout, job.tags, job.tenant) == (SECOND, ("a",), "t")
            assert (job.parent, job.on_failure, job.payload) == (
                first.parent, follow, new.payload,
            )  # fmt: skip

    async def test_a_batch_that_is_refused_leaves_nothing_behind(
        self, storage: Storage, server: Redis, key: str
    ) -> None:
        held = UniqueKey("k", on_conflict=OnConflict.RAISE)
        before = server.get(key + "seq")
        with pytest.raises(KeyConflict):
            await storage.jobs.insert(
                [a_job(), replace(a_job(), unique=held), replace(a_job(), unique=held)]
            )
        assert (server.get(key + "seq"), server.exists(key + "jobs")) == (before, 0)

    async def test_a_follow_up_with_an_unknown_limit_ends_no_claim(self, storage: Storage) -> None:
        running = await started(storage)
        then = NewJob(id=a_job().id, task="t", limits=(LimitUse("nobody"),))
        with pytest.raises(LimitUnknown):
            await end(storage, replace(fail(running, by="w1", error=OOPS), then=(then,)))
        assert (await look(storage, running.claim.job)).state is State.RUNNING


class TestBreakers:
    async def test_in_one_batch_the_later_outcome_counts(self, storage: Storage) -> None:
        breaker = LimitSpec(name="b", breaker=Breaker(failures=2))
        await storage.limits.define([breaker])
        jobs = [await started(storage, self._guarded()) for _ in range(6)]
        failed = [retry(job, by="w1", error=OOPS, delay=SECOND) for job in jobs]
        fine = [succeed(job, by="w1", result=None) for job in jobs]
        await end(storage, failed[0], fine[1])
        assert await self._failures(storage) == 0
        await end(storage, fine[2], failed[3])
        assert await self._failures(storage) == 1
        await end(storage, fine[4], failed[5])
        assert await self._failures(storage) == 1

    async def test_all_jobs_behind_an_open_breaker_form_one_lane_group(
        self, storage: Storage, server: Redis, key: str, clock: VirtualClock
    ) -> None:
        await storage.limits.define([LimitSpec(name="b", breaker=Breaker(failures=1))])
        job = await started(storage, self._guarded())
        await end(storage, fail(job, by="w1", error=OOPS))
        waiting = await add(storage, *(self._guarded() for _ in range(50)))
        assert await claim(storage, 99) == []
        assert server.zcard(key + "timed:default") == 1
        assert not (await storage.jobs.outlook(["default"])).claimable
        clock.advance(30)
        assert ids(await claim(storage, 99)) == list(waiting[:1])

    def _guarded(self) -> NewJob:
        return NewJob(id=a_job().id, task="t", limits=(LimitUse("b"),))

    async def _failures(self, storage: Storage) -> int:
        (state,) = await storage.limits.states("b")
        assert isinstance(state.breaker, BreakerState)
        return state.breaker.failures
