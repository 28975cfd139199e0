"""What a Redis server must keep, and what is refused because it would not keep it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis

from tests.servers.valkey import ValkeyServer
from windlass._cli.worker_process.start_retries import may_pass
from windlass._storage.protocol.jobs import Verdict
from windlass._storage.redis import RedisStorage, open_redis
from windlass._storage.redis.io import connection
from windlass.errors import ConfigError, SchemaTooNew, StorageError, StorageUnavailable
from windlass.testing.conformance.steps import a_job, add, claim_one, enlist, succeeded

Start = Callable[..., ValkeyServer]

ADMIN_RULES = ("~{windlass}:*", "+@all", "-@dangerous", "-@admin")


@asynccontextmanager
async def opened(url: str, **settings: Any) -> AsyncIterator[RedisStorage]:
    storage = await open_redis(url, **settings)
    try:
        yield storage
    finally:
        await storage.close()


async def becomes_true(look: Callable[[], bool | Awaitable[bool]], within: float = 10.0) -> None:
    deadline = time.monotonic() + within
    while True:
        found = look()
        if found if isinstance(found, bool) else await found:
            return
        assert time.monotonic() < deadline, "it never happened"
        await asyncio.sleep(0.01)


def a_user(server: ValkeyServer, *rules: str) -> str:
    """The URL of a new user with these rules."""
    with redis.Redis(port=server.port) as line:
        line.execute_command("ACL", "SETUSER", "app", "reset", "on", ">s3cret", *rules)
    return f"redis://app:s3cret@127.0.0.1:{server.port}"


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({"appendonly": "no"}, "appendonly yes"),
        ({"appendfsync": "no"}, "appendfsync everysec or always"),
        ({"maxmemory_policy": "allkeys-lru"}, "noeviction"),
    ],
)
async def test_a_server_that_would_lose_jobs_is_refused_unless_the_loss_is_accepted(
    own_valkey: Start, settings: dict[str, str], advice: str
) -> None:
    server = own_valkey(**settings)
    for durability in (None, "local", "replicated"):
        with pytest.raises(StorageError, match=advice) as caught:
            await open_redis(server.url, durability=durability)
        assert 'durability="none"' in str(caught.value)
    async with opened(server.url, durability="none") as storage:
        await add(storage, a_job())
        assert "durability none" in storage.describe()


async def test_a_server_that_becomes_less_durable_is_noticed_and_said_once(
    own_valkey: Start, caplog: pytest.LogCaptureFixture
) -> None:
    server = own_valkey()
    async with opened(server.url) as storage:
        with redis.Redis(port=server.port) as line:
            await storage.maintenance.tidy()
            assert caplog.messages == []
            line.config_set("appendonly", "no")
            await storage.maintenance.tidy()
            await storage.maintenance.tidy()
            (said,) = caplog.messages
            assert "appendonly yes" in said
            line.config_set("appendonly", "yes")
            await storage.maintenance.tidy()
            assert "again" in caplog.messages[-1]


async def test_an_unknown_durability_is_refused(redis_url: str) -> None:
    with pytest.raises(ConfigError, match="replicated"):
        await open_redis(redis_url, durability="full")  # type: ignore[arg-type]


async def test_where_the_configuration_is_hidden_the_durability_must_be_said(
    own_valkey: Start,
) -> None:
    url = a_user(own_valkey(), *ADMIN_RULES)
    with pytest.raises(ConfigError, match="does not show its configuration"):
        await open_redis(url)
    async with opened(url, durability="local") as storage:
        await add(storage, a_job())
        assert "s3cret" not in storage.describe()


async def test_a_user_without_scripts_gets_the_missing_right(own_valkey: Start) -> None:
    url = a_user(own_valkey(), "~{windlass}:*", "+@all", "-@scripting")
    with pytest.raises(StorageError, match="does not permit") as caught:
        await open_redis(url)
    assert "s3cret" not in str(caught.value)


async def test_a_user_without_the_keys_gets_the_missing_right(own_valkey: Start) -> None:
    url = a_user(own_valkey(), "~other:*", "+@all")
    with pytest.raises(StorageError, match="does not permit"):
        await open_redis(url)


@pytest.mark.parametrize("url", ["redis://:wr0ng@127.0.0.1:{}", "redis://127.0.0.1:{}"])
async def test_a_wrong_or_missing_password_is_said_and_never_shown(
    own_valkey: Start, url: str
) -> None:
    server = own_valkey(requirepass="s3cret")
    with pytest.raises(StorageError, match="password") as caught:
        await open_redis(url.format(server.port))
    assert "wr0ng" not in repr(caught.value)
    assert not isinstance(caught.value, StorageUnavailable), "trying again cures nothing"


async def test_a_database_that_the_server_does_not_have_is_refused(own_valkey: Start) -> None:
    server = own_valkey()
    with pytest.raises(StorageError, match="out of range"):
        await open_redis(f"{server.url}/99999")


async def test_jobs_of_a_newer_windlass_are_refused(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as line:
        line.set("{windlass}:epoch", "99-whatever")
    with pytest.raises(SchemaTooNew, match="Upgrade windlass in this process"):
        await open_redis(redis_url)


async def test_a_key_of_another_program_is_left_alone(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as line:
        line.set("{windlass}:epoch", "mine")
        with pytest.raises(StorageError, match="another prefix"):
            await open_redis(redis_url)
        assert line.get("{windlass}:epoch") == b"mine"


async def test_every_key_starts_with_the_prefix(redis_url: str) -> None:
    async with opened(redis_url, prefix="shop") as storage:
        await enlist(storage)
        await add(storage, a_job(), a_job())
        await claim_one(storage)
    with redis.Redis.from_url(redis_url) as line:
        keys = line.keys("*")
    assert keys
    assert all(key.startswith(b"{shop}:") for key in keys)


async def test_nothing_acknowledged_is_lost_when_the_server_is_killed(own_valkey: Start) -> None:
    server = own_valkey(appendfsync="always")
    async with opened(server.url) as storage:
        await enlist(storage)
        stored = [await add(storage, a_job()) for _ in range(50)]
        claimed = await claim_one(storage)
        server.crash()
        server.start()
        jobs = await storage.admin.get([job for (job,) in stored])
        assert all(job is not None for job in jobs)
        held = (await storage.workers.beat("w1")).holding
        assert [claim.job for claim in held] == [claimed.claim.job]


async def test_a_replica_that_confirms_makes_a_write_count(own_valkey: Start) -> None:
    primary = own_valkey()
    replica = own_valkey(replicaof=f"127.0.0.1 {primary.port}")
    await becomes_true(lambda: b"master_link_status:up" in _replication(replica))
    async with opened(primary.url, durability="replicated") as storage:
        (job,) = await add(storage, a_job())
        with redis.Redis(port=replica.port) as line:
            assert line.hexists("{windlass}:jobs", bytes.fromhex(job))
        replica.crash()
        with pytest.raises(StorageUnavailable, match="0 of 1 confirmed"):
            await storage.jobs.insert([a_job()])
        replica.start()
        await becomes_true(lambda: b"master_link_status:up" in _replication(replica))
        (again,) = await add(storage, a_job())
        found = await storage.admin.get([again])
        assert found[0] is not None


async def test_a_repeated_write_counts_only_when_the_first_one_is_confirmed(
    own_valkey: Start,
) -> None:
    primary = own_valkey()
    replica = own_valkey(replicaof=f"127.0.0.1 {primary.port}")
    await becomes_true(lambda: b"master_link_status:up" in _replication(replica))
    async with opened(primary.url, durability="replicated") as storage:
        replica.pause()
        job = a_job()
        with pytest.raises(StorageUnavailable, match="confirmed"):
            await storage.jobs.insert([job])
        # A new connection has written nothing that it could wait for.
        with redis.Redis(port=primary.port) as line:
            line.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        with pytest.raises(StorageUnavailable, match="confirmed"):
            await storage.jobs.insert([job])
        replica.go_on()
        (answer,) = await storage.jobs.insert([job])
        assert answer.created


async def test_without_enough_replicas_a_storage_does_not_open_and_workers_wait(
    own_valkey: Start,
) -> None:
    with pytest.raises(StorageUnavailable, match="Bring a replica back") as caught:
        await open_redis(own_valkey().url, durability="replicated", replicas=1)
    assert may_pass(caught.value), "a worker that starts waits for them"


async def test_a_full_server_with_a_replica_still_lets_work_end(own_valkey: Start) -> None:
    primary = own_valkey()
    replica = own_valkey(replicaof=f"127.0.0.1 {primary.port}")
    await becomes_true(lambda: b"master_link_status:up" in _replication(replica))
    async with opened(primary.url, durability="replicated") as storage:
        await enlist(storage)
        await add(storage, a_job())
        claimed = await claim_one(storage)
        with redis.Redis(port=primary.port) as line:
            line.config_set("maxmemory", 1)
        assert (await succeeded(storage, claimed)).verdict is Verdict.APPLIED


async def test_no_replica_at_all_confirms_nothing(redis_url: str) -> None:
    with pytest.raises(ConfigError, match="1 or more"):
        await open_redis(redis_url, durability="replicated", replicas=0)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("redis+sentinel://{}/mymaster", "not a Sentinel"),
        ("redis+cluster://{}", "in no cluster"),
    ],
)
async def test_a_server_that_is_something_else_than_the_url_says_is_said(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, url: str, why: str
) -> None:
    monkeypatch.setattr(connection, "RETRY_SECONDS", 0.1)
    with pytest.raises(StorageUnavailable, match=why):
        await open_redis(url.format(redis_url.split("/")[2]))


async def test_a_replica_is_refused_with_advice(
    own_valkey: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass._storage.redis.io.connection.RETRY_SECONDS", 0.2)
    primary = own_valkey()
    replica = own_valkey(replicaof=f"127.0.0.1 {primary.port}")
    await becomes_true(lambda: b"master_link_status:up" in _replication(replica))
    with pytest.raises(StorageUnavailable, match="Point the URL at the primary"):
        await open_redis(replica.url)


def _replication(server: ValkeyServer) -> bytes:
    with redis.Redis(port=server.port) as line:
        line.response_callbacks.clear()
        return bytes(line.execute_command("INFO", "replication"))
