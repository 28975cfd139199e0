"""New jobs wake about as many idle workers as there are jobs, and one that is gone costs little."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

import asyncpg
import pytest

from tests.servers.pgbouncer import PgBouncer, find_pgbouncer
from tests.servers.shared import SharedServers
from windlass import Windlass
from windlass._app.parts import parts_of
from windlass._core.job.outcome import Succeeded
from windlass._storage.postgres import PostgresStorage, open_postgres
from windlass._storage.postgres.io import work_hints
from windlass._storage.postgres.io.notify import decode_notification
from windlass._storage.postgres.io.presence import ACQUIRE
from windlass._system.seams import monotonic
from windlass.testing.conformance.steps import a_job, add, happened, started

PATIENCE = 30.0
LONG_POLL = 600
"""Seconds: no worker of these tests finds a job by its poll."""


class Idle:
    """A worker that waits in its own process, as far as the server can tell."""

    def __init__(self, storage: PostgresStorage, *, takes: bool = True) -> None:
        self.storage, self.takes = storage, takes
        self.claims = self.looks = 0
        self.hints = storage.wakeups.work(self._hear, ["mail"])

    def _hear(self) -> bool:
        if self.hints.exact:
            self.claims += 1
        else:
            self.looks += 1
        return self.takes


Crew = Callable[[int], Awaitable[list[Idle]]]


@pytest.fixture
async def opened(
    clean_schema: tuple[str, str],
) -> AsyncIterator[Callable[[], Awaitable[PostgresStorage]]]:
    url, schema = clean_schema
    async with AsyncExitStack() as stack:

        async def one() -> PostgresStorage:
            storage = await open_postgres(url, schema=schema)
            stack.push_async_callback(storage.close)
            return storage

        yield one


@pytest.fixture
def crew(opened: Callable[[], Awaitable[PostgresStorage]]) -> Crew:
    """Workers that know of each other."""

    async def several(number: int) -> list[Idle]:
        workers = [Idle(await opened()) for _ in range(number)]
        await until(lambda: all(knows(worker.storage, number) for worker in workers))
        for worker in workers:
            worker.claims = worker.looks = 0
        return workers

    return several


async def until(condition: Callable[[], bool], patience: float = PATIENCE) -> None:
    async with asyncio.timeout(patience):
        while not condition():  # noqa: ASYNC110 -- there is no event
            await asyncio.sleep(0.005)


def knows(storage: PostgresStorage, number: int) -> bool:
    """Check how many sessions its workers know that serve the same queues."""
    groups = storage.wakeups._groups._all.values()
    return [len(group._sessions) for group in groups] == [number]


async def settled(workers: list[Idle]) -> tuple[int, int]:
    """Count claims and looks, once no more come."""
    before: tuple[int, int] | None = None
    while True:
        found = sum(worker.claims for worker in workers), sum(worker.looks for worker in workers)
        if found == before:
            return found
        before = found
        await asyncio.sleep(0.15)


@pytest.mark.parametrize("jobs", [1, 3])
async def test_as_many_idle_workers_claim_as_there_are_jobs(
    crew: Crew, opened: Callable[[], Awaitable[PostgresStorage]], jobs: int
) -> None:
    workers, producer = await crew(8), await opened()
    for turn in range(1, 5):
        await producer.jobs.insert([a_job(queue="mail") for _ in range(jobs)])
        await until(lambda turn=turn: sum(w.claims for w in workers) >= turn * jobs)  # type: ignore[misc]
    claims, looks = await settled(workers)
    assert claims == 4 * jobs
    assert looks <= 4 * jobs


async def test_lone_jobs_are_spread_over_the_workers(
    crew: Crew, opened: Callable[[], Awaitable[PostgresStorage]]
) -> None:
    workers, producer = await crew(3), await opened()
    for turn in range(1, 31):
        await add(producer, a_job(queue="mail"))
        await until(lambda turn=turn: sum(w.claims for w in workers) >= turn)  # type: ignore[misc]
    assert all(worker.claims > 0 for worker in workers)


async def test_a_worker_without_room_leaves_its_hints_to_another(
    crew: Crew, opened: Callable[[], Awaitable[PostgresStorage]], clean_schema: tuple[str, str]
) -> None:
    (free, *full), producer = await crew(4), await opened()
    for worker in full:
        worker.takes = False
    passed: list[int] = []
    line = await asyncpg.connect(clean_schema[0])
    await line.add_listener(
        producer._db.channel, lambda *told: passed.append(decode_notification(told[3]).full)
    )
    began = monotonic()
    for turn in range(1, 11):
        await add(producer, a_job(queue="mail"))
        await until(lambda turn=turn: free.claims >= turn, 2.0)  # type: ignore[misc]
    await line.fetch("SELECT 1")
    passes = sum(session > 0 for session in passed)
    assert passes <= len(full) * (monotonic() - began + 1)  # each says so once in a second
    await line.close()


async def test_the_next_in_line_looks_if_the_first_is_gone(
    crew: Crew, opened: Callable[[], Awaitable[PostgresStorage]], clean_schema: tuple[str, str]
) -> None:
    (worker,) = await crew(1)
    ghost = await asyncpg.connect(clean_schema[0])
    keys = worker.storage._db.presence
    await ghost.execute(ACQUIRE, keys.schema, [keys.group(["mail"])])
    worker.storage.wakeups._listener._rung.set()  # type: ignore[union-attr]
    await until(lambda: knows(worker.storage, 2))
    producer = await opened()
    for turn in range(1, 11):
        await add(producer, a_job(queue="mail"))
        await until(lambda turn=turn: worker.claims + worker.looks >= turn, 2.0)  # type: ignore[misc]
    await ghost.close()


@pytest.fixture
def session_pool(servers: SharedServers) -> Iterator[PgBouncer]:
    binary = find_pgbouncer()
    if binary is None:
        pytest.skip("PgBouncer is not on this machine: install the package pgbouncer")
    port = int(servers.postgres().rpartition(":")[2].partition("/")[0])
    made = PgBouncer(servers.folder, binary, port, mode="session", size=20)
    yield made
    made.close()


async def test_behind_a_pool_in_session_mode_a_lone_worker_takes_every_hint(
    session_pool: PgBouncer,
    opened: Callable[[], Awaitable[PostgresStorage]],
    clean_schema: tuple[str, str],
) -> None:
    url, schema = clean_schema
    producer = await opened()
    pooled = await open_postgres(session_pool.url_of(url), schema=schema)
    worker = Idle(pooled)
    await until(lambda: knows(pooled, 1))
    worker.claims = worker.looks = 0
    for turn in range(1, 11):
        await add(producer, a_job(queue="mail"))
        await until(lambda turn=turn: worker.claims + worker.looks >= turn)  # type: ignore[misc]
    assert await settled([worker]) == (10, 0)
    await pooled.close()


async def test_a_worker_that_leaves_is_soon_left_out(
    crew: Crew,
) -> None:
    first, second, third = await crew(3)
    third.hints.close()
    third.storage.wakeups._listener._rung.set()  # type: ignore[union-attr]
    await second.storage.close()
    await until(lambda: knows(first.storage, 1), 5.0)


async def test_an_end_is_announced_only_while_a_caller_waits_for_one(
    opened: Callable[[], Awaitable[PostgresStorage]], clean_schema: tuple[str, str]
) -> None:
    storage, other = await opened(), await opened()
    heard: list[str] = []
    line = await asyncpg.connect(clean_schema[0])
    await line.add_listener(storage._db.channel, lambda *told: heard.append(told[3]))
    running = [await started(storage) for _ in range(2)]
    await until(lambda: storage._db._notifier._task is None)  # hints about the inserts
    await line.fetch("SELECT 1")
    heard.clear()
    await happened(storage, running[0], Succeeded())
    await until(lambda: storage._db._notifier._task is None)
    await line.fetch("SELECT 1")
    assert heard == []
    ended = asyncio.Event()
    undo = other.wakeups.subscribe(ended.set)
    await other.wakeups.listening()
    ended.clear()
    await happened(storage, running[1], Succeeded())
    await asyncio.wait_for(ended.wait(), PATIENCE)
    undo()
    await line.close()


# --- with real workers ------------------------------------------------------------------------


@asynccontextmanager
async def workers(url: str, schema: str, number: int) -> AsyncIterator[tuple[list[int], Windlass]]:
    """Run workers with one slot each; yield those that started a job, in order, and a producer.

    A job ends once ``number`` of them run.
    """
    started_by: list[int] = []
    everyone = asyncio.Barrier(number)

    def app(place: int) -> Windlass:
        made = Windlass(url, schema=schema, poll=LONG_POLL)

        @made.task(name="meet")
        async def meet() -> None:
            started_by.append(place)
            await everyone.wait()

        @made.task(name="pass")
        async def hurry() -> None:
            started_by.append(place)

        return made

    async with AsyncExitStack() as stack:
        apps = [app(place) for place in range(number)]
        for made in apps:
            await stack.enter_async_context(made)
            await stack.enter_async_context(made.worker(slots=1))
        for made in apps:
            storage = await parts_of(made).storage()
            assert isinstance(storage, PostgresStorage)
            await until(functools.partial(knows, storage, number))
        producer = await stack.enter_async_context(app(-1))
        stack.push_async_callback(everyone.abort)  # first, or workers wait for those that meet
        yield started_by, producer


async def everyone_meets(url: str, schema: str, patience: float) -> list[int]:
    async with workers(url, schema, 4) as (started_by, producer), asyncio.timeout(patience):
        task = producer.tasks["meet"]
        jobs = await producer.enqueue_many([task.call() for _ in range(4)])
        for job in jobs:
            await job.result()
        return started_by


async def test_a_burst_is_picked_up_by_as_many_workers(clean_schema: tuple[str, str]) -> None:
    assert sorted(await everyone_meets(*clean_schema, PATIENCE)) == [0, 1, 2, 3]


async def test_a_burst_that_wakes_too_few_workers_is_noticed(
    clean_schema: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        work_hints, "place_of", lambda me, others, _: sum(o < me for o in others) * 9
    )
    with pytest.raises(TimeoutError):
        await everyone_meets(*clean_schema, 1.5)


async def test_lone_jobs_do_not_wait_for_a_poll_while_other_workers_are_full(
    clean_schema: tuple[str, str],
) -> None:
    async with workers(*clean_schema, 4) as (started_by, producer), asyncio.timeout(PATIENCE):
        meet, hurry = producer.tasks["meet"], producer.tasks["pass"]
        waiting = [await meet.enqueue() for _ in range(3)]
        await until(lambda: len(started_by) == 3)
        for _ in range(8):
            await (await hurry.enqueue()).result()
        assert len(set(started_by[3:])) == 1
        await meet.enqueue()
        for job in waiting:
            await job.result()


async def test_a_worker_with_a_full_queue_leaves_its_hints_to_another_though_a_queue_has_room(
    clean_schema: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, schema = clean_schema
    monkeypatch.setattr(work_hints, "_FEW", 0)  # as among many workers: no second look
    running = asyncio.Event()
    finish = asyncio.Event()

    def app() -> Windlass:
        made = Windlass(url, schema=schema, poll=LONG_POLL)

        @made.task(name="long", queue="a")
        async def long() -> None:
            running.set()
            await finish.wait()

        @made.task(name="short", queue="a")
        async def short() -> None: ...

        return made

    async with AsyncExitStack() as stack:
        producer, *apps = [await stack.enter_async_context(app()) for _ in range(3)]
        for made in apps:
            await stack.enter_async_context(made.worker(queues={"a": 1, "b": 1}))
        for made in apps:
            storage = await parts_of(made).storage()
            assert isinstance(storage, PostgresStorage)
            await until(functools.partial(knows, storage, 2))
        stack.callback(finish.set)  # last, so that it is called before the workers stop
        await producer.tasks["long"].enqueue()
        await asyncio.wait_for(running.wait(), PATIENCE)
        for _ in range(12):
            job = await producer.tasks["short"].enqueue()
            await asyncio.wait_for(job.result(), PATIENCE)
