"""A storage that is away: a calm page that comes back by itself."""

from __future__ import annotations

import asyncio

import pytest

from tests.web.fixtures import Room, opened, use_storage
from windlass._web.security import guard
from windlass.errors import StorageReplaced, StorageUnavailable

PAGES = ("/queues", "/workers", "/limits", "/queues/pause?queue=mail")


def away(room: Room, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    async def storage() -> object:
        raise error

    use_storage(room.app, monkeypatch, storage)


async def test_every_page_says_calmly_that_the_storage_is_away_and_asks_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with opened() as room, await room.logged_in() as admin:
        with monkeypatch.context() as patch:
            away(room, patch, StorageUnavailable("postgres://u:secret@db is down"))
            for path in PAGES:
                page = await admin.get(path)
                assert page.status_code == 503, path
                assert page.headers["retry-after"] == "5"
                assert 'http-equiv="refresh" content="5"' in page.text
                assert "cannot be reached" in page.text
                assert "is lost" not in page.text  # a promise that no page can keep
                assert "secret" not in page.text
        for path in PAGES:
            assert (await admin.get(path)).status_code == 200


async def test_a_database_that_was_replaced_is_not_said_to_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with opened() as room, await room.logged_in() as admin:
        away(room, monkeypatch, StorageReplaced("jobs.db was deleted or replaced"))
        page = await admin.get("/queues")
        assert page.status_code == 503
        assert "restart the process" in page.text
        assert (await admin.get("/api/v1/counts")).json()["code"] == "storage_replaced"


async def test_a_failed_action_is_not_sent_again_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with opened() as room, await room.logged_in() as admin:
        page = (await admin.get("/queues")).text
        token = page.partition('name="token" value="')[2].partition('"')[0]
        away(room, monkeypatch, StorageUnavailable("down"))
        answer = await admin.post("/queues/pause?queue=mail", data={"token": token})
        assert answer.status_code == 503
        assert 'http-equiv="refresh"' not in answer.text


async def test_a_storage_that_does_not_answer_is_taken_for_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def silent() -> object:
        await asyncio.Event().wait()
        raise AssertionError

    async with opened() as room, await room.logged_in() as admin:
        monkeypatch.setattr(guard, "READ_TIMEOUT", 0.05)
        use_storage(room.app, monkeypatch, silent)
        assert (await admin.get("/workers")).status_code == 503


async def test_people_stay_logged_in_meanwhile_and_can_log_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with opened() as room, await room.logged_in() as admin:
        page = (await admin.get("/queues")).text
        token = page.partition('name="token" value="')[2].partition('"')[0]
        away(room, monkeypatch, ConnectionRefusedError())
        assert (await admin.get("/queues")).status_code == 503
        answer = await admin.post("/logout", data={"token": token})
        assert answer.status_code == 303
        assert (await admin.get("/queues")).status_code == 401
