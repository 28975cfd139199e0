"""Searching tells nothing of what a viewer may not see, whatever is asked and however often."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.web.rooms import Room, opened
from windlass import Secret, Windlass
from windlass.core.job import AttemptError
from windlass.core.outcome import GaveUp
from windlass.storage.looks import JobFilter, Page
from windlass.testing.conformance.steps import claim, enlist, happened
from windlass.web.people import Role

V1 = "/api/v1"
PIN = "qxz9"
"""No letter of it stands in anything that is shown."""
LETTERS = "qxz9#"
WRONG = "#"
"""In no text at all."""


def pays(url: str) -> Windlass:
    app = Windlass(url)

    @app.task(name="pay", queue="money")
    async def pay(amount: int, card: Secret[str], note: str = "") -> None: ...

    return app


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
async def room(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Room]:
    """A few jobs of which two hide the same number, one in its error and its names as well."""
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/jobs.db"}
    url = urls.get(request.param) or request.getfixturevalue(f"{request.param}_url")
    async with opened(lambda: pays(url)) as one:
        pay = one.app.tasks.find("pay")
        assert pay is not None
        named = pay.options(key=f"pay-{PIN}", tags=(f"of-{PIN}",), correlation_id=f"c-{PIN}")
        calls = [pay.call(amount, "0000", note="lunch") for amount in range(8)]
        calls.insert(2, pay.call(5, PIN, note="gift"))
        calls.insert(6, named.call(5, PIN, note="gift"))
        await one.app.enqueue_many(calls)
        storage = await one.app.storage()
        await enlist(storage)
        for job in await claim(storage, 100, queue="money"):
            if job.tags and f"of-{PIN}" in job.tags:
                error = AttemptError("Declined", f"no card {PIN} here", "")
                await happened(storage, job, GaveUp(error))
        yield one


class Watched:
    """What a viewer can learn of one question: every answer, and what it cost the store."""

    def __init__(self, room: Room, client: httpx.AsyncClient, admin: Any) -> None:
        self._room, self._client = room, client
        self._looks: list[object] = []
        self._find = admin.find
        admin.find = self._looked

    async def _looked(self, wanted: JobFilter, *, limit: int) -> Page:
        page: Page = await self._find(wanted, limit=limit)
        self._looks.append((wanted.before, limit, len(page), page.next, page.reached))
        return page

    async def learned(self, **asked: str) -> list[Any]:
        self._looks.clear()
        seen: list[Any] = []
        for size in ("1", "3", "50"):
            answer = await self._client.get(f"{V1}/jobs", params={**asked, "size": size})
            body = answer.json()
            seen.append([[job["id"] for job in body["jobs"]], body["next"], body["reached"]])
        seen.append((await self._client.get(f"{V1}/jobs/count", params=asked)).json())
        page = (await self._client.get("/jobs", params=asked)).text
        seen.append(re.findall(r"before=\d+|/jobs/[0-9a-f]{32}", page))
        return [*seen, *self._looks]


async def watched(room: Room) -> Watched:
    storage = await room.app.storage()
    return Watched(room, await room.logged_in(Role.VIEWER), storage.admin)


async def test_a_hidden_value_cannot_be_found_out_by_searching(room: Room) -> None:
    viewer = await watched(room)
    for known in range(len(PIN)):
        nothing = await viewer.learned(text=PIN[:known] + WRONG)
        for letter in LETTERS:
            guess = PIN[:known] + letter
            assert await viewer.learned(text=guess) == nothing, guess
    for name, before in (("key", "pay/pay-"), ("tag", "of-"), ("correlation_id", "c-")):
        right = await viewer.learned(**{name: before + PIN})
        assert right == await viewer.learned(**{name: before + WRONG}), name
        assert right[0] == [[], None, None]
    shown = await viewer.learned(text="GIFT")
    assert [len(found) for found, *_ in shown[:3]] == [1, 2, 2]
