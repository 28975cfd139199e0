"""A hundred open pages cost as much as one: workers do not notice them."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter

import pytest

from tests.web.fixtures import opened, shop
from windlass import Windlass
from windlass._web.live import changes as live_module
from windlass._web.live.changes import (
    MAX_STREAMS,
    MAX_STREAMS_PER_PERSON,
    LiveChanges,
    ReadLiveState,
)
from windlass._web.routes import LOOKS, LOOKS_AT
from windlass._web.security.roles import Role
from windlass.admin import Admin


async def looked(app: Windlass, streams: int) -> Counter[str]:
    """Calls of the storage in one look for so many streams that show everything."""
    calls: Counter[str] = Counter()
    counted = {name: _counting(name, look, calls) for name, look in LOOKS.items()}
    live = LiveChanges(app.admin, counted, LOOKS_AT, every=3600.0)
    open_ones = [live.listen(LOOKS) for _ in range(streams)]
    for stream in open_ones:
        assert "hello" in await anext(stream)
    await live.step()
    calls.clear()
    await live.step()
    for stream in open_ones:
        await stream.aclose()
    return calls


def _counting(name: str, look: ReadLiveState, calls: Counter[str]) -> ReadLiveState:
    async def counted(admin: Admin) -> object:
        calls[name] += 1
        return await look(admin)

    return counted


async def test_the_storage_is_asked_as_often_for_a_hundred_streams_as_for_one() -> None:
    async with shop() as app:
        one, hundred = await looked(app, 1), await looked(app, 100)
        assert one == hundred == Counter(LOOKS.keys())


async def test_a_stream_ends_silently_if_its_reader_is_unknown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def still() -> bool:
        raise ConnectionError("the host's database is away")

    async with shop() as app:
        live = LiveChanges(app.admin, LOOKS, LOOKS_AT)
        told = [words async for words in live.listen(["queues"], still=still, look_again=0.0)]
        assert not any("out" in words for words in told)
        assert "could not check the user of a live stream" in caplog.text


class Uvicorn:
    """As far as it can be seen from here."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self._told = False

    @property
    def should_exit(self) -> bool:
        self.asked.set()
        return self._told

    def handle_exit(self, *_: object) -> None:
        self._told = True


async def test_streams_end_when_the_host_server_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_module, "_WATCHED", 0.01)
    server = Uvicorn()
    before = signal.signal(signal.SIGTERM, server.handle_exit)
    try:
        async with shop() as app:
            live = LiveChanges(app.admin, LOOKS, LOOKS_AT)
            stream = live.listen(["queues"])
            for _ in range(2):
                await anext(stream)
            waiting = asyncio.ensure_future(anext(stream, "the end"))
            await server.asked.wait()
            assert not waiting.done()
            signal.raise_signal(signal.SIGTERM)
            async with asyncio.timeout(30):
                assert await waiting == "the end"
    finally:
        signal.signal(signal.SIGTERM, before)


async def test_one_person_has_a_few_streams_and_leaves_the_rest_to_the_others() -> None:
    async with (
        opened() as room,
        await room.logged_in(Role.VIEWER) as viewer,
        await room.logged_in() as admin,
    ):
        live = room.dashboard.live
        streams = [live.listen(["queues"], who="the-viewer") for _ in range(MAX_STREAMS_PER_PERSON)]
        for stream in streams:
            await anext(stream)
        refused = await viewer.get("/live?parts=queues")
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_own_streams")
        assert int(refused.headers["retry-after"]) > 0
        # Whoever was let in at the same moment as the last one is told to come back.
        late = [words async for words in live.listen(["queues"], who="the-viewer")]
        assert late == ["retry: 30000\n\n"]
        live.close()  # so that the answer to the other one ends
        assert (await admin.get("/live?parts=queues")).status_code == 200
        for stream in streams:
            await stream.aclose()
        assert not live.full_for("the-viewer")


async def test_there_is_room_for_a_hundred_streams_and_the_next_one_is_asked_to_wait() -> None:
    async with opened() as room, await room.logged_in() as admin:
        live = room.dashboard.live
        streams = [live.listen(["queues"]) for _ in range(MAX_STREAMS)]
        for stream in streams:
            await anext(stream)
        assert MAX_STREAMS >= 100
        assert live.full
        assert (await admin.get("/live?parts=queues")).status_code == 503
        jobs = [await room.app.tasks["send"].enqueue(f"{n}@example.com") for n in range(20)]
        async with room.app.worker(slots=8):
            for job in jobs[:5]:
                await job.result(timeout=30)
        for stream in streams:
            await stream.aclose()
        assert not live.full
