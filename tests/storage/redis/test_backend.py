"""What only the Redis backend promises: connections come back, and its errors say what to do."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
import redis

from tests.servers.valkey import ValkeyServer
from tests.storage.redis.test_durability import ADMIN_RULES, a_user, becomes_true, opened
from windlass._core.job.job import ClaimedJob
from windlass._core.job.state import State
from windlass._core.job.transition import succeed
from windlass._storage.protocol.jobs import Want
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.redis import RedisStorage, open_redis
from windlass.errors import (
    StorageError,
    StorageFull,
    StorageReplaced,
    StorageUnavailable,
)
from windlass.testing.conformance.steps import (
    MINUTE,
    a_job,
    a_worker,
    add,
    claim_one,
    end,
    enlist,
    succeeded,
)

Start = Callable[..., ValkeyServer]


@pytest.fixture
async def storage(redis_url: str) -> AsyncIterator[RedisStorage]:
    async with opened(redis_url) as storage:
        yield storage


@pytest.fixture
def server(own_valkey: Start) -> ValkeyServer:
    return own_valkey()


def order(server: ValkeyServer, *command: str) -> Any:
    with redis.Redis(port=server.port) as line:
        return line.execute_command(*command)


def cut(server: ValkeyServer) -> None:
    """Close everybody's connection."""
    order(server, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


def connections(server: ValkeyServer) -> int:
    """Without the one that asks."""
    return len(bytes(order(server, "CLIENT", "LIST")).splitlines()) - 1


async def unanswered(task: asyncio.Future[Any], seconds: float) -> bool:
    done, _ = await asyncio.wait([task], timeout=seconds)
    return not done


async def listening(storage: RedisStorage) -> asyncio.Event:
    """Set by every hint from now on: the first one says that the stream is being read."""
    woken = asyncio.Event()
    storage.wakeups.subscribe(woken.set)
    await asyncio.wait_for(woken.wait(), 5)
    woken.clear()
    return woken


async def started_one(storage: RedisStorage) -> ClaimedJob:
    await add(storage, a_job())
    return await claim_one(storage)


# --- scripts ----------------------------------------------------------------------------------


async def test_a_server_that_forgets_its_scripts_gets_them_again(server: ValkeyServer) -> None:
    async with opened(server.url) as storage:
        await enlist(storage)
        for _ in range(30):
            order(server, "SCRIPT", "FLUSH")
            await succeeded(storage, await started_one(storage))


# --- lost connections -------------------------------------------------------------------------

Operation = Callable[[RedisStorage], Awaitable[object]]

OPERATIONS: dict[str, Operation] = {
    "insert": lambda storage: storage.jobs.insert([a_job()]),
    "settled": lambda storage: storage.jobs.settled([a_job().id]),
    "cancel": lambda storage: storage.jobs.cancel([a_job().id]),
    "register": lambda storage: storage.workers.register(a_worker("w9")),
    "beat": lambda storage: storage.workers.beat("w1"),
    "bury": lambda storage: storage.workers.bury(["nobody"]),
    "orphans": lambda storage: storage.workers.orphans(10),
    "leave": lambda storage: storage.workers.leave("nobody", []),
    "workers": lambda storage: storage.workers.workers(),
    "lead": lambda storage: storage.leader.lead("role", "w1", timedelta(seconds=1)),
    "promote": lambda storage: storage.maintenance.promote(10),
    "tidy": lambda storage: storage.maintenance.tidy(),
    "find": lambda storage: storage.admin.find(JobFilter(), limit=10),
    "counts": lambda storage: storage.admin.counts(),
    "pause": lambda storage: storage.admin.pause("other"),
    "now": lambda storage: storage.now(),
}


@pytest.mark.parametrize("name", OPERATIONS)
async def test_an_operation_on_a_connection_that_was_cut_is_repeated(
    server: ValkeyServer, name: str
) -> None:
    async with opened(server.url) as storage:
        await enlist(storage)
        await OPERATIONS[name](storage)
        cut(server)
        await OPERATIONS[name](storage)


async def test_work_continues_while_connections_are_cut(server: ValkeyServer) -> None:
    async with opened(server.url) as storage:
        await enlist(storage)
        stop = asyncio.Event()

        async def cutting() -> None:
            while not stop.is_set():
                await asyncio.to_thread(cut, server)
                await asyncio.sleep(0.02)

        task = asyncio.create_task(cutting())
        try:
            stored = [job for _ in range(100) for job in await add(storage, a_job())]
        finally:
            stop.set()
            await task
        assert len(await storage.admin.find(JobFilter(), limit=1000)) == len(stored) == 100


async def test_claims_come_within_two_seconds_of_the_servers_return(own_valkey: Start) -> None:
    server = own_valkey(appendfsync="always")
    async with opened(server.url) as storage:
        await enlist(storage)
        await add(storage, a_job())
        server.crash()

        async def claimed() -> float:
            while True:
                try:
                    await claim_one(storage)
                except StorageUnavailable:
                    continue
                return time.monotonic()

        waiting = asyncio.create_task(claimed())
        assert await unanswered(waiting, 1.5)
        server.start()
        back = time.monotonic()
        assert await waiting - back < 2


async def test_a_server_that_is_away_is_said_to_be_without_its_password(
    own_valkey: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass._storage.redis.io.connection.RETRY_SECONDS", 0.3)
    server = own_valkey(requirepass="s3cret")
    url = f"redis://:s3cret@127.0.0.1:{server.port}"
    async with opened(url) as storage:
        server.crash()
        with pytest.raises(StorageUnavailable, match="does not answer") as caught:
            await storage.admin.counts()
        assert "s3cret" not in repr(caught.value)
        assert "s3cret" not in storage.describe()
    with pytest.raises(StorageUnavailable, match=str(server.port)):
        await open_redis(url)


async def test_an_outage_is_said_once_and_once_when_it_is_over(
    server: ValkeyServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "windlass")
    async with opened(server.url) as storage:
        woken = await listening(storage)
        await storage.now()
        cut(server)  # which is no outage: what was idle is closed by many
        await asyncio.gather(storage.now(), storage.jobs.active(["default"]), woken.wait())
        assert caplog.messages == []
        server.stop()
        asked = asyncio.gather(storage.now(), storage.jobs.active(["default"]))
        await becomes_true(lambda: len(caplog.messages) > 0)
        server.start()
        await asked
        await becomes_true(lambda: connections(server) == 3)
        lost, found = caplog.messages
        assert "closed the connection" in lost
        assert "Reconnecting." in lost
        assert "is back after" in found
        assert ".." not in lost


async def test_a_frozen_server_is_noticed_and_used_again(
    server: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = "windlass._storage.redis.io.connection.Dialer.connect"
    monkeypatch.setattr(f"{connect}.__kwdefaults__", {"answer": 0.3})
    monkeypatch.setattr("windlass._storage.redis.io.connection.RETRY_SECONDS", 0.2)
    async with opened(server.url) as storage:
        server.pause()
        with pytest.raises(StorageUnavailable, match="Timeout"):
            await storage.admin.counts()
        server.go_on()
        assert await storage.admin.counts() == []


async def test_a_cancelled_caller_leaves_the_connection_in_step(server: ValkeyServer) -> None:
    async with opened(server.url) as storage:
        await enlist(storage)
        server.pause()
        job = a_job()
        caller = asyncio.ensure_future(storage.jobs.insert([job]))
        assert await unanswered(caller, 0.1)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        server.go_on()
        assert (await claim_one(storage)).claim.job == job.id


async def test_a_worker_process_has_four_connections(server: ValkeyServer) -> None:
    async with opened(server.url) as storage:
        storage.wakeups.subscribe(lambda: None)
        pulse = storage.workers.pulse()
        await enlist(storage)
        for operation in OPERATIONS.values():
            await operation(storage)
        await pulse.beat("w1")
        assert connections(server) == 4
        await pulse.close()
    await becomes_true(lambda: connections(server) == 0)


# --- what the server says ---------------------------------------------------------------------


async def test_lost_jobs_are_noticed_and_work_stops(server: ValkeyServer) -> None:
    async with opened(server.url) as storage:
        await enlist(storage)
        claimed = await started_one(storage)
        order(server, "FLUSHALL")
        finish = succeed(claimed, by="w1", result=None)
        for operation in (
            storage.jobs.insert([a_job()]),
            storage.jobs.apply([finish]),
            storage.workers.beat("w1"),
            storage.maintenance.promote(1),
        ):
            with pytest.raises(StorageReplaced, match="lost its jobs"):
                await operation
    async with opened(server.url) as anew:
        await add(anew, a_job())


async def test_a_server_without_memory_is_full(server: ValkeyServer) -> None:
    async with opened(server.url) as storage:
        order(server, "CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(StorageFull, match="maxmemory"):
            await storage.jobs.insert([a_job()])
        order(server, "CONFIG", "SET", "maxmemory", "0")
        await add(storage, a_job())
        assert len(await storage.admin.find(JobFilter(), limit=10)) == 1


async def test_a_full_server_takes_nothing_new_and_everything_that_frees_memory(
    server: ValkeyServer,
) -> None:
    async with opened(server.url) as storage:
        await enlist(storage)
        claimed = await started_one(storage)
        await add(storage, a_job())
        order(server, "CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(StorageFull):
            await storage.jobs.claim("w1", [Want("default", 1)], total=1)
        # Were one of these refused, nobody could prune, and it would be full for ever.
        assert (await storage.workers.beat("w1")).live
        assert await storage.leader.lead("chores", "w1", MINUTE)
        await end(storage, succeed(claimed, by="w1", result=b"1"))
        pruned = await storage.maintenance.prune(
            state=State.SUCCEEDED, older_than=timedelta(0), limit=10
        )
        await storage.workers.leave("w1", [])
        order(server, "CONFIG", "SET", "maxmemory", "0")
        (counts,) = await storage.admin.counts()
        assert (pruned, counts.ready, counts.succeeded) == (1, 1, 0)


async def test_a_server_that_wants_replicas_says_so(server: ValkeyServer) -> None:
    async with opened(server.url) as storage:
        order(server, "CONFIG", "SET", "min-replicas-to-write", "1")
        with pytest.raises(StorageUnavailable, match="min-replicas-to-write"):
            await storage.jobs.insert([a_job()])


async def test_somebodys_slow_script_is_waited_for(own_valkey: Start) -> None:
    server = own_valkey(busy_reply_threshold="10")
    async with opened(server.url) as storage:
        slow = asyncio.create_task(asyncio.to_thread(_run_for_ever, server))
        await becomes_true(lambda: _is_busy(server))
        asyncio.get_running_loop().call_later(0.5, order, server, "SCRIPT", "KILL")
        await add(storage, a_job())
        await slow


def _is_busy(server: ValkeyServer) -> bool:
    try:
        order(server, "PING")
    except redis.ResponseError as error:
        return "BUSY" in str(error)
    return False


def _run_for_ever(server: ValkeyServer) -> None:
    with redis.Redis(port=server.port) as line, pytest.raises(redis.ResponseError):
        line.eval("while true do end", 0)


@pytest.mark.parametrize(
    "rules",
    [
        ADMIN_RULES,
        (
            *("~{windlass}:*", "+@read", "+@write", "+@scripting", "+@connection"),
            *("+time", "+wait"),
        ),
    ],
)
async def test_a_user_with_one_key_pattern_can_do_everything(
    own_valkey: Start, caplog: pytest.LogCaptureFixture, rules: tuple[str, ...]
) -> None:
    url = a_user(own_valkey(), *rules)
    caplog.set_level(logging.WARNING, "windlass")
    async with opened(url, durability="local") as storage:
        await enlist(storage)
        for operation in OPERATIONS.values():
            await operation(storage)
        await succeeded(storage, await claim_one(storage))
        async with opened(url, durability="local") as other:
            woken = await listening(other)
            await add(storage, a_job())
            await asyncio.wait_for(woken.wait(), 5)
    assert not caplog.records


async def test_a_unix_socket_is_as_good(server: ValkeyServer) -> None:
    async with opened(f"unix://{server.socket}?db=3") as storage:
        await enlist(storage)
        await succeeded(storage, await started_one(storage))
        assert str(server.socket) in storage.describe()


# --- wake-ups ---------------------------------------------------------------------------------


async def test_wakeups_come_from_other_storages_and_after_a_lost_connection(
    server: ValkeyServer,
) -> None:
    async with opened(server.url) as storage, opened(server.url) as other:
        woken = await listening(storage)
        await add(other, a_job())
        await asyncio.wait_for(woken.wait(), 5)
        woken.clear()
        cut(server)
        await asyncio.wait_for(woken.wait(), 5)  # whatever changed meanwhile: one wake
        woken.clear()
        await add(other, a_job())
        await asyncio.wait_for(woken.wait(), 5)


# --- loops and forks --------------------------------------------------------------------------


def test_a_storage_whose_loop_has_ended_can_be_closed_on_another(redis_url: str) -> None:
    async def leave_open() -> RedisStorage:
        storage = await open_redis(redis_url)
        storage.wakeups.subscribe(lambda: None)
        await add(storage, a_job())
        return storage

    storage = asyncio.run(leave_open())
    asyncio.run(storage.close())
    del storage
    gc.collect()


async def test_a_forked_child_leaves_its_parents_connections_alone(
    storage: RedisStorage,
) -> None:
    await enlist(storage)
    await add(storage, a_job())
    child = os.fork()
    if child == 0:
        try:
            gc.collect()
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert (await claim_one(storage)).task == "conform"


# --- looking ----------------------------------------------------------------------------------


async def test_jobs_are_found_however_many_others_there_are(storage: RedisStorage) -> None:
    await enlist(storage)
    (rare,) = await add(storage, a_job(queue="rare", task="rare"))
    for _ in range(3):
        await storage.jobs.insert([a_job() for _ in range(500)])
    every = await storage.admin.find(JobFilter(), limit=2000)
    assert [job.seq for job in every] == sorted((job.seq for job in every), reverse=True)
    assert len(every) == 1501
    for wanted in (JobFilter(queue="rare"), JobFilter(task="rare"), JobFilter(before=2)):
        assert [job.id for job in await storage.admin.find(wanted, limit=5)] == [rare]
    page = await storage.admin.find(JobFilter(queue="default"), limit=600)
    rest = await storage.admin.find(JobFilter(queue="default", before=page[-1].seq), limit=2000)
    assert len(page) + len(rest) == 1500
    claimed = await claim_one(storage)
    running = await storage.admin.find(JobFilter(states=[State.RUNNING]), limit=5)
    assert [job.id for job in running] == [claimed.claim.job]


async def test_an_error_is_never_one_of_the_driver(
    server: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass._storage.redis.io.connection.RETRY_SECONDS", 0.1)
    async with opened(server.url) as storage:
        server.crash()
        for operation in OPERATIONS.values():
            with pytest.raises(StorageError):
                await operation(storage)
