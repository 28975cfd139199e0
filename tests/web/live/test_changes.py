"""The stream that says what has changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import pytest

from tests.web.fixtures import Room, opened
from windlass._web.live import changes as module
from windlass._web.live.changes import LiveChanges, parse_parts
from windlass.errors import StorageUnavailable


class Scene:
    """Parts that change when they are told to."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {"queues": 1, "workers": 1}
        self.looked: list[str] = []
        looks = {name: self._look(name) for name in self.values}
        self.live = LiveChanges(object(), looks, every=3600.0)  # type: ignore[arg-type]

    def _look(self, name: str) -> Any:
        async def look(_: object) -> object:
            self.looked.append(name)
            if isinstance(self.values[name], Exception):
                raise self.values[name]
            return self.values[name]

        return look


async def first(stream: AsyncIterator[str]) -> str:
    async with asyncio.timeout(30):
        return await anext(stream)


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def listening(scene: Scene, *parts: str) -> AsyncGenerator[str, None]:
    stream = scene.live.listen(parts)
    assert "event: hello" in await first(stream)
    # Whatever happened since the page was made: it looks at all of its parts once more.
    assert "event: changed" in await first(stream)
    return stream


async def test_a_page_hears_of_changes_in_the_parts_it_shows_only(scene: Scene) -> None:
    one, two = await listening(scene, "queues"), await listening(scene, "workers", "nonsense")
    await scene.live.step()
    scene.values["queues"] = 2
    await scene.live.step()
    assert await first(one) == "event: changed\ndata: queues\n\n"
    scene.values["workers"] = 2
    await scene.live.step()
    assert await first(two) == "event: changed\ndata: workers\n\n"
    await one.aclose()
    await two.aclose()


async def test_a_page_of_one_item_hears_of_that_item(scene: Scene) -> None:
    one, two = "a" * 32, "b" * 32
    told = {one: 1, two: 1}

    async def look_at(_: object, which: str) -> object:
        return told[which]

    scene.live = LiveChanges(object(), {}, {"job": look_at}, every=3600.0)  # type: ignore[arg-type]
    streams = [await listening(scene, f"job-{which}", "job-x", "job-") for which in (one, two)]
    await scene.live.step()
    told[two] = 2
    await scene.live.step()
    assert await first(streams[1]) == f"event: changed\ndata: job-{two}\n\n"
    told[one] = 2
    await scene.live.step()
    assert await first(streams[0]) == f"event: changed\ndata: job-{one}\n\n"
    for stream in streams:
        await stream.aclose()


async def test_several_changes_before_a_page_listens_are_reported_once(scene: Scene) -> None:
    stream = await listening(scene, "queues", "workers")
    await scene.live.step()
    for n in range(2, 6):
        scene.values = {"queues": n, "workers": n}
        await scene.live.step()
    assert await first(stream) == "event: changed\ndata: queues workers\n\n"
    await stream.aclose()


async def test_one_read_serves_all_pages_and_none_is_made_without_listeners(scene: Scene) -> None:
    streams = [await listening(scene, "queues") for _ in range(10)]
    await asyncio.sleep(0)
    scene.looked.clear()
    await scene.live.step()
    assert scene.looked == ["queues"]
    for stream in streams:
        await stream.aclose()
    assert scene.live._looking is None
    scene.looked.clear()
    await scene.live.step()
    assert scene.looked == []


async def test_an_outage_of_the_storage_and_its_end_are_reported_once(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    stream = await listening(scene, "queues")
    await scene.live.step()
    scene.values["queues"] = StorageUnavailable("no server")
    for _ in range(3):
        await scene.live.step()
    assert await first(stream) == "event: down\ndata: storage\n\n"
    late = await listening(scene, "queues")
    assert await first(late) == "event: down\ndata: storage\n\n"
    scene.values["queues"] = 1
    await scene.live.step()
    assert await first(stream) == "event: up\ndata: storage\n\n"
    assert caplog.text.count("cannot reach the storage") == 1
    await stream.aclose()
    await late.aclose()


async def test_a_part_that_cannot_be_looked_at_does_not_end_the_looking(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    stream = await listening(scene, "queues")
    await scene.live.step()
    scene.values["queues"] = RuntimeError("broken")
    await scene.live.step()
    assert "broken" in caplog.text
    scene.values["queues"] = 7
    await scene.live.step()
    assert "changed" in await first(stream)
    await stream.aclose()


async def test_a_silent_stream_shows_that_it_lives_and_ends_in_time(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEEP_ALIVE", 0.01)
    monkeypatch.setattr(module, "MAX_STREAM_SECONDS", 0.05)
    stream = await listening(scene, "queues")
    rest = [piece async for piece in stream]
    assert rest
    assert set(rest) == {": still here\n\n"}


async def test_streams_end_when_the_server_does(scene: Scene) -> None:
    stream = await listening(scene, "queues")
    scene.live.close()
    async with asyncio.timeout(30):
        assert "".join([piece async for piece in stream]) == ""


async def test_the_hundred_and_first_stream_is_refused_and_the_page_says_so_by_itself() -> None:
    async with opened() as room, await room.logged_in() as admin:
        streams = [room.dashboard.live.listen(["queues"]) for _ in range(module.MAX_STREAMS)]
        for stream in streams:
            await first(stream)
        refused = await admin.get("/live?parts=queues")
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "30"
        for stream in streams:
            await stream.aclose()


async def test_the_stream_reaches_a_browser_and_ends_with_it() -> None:
    async with opened() as one, await one.logged_in() as admin:
        head = await admin.head("/live?parts=queues")
        assert head.headers["content-type"].startswith("text/event-stream")
        asked: asyncio.Task[Any] = asyncio.create_task(_until_told(one, admin))
        async with asyncio.timeout(10):
            text = await asked
        assert text.startswith("retry: 2000\nevent: hello")
        assert "event: changed\ndata: queues" in text
        assert one.dashboard.live._streams == set()


async def _until_told(room: Room, client: Any) -> str:
    """Httpx's ASGI transport hands over what was sent when the stream ends, so it is ended."""
    live = room.dashboard.live
    asked = asyncio.create_task(client.get("/live?parts=queues,workers"))
    await _turns_until(lambda: bool(live._streams))
    await live.step()
    await room.app.admin.queues.pause("mail")
    await live.step()
    await _turns_until(lambda: not any(stream.told.is_set() for stream in live._streams))
    live.close()
    return str((await asked).text)


async def _turns_until(done: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if done():
            return
        await asyncio.sleep(0)
    pytest.fail("it never happened")


def test_the_parts_of_an_address_are_bounded() -> None:
    assert parse_parts("") == []
    assert parse_parts("a,,b") == ["a", "b"]
    assert len(parse_parts(",".join("x" * 1000))) == 20
