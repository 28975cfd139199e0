"""What runs tell is kept on every backend: their log lines, their events, their worker's facts."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from windlass import Context, Secret, Windlass
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
        async with app.worker() as worker:
            worker.on_beat = beaten.set
            job = await pay.enqueue("canary-4111")
            with pytest.raises(JobFailed, match=r"\*\*\* was refused"):
                await job.result(timeout=20)
            beaten.clear()
            await asyncio.wait_for(beaten.wait(), 20)
        await app._settle()
        storage = await app.storage()
        raw = await job.refresh()
        assert b"canary-4111" in raw.payload
        assert raw.tags == ("secret:card",)
        assert raw.error is not None
        assert "canary" not in repr(raw.error)

        (chunk,) = await storage.journal.logs(job.id)
        assert [line.text for line in chunk.lines] == ["charging ***: Grüße\\0"]
        now = await storage.now()
        events = await app.admin.events(now - HOUR, now + HOUR)
        assert [event.kind for event in events] == ["enqueued", "started", "failed"]
        (row,) = await app.admin.workers()
        assert "shop.pay" in row.start.tasks
        assert row.start.clock is not None
        assert row.memory
        timings = (await app.admin.storage()).timings
        assert timings["read"].count > 0 < timings["write"].count
        assert (await app.admin.get(job.id)).payload == b'{"card":"***"}'
