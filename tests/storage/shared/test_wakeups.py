"""Hints name the queues they are about, also between processes, and between versions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import asyncpg
import pytest
import redis.asyncio

from windlass import Windlass
from windlass._app.parts import parts_of
from windlass._core.job.outcome import Succeeded
from windlass._storage.postgres import open_postgres
from windlass._storage.postgres.io.notify import (
    EVERY_WORKER,
    Notification,
    Notifier,
    decode_notification,
    encode_notification,
)
from windlass._storage.protocol.jobs import Outlook
from windlass._storage.protocol.storage import Storage
from windlass._storage.redis import open_redis
from windlass._storage.shared.subscribers import NO_QUEUE
from windlass._storage.sqlite import open_sqlite
from windlass._storage.sqlite.io.wakeups import SqliteWakeups
from windlass.testing.conformance.steps import a_job, add, happened, keyed, started
from windlass.testing.conformance.storage import Ear

PATIENCE, QUIET = 30.0, 0.1


class Ears:
    """Hears hints: of any change, and as a worker of the queue ``mail``."""

    def __init__(self, storage: Storage) -> None:
        self.any, self.mail = Ear(storage), Ear(storage, "mail")

    async def begin(self, speak: Callable[[], Awaitable[object]]) -> None:
        """Wait until hints arrive, and all that are under way have."""
        async with asyncio.timeout(PATIENCE):
            while not await self.mail.hears(QUIET):
                await speak()
        for ear in (self.any, self.mail):
            while await ear.hears(QUIET):
                ear.listen()

    async def hear(self, *, mail: bool) -> None:
        """One hint came, about the queue or not."""
        assert await self.any.hears(PATIENCE)
        self.any.listen()
        assert await self.mail.hears(QUIET) is mail
        self.mail.listen()


class Pair(Protocol):
    """Two storages on one database, and a way to say something there as another Windlass would."""

    here: Storage
    there: Storage
    exact: bool
    """Whether every hint about work names its queue."""

    async def say(self, text: str) -> None: ...


class _Postgres:
    exact = False

    def __init__(self, here: Storage, there: Storage, url: str, channel: str) -> None:
        self.here, self.there, self._url, self._channel = here, there, url, channel

    async def say(self, text: str) -> None:
        connection = await asyncpg.connect(self._url)
        await connection.execute("SELECT pg_notify($1, $2)", self._channel, text)
        await connection.close()


class _Redis:
    exact = True

    def __init__(self, here: Storage, there: Storage, url: str, stream: str) -> None:
        self.here, self.there, self._url, self._stream = here, there, url, stream

    async def say(self, text: str) -> None:
        fields: dict[Any, Any] = {"w": ""} | ({"q": text} if text else {})
        async with redis.asyncio.Redis.from_url(self._url) as line:
            await line.xadd(self._stream, fields)


@asynccontextmanager
async def _on_postgres(request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    url, schema = request.getfixturevalue("clean_schema")
    async with AsyncExitStack() as stack:
        here, there = [await open_postgres(url, schema=schema) for _ in range(2)]
        stack.push_async_callback(here.close)
        stack.push_async_callback(there.close)
        yield _Postgres(here, there, url, here._db.channel)


@asynccontextmanager
async def _on_redis(request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    url = request.getfixturevalue("redis_url")
    async with AsyncExitStack() as stack:
        here, there = [await open_redis(url) for _ in range(2)]
        stack.push_async_callback(here.close)
        stack.push_async_callback(there.close)
        yield _Redis(here, there, url, here._db.prefix + "wake")


@pytest.fixture(params=[_on_postgres, _on_redis], ids=["postgres", "redis"])
async def pair(request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    async with request.param(request) as pair:
        yield pair


async def test_another_process_wakes_the_workers_of_its_queue_and_no_others(pair: Pair) -> None:
    ears = Ears(pair.here)
    await ears.begin(lambda: add(pair.there, a_job(queue="mail")))
    await add(pair.there, a_job(queue="mail"))
    await ears.hear(mail=True)
    await add(pair.there, a_job(queue="bulk"))
    await ears.hear(mail=False)
    await pair.there.jobs.insert([a_job(queue="bulk"), a_job(queue="mail")])
    await ears.hear(mail=True)
    await pair.there.jobs.insert([a_job(queue=f"bulk-{number}") for number in range(200)])
    await ears.hear(mail=not pair.exact)  # more than a notification carries: any of them
    await pair.there.admin.resume("bulk")
    await ears.hear(mail=False)
    await pair.there.jobs.cancel([])
    await ears.hear(mail=not pair.exact)


async def test_a_plain_success_wakes_those_who_wait_for_results_and_no_worker(pair: Pair) -> None:
    running = await started(pair.there)
    ears = Ears(pair.here)
    await ears.begin(lambda: add(pair.there, a_job(queue="mail")))
    await happened(pair.there, running, Succeeded())
    await ears.hear(mail=False)


async def test_a_job_that_another_process_did_not_store_wakes_no_subscriber(pair: Pair) -> None:
    ears = Ears(pair.here)
    await add(pair.there, keyed("only one", queue="mail"))
    await ears.begin(lambda: add(pair.there, a_job(queue="mail")))
    await pair.there.jobs.insert([keyed("only one", queue="mail")])
    assert not await ears.any.hears(QUIET)
    assert not await ears.mail.hears(QUIET)


@pytest.mark.parametrize("said", ["", "0123", "not a list", "\N{SNOWMAN}"])
async def test_a_hint_that_names_no_queues_is_about_any(pair: Pair, said: str) -> None:
    """As those of an older Windlass, or of one yet to come."""
    ears = Ears(pair.here)
    await ears.begin(lambda: add(pair.there, a_job(queue="mail")))
    await pair.say(said)
    await ears.hear(mail=not pair.exact)  # where each worker is woken by name, it polls


async def test_a_reader_that_fell_behind_takes_the_hints_for_any(redis_url: str) -> None:
    storage, other = await open_redis(redis_url), await open_redis(redis_url)
    ears = Ears(storage)
    await ears.begin(lambda: add(other, a_job(queue="mail")))
    await asyncio.gather(*(other.jobs.insert([a_job(queue="bulk")]) for _ in range(1_000)))
    await add(other, a_job(queue="mail"))
    await asyncio.gather(*(other.jobs.insert([a_job(queue="bulk")]) for _ in range(1_000)))
    assert await ears.any.hears(PATIENCE)
    assert await ears.mail.hears(PATIENCE)
    await storage.close()
    await other.close()


async def test_within_one_process_a_file_tells_its_queues(tmp_path: Path) -> None:
    storage = await open_sqlite(tmp_path / "jobs.db")
    deaf = SqliteWakeups(storage._db, lambda: None)  # the watcher cannot tell queues
    any_, mail = asyncio.Event(), asyncio.Event()

    def hear() -> bool:
        mail.set()
        return True

    deaf.subscribe(any_.set)
    hints = deaf.work(hear, ["mail"])
    await add(storage, a_job(queue="bulk"))
    await asyncio.wait_for(any_.wait(), PATIENCE)
    await asyncio.sleep(0)
    assert not mail.is_set()
    await add(storage, a_job(queue="mail"))
    await asyncio.wait_for(mail.wait(), PATIENCE)
    hints.close()
    await storage.close()


# --- what is sent, and when -------------------------------------------------------------------


class Sent:
    """A server that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[Sequence[str] | None] = []
        self.jobs: list[Mapping[str, int] | None] = []
        self.full: list[int] = []
        self.notifier = Notifier(self._send)

    async def _send(self, text: str, *, ends: bool) -> None:
        told = decode_notification(text)
        assert told.sender == self.notifier.sender
        ended = told.jobs is not None and set(told.jobs) == {NO_QUEUE}
        assert ends is (ended and not told.full)
        self.told.append(None if told.jobs is None else sorted(told.jobs))
        self.jobs.append(told.jobs)
        self.full.append(told.full)


def test_a_hint_says_its_sender_and_how_many_jobs_of_which_queues() -> None:
    jobs = {"b": 2, 'a "name", with all': 1}
    assert decode_notification(encode_notification("me", jobs)) == Notification("me", jobs)
    passed = encode_notification("me", jobs, number=7, full=4711)
    assert decode_notification(passed) == Notification("me", jobs, full=4711)
    assert decode_notification(encode_notification("me", None)) == Notification("me", None)
    assert decode_notification("") == Notification("", None)


def test_a_hint_of_an_older_version_is_for_every_worker_of_its_queues() -> None:
    told = decode_notification('me ["bulk","mail"]')
    assert told == Notification("me", {"bulk": EVERY_WORKER, "mail": EVERY_WORKER})


def test_a_hint_about_very_many_queues_is_about_any() -> None:
    jobs = {f"queue-{number}": 1 for number in range(1_000)}
    assert decode_notification(encode_notification("me", jobs)) == Notification("me", None)
    assert len(encode_notification("me", {"x" * 20_000: 1})) < 100


async def test_hints_about_one_queue_are_added_up_during_the_pause() -> None:
    sent = Sent()
    sent.notifier.wake({"mail": 1})
    await asyncio.sleep(0)
    sent.notifier.wake({"mail": 2})
    sent.notifier.wake({"mail": 3})
    await sent.notifier.close()
    assert sent.jobs == [{"mail": 1}, {"mail": 5}]


@pytest.mark.parametrize(
    "more", [None, {f"queue-{number}": 1 for number in range(1_000)}], ids=["any", "very many"]
)
async def test_a_full_worker_is_named_beside_a_hint_about_any_queue(
    more: Mapping[str, int] | None,
) -> None:
    sent = Sent()
    sent.notifier.pass_on({"mail": 1}, full=4711)
    sent.notifier.wake(more)
    await sent.notifier.close()
    assert sent.jobs == [{}, None]
    assert sent.full == [4711, 0]


async def test_a_full_worker_is_named_although_no_caller_waits_for_an_end() -> None:
    sent = Sent()
    sent.notifier.wake({"mail": 1})
    await asyncio.sleep(0)
    sent.notifier.pass_on({"mail": 1}, full=4711)
    sent.notifier.wake({NO_QUEUE: 1})  # goes ahead, while mail has its pause
    for _ in range(3):
        await asyncio.sleep(0)
    await sent.notifier.close()
    assert sent.jobs[1] == {NO_QUEUE: 1}
    assert sent.full == [0, 4711, 0]


async def test_a_change_without_a_number_is_for_every_worker() -> None:
    sent = Sent()
    sent.notifier.wake({"mail"})
    await sent.notifier.close()
    assert sent.jobs == [{"mail": EVERY_WORKER}]


async def test_each_queue_is_hinted_at_once_and_again_after_a_pause() -> None:
    sent = Sent()
    sent.notifier.wake({"mail"})
    await asyncio.sleep(0)
    assert sent.told == [["mail"]]
    sent.notifier.wake({"mail"})
    sent.notifier.wake({"mail"})
    sent.notifier.wake({"bulk"})  # is not kept waiting by the pause of another
    for _ in range(3):
        await asyncio.sleep(0)
    assert sent.told == [["mail"], ["bulk"]]
    await sent.notifier.close()
    assert sent.told[2:] == [["mail"]]


async def test_many_queues_share_their_hints() -> None:
    sent = Sent()
    for number in range(100):
        sent.notifier.wake({f"q{number}"})
        await asyncio.sleep(0)
    await sent.notifier.close()
    assert len(sent.told) < 20
    named = {queue for told in sent.told for queue in told or ()}
    assert named == {f"q{number}" for number in range(100)}


async def test_after_a_hint_about_all_queues_no_other_is_sent_during_the_pause() -> None:
    sent = Sent()
    sent.notifier.wake()
    await asyncio.sleep(0)
    sent.notifier.wake({"mail"})
    sent.notifier.wake({"bulk"})
    for _ in range(3):
        await asyncio.sleep(0)
    assert sent.told == [None]
    await sent.notifier.close()
    assert sent.told == [None, ["bulk", "mail"]]


async def test_a_hint_about_any_waits_for_the_pause_of_another() -> None:
    sent = Sent()
    sent.notifier.wake({"mail"})
    await asyncio.sleep(0)
    for _ in range(3):
        sent.notifier.wake()
        await asyncio.sleep(0)
    assert sent.told == [["mail"]]
    await sent.notifier.close()
    assert sent.told == [["mail"], None]


async def test_without_a_change_no_subscriber_is_called() -> None:
    sent = Sent()
    sent.notifier.wake(set())
    await sent.notifier.close()
    assert sent.told == []


# --- workers ----------------------------------------------------------------------------------


async def test_an_idle_worker_is_not_disturbed_by_jobs_of_other_queues() -> None:
    app = Windlass("memory://", poll=3600)

    @app.task(name="send", queue="mail")
    async def send() -> str:
        return "sent"

    @app.task(name="copy", queue="bulk")
    async def copy() -> None: ...

    looks: list[Sequence[str]] = []
    looked = asyncio.Event()
    async with app:
        storage = await parts_of(app).storage()
        outlook = storage.jobs.outlook

        async def counted(queues: Sequence[str]) -> Outlook:
            looks.append(queues)
            looked.set()
            return await outlook(queues)

        async with app.worker(queues=["mail"]):
            assert await (await send.enqueue()).result(timeout=PATIENCE) == "sent"
            await _turns(100)  # what its end has stirred up
            storage.jobs.outlook = counted  # type: ignore[method-assign]
            for _ in range(20):
                await copy.enqueue()
                await _turns(5)
            assert looks == []
            await send.enqueue()
            await asyncio.wait_for(looked.wait(), PATIENCE)


async def _turns(count: int) -> None:
    """Let the event loop go round."""
    for _ in range(count):
        await asyncio.sleep(0)
