"""Single blocking calls on servers: the calling thread asks by itself, or leaves it to the loop."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from tests.servers.proxy import Proxy
from tests.servers.valkey import ValkeyServer
from tests.servers.wire_protocols import PostgresWire, RedisWire
from tests.storage.redis.test_durability import becomes_true
from windlass import Windlass
from windlass._app.parts import parts_of
from windlass._storage.postgres import open_postgres
from windlass._storage.postgres.io import database as postgres_database
from windlass._storage.postgres.jobs.jobs import PostgresJobs
from windlass._storage.redis import open_redis
from windlass._storage.redis.jobs.jobs import RedisJobs
from windlass._tasks.task import Task
from windlass.errors import IdConflict, StorageUnavailable
from windlass.testing.conformance.steps import a_job

PATIENCE = 30.0
BACKENDS = pytest.mark.parametrize("backend", ["postgres", "redis"])


class Shop:
    """An app on a server behind a wire that can be cut. Its background loop runs."""

    def __init__(self, url: str, wire: Proxy) -> None:
        self.app = Windlass(url)
        self.wire = wire
        self.greet: Task[[str], None] = self.app.task(name="greet")(_greet)
        self.greet.enqueue_sync("first")
        self.threads = ThreadPoolExecutor(8)

    def enqueue_on_thread(self, name: str) -> bool:
        return self.threads.submit(self.greet.enqueue_sync, name).result(PATIENCE).created

    def stored(self) -> int:
        return sum(count.ready for count in self.app.blocking.admin.queues.counts())

    def close(self) -> None:
        self.threads.shutdown()
        self.app.blocking.close()


def _greet(name: str) -> None: ...


def port_of(url: str) -> str:
    return url.rpartition(":")[2].partition("/")[0]


@pytest.fixture
def url(backend: str, request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(f"{backend}_url")
    return found


@pytest.fixture
def shop(backend: str, url: str) -> Iterator[Shop]:
    protocol = PostgresWire if backend == "postgres" else RedisWire
    with Proxy(int(port_of(url)), protocol) as wire:
        there = url.replace(port_of(url), str(wire.port))
        shop = Shop(there + ("?sslmode=disable" if backend == "postgres" else ""), wire)
        yield shop
        shop.close()


def inserts(request: str) -> bool:
    return "insert" in request.lower()


@BACKENDS
def test_a_blocking_enqueue_does_not_wait_for_the_background_loop(shop: Shop) -> None:
    loop = parts_of(shop.app).blocking_loop.loop
    assert loop is not None
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        release.wait(PATIENCE)

    loop.call_soon_threadsafe(hold)
    assert held.wait(PATIENCE)
    try:
        assert shop.enqueue_on_thread("second")
    finally:
        release.set()
    assert shop.stored() == 2


@BACKENDS
def test_threads_that_call_at_once_store_every_job_once(shop: Shop) -> None:
    names = [str(number) for number in range(200)]
    jobs = list(shop.threads.map(shop.greet.enqueue_sync, names))
    assert len({job.id for job in jobs}) == len(names)
    assert shop.stored() == 1 + len(names)


@BACKENDS
def test_a_job_whose_answer_was_lost_is_stored_once(shop: Shop) -> None:
    assert shop.enqueue_on_thread("second")
    loss = shop.wire.lose_answer(inserts)
    assert shop.enqueue_on_thread("third")
    assert loss.happened
    assert shop.stored() == 3
    assert shop.enqueue_on_thread("fourth")
    assert shop.stored() == 4


@BACKENDS
def test_calls_continue_when_the_server_is_back(shop: Shop) -> None:
    assert shop.enqueue_on_thread("second")
    shop.wire.refuse()
    shop.wire.cut()
    waiting = shop.threads.submit(shop.greet.enqueue_sync, "third")
    with pytest.raises(TimeoutError):
        waiting.result(0.3)
    shop.wire.heal()
    assert waiting.result(PATIENCE).created
    assert shop.enqueue_on_thread("fourth")
    assert shop.stored() == 4


@BACKENDS
def test_an_id_of_another_call_is_refused_on_a_thread(shop: Shop) -> None:
    def repeat(name: str, job_id: str) -> bool:
        task = shop.greet.options(id=job_id)
        return shop.threads.submit(task.enqueue_sync, name).result(PATIENCE).created

    job_id = a_job().id
    assert repeat("second", job_id)
    assert repeat("second", job_id)
    with pytest.raises(IdConflict):
        repeat("another", job_id)
    assert shop.stored() == 2


@BACKENDS
def test_closing_waits_for_the_call_of_a_thread(shop: Shop) -> None:
    assert shop.enqueue_on_thread("second")
    shop.wire.black_hole()
    waiting = shop.threads.submit(shop.greet.enqueue_sync, "third")
    with pytest.raises(TimeoutError):
        waiting.result(0.2)
    closing = shop.threads.submit(shop.app.blocking.close)
    with pytest.raises(TimeoutError):
        closing.result(0.2)
    shop.wire.heal()
    assert waiting.result(PATIENCE).created
    closing.result(PATIENCE)
    shop.wire.cut()  # waits for the ends of those that were closed
    assert shop.wire.connections == 0
    assert shop.stored() == 3


@pytest.mark.parametrize("backend", ["postgres"])
def test_a_call_without_an_answer_says_which_id_it_used(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shop.enqueue_on_thread("second")
    monkeypatch.setattr(postgres_database, "RETRY_SECONDS", 0.2)
    shop.wire.black_hole()
    with pytest.raises(StorageUnavailable) as caught:
        shop.enqueue_on_thread("third")
    monkeypatch.undo()
    shop.wire.heal()
    (job_id,) = vars(caught.value)["ids"]
    again = shop.greet.options(id=job_id).enqueue_sync("third")
    assert again.id == job_id
    assert shop.stored() == 3


async def _hears(jobs: PostgresJobs | RedisJobs, subscribe: Callable[..., object]) -> None:
    heard = asyncio.Event()

    def wake() -> bool:
        heard.set()
        return True

    subscribe(wake, ["default"])
    answers = await asyncio.to_thread(jobs.insert_here, [a_job()])
    assert answers is not None
    assert [answer.created for answer in answers] == [True]
    async with asyncio.timeout(PATIENCE):
        await heard.wait()


async def test_workers_elsewhere_hear_of_jobs_that_a_thread_stores(postgres_url: str) -> None:
    storage, other = await open_postgres(postgres_url), await open_postgres(postgres_url)
    heard = asyncio.Event()
    other.wakeups.subscribe(heard.set)
    async with asyncio.timeout(PATIENCE):
        await other.wakeups.listening()
        heard.clear()
        await _hears(storage.jobs, storage.wakeups.work)
        await heard.wait()
    await storage.close()
    await other.close()


async def test_subscribers_hear_of_jobs_that_a_thread_stores_on_redis(redis_url: str) -> None:
    storage = await open_redis(redis_url)
    await storage.jobs.insert([a_job()])  # loads the scripts
    await _hears(storage.jobs, storage.wakeups.work)
    await storage.close()


async def test_a_thread_hangs_up_on_a_server_that_became_a_replica(
    own_valkey: Callable[..., ValkeyServer],
) -> None:
    server = own_valkey()
    storage = await open_redis(server.url)
    await storage.jobs.insert([a_job()])  # loads the scripts
    with redis.Redis(port=server.port) as line:

        def connected() -> set[str]:
            return {client["id"] for client in line.client_list()}

        before = connected()
        assert await asyncio.to_thread(storage.jobs.insert_here, [a_job()])
        (direct,) = connected() - before
        line.replicaof("127.0.0.1", "1")
        assert await asyncio.to_thread(storage.jobs.insert_here, [a_job()]) is None
        await becomes_true(lambda: direct not in connected())
        line.replicaof("NO", "ONE")
        assert await asyncio.to_thread(storage.jobs.insert_here, [a_job()])
    await storage.close()


@BACKENDS
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_opens_a_connection_and_leaves_its_parents_alone(
    url: str, tmp_path: Path
) -> None:
    program = """
import os, sys, threading, warnings
from windlass import Windlass

warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks with threads
app = Windlass(sys.argv[1])

@app.task(name="work")
def work() -> None: ...

def on_thread() -> None:
    thread = threading.Thread(target=work.enqueue_sync)
    thread.start()
    thread.join()

work.enqueue_sync()
on_thread()
for _ in range(2):
    child = os.fork()
    if not child:
        work.enqueue_sync()
        on_thread()
        app.blocking.close()
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    on_thread()
(counts,) = app.blocking.run(app.admin.queues.counts())
print(counts.ready)
app.blocking.close()
"""
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", program, url],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("8\n", "")
