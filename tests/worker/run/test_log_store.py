"""What handlers log is kept with the run: every logger, bounded, and at no job's cost."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.worker.fixtures import (
    Bench,
    Tampered,
    World,
    bench,
    logged,
    make_worker,
    simulate,
    until,
    working,
)
from windlass import Context, Secret, Windlass
from windlass._app.parts import parts_of
from windlass._core.job.state import State
from windlass._observe.log import EventLog
from windlass._settings.settings import StoredLogs
from windlass._storage.protocol.journal import LogLine
from windlass._worker.run import log_capture
from windlass.errors import StorageUnavailable
from windlass.testing import drain

shop = logging.getLogger("shop.mail")


@pytest.fixture(autouse=True)
def talkative() -> Iterator[None]:
    """As with ``windlass worker``, whose root logger lets everything from INFO on through."""
    shop.setLevel(logging.INFO)
    yield
    shop.setLevel(logging.NOTSET)
    shop.propagate = True


async def kept(it: Bench, job: str) -> list[LogLine]:
    chunks = await it.store.inner.journal.logs(job)  # type: ignore[arg-type]
    return [line for chunk in chunks for line in chunk.lines]


async def texts(it: Bench, job: str) -> list[str]:
    return [line.text for line in await kept(it, job)]


async def test_lines_of_any_logger_are_kept_on_the_loop_and_on_threads() -> None:
    async with bench() as it:

        def deeper() -> None:
            shop.warning("from %s", "below")

        @it.app.task(name="loop")
        async def loop(ctx: Context) -> None:
            ctx.log("sent %d mails", 3)
            shop.info("plain")
            shop.debug("too fine")
            await asyncio.create_task(asyncio.to_thread(deeper))

        @it.app.task(name="thread")
        def thread(ctx: Context) -> None:
            shop.propagate = False  # nor does it matter where records go
            ctx.log("on a thread", level=logging.ERROR)
            deeper()

        first = await it.run(loop.call())
        second = await it.run(thread.call())
        assert await texts(it, first.id) == ["sent 3 mails", "plain", "from below"]
        lines = await kept(it, second.id)
        assert [(line.level, line.text) for line in lines] == [
            (logging.ERROR, "on a thread"),
            (logging.WARNING, "from below"),
        ]
        assert all(second.started_at is not None and line.at >= second.started_at for line in lines)


async def test_a_run_that_logs_nothing_writes_nothing_and_events_are_no_lines_of_a_run() -> None:
    async with bench(stored_logs="debug") as it:

        @it.app.task(name="quiet")
        async def quiet() -> None: ...

        @it.app.task(name="parent")
        async def parent() -> None:
            await quiet.enqueue()

        shop.warning("outside of any run")
        parts_of(it.app).hooks.bus.subscribe(EventLog())
        with logged() as lines:
            await it.run(quiet.call())
            await it.run(parent.call())
        assert lines.having("enqueued")
        assert it.store.calls["journal.append_logs"] == 0


async def test_each_attempt_has_its_own_lines_and_errors_bring_their_traceback() -> None:
    async with bench() as it:

        @it.app.task(name="failing", max_attempts=2)
        async def failing(ctx: Context) -> None:
            try:
                raise LookupError("no such card")
            except LookupError:
                shop.exception("attempt %d", ctx.attempt)
            raise ValueError

        job = await it.run(failing.call())
        job = await it.again(job, after=3600)
        chunks = await it.store.inner.journal.logs(job.id)
        assert [(chunk.claim.number, chunk.number) for chunk in chunks] == [(1, 1), (2, 1)]
        assert chunks[1].lines[0].text.startswith("attempt 2\nTraceback")
        assert "LookupError: no such card" in chunks[1].lines[0].text


async def test_a_run_keeps_a_thousand_lines_and_says_how_many_more_there_were() -> None:
    async with bench() as it:

        @it.app.task(name="chatty")
        async def chatty(lines: int, length: int) -> None:
            for number in range(lines):
                shop.info("%s", f"{number} " + "x" * length)

        many = await kept(it, (await it.run(chatty.call(1500, 1))).id)
        assert len(many) == 1001
        assert many[-1].text.startswith("… 500 more lines not stored")
        assert many[-1].level == logging.WARNING

        exactly = await kept(it, (await it.run(chatty.call(1000, 1))).id)
        assert [line.text[:3] for line in exactly[-2:]] == ["998", "999"]

        long = await kept(it, (await it.run(chatty.call(100, 10_000))).id)
        assert len(long) == 17  # 16 of 4 KiB are 64 KiB
        assert all(len(line.text.encode()) <= 4096 for line in long)
        assert "84 more lines" in long[-1].text


async def test_stored_log_lines_hold_no_secret_and_fit_every_store() -> None:
    shop.propagate = False  # half a letter cannot be printed either
    async with bench() as it:

        @it.app.task(name="pay")
        async def pay(ctx: Context, card: Secret[str]) -> None:
            ctx.log("charging %s", card)
            shop.info("at redis://:hunter22@db")
            shop.info("nul \0 and half a letter \ud800")
            shop.info("%d does not fit", "text")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(logging, "raiseExceptions", False)
            job = await it.run(pay.call("4111-2222"))
        assert await texts(it, job.id) == [
            "charging ***",
            "at redis://:***@db",
            "nul \\0 and half a letter ?",
        ]


@pytest.mark.parametrize(
    ("stored", "wanted"), [("off", []), ("error", ["bad"]), ("info", ["fine", "bad"])]
)
async def test_the_level_is_a_setting_and_can_be_off(stored: StoredLogs, wanted: list[str]) -> None:
    async with bench(stored_logs=stored) as it:

        @it.app.task(name="job")
        async def job(ctx: Context) -> None:
            ctx.log("fine")
            shop.error("bad")

        assert await texts(it, (await it.run(job.call())).id) == wanted


async def test_logging_is_left_as_it_was() -> None:
    # Simulated workers that other tests have killed leave their factory behind.
    log_capture._FACTORY._ears = ()
    logging.setLogRecordFactory(logging.LogRecord)
    before, handlers = logging.getLogRecordFactory(), list(logging.getLogger().handlers)
    async with Windlass("memory://") as app:
        async with app.worker():
            assert logging.getLogRecordFactory() is not before
            assert logging.getLogger().handlers == handlers  # or basicConfig would do nothing
        assert logging.getLogRecordFactory() is before


async def test_a_custom_record_factory_keeps_working() -> None:
    before = logging.getLogRecordFactory()

    def own(*args: Any, **named: Any) -> logging.LogRecord:
        record = before(*args, **named)
        record.shop = "open"
        return record

    logging.setLogRecordFactory(own)
    try:
        async with bench() as it:

            @it.app.task(name="job")
            async def job() -> None:
                shop.info("heard")

            with logged("shop.mail") as lines:
                done = await it.run(job.call())
            assert vars(lines.records[0])["shop"] == "open"
            assert await texts(it, done.id) == ["heard"]
        assert logging.getLogRecordFactory() is own
    finally:
        logging.setLogRecordFactory(before)


def test_lines_can_be_read_while_the_job_runs_and_are_written_about_once_a_second() -> None:
    async def play(world: World) -> None:
        store = await world.tampered()

        @world.app.task(name="long")
        async def long(ctx: Context) -> None:
            for second in range(5):
                ctx.log("second %d", second)
                ctx.log("once more")
                await asyncio.sleep(1)

        async with working(world.app, store=store):
            job = await long.enqueue()
            await world.until(2.6)
            chunks = await store.inner.journal.logs(job.id)
            assert [line.text for chunk in chunks for line in chunk.lines][:2] == [
                "second 0",
                "once more",
            ]
            assert 1 <= len(chunks) <= 3
            await job.result(timeout=30)
            await asyncio.sleep(0.1)
            chunks = await store.inner.journal.logs(job.id)
            assert sum(len(chunk.lines) for chunk in chunks) == 10
            assert store.calls["journal.append_logs"] <= 6

    simulate(play)


def test_an_outage_costs_no_job_and_no_line() -> None:
    async def play(world: World) -> None:
        store = await world.tampered()
        broken = True

        async def away(real: Any, *args: Any) -> Any:
            if broken:
                raise StorageUnavailable("the journal is away")
            return await real(*args)

        store.on("journal.append_logs", away)

        @world.app.task(name="job")
        async def job(ctx: Context) -> None:
            ctx.log("hello")
            await asyncio.sleep(
                3
            )  # meanwhile it is told that lines cannot be stored: no line of it

        with logged() as lines:
            async with working(world.app, store=store):
                done = await job.enqueue()
                await done.result(timeout=4)
                assert (await done.refresh()).state is State.SUCCEEDED
                await asyncio.sleep(5)
                broken = False
                await asyncio.sleep(2)
        assert len(lines.having("log lines of jobs cannot be stored, retrying")) == 1
        (chunk,) = await store.inner.journal.logs(done.id)
        assert [line.text for line in chunk.lines] == ["hello"]

    simulate(play)


async def test_lines_that_cannot_be_stored_do_not_take_others_with_them() -> None:
    async with bench() as it:

        @it.app.task(name="job")
        async def job(text: str) -> None:
            shop.info(text)

        async def refuse(real: Any, chunks: Any) -> Any:
            if any(line.text == "bad" for chunk in chunks for line in chunk.lines):
                raise ValueError("no such letter")
            return await real(chunks)

        it.store.on("journal.append_logs", refuse)
        bad, good = await it.app.enqueue_many([job.call("bad"), job.call("good")])
        with logged() as lines:
            await it.engine.step()
        assert await texts(it, good.id) == ["good"]
        assert await texts(it, bad.id) == []
        assert lines.having(f"1 log lines of job {bad.id} could not be stored: no such letter")
        await it.run(job.call("next"))
        assert it.store.calls["journal.append_logs"] == 4  # both, each of both, and the next


async def test_a_destructor_that_logs_while_lines_are_added_causes_no_deadlock() -> None:
    async with bench() as it:

        @it.app.task(name="job")
        async def job() -> None:
            with it.engine.lines._lock:  # as if memory was asked for, and given back, just here
                shop.info("last words")

        assert await texts(it, (await it.run(job.call())).id) == ["last words"]


def test_the_last_lines_are_stored_when_a_worker_ends() -> None:
    async def play(world: World) -> None:
        store: Tampered = await world.tampered()

        @world.app.task(name="endless")
        async def endless(ctx: Context) -> None:
            ctx.log("begun")
            await asyncio.sleep(3000)

        worker = await make_worker(world.app, store=store)
        running = asyncio.get_running_loop().create_task(worker.run())
        job = await endless.enqueue()
        await asyncio.sleep(0.2)
        worker.stop()
        worker.stop()
        await running
        (chunk,) = await store.inner.journal.logs(job.id)
        assert [line.text for line in chunk.lines] == ["begun"]

    simulate(play)


async def test_a_thread_that_outlives_its_run_still_has_its_say() -> None:
    release = threading.Event()
    async with bench() as it:

        @it.app.task(name="slow", timeout=0.01, max_attempts=1)
        def slow(ctx: Context) -> None:
            ctx.log("begun")
            release.wait(10)
            ctx.log("at last")

        it.engine.lines.bind(asyncio.get_running_loop())
        job = await parts_of(it.app).producer.enqueue_call(slow.call())
        await it.engine.claimer.step()
        await asyncio.wait(list(it.engine.runner.bodies.values()))
        release.set()
        await until(lambda: it.engine.slots.used == 0)
        await it.engine.lines.close()
        said = await texts(it, job.id)
        assert (said[0], said[-1]) == ("begun", "at last")
        assert (
            "was asked to stop and is still running" in said[1]
        )  # what we say of a run is kept with it, too


async def test_a_drain_leaves_the_lines_in_the_store() -> None:
    async with Windlass("memory://") as app:

        @app.task(name="job")
        async def job(ctx: Context) -> None:
            ctx.log("hello")

        done = await job.enqueue()
        await drain(app)
        storage = await parts_of(app).storage()
        assert [c.lines[0].text for c in await storage.journal.logs(done.id)] == ["hello"]
