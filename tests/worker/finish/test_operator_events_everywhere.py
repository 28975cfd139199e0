"""What runs tell is kept on every backend: their log lines, their events, their worker's facts."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from tests.worker.fixtures import working
from windlass import Context, Secret, Windlass
from windlass._app.parts import parts_of
from windlass.errors import JobFailed

HOUR = timedelta(hours=1)


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "memory":
            return "memory://"
        case "sqlite":
            return f"sqlite:///{tmp_path}/jobs.db"
        case name:
            return str(request.getfixturevalue(f"{name}_url"))


async def test_lines_events_errors_and_facts_are_kept_without_secrets(url: str) -> None:
    app = Windlass(url, event_log=True, heartbeat=0.05, lease=30)

    @app.task(name="shop.pay", max_attempts=1)
    async def pay(ctx: Context, card: Secret[str]) -> None:
        ctx.log("charging %s: Grüße\x00", card)
        raise ValueError(f"{card} was refused")

    async with app:
        beaten = asyncio.Event()
        async with working(app, simulated=False, on_live=beaten.set):
            job = await pay.enqueue("canary-4111")
            with pytest.raises(JobFailed, match=r"\*\*\* was refused"):
                await job.result(timeout=20)
            beaten.clear()
            await asyncio.wait_for(beaten.wait(), 20)
        await parts_of(app).connections.settle()
        storage = await parts_of(app).storage()
        raw = await job.refresh()
        assert b"canary-4111" in raw.payload
        assert raw.tags == ("secret:card",)
        assert raw.error is not None
        assert "canary" not in repr(raw.error)

        (chunk,) = await storage.journal.logs(job.id)
        assert [line.text for line in chunk.lines] == ["charging ***: Grüße\\0"]
        now = await storage.now()
        events = await app.admin.storage.events(now - HOUR, now + HOUR)
        assert [event.kind for event in events] == ["enqueued", "started", "failed"]
        (row,) = await app.admin.workers.list()
        assert "shop.pay" in row.start.tasks
        assert row.start.clock is not None
        assert row.memory
        timings = (await app.admin.storage.report()).timings
        assert timings["read"].count > 0 < timings["write"].count
        assert (await app.admin.jobs.get(job.id)).payload == b'{"card":"***"}'


async def test_the_last_progress_is_stored_with_the_outcome(url: str) -> None:
    app = Windlass(url)

    @app.task(name="steps")
    async def steps(ctx: Context, many: int) -> None:
        for step in range(many):
            ctx.progress((step + 1) / many, f"step {step + 1}")
            if many > 1:
                await asyncio.sleep(0.01)

    @app.task(name="plain")
    def plain(ctx: Context) -> None:
        ctx.progress(0.25)
        ctx.progress(1.0)

    @app.task(name="fails", max_attempts=1)
    async def fails(ctx: Context) -> None:
        ctx.progress(0.75, "nearly")
        raise ValueError

    async with app, app.worker():
        calls = [steps.call(1), steps.call(10), plain.call(), fails.call()]
        jobs = await app.enqueue_many(calls)
        for job in jobs[:3]:
            await job.result(timeout=20)
        with pytest.raises(JobFailed):
            await jobs[3].result(timeout=20)
        kept = [(await job.refresh()).progress for job in jobs]
    told = [None if one is None else (one.fraction, one.note) for one in kept]
    assert told == [(1.0, "step 1"), (1.0, "step 10"), (1.0, ""), (0.75, "nearly")]
