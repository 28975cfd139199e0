"""A hundred open pages cost as much as one: workers do not notice them."""

from __future__ import annotations

from collections import Counter

from tests.web.rooms import opened, shop
from windlass import Windlass
from windlass.admin import Admin
from windlass.web.live import MOST, Live, Look
from windlass.web.routes import LOOKS, LOOKS_AT


async def looked(app: Windlass, streams: int) -> Counter[str]:
    """Calls of the storage in one look for so many streams that show everything."""
    calls: Counter[str] = Counter()
    counted = {name: _counting(name, look, calls) for name, look in LOOKS.items()}
    live = Live(app.admin, counted, LOOKS_AT, every=3600.0)
    open_ones = [live.listen(LOOKS) for _ in range(streams)]
    for stream in open_ones:
        assert "hello" in await anext(stream)
    await live.step()
    calls.clear()
    await live.step()
    for stream in open_ones:
        await stream.aclose()
    return calls


def _counting(name: str, look: Look, calls: Counter[str]) -> Look:
    async def counted(admin: Admin) -> object:
        calls[name] += 1
        return await look(admin)

    return counted


async def test_the_storage_is_asked_as_often_for_a_hundred_streams_as_for_one() -> None:
    async with shop() as app:
        one, hundred = await looked(app, 1), await looked(app, 100)
        assert one == hundred == Counter(LOOKS.keys())


async def test_there_is_room_for_a_hundred_streams_and_the_next_one_is_asked_to_wait() -> None:
    async with opened() as room, await room.logged_in() as admin:
        live = room.dashboard.live
        streams = [live.listen(["queues"]) for _ in range(MOST)]
        for stream in streams:
            await anext(stream)
        assert MOST >= 100
        assert live.full
        assert (await admin.get("/live?parts=queues")).status_code == 503
        jobs = [await room.app.tasks["send"].enqueue(f"{n}@example.com") for n in range(20)]
        async with room.app.worker(slots=8):
            for job in jobs[:5]:
                await job.result(timeout=30)
        for stream in streams:
            await stream.aclose()
        assert not live.full
