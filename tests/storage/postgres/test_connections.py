"""Connections come back by themselves: after a kill, a restart, a silence, a lost answer."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import timedelta

import asyncpg
import psycopg
import pytest

from tests.servers.postgres import PostgresServer
from tests.servers.proxy import Proxy
from tests.servers.wire_protocols import PostgresWire
from tests.storage.postgres.pooler import Pooler
from windlass._core.job.state import State
from windlass._core.job.transition import succeed
from windlass._storage.postgres import PostgresStorage, open_postgres
from windlass._storage.postgres.io import wakeups as wakeups_module
from windlass._storage.protocol.jobs import Verdict, Want
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import monotonic
from windlass.errors import StorageUnavailable
from windlass.testing.conformance.steps import (
    a_job,
    add,
    at_most,
    claim,
    enlist,
    limited,
    look,
    started,
    succeeded,
    total,
)

PATIENCE = 20.0
MINE = "datname = current_database() AND application_name = 'windlass'"


@pytest.fixture
async def storage(clean_database: str) -> AsyncIterator[PostgresStorage]:
    opened = await open_postgres(clean_database)
    yield opened
    await opened.close()


@pytest.fixture
def stranger(clean_database: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with psycopg.connect(clean_database, autocommit=True) as line:
        yield line


Stranger = psycopg.Connection[tuple[object, ...]]


def cut_all(stranger: Stranger) -> None:
    """End every session of the storages of this database, and wait until they are gone."""
    stranger.execute(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {MINE}")  # noqa: S608


def sessions(stranger: Stranger) -> int:
    found = stranger.execute(f"SELECT count(*) FROM pg_stat_activity WHERE {MINE}").fetchone()  # noqa: S608
    assert found is not None
    return int(str(found[0]))


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2].partition("/")[0])


@pytest.fixture
def wire(clean_database: str) -> Iterator[tuple[Proxy, str]]:
    """A way to the database that can be cut, and its URL. TLS would hide what is said there."""
    with Proxy(port_of(clean_database), PostgresWire) as proxy:
        url = clean_database.replace(str(port_of(clean_database)), str(proxy.port))
        yield proxy, url + "?sslmode=disable"


async def until(true: Callable[[], bool]) -> None:
    """Look again and again."""
    async with asyncio.timeout(PATIENCE):
        while not true():  # noqa: ASYNC110 -- nobody tells
            await asyncio.sleep(0.01)


class Woken:
    """Counts the wake-ups of one storage."""

    def __init__(self, storage: PostgresStorage) -> None:
        self.count = 0
        self._event = asyncio.Event()
        self._storage = storage
        storage.wakeups.subscribe(self._wake)

    def _wake(self) -> None:
        self.count += 1
        self._event.set()

    async def listening(self) -> None:
        async with asyncio.timeout(PATIENCE):
            await self._storage.wakeups.listening()

    async def again(self, patience: float = PATIENCE) -> None:
        async with asyncio.timeout(patience):
            await self._event.wait()
        self._event.clear()

    def forget(self) -> None:
        self._event.clear()


# --- kills ------------------------------------------------------------------------------------

OPERATIONS: dict[str, Callable[[Storage], Awaitable[object]]] = {
    "insert": lambda storage: storage.jobs.insert([a_job()]),
    "claim": lambda storage: storage.jobs.claim("w1", [Want("default", 1)], total=1),
    "outlook": lambda storage: storage.jobs.outlook(["default"]),
    "active": lambda storage: storage.jobs.active(["default"]),
    "settled": lambda storage: storage.jobs.settled([a_job().id]),
    "cancel": lambda storage: storage.jobs.cancel([a_job().id]),
    "beat": lambda storage: storage.workers.beat("w1"),
    "overdue": lambda storage: storage.workers.overdue(),
    "bury": lambda storage: storage.workers.bury(["nobody"]),
    "orphans": lambda storage: storage.workers.orphans(10),
    "live": lambda storage: storage.workers.live(),
    "leave": lambda storage: storage.workers.leave("nobody", []),
    "lead": lambda storage: storage.leader.lead("reaper", "w1", timedelta(seconds=5)),
    "resign": lambda storage: storage.leader.resign("w1"),
    "specs": lambda storage: storage.limits.specs(),
    "promote": lambda storage: storage.maintenance.promote(10),
    "next_due": lambda storage: storage.maintenance.next_due(),
    "expire": lambda storage: storage.maintenance.expire(10),
    "prune": lambda storage: storage.maintenance.prune(
        state=State.FAILED, older_than=timedelta(1), limit=10
    ),
    "tidy": lambda storage: storage.maintenance.tidy(),
    "find": lambda storage: storage.admin.find(JobFilter(), limit=5),
    "counts": lambda storage: storage.admin.counts(),
    "pause": lambda storage: storage.admin.pause("q"),
    "resume": lambda storage: storage.admin.resume("q"),
    "now": lambda storage: storage.now(),
}


async def test_every_operation_survives_the_end_of_its_session(
    storage: PostgresStorage, stranger: Stranger
) -> None:
    await enlist(storage)
    for operation in OPERATIONS.values():
        await operation(storage)  # opens what it needs
        cut_all(stranger)
        await operation(storage)
    # Each insert was done twice, and claimed at most twice; none was lost or doubled.
    assert await total(storage) == 2


async def test_every_operation_survives_a_lost_answer(wire: tuple[Proxy, str]) -> None:
    proxy, url = wire
    storage = await open_postgres(url)
    await enlist(storage)
    for operation in OPERATIONS.values():
        await operation(storage)
        loss = proxy.lose_answer(lambda request: bool(request) and "pg_notify" not in request)
        await operation(storage)
        assert loss.happened
    assert await total(storage) == 2
    await storage.close()


async def test_a_finish_whose_answer_was_lost_is_told_apart_from_a_refused_one(
    wire: tuple[Proxy, str],
) -> None:
    proxy, url = wire
    storage = await open_postgres(url)
    running = await started(storage)
    loss = proxy.lose_answer(lambda request: "apply" in request)
    applied = await storage.jobs.apply([succeed(running, by="w1", result=b"1")])
    assert loss.happened
    assert [answer.verdict for answer in applied.answers] == [Verdict.REPEATED]
    assert (await look(storage, running)).state is State.SUCCEEDED
    await storage.close()


async def test_the_heartbeat_survives_the_end_of_its_session(
    storage: PostgresStorage, stranger: Stranger
) -> None:
    await enlist(storage)
    pulse = storage.workers.pulse()
    assert (await pulse.beat("w1")).live
    cut_all(stranger)
    assert (await pulse.beat("w1")).live
    await pulse.close()


async def test_a_cancelled_caller_leaves_the_connection_usable(
    storage: PostgresStorage,
) -> None:
    for _ in range(20):
        call = asyncio.create_task(storage.jobs.insert([a_job()]))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    await storage.now()
    assert await total(storage) <= 20


# --- a server that goes away and comes back ---------------------------------------------------


async def test_work_continues_within_two_seconds_of_the_servers_return(
    own_postgres: Callable[..., PostgresServer], caplog: pytest.LogCaptureFixture
) -> None:
    server = own_postgres()
    storage = await open_postgres(server.url)
    await enlist(storage)
    woken = Woken(storage)
    await woken.listening()
    (job,) = await add(storage, a_job())
    server.crash()
    with pytest.raises(StorageUnavailable), caplog.at_level(logging.WARNING, "windlass"):
        await claim(storage)
    server.start()
    back = monotonic()
    assert [one.claim.job for one in await claim(storage)] == [job]
    assert monotonic() - back < 2
    await woken.listening()
    assert monotonic() - back < 3
    told = [record.getMessage() for record in caplog.records if "PostgreSQL" in record.message]
    assert len([text for text in told if "is back after" in text]) <= 1
    await storage.close()


async def test_a_server_that_is_down_at_the_start_is_waited_for_a_while(
    own_postgres: Callable[..., PostgresServer],
) -> None:
    server = own_postgres()
    server.stop()
    opening = asyncio.create_task(open_postgres(server.url))
    await asyncio.sleep(0)
    server.start()
    await (await opening).close()


async def test_a_server_out_of_connections_is_named_and_recovered_from(
    own_postgres: Callable[..., PostgresServer],
) -> None:
    server = own_postgres(max_connections="10", superuser_reserved_connections="0")
    storage = await open_postgres(server.url)
    lines = [psycopg.connect(server.url) for _ in range(10)]
    with pytest.raises(StorageUnavailable, match="max_connections"):
        await storage.now()
    for line in lines:
        line.close()
    await storage.now()
    await storage.close()


async def test_a_primary_that_becomes_read_only_is_named_and_recovered_from(
    storage: PostgresStorage,
    stranger: Stranger,
    clean_database: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = clean_database.rpartition("/")[2]
    stranger.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    cut_all(stranger)
    with pytest.raises(StorageUnavailable, match="takes no writes"):
        await storage.jobs.insert([a_job()])
    stranger.execute("SET default_transaction_read_only = off")
    stranger.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    cut_all(stranger)
    await add(storage, a_job())
    assert caplog.text.count("takes no writes") == 1
    assert caplog.text.count("is back after") <= 2  # of cutting the connections, and of this


# --- wake-ups ---------------------------------------------------------------------------------


async def test_a_job_stored_elsewhere_wakes_at_once(
    storage: PostgresStorage, clean_database: str
) -> None:
    woken = Woken(storage)
    await woken.listening()
    woken.forget()
    other = await open_postgres(clean_database)
    await add(other, a_job())
    await woken.again(1)
    await other.close()


async def test_the_last_job_before_closing_wakes_too(
    storage: PostgresStorage, clean_database: str
) -> None:
    woken = Woken(storage)
    await woken.listening()
    other = await open_postgres(clean_database)
    await add(other, a_job())
    woken.forget()
    await add(other, a_job())
    await other.close()
    await woken.again()


async def test_listening_continues_after_the_session_was_ended(
    storage: PostgresStorage, stranger: Stranger, clean_database: str
) -> None:
    woken = Woken(storage)
    await woken.listening()
    other = await open_postgres(clean_database)
    for _ in range(3):
        woken.forget()
        cut_all(stranger)
        await woken.again()  # whatever was said while nobody listened
        await woken.listening()
        woken.forget()
        await add(other, a_job())
        await woken.again(1)
    await other.close()


async def test_a_listener_that_hears_nothing_any_more_is_replaced(
    wire: tuple[Proxy, str], clean_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups_module, "_CHECK_EVERY", 0.1)
    monkeypatch.setattr(wakeups_module, "_CHECK_SECONDS", 0.3)
    proxy, url = wire
    storage = await open_postgres(url)
    woken = Woken(storage)
    await woken.listening()
    proxy.black_hole()
    listener = storage.wakeups._listener
    assert listener is not None
    await until(lambda: not listener.heard.is_set())
    proxy.cut()
    proxy.heal()
    await woken.listening()
    woken.forget()
    other = await open_postgres(clean_database)
    await add(other, a_job())
    await woken.again()
    await other.close()
    await storage.close()


async def test_many_inserts_are_few_notifications(
    storage: PostgresStorage, clean_database: str
) -> None:
    heard = 0

    def hear(*_: object) -> None:
        nonlocal heard
        heard += 1

    line = await asyncpg.connect(clean_database)
    await line.add_listener("windlass_windlass", hear)
    begun = monotonic()
    for _ in range(100):
        await add(storage, a_job())
    took = monotonic() - begun
    await storage.close()
    await line.fetch("SELECT 1")
    await line.close()
    assert 1 <= heard <= took / 0.005 + 2


async def test_a_listener_never_sits_in_a_transaction(
    storage: PostgresStorage, stranger: Stranger
) -> None:
    woken = Woken(storage)
    await woken.listening()
    found = stranger.execute(
        f"SELECT state, xact_start FROM pg_stat_activity WHERE {MINE}"  # noqa: S608
    ).fetchall()
    assert set(found) == {("idle", None)}


async def test_missing_notifications_are_logged_once_and_delay_no_caller(
    clean_database: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def unheard(*_: object) -> None:
        """LISTEN as a pool in transaction mode has it: accepted, and then on its own."""

    monkeypatch.setattr(asyncpg.Connection, "add_listener", unheard)
    monkeypatch.setattr(wakeups_module, "_TEST_SECONDS", 0.1)
    monkeypatch.setattr(wakeups_module, "_DEAF_PAUSE", 0.1)
    storage = await open_postgres(clean_database + "?pgbouncer=true")
    with caplog.at_level(logging.WARNING, "windlass"):
        woken = Woken(storage)
        await until(lambda: "do not arrive" in caplog.text)
        await add(storage, a_job())
        await woken.again()
        await storage.close()
    assert caplog.text.count("do not arrive") == 1


# --- few connections, and none that is somebody else's ----------------------------------------


async def test_a_producer_opens_one_connection_and_a_worker_four(
    storage: PostgresStorage, stranger: Stranger
) -> None:
    assert sessions(stranger) == 0
    await add(storage, a_job())
    await storage.jobs.insert([a_job() for _ in range(5)])
    assert sessions(stranger) == 1
    await enlist(storage)
    pulse = storage.workers.pulse()
    await pulse.beat("w1")
    await Woken(storage).listening()
    for operation in OPERATIONS.values():
        await operation(storage)
    assert sessions(stranger) == 4
    await pulse.close()


async def test_behind_a_pooler_nothing_is_prepared_on_the_server(clean_database: str) -> None:
    storage = await open_postgres(clean_database + "?statement_cache_size=0")
    assert "pooler" in storage.describe()
    await started(storage)
    assert await storage._db.fetch("SELECT name FROM pg_prepared_statements") == []
    await storage.close()


async def test_a_pooler_is_noticed_by_statements_that_are_gone(storage: PostgresStorage) -> None:
    await storage.now()
    await storage._db.fetch("DEALLOCATE ALL")
    await storage.now()
    assert storage._db.server.pooled


_FORK = """
import asyncio, os, sys
from windlass._storage.postgres import open_postgres
from windlass.testing.conformance.steps import a_job

async def parent():
    storage = await open_postgres(sys.argv[1])
    await storage.jobs.insert([a_job()])
    before = await storage._db.fetch("SELECT pg_backend_pid()")
    if (pid := os.fork()) == 0:
        os._exit(child(storage))
    assert os.waitpid(pid, 0)[1] == 0, "the child failed"
    after = await storage._db.fetch("SELECT pg_backend_pid()")
    assert before == after, "the parent's session was ended"
    assert sum(queue.ready for queue in await storage.admin.counts()) == 2
    await storage.close()

def child(inherited):
    asyncio.events._set_running_loop(None)

    async def write():
        await inherited.close()
        own = await open_postgres(sys.argv[1])
        await own.jobs.insert([a_job()])
        await own.close()

    try:
        asyncio.new_event_loop().run_until_complete(asyncio.wait_for(write(), 20))
    except BaseException as error:
        print(repr(error), file=sys.stderr)
        return 1
    return 0

asyncio.run(parent())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_neither_uses_nor_ends_its_parents_session(clean_database: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FORK, clean_database],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


async def _opened(url: str) -> list[PostgresStorage]:
    storage = await open_postgres(url)
    await storage.now()
    return [storage]


def _close_elsewhere(storages: list[PostgresStorage]) -> None:
    asyncio.run(storages.pop().close())
    gc.collect()


def test_a_storage_whose_loop_has_ended_is_closed_from_another(
    clean_database: str, stranger: Stranger
) -> None:
    storages = asyncio.run(_opened(clean_database))
    assert sessions(stranger) == 1
    # What should have been closed before its loop ended says so; the server is told all the same.
    with pytest.warns(ResourceWarning, match="unclosed"):
        _close_elsewhere(storages)
    asyncio.run(until(lambda: sessions(stranger) == 0))


async def test_a_pool_in_transaction_mode_is_noticed_and_worked_with(
    clean_database: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(wakeups_module, "_TEST_SECONDS", 0.2)
    async with Pooler(clean_database) as pooler:
        storage = await open_postgres(pooler.url)
        assert "through a pooler" in storage.describe()
        await at_most(storage, api=1)
        woken = Woken(storage)
        pulse = storage.workers.pulse()
        with caplog.at_level(logging.WARNING, "windlass"):
            for _ in range(5):
                await add(storage, limited("api"), a_job())
                for running in await claim(storage, 5):
                    await pulse.beat("w1")
                    await succeeded(storage, running)
                for operation in OPERATIONS.values():
                    await operation(storage)
            await until(lambda: "do not arrive" in caplog.text)
        woken.forget()
        await add(storage, a_job())
        await woken.again()
        await pulse.close()
        await storage.close()


async def test_a_pool_that_refuses_our_settings_is_given_none(clean_database: str) -> None:
    async with Pooler(clean_database) as pooler:
        storage = await open_postgres(pooler.url + "?pgbouncer=false")
        assert "through a pooler" in storage.describe()
        await add(storage, a_job())
        await storage.close()
